"""The sections about one run.

A section is a function from a `RunFiles` to blocks, none if it has no content. SECTIONS lists them
in the order of the page. If a result is missing, `note(text, command)` names the command that makes
it.
"""

import json
import math
import shlex
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from esnlm import loaded_run
from esnlm.base.console import counted, say
from esnlm.base.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reports import blimp_report, run_table
from esnlm.reports.blimp_text import accuracy_table, comparison_lines, readable, worth_of_a_tie
from esnlm.reports.diagnosis_rows import format_rows
from esnlm.reports.html.blocks import (
    Block,
    Series,
    accuracy_chart,
    block,
    loss_chart,
    note,
    table,
)
from esnlm.reports.loss_plot import read_curves
from esnlm.reports.run_groups import machine
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io

KEY_FIGURES = {  # with their units
    "val_nll": "nats per token",
    "val_nll_without_eos": "nats per token",
    "perplexity": "per token",
    "val_bits_per_byte": "of the validation text",
}
MOST_WRONG, OF_A_PARADIGM = 12, 2  # so that one hard paradigm does not fill the list
SAMPLES = {"count": 6, "length": 40, "seed": 0}


class RunFiles:
    """The files of a finished run. Shows evaluation/blimp-SCORING.json in full; loads the model
    only if `may_load`."""

    def __init__(self, folder: Path, scoring: str = "paper", may_load: bool = True) -> None:
        directory = self.directory = RunDirectory(folder)
        self.row = run_table.row(folder)
        self.experiment = config_io.read_begun(directory.config)
        self.summary: dict[str, Any] = self.row["summary"]
        # the path as a word of a command
        self.path, self.may_load = (
            shlex.quote(str(folder)),
            may_load,
        )
        self.curves = read_curves(folder) if directory.metrics.exists() else None
        measured = directory.diagnostics / "diagnostics.json"
        self.diagnostics = json.loads(measured.read_bytes()) if measured.exists() else None
        found = self.row["minimal_pairs"]
        self.reports = {
            name: found[name] for name in sorted(found, key=lambda name: name != f"blimp-{scoring}")
        }
        # the minimal-pair report to show in full
        self.report = next(iter(self.reports.values()), None)

    @property
    def name(self) -> str:
        return self.row["run"]

    def pairs(self, name: str) -> list[dict[str, Any]]:
        """Returns the pairs of a report. Raises InputError if they were not kept."""
        return blimp_report.read_pairs(
            self.directory.evaluation / f"{name}.json", self.reports[name]
        )


def trained(run: RunFiles) -> list[Block]:
    """The main figures, the model and its whole configuration."""
    header, [row] = run_table.loss_table([[run.row]])
    facts = {title: text for title, text in zip(header[1:], row[1:], strict=True) if text}
    titles = {run_table.FIGURES[key][0]: unit for key, unit in KEY_FIGURES.items()}
    figures = [(facts.pop(title), title, unit) for title, unit in titles.items() if title in facts]
    if run.report is not None and run.report["overall"]["accuracy"] is not None:
        overall, name = (
            run.report["overall"],
            "BLiMP, %" if run.report["anchors"] else "minimal pairs, %",
        )
        about = "{:.1f} to {:.1f}, {:,} pairs".format(
            *overall["interval"], run.report["data"]["pairs"]
        )
        figures.append((f"{overall['accuracy']:.1f}", name, about))
    facts |= {"seed": str(run.experiment.seed), "folder": str(run.directory.path)}
    if run.summary.get("device"):
        facts["machine"] = machine(run.summary["device"])
    configuration = run.directory.config.read_text("utf-8", errors="replace")
    return [
        *(
            [note(f"Diverged: {run_table.DIVERGED}.")]
            if run.summary["status"] == "diverged"
            else []
        ),
        block("keys", figures=figures),
        block("facts", facts=facts),
        block("details", title="Configuration", blocks=[block("code", text=configuration)]),
    ]


def losses(run: RunFiles) -> list[Block]:
    """The losses by tokens read, with reference values."""
    references = {name: float(nll) for name, nll in run.summary.get("references", {}).items()}
    references = {name: nll for name, nll in references.items() if math.isfinite(nll)}
    series = loss_series(run, ("training", "validation"), (0, 1))
    shown = loss_chart(series, f"Losses of {run.name} over tokens read", references)
    text = "Training: the mean over the updates between two points, each before its update."
    return [*shown, note(text)] if shown else []


def loss_series(run: RunFiles, names: tuple[str, str], colours: tuple[int, int]) -> list[Series]:
    """Returns the training losses as a line, or a dot if there is one, and the validation losses as
    dots."""
    if run.curves is None:
        return []
    training, validation = (each["tokens"] for each in run.curves)
    return [
        Series(names[0], training, colours[0], len(training) == 1),
        Series(names[1], validation, colours[1], True),
    ]


