"""The losses over the tokens that were read, beside what they should be compared with."""

import numpy as np

from esnlm.reporting.html.charts import Axis, Series, line_chart
from esnlm.reporting.html.markup import Html, join, note
from esnlm.reporting.html.material import Material
from esnlm.reporting.loss_plot import averaged, points

PLACE = 20
TITLE = "Losses"
DIVERGED = 1000  # nats per token, from which on the axis of the losses is logarithmic
EXPLAINED = "Training: the mean over the updates between two points, each before its update."
AXES = Axis("tokens read", log=True), Axis("NLL, nats per token")


def render(run: Material) -> Html | None:
    training, validation = losses(run)
    series = [Series("training", averaged(training), dots=len(training) == 1)] if len(training) else []
    series += [Series("validation", validation, colour=1, dots=True)] if len(validation) else []
    if not series:
        return None
    x, y = AXES
    high = max(each.points[:, 1].max() for each in series)
    references = {name: float(nll) for name, nll in run.summary.get("references", {}).items()}
    references = {name: nll for name, nll in references.items() if np.isfinite(nll)}
    last = f"; the last validation NLL is {validation[-1, 1]:.3f}" if len(validation) else ""
    says = f"Losses of {run.name} over tokens read{last}"
    chart = line_chart(series, x, y._replace(log=bool(high > DIVERGED)), says, references)
    return join(chart, note(EXPLAINED) if len(training) > 1 else None)


def losses(run: Material) -> tuple[np.ndarray, np.ndarray]:
    """Returns (tokens, NLL) of training, (n, 2), and of validation, (m, 2), where they are finite."""
    tokens_at = {line["step"]: line["tokens"] for line in run.metrics if "tokens" in line}
    return points(run.metrics, "train_nll", tokens_at), points(run.metrics, "val_nll", tokens_at)
