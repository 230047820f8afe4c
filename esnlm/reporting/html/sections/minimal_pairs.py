"""Accuracies on minimal pairs by phenomenon, beside baselines, GPT-2 and people."""

from esnlm.io.console import counted
from esnlm.reporting.blimp_text import comparison_lines, entry_of, readable, worth_of_a_tie
from esnlm.reporting.html.charts import Bar, accuracy_chart
from esnlm.reporting.html.markup import Cell, Html, ask, join, note, table, tag
from esnlm.reporting.html.material import Material

PLACE = 30
TITLE = "Minimal pairs"
PUBLISHED = {"gpt2": ("GPT-2", "ring", "s1"), "human": ("people", "diamond", "s4")}  # drawn; `paradigms` has them all
BASELINES = ("s3", "s5", "s6", "s2")  # colours, in turn


def render(run: Material) -> Html:
    report = run.report
    if report is None:
        return ask("Not scored yet.", f"esnlm blimp --run {run.path} --data blimp")
    parts = [note(_headline(report))]
    parts += [note(f"{report['status']}: {warning}") for warning in report["warnings"]]
    if report["overall"]["accuracy"] is not None:
        parts.append(_chart(report))
    parts += [note(line) for line in comparison_lines(report)]
    if len(run.reports) > 1:
        parts.append(_reports(run))
    return join(parts)


def _headline(report: dict) -> str:
    data, scoring = report["data"], report["scoring"]
    items = "pair" if "kinds" not in data else "item"  # sets of sentences and tests of regions are among them
    return (
        f"Step {report['step']:,}, {counted(data['pairs'], items)} of {counted(data['paradigms'], 'paradigm')},"
        f" {scoring['name']} scoring: {scoring['description']}."
    )


def _chart(report: dict) -> Html:
    level = "phenomena" if report["data"]["phenomena"] > 1 else "paradigms"
    anchors, baselines = report["anchors"], report["baselines"]
    known = [name for name, entry in report[level].items() if entry["accuracy"] is not None]
    names = ["overall", *sorted(known, key=lambda name: -report[level][name]["accuracy"])]
    marks = {f"{name} only": ("tick", BASELINES[i % len(BASELINES)]) for i, name in enumerate(baselines)}
    marks |= {label: (mark, colour) for label, mark, colour in PUBLISHED.values()} if anchors else {}
    bars = []
    for name in names:
        entry = entry_of(report, level, name)
        beside = {f"{other} only": entry_of(its, level, name)["accuracy"] for other, its in baselines.items()}
        if anchors:
            published = entry_of(anchors, level, name)
            beside |= {label: published[key] for key, (label, _, _) in PUBLISHED.items()}
        shown = {key: value for key, value in beside.items() if value is not None}
        bars.append(Bar(readable(name), entry["accuracy"], entry["interval"], shown))
    chance = report.get("chance", 50)  # reports of pairs do not name it, and tests of regions have none
    chart = accuracy_chart(bars, marks, "this run", chance)
    dashes = "" if chance is None else f"; dashes at {chance:.3g} are chance"
    explained = f"Accuracy in percent{dashes}. In a baseline a tie counts {worth_of_a_tie(report['data'])}."
    source = " GPT-2 and people: as published with BLiMP (Warstadt et al. 2020)." if anchors else ""
    return join(chart, note(explained + source))


def _reports(run: Material) -> Html:
    """Returns the overall accuracies of all reports of the run."""
    rows = []
    for name, report in run.reports.items():
        overall = report["overall"]
        known = overall["accuracy"] is not None
        interval = "{:.2f} to {:.2f}".format(*overall["interval"]) if known else ""
        accuracy = Cell(f"{overall['accuracy']:.2f}", overall["accuracy"]) if known else report["status"]
        rows.append([name, f"{report['step']:,}", f"{report['data']['pairs']:,}", accuracy, interval])
    shown = table(["report", "step", "pairs", "accuracy, %", "95 %"], rows, align="lr")
    return join(tag("h4", "All reports of this run"), shown)
