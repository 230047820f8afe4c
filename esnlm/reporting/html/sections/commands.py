"""The commands that make it all again."""

import shlex

from esnlm.reporting.html.markup import Html, command, join, note, tag
from esnlm.reporting.html.material import Material
from esnlm.reporting.html.sections import samples

PLACE = 90
TITLE = "How to make it again"


def render(run: Material) -> Html:
    steps: list[tuple[str, str]] = []
    if run.experiment.data.has_corpus:
        config = shlex.quote(str(run.directory.config))
        steps.append(("Train it anew, into another folder", f"esnlm train --config {config} --run again"))
    for name, report in run.reports.items():
        made = report.get("provenance", {}).get("command") or f"esnlm blimp --run {run.path}"
        steps.append((f"The report {name}", made))
    if run.diagnostics is not None and run.diagnostics.get("command"):
        steps.append(("The state diagnostics", run.diagnostics["command"]))
    if run.summary["status"] == "finished" and not isinstance(run.loaded, Html):
        steps.append(("The samples", samples.command(run)))
    lines = [(tag("p", what, class_="what"), command(line)) for what, line in steps]
    hashes = run.summary.get("data_sha256") or {}
    stores = "; ".join(f"{name} {value[:16]}…" for name, value in hashes.items() if value)
    same = "The same machine, number of cores and versions give the same bits."
    return join(*lines, note(f"{same} sha256 of the data: {stores}" if stores else same))
