"""Every paradigm in a table that a reader can sort and filter."""

from esnlm.reporting.blimp_text import ANCHORS
from esnlm.reporting.html.markup import Cell, Html, table
from esnlm.reporting.html.material import Material
from esnlm.reporting.html.sections.minimal_pairs import readable

PLACE = 40
TITLE = "By paradigm"


def render(run: Material) -> Html | None:
    report = run.report
    if report is None:
        return None
    baselines, anchors = report["baselines"], report["anchors"]
    header = ["paradigm", "phenomenon", "accuracy", "95 %", "pairs", "ties", *(f"{name} only" for name in baselines)]
    header += list(ANCHORS.values()) if anchors else []
    rows = []
    for name, entry in report["paradigms"].items():
        row = [readable(name), readable(entry["phenomenon"]), _figure(entry["accuracy"])]
        interval = entry["interval"]
        row.append(Cell("", None) if interval is None else Cell(f"{interval[0]:.1f} – {interval[1]:.1f}", interval[0]))
        row += [_count(entry["pairs"]), _count(entry["ties"])]
        row += [_figure(its["paradigms"][name]["accuracy"]) for its in baselines.values()]
        row += [_figure(value) for value in anchors["paradigms"][name].values()] if anchors else []
        rows.append(row)
    return table(header, rows, align="llr", tools="paradigms")


def _figure(value: float | None) -> Cell:
    return Cell("–" if value is None else f"{value:.1f}", -1 if value is None else value)


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", value)
