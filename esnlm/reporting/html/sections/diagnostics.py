"""Does the reservoir forget, and what does it hold: what `esnlm diagnose` measured."""

from typing import Any

import numpy as np

from esnlm.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reporting.diagnosis_rows import format_rows
from esnlm.reporting.html.charts import Axis, Series, line_chart, side_by_side
from esnlm.reporting.html.markup import Html, ask, facts, join, tag
from esnlm.reporting.html.material import Material

PLACE = 60
TITLE = "State diagnostics"


def render(run: Material) -> Html | None:
    if not isinstance(run.experiment.model, EchoStateConfig):
        return None
    command = f"esnlm diagnose --run {run.path}"
    if run.diagnostics is None:
        return ask("Contraction, memory and activity of the states are not measured yet.", command)
    try:
        return join(map(_reservoir, run.diagnostics["reservoirs"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{run.diagnostics_file}: damaged; make it again with {command} --overwrite") from None


def _reservoir(found: dict[str, Any]) -> Html:
    charts = []
    curves = {"two start states": found["state_contraction"], "two histories": found["input_forgetting"]}
    series = []
    for colour, (name, curve) in enumerate(curves.items()):
        if isinstance(curve, dict):
            distance = np.array(curve["distance"], float)
            points = np.column_stack([np.arange(len(distance)), distance])
            points = points[np.isfinite(distance) & (distance > 0)]
            series += [Series(name, points, colour)] if len(points) > 1 else []
    if series:
        says = f"Distance of two states that read the same tokens. {found['verdict']}"
        charts.append(line_chart(series, Axis("tokens read"), Axis("distance of the states", log=True), says))
    memory = found["memory_capacity"]
    if isinstance(memory, dict) and len(memory["by_delay"]) > 1:
        by_delay = np.array(memory["by_delay"], float)
        points = np.column_stack([1 + np.arange(len(by_delay)), by_delay])
        says = f"Memory capacity by delay, {memory['total']:.1f} in all"
        charts.append(line_chart([Series("memory capacity", points, 2)], Axis("delay, time steps"), Axis("r²"), says))
    return join(tag("p", found["verdict"]), side_by_side(*charts), facts(format_rows(found).items()))
