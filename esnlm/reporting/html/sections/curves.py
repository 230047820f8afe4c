"""The losses over the tokens that were read, beside what they should be compared with."""

import numpy as np

from esnlm.reporting.html.charts import Axis, Series, line_chart
from esnlm.reporting.html.markup import Html, join, note
from esnlm.reporting.html.material import Material
from esnlm.reporting.loss_plot import averaged, points

PLACE = 20
TITLE = "Losses"
AXES = Axis("tokens read", log=True), Axis("NLL, nats per token")


def render(run: Material) -> Html | None:
    training, validation = losses(run)
    series = [Series("training", averaged(training))] if len(training) else []
    series += [Series("validation", validation, colour=1, dots=True)] if len(validation) else []
    if not series:
        return None
    x, y = AXES
    high = max(each.points[:, 1].max() for each in series)
    references = {name: float(nll) for name, nll in run.summary.get("references", {}).items()}
    says = (
        f"Losses of {run.name} over tokens read; the last validation NLL is {validation[-1, 1]:.3f}"
        if len(validation)
        else ""
    )
    chart = line_chart(series, x, y._replace(log=bool(high > 1000)), says or f"Losses of {run.name}", references)
    explained = "Training: the mean over the updates between two points, each before its update."
    return join(chart, note(explained) if len(training) else None)


def losses(run: Material) -> tuple[np.ndarray, np.ndarray]:
    """Returns (tokens, NLL) of training, (n, 2), and of validation, (m, 2), where they are finite."""
    tokens_at = {line["step"]: line["tokens"] for line in run.metrics if "tokens" in line}
    return points(run.metrics, "train_nll", tokens_at), points(run.metrics, "val_nll", tokens_at)
