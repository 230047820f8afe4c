"""The sections about one run on a page, from `esnlm report --html`.

A section is a function from a `RunFiles` to blocks of plain data, none if it has no content;
SECTIONS lists them in the order of the page. The macro `show` of page.html has a branch for each
kind of block. If a result is missing, `note(text, command)` names the command that makes it.
"""

import json
import math
import shlex
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeAlias

from esnlm import loaded_run
from esnlm.base.console import info
from esnlm.base.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reports import blimp_report, plots, run_table
from esnlm.reports.blimp_report import entry_of, readable
from esnlm.reports.figures import FIGURES, diagnosis_rows, format_figure, format_interval
from esnlm.reports.loss_plot import draw_losses, read_curves
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io

KEY_FIGURES = ("val_nll", "val_nll_without_eos", "perplexity", "val_bits_per_byte")
MOST_WRONG, OF_A_PARADIGM = 12, 2  # so that one hard paradigm does not fill the list
SAMPLES = {"count": 6, "length": 40, "seed": 0}
# Published models in the chart of accuracies: title, shape and colour. The paradigm table has all.
PUBLISHED = {"gpt2": ("GPT-2", "ring", 1), "human": ("people", "diamond", 4)}
BASELINES = (3, 5, 6, 2)  # colours, in turn; page.css defines s0 to s7

Block: TypeAlias = dict[str, Any]
Section: TypeAlias = tuple[str, list[Block]]  # a heading and the blocks below it


def block(kind: str, **content: Any) -> Block:
    """Returns a block of one of the kinds in page.html, such as block("samples", texts=[...])."""
    return {"kind": kind, **content}


def note(text: str, command: str | None = None) -> Block:
    """Returns a line of explanation, or of something missing with the command that makes it."""
    return block("note", text=text, command=command)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "lr", rows_are: str = "rows"
) -> Block:
    """Returns a table without its empty columns.

    With JavaScript, readers can sort it, and filter it if it is long.

    Args:
        align: one letter per column, l (left) or r (right, for figures); the last letter applies to
            further columns.
        rows_are: the plural name of the rows, such as "paradigms".
    """
    columns = [i for i in range(len(header)) if any(row[i] for row in rows)]
    letters = align.ljust(len(header), align[-1])
    first, *others = ([(line[i], letters[i]) for i in columns] for line in (header, *rows))
    return block("table", header=first, rows=others, rows_are=rows_are)


class RunFiles:
    """The files of a finished run.

    Shows evaluation/blimp-SCORING.json in full, and loads the model only if `may_load`.
    """

    def __init__(self, folder: Path, scoring: str = "paper", may_load: bool = True) -> None:
        directory = self.directory = RunDirectory(folder)
        self.may_load = may_load
        self.path = shlex.quote(str(folder))  # as a word of a command
        self.record = run_table.read_record(folder)
        self.experiment = config_io.read_begun(directory.config)
        self.summary: dict[str, Any] = self.record.summary
        self.curves = read_curves(folder) if directory.metrics.exists() else None
        measured = directory.diagnostics / "diagnostics.json"
        self.diagnostics = json.loads(measured.read_bytes()) if measured.exists() else None
        reports = self.record.minimal_pairs
        names = sorted(reports, key=lambda name: name != f"blimp-{scoring}")
        self.reports = {name: reports[name] for name in names}
        # the minimal-pair report to show in full
        self.report = next(iter(self.reports.values()), None)

    @property
    def name(self) -> str:
        return self.record.run

    def pairs(self, name: str) -> list[dict[str, Any]]:
        """Returns the pairs of a report. Raises InputError if they were not kept."""
        file = self.directory.evaluation / f"{name}.json"
        return blimp_report.read_pairs(file, self.reports[name])


def trained(run: RunFiles) -> list[Block]:
    """The main figures, the model and its whole configuration."""
    header, [row] = run_table.loss_table([[run.record]])
    facts = {title: text for title, text in zip(header[1:], row[1:], strict=True) if text}
    figures = [FIGURES[name] for name in KEY_FIGURES if FIGURES[name].title in facts]
    keys = [(facts.pop(figure.title), figure.title, figure.unit) for figure in figures]
    if run.report is not None and run.report["overall"]["accuracy"] is not None:
        overall, pairs = run.report["overall"], run.report["data"]["pairs"]
        name = "BLiMP, %" if run.report["anchors"] else FIGURES["blimp"].title
        interval = format_interval(overall["interval"])
        keys.append(
            (format_figure("accuracy", overall["accuracy"]), name, f"{interval}; {pairs:,} pairs")
        )
    facts |= {"seed": str(run.experiment.seed), "folder": str(run.directory.path)}
    if run.summary.get("device"):
        facts["machine"] = run_table.describe_machine(run.summary["device"])
    configuration = run.directory.config.read_text("utf-8", errors="replace")
    has_diverged = run.summary["status"] == "diverged"
    return [
        *([note(f"Diverged: {run_table.DIVERGED}.")] if has_diverged else []),
        block("keys", figures=keys),
        block("facts", facts=facts),
        block("details", title="Configuration", blocks=[block("code", text=configuration)]),
    ]