def minimal_pairs(run: RunFiles) -> list[Block]:
    """Accuracies on minimal pairs by phenomenon, beside baselines, GPT-2 and people."""
    report = run.report
    if report is None:
        return [note("Not scored yet.", f"esnlm blimp --run {run.path} --data blimp")]
    data, scoring = report["data"], report["scoring"]
    of = (
        f"Step {report['step']:,}, {counted(data['pairs'], 'item')} of"
        f" {counted(data['paradigms'], 'paradigm')}"
    )
    shown = [note(f"{of}, {scoring['name']} scoring: {scoring['description']}.")]
    shown += [note(f"{report['status']}: {warning}") for warning in report["warnings"]]
    if report["overall"]["accuracy"] is not None:
        text = f"Accuracy in percent; dashes at {report.get('chance', 50):.3g} are chance."
        text += f" In a baseline a tie counts {worth_of_a_tie(data)}."
        text += (
            " GPT-2 and people: as published with BLiMP (Warstadt et al. 2020)."
            if report["anchors"]
            else ""
        )
        shown += [accuracy_chart(report), note(text)]
    shown += [note(line) for line in comparison_lines(report)]
    if len(run.reports) > 1:
        header, rows = run_table.score_table([[run.row]])
        shown += [table(header[1:], [row[1:] for row in rows], rows_are="reports")]
    return shown


def paradigms(run: RunFiles) -> list[Block]:
    """Every paradigm in a table that a reader can sort and filter."""
    if run.report is None:
        return []
    header, rows = accuracy_table(run.report, "paradigms")
    text = f"Accuracy in percent. Baselines: {', '.join(run.report['baselines'])}."
    text += " The others are as published with BLiMP." if run.report["anchors"] else ""
    # without "overall"
    rows = [[readable(row[0]), *row[1:-1], readable(row[-1])] for row in rows[:-1]]
    return [
        table(header, rows, align=f"l{'r' * (len(header) - 2)}l", rows_are="paradigms"),
        note(text),
    ]


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
    shown = [
        note(f"{text} {OF_A_PARADIGM} per paradigm. Right sentence first."),
        block("pairs", pairs=pairs),
    ]
    return shown if chosen else []


def worst(pairs: list[dict]) -> list[tuple[float, dict]]:
    """Returns the wrong pairs with the largest margins, log p(bad) - log p(good) in nats, the
    largest first."""
    known = [line for line in pairs if None not in (line["log_prob_good"], line["log_prob_bad"])]
    margins = [
        (line["log_prob_bad"] - line["log_prob_good"], line) for line in known if not line["right"]
    ]
    chosen: list[tuple[float, dict]] = []
    for margin, line in sorted(margins, key=lambda pair: -pair[0]):
        of_paradigm = sum(other["UID"] == line["UID"] for _, other in chosen)
        if margin > 0 and of_paradigm < OF_A_PARADIGM and len(chosen) < MOST_WRONG:
            chosen.append((margin, line))
    return chosen


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
        command = f"esnlm diagnose --run {run.path}"
        return [
            note("Contraction, memory and activity of the states are not measured yet.", command)
        ]
    found = run.diagnostics["reservoirs"]
    return [
        shown
        for each in found
        for shown in (note(each["verdict"]), block("facts", facts=format_rows(each)))
    ]


def samples(run: RunFiles) -> list[Block]:
    """Text generated by the model from a fixed seed."""
    command = (
        f"esnlm generate --run {run.path}"
        f" {' '.join(f'--{name} {value}' for name, value in SAMPLES.items())}"
    )
    if not run.may_load:
        return [
            note(
                "A page about this many runs loads no models. This command generates samples:",
                command,
            )
        ]
    say(f"{run.name}: loading the model")
    try:
        texts = loaded_run.load(run.directory.path).generate(**SAMPLES)
    except InputError as error:  # the model has diverged, or its checkpoints were not kept
        return [note(f"None: {error}.")]
    texts = [text.strip() or "(an empty sentence)" for text in texts]
    return [block("samples", texts=texts), note("Written without a prompt:", command)]


def commands(run: RunFiles) -> list[Block]:
    """The commands that reproduce the run and its reports."""
    lines = {}
    if run.experiment.data.has_corpus and not run.experiment.data.is_in_run_only:
        config = shlex.quote(str(run.directory.config))
        lines["Train it anew, into another folder"] = f"esnlm train --config {config} --run again"
    for name, report in run.reports.items():
        command = report.get("provenance", {}).get("command") or f"esnlm blimp --run {run.path}"
        lines[f"The report {name}"] = command
    if run.diagnostics is not None and run.diagnostics.get("command"):
        lines["The state diagnostics"] = run.diagnostics["command"]
    shown = [block("command", what=what, line=line) for what, line in lines.items()]
    return [
        *shown,
        note(
            "With the same machine, number of cores and versions, the results are the same to the"
            " bit."
        ),
    ]


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
