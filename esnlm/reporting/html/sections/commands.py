"""The commands that make it all again."""

import shlex

from esnlm.reporting.html.markup import Html, command, join, note, tag
from esnlm.reporting.html.material import Material
from esnlm.reporting.html.sections import samples

PLACE = 90
TITLE = "How to make it again"


def render(run: Material) -> Html:
    steps: list[tuple[str, str]] = []
    drawn, source = _topology(run) != "given", run.experiment.data
    kept = not source.is_in_run_only or (run.directory.stores / "train").exists()
    if source.has_corpus and drawn and kept:
        steps.append(_training(run))
    for name, report in run.reports.items():
        made = report.get("provenance", {}).get("command") or f"esnlm blimp --run {run.path}"
        steps.append((f"The report {name}", made))
    if run.diagnostics is not None and run.diagnostics.get("command"):
        steps.append(("The state diagnostics", run.diagnostics["command"]))
    if run.summary["status"] == "finished" and not isinstance(run.loaded, Html):
        steps.append(("The samples", samples.command(run)))
    missing = "" if kept else "its sentences were given in Python, and its stores are gone"
    if not drawn:
        missing = "its W_rec was given in Python, and no seed draws it"
    given = note(f"No command trains it anew: {missing}.") if missing else None
    lines = [(tag("p", what, class_="what"), command(line)) for what, line in steps]
    hashes = run.summary.get("data_sha256") or {}
    stores = "; ".join(f"{name} {value[:16]}…" for name, value in hashes.items() if value)
    same = "The same machine, number of cores and versions give the same bits."
    return join(given, *lines, note(f"{same} sha256 of the data: {stores}" if stores else same))


def _training(run: Material) -> tuple[str, str]:
    """Returns what is said of the command that trains a run anew, and the command."""
    what, line = "Train it anew, into another folder", f"esnlm train --config {shlex.quote(str(run.directory.config))}"
    if run.experiment.data.is_in_run_only:
        what += "; its sentences were given in Python, and it keeps them as token stores"
        folders = {name: run.directory.stores / name for name in ("train", "validation")}
        given = [f"--data.{name} {shlex.quote(str(folder))}" for name, folder in folders.items() if folder.exists()]
        line = " ".join([line, "--data.kind store", *given])
    return what, f"{line} --run again"


def _topology(run: Material) -> str | None:
    """Returns the kind of the topology of a run's reservoir; None where its model has none."""
    reservoir = getattr(run.experiment.model, "reservoir", None)
    return None if reservoir is None else reservoir.topology.kind