def losses(run: RunFiles) -> list[Block]:
    """The losses by words read and by minutes, with reference values."""
    text = "Training: the mean over the updates between two points, each before its update."
    picture = draw_all([run], [[run.record]], run.summary)
    return [*picture, note(text)] if picture else []


def draw_all(
    runs: Sequence[RunFiles],
    groups: Sequence[run_table.Group],
    summary: dict[str, Any] | None = None,
) -> list[Block]:
    """Returns the picture of the losses of runs; empty if a run has none, or without matplotlib."""
    curves = {run.name: run.curves for run in runs if run.curves is not None}
    if len(curves) < len(runs) or not all(c.training["tokens"].size for c in curves.values()):
        return []
    names = ", ".join(curves)
    try:
        svg = plots.inline_svg(draw_losses(groups, curves, summary))
    except ImportError:
        return []
    return [block("picture", svg=svg, says=f"Training and validation losses of {names}")]


def minimal_pairs(run: RunFiles) -> list[Block]:
    """Accuracies on minimal pairs by phenomenon, beside baselines, GPT-2 and people."""
    report = run.report
    if report is None:
        return [note("Not scored yet.", f"esnlm blimp --run {run.path} --data blimp")]
    blocks = [note(f"{line}.") for line in blimp_report.headline(report)]
    if report["overall"]["accuracy"] is not None:
        text = f"Accuracy in percent; dashes at {report.get('chance', 50):.3g} are chance."
        if report["anchors"]:
            text += " GPT-2 and people: as published with BLiMP (Warstadt et al. 2020)."
        blocks += [accuracy_chart(report), note(text)]
    blocks += [note(line) for line in blimp_report.comparison_lines(report)]
    if len(run.reports) > 1:
        header, rows = run_table.score_table([[run.record]])
        blocks.append(table(header[1:], [row[1:] for row in rows], rows_are="reports"))
    return blocks


def accuracy_chart(report: dict) -> Block:
    """Returns a chart of accuracies with intervals, the best first, and of baselines.

    It has one row per phenomenon (or paradigm, if there is only one) and, on BLiMP, shows published
    models.
    """
    level, baselines = blimp_report.main_level(report), report["baselines"]
    chance = report.get("chance", 50)  # reports on pairs leave it out
    # Others: title, entries, key, and the mark: shape, colour and vertical offset in pixels, since
    # baselines often coincide.
    others: list[tuple[str, dict, str, tuple[str, int, float]]] = []
    for i, (name, baseline) in enumerate(baselines.items()):
        mark = ("tick", BASELINES[i % len(BASELINES)], 5 * (i - (len(baselines) - 1) / 2))
        others.append((f"{name} only", baseline, "accuracy", mark))
    if report["anchors"]:
        others += [
            (title, report["anchors"], model, (shape, colour, 0))
            for model, (title, shape, colour) in PUBLISHED.items()
        ]
    known = {
        name: entry["accuracy"]
        for name, entry in report[level].items()
        if entry["accuracy"] is not None
    }
    rows: list[dict[str, Any]] = [
        {
            "name": readable(name),
            "entry": entry_of(report, level, name),
            "others": {title: entry_of(tree, level, name)[key] for title, tree, key, _ in others},
        }
        for name in ["overall", *sorted(known, key=lambda name: -known[name])]
    ]
    marks = {title: mark for title, *_, mark in others}
    values = [50, chance, *(value for row in rows for value in row["others"].values())]
    values += [row["entry"]["interval"][0] for row in rows]
    # Positions are readable without a zero: the axis begins at a multiple of ten.
    low = max(0, 10 * math.floor((min(values) - 2) / 10))
    ticks = [tick for tick in range(0, 101, 10 if low >= 40 else 20) if tick >= low]
    return block("accuracies", rows=rows, marks=marks, chance=chance, low=low, ticks=ticks)


def paradigms(run: RunFiles) -> list[Block]:
    """Every paradigm in a table that a reader can sort and filter."""
    if run.report is None:
        return []
    header, rows = blimp_report.accuracy_table(run.report, "paradigms")
    # without "overall"
    rows = [[readable(row[0]), *row[1:-1], readable(row[-1])] for row in rows[:-1]]
    text = f"Accuracy in percent. Baselines: {', '.join(run.report['baselines'])}."
    text += " The others are as published with BLiMP." if run.report["anchors"] else ""
    align = f"l{'r' * (len(header) - 2)}l"
    return [table(header, rows, align, rows_are="paradigms"), note(text)]


