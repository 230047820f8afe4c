"""Every paradigm in a table that a reader can sort and filter."""

from esnlm.reporting.blimp_text import ANCHORS, readable
from esnlm.reporting.html.markup import Cell, Html, join, note, table
from esnlm.reporting.html.material import Material

PLACE = 40
TITLE = "By paradigm"
UNBROKEN = "\N{NON-BREAKING HYPHEN}"


def render(run: Material) -> Html | None:
    report = run.report
    if report is None:
        return None
    baselines, anchors = report["baselines"], report["anchors"]
    names = list(ANCHORS.values()) if anchors else []
    header = ["paradigm", "accuracy", "95 %", *baselines, *(anchor.replace("-", UNBROKEN) for anchor in names)]
    rows = []
    for name, entry in report["paradigms"].items():
        row = [readable(name), _figure(entry["accuracy"]), _interval(entry["interval"])]
        row += [_figure(its["paradigms"][name]["accuracy"]) for its in baselines.values()]
        row += [_figure(value) for value in anchors["paradigms"][name].values()] if anchors else []
        rows.append([*row, _count(entry["pairs"]), _count(entry["ties"]), readable(entry["phenomenon"])])
    align = f"l{'r' * (len(header) + 1)}l"
    shown = table([*header, "pairs", "ties", "phenomenon"], rows, align=align, tools="paradigms")
    published = f" As published with BLiMP: {', '.join(names)}." if anchors else ""
    return join(shown, note(f"Accuracy in percent. Baselines: {', '.join(baselines)}.{published}"))


def _figure(value: float | None) -> Cell:
    return Cell("–" if value is None else f"{value:.1f}", -1 if value is None else value)


def _interval(interval: list[float] | None) -> Cell:
    return Cell("", -1) if interval is None else Cell(f"{interval[0]:.1f} – {interval[1]:.1f}", interval[0])


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", value)