def wrong_pairs(run: RunFiles) -> list[Block]:
    """The pairs that the run gets wrong by the largest margins."""
    if run.report is None or run.report["status"] != "ok":
        return []
    try:
        chosen = worst(run.pairs(next(iter(run.reports))))
    except InputError as error:
        return [note(f"{error}.", f"esnlm blimp --run {run.path}")]
    text = "Pairs in which the wrong sentence is more probable, with the largest margins; at most"
    pairs = [
        (
            f"{margin:.1f} nats",
            readable(line["UID"]),
            *_marked(line["sentence_good"], line["sentence_bad"]),
        )
        for margin, line in chosen
    ]
    text += f" {OF_A_PARADIGM} per paradigm. Right sentence first."
    return [note(text), block("pairs", pairs=pairs)] if chosen else []


def worst(pairs: list[dict]) -> list[tuple[float, dict]]:
    """Returns the wrong pairs with the largest margins, log p(bad) - log p(good) in nats."""
    margins = [
        (line["log_prob_bad"] - line["log_prob_good"], line)
        for line in pairs
        if None not in (line["log_prob_good"], line["log_prob_bad"]) and not line["right"]
    ]
    chosen: list[tuple[float, dict]] = []
    for margin, line in sorted(margins, key=lambda pair: -pair[0]):
        of_paradigm = sum(other["UID"] == line["UID"] for _, other in chosen)
        if margin > 0 and of_paradigm < OF_A_PARADIGM:
            chosen.append((margin, line))
    return chosen[:MOST_WRONG]


def _marked(good: str, bad: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Splits both sentences into pieces, each with whether the other sentence lacks it."""
    sides = good.split(" "), bad.split(" ")
    pieces: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    for kind, *bounds in SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        for side, words, start, end in zip(pieces, sides, bounds[::2], bounds[1::2], strict=True):
            if text := " ".join(words[start:end]):
                side.append((text, kind != "equal"))
    return pieces


def diagnostics(run: RunFiles) -> list[Block]:
    """The results of `esnlm diagnose`: does the reservoir forget, and what does it remember?"""
    if not isinstance(run.experiment.model, EchoStateConfig):
        return []
    if run.diagnostics is None:
        text = "Contraction, memory and activity of the states are not measured yet."
        return [note(text, f"esnlm diagnose --run {run.path}")]
    blocks = []
    for figures in run.diagnostics["reservoirs"]:
        blocks += [note(figures["verdict"]), block("facts", facts=diagnosis_rows(figures))]
    return blocks


def samples(run: RunFiles) -> list[Block]:
    """Text generated by the model from a fixed seed."""
    options = " ".join(f"--{name} {value}" for name, value in SAMPLES.items())
    command = f"esnlm generate --run {run.path} {options}"
    if not run.may_load:
        text = "A page about this many runs loads no models. This command generates samples:"
        return [note(text, command)]
    info(f"{run.name}: loading the model")
    try:
        texts = loaded_run.load(run.directory.path).generate(**SAMPLES)
    except InputError as error:  # the model has diverged, or its checkpoints were not kept
        return [note(f"None: {error}.")]
    texts = [text.strip() or "(an empty sentence)" for text in texts]
    return [block("samples", texts=texts), note("Written without a prompt:", command)]


def commands(run: RunFiles) -> list[Block]:
    """The commands that reproduce the run and its reports."""
    made_by = {
        f"The report {name}": report.get("provenance", {}).get("command")
        or f"esnlm blimp --run {run.path}"
        for name, report in run.reports.items()
    }
    if run.experiment.data.has_corpus and not run.experiment.data.is_in_run_only:
        train = f"esnlm train --config {shlex.quote(str(run.directory.config))} --run again"
        made_by = {"Train it anew, into another folder": train} | made_by
    if run.diagnostics is not None and run.diagnostics.get("command"):
        made_by["The state diagnostics"] = run.diagnostics["command"]
    blocks = [block("command", what=result, line=command) for result, command in made_by.items()]
    text = "With the same machine, number of cores and versions, the results are the same to the"
    return [*blocks, note(f"{text} bit.")]


SECTIONS = {
    "The model": trained,
    "Losses": losses,
    "Minimal pairs": minimal_pairs,
    "By paradigm": paradigms,
    "Wrong by the largest margin": wrong_pairs,
    "State diagnostics": diagnostics,
    "Samples": samples,
    "How to make it again": commands,
}
