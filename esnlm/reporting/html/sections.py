"""The sections of a run, in the order in which they stand on the page.

A section is a function of a `RunFiles` that returns blocks, none if it has nothing to say. `@section(TITLE)` lists it. If
something is missing that a command makes, `note(text, command)` says so.
"""

import math
import shlex
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any, TypeAlias

import numpy as np

from esnlm.config import TrainingConfig
from esnlm.errors import InputError
from esnlm.io.console import clock, counted
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reporting.blimp_text import ANCHORS, comparison_lines, entry_of, readable, worth_of_a_tie
from esnlm.reporting.diagnosis_rows import format_rows
from esnlm.reporting.html.blocks import Block, Cell, block, note, table
from esnlm.reporting.html.charts import Series, accuracy_chart, line_chart, plane
from esnlm.reporting.html.files import RunFiles
from esnlm.reporting.run_groups import machine
from esnlm.reporting.run_table import score_table, why_diverged
from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import Reservoir
from esnlm.reservoir.linearisation import describe_linearisation, is_known, linearise

Render: TypeAlias = Callable[[RunFiles], list[Block]]
SECTIONS: dict[str, Render] = {}
KEY_FIGURES = {  # of summary.json: digits, name and unit
    "val_nll": (3, "validation NLL", "nats per token"),
    "val_nll_without_eos": (3, "NLL without EOS", "nats per token"),
    "perplexity": (2, "perplexity", "per token"),
    "val_bits_per_byte": (3, "bits per byte", "of the validation text"),
}
DIVERGED = 1000  # nats per token, from which on the axis of the losses is logarithmic
PUBLISHED = {"gpt2": ("GPT-2", "ring", 1), "human": ("people", "diamond", 4)}  # drawn; the table of paradigms has all
BASELINES = (3, 5, 6, 2)  # colours, in turn
MOST_WRONG, OF_A_PARADIGM = 12, 2  # so that one hard paradigm does not fill the list
MOST_UNITS = 1024  # N: LAPACK takes seconds for the eigenvalues of so many, and eight times as long for twice as many
SAMPLES = {"count": 6, "length": 40, "seed": 0}


def section(title: str) -> Callable[[Render], Render]:
    """Lists a function as the section of this title."""

    def add(render: Render) -> Render:
        SECTIONS[title] = render
        return render

    return add


@section("The model")
def trained(run: RunFiles) -> list[Block]:
    """What was trained: the figures that matter most, what the model is, and its whole configuration."""
    summary, report = run.summary, run.report
    figures = []
    for key, (digits, name, unit) in KEY_FIGURES.items():
        if summary.get(key) is not None and math.isfinite(value := float(summary[key])):
            figures.append((f"{value:,.{digits}f}", name, unit))
    if report is not None and report["overall"]["accuracy"] is not None:
        name = "BLiMP, %" if report["anchors"] else "minimal pairs, %"
        interval = "{:.1f} to {:.1f}".format(*report["overall"]["interval"])
        figures.append((f"{report['overall']['accuracy']:.1f}", name, interval))
    text = run.directory.config.read_text("utf-8", errors="replace")
    return [
        *([note(f"Status: diverged: {why_diverged(run.row)}.")] if summary["status"] == "diverged" else []),
        block("keys", figures=figures),
        block("facts", facts=_facts(run)),
        block("details", title="Configuration", code=text, blocks=[]),
    ]


def _facts(run: RunFiles) -> dict[str, str]:
    summary, data, training = run.summary, run.experiment.data, run.experiment.training
    facts = {"Model": run.row["model"]}
    if summary.get("total_params") is not None:
        facts["Parameters"] = f"{summary['trainable_params']:,} trained of {summary['total_params']:,}"
    if data.has_corpus:
        facts |= {"Fit": training.kind, "Data": str(getattr(data, "train", data.kind))}
        if isinstance(training, TrainingConfig):
            facts["Fit"] = f"{training.optimizer}, learning rate {training.learning_rate:g}"
        if data.kind == "grammar":
            facts["Data"] = f"{data.sentences:,} sentences of a small grammar"  # type: ignore[attr-defined]
    if "tokens" in summary:
        facts["Read"] = f"{summary['tokens']:,} tokens, {summary['words']:,} words"
        facts["Read"] += f" in {summary['epochs']} epochs" if (summary.get("epochs") or 1) > 1 else ""
    if data.has_corpus:
        facts |= {"Updates": f"{summary.get('step', 0):,}", "Seed": str(run.experiment.seed)}
    if "tokens_per_second" in summary:
        facts["Time"] = f"{clock(summary['seconds'])}, {summary['tokens_per_second']:,.0f} tokens a second"
    if summary.get("device"):
        facts["Machine"] = machine(summary["device"])
    if versions := summary.get("versions"):
        facts["Versions"] = ", ".join(f"{name} {versions[name]}" for name in ("esnlm", "jax") if name in versions)
    return facts | {"Folder": str(run.directory.path)}


@section("Losses")
def losses(run: RunFiles) -> list[Block]:
    """The losses over the tokens that were read, beside what they should be compared with."""
    references = {name: float(nll) for name, nll in run.summary.get("references", {}).items()}
    references = {name: nll for name, nll in references.items() if math.isfinite(nll)}
    series = loss_series(run, ("training", "validation"), (0, 1))
    shown = loss_chart(series, f"Losses of {run.name} over tokens read", references)
    text = "Training: the mean over the updates between two points, each before its update."
    return [*shown, note(text)] if shown else []


def loss_series(run: RunFiles, names: tuple[str, str], colours: tuple[int, int]) -> list[Series]:
    """Returns the training losses as a line, or a dot if there is one, and the validation losses as dots."""
    if run.curves is None:
        return []
    training, validation = (each["tokens"] * (1e6, 1) for each in run.curves)  # tokens, not millions of them
    found = [Series(names[0], training, colours[0], len(training) == 1), Series(names[1], validation, colours[1], True)]
    return [each for each in found if len(each.points)]


def loss_chart(series: list[Series], says: str, references: dict[str, float] | None = None) -> list[Block]:
    """Returns the chart of losses, if there are any."""
    if not series:
        return []
    high = max(each.points[:, 1].max() for each in series)
    titles, log = ("tokens read", "NLL, nats per token"), (True, bool(high > DIVERGED))
    return [line_chart(series, titles, says, log, references)]


@section("Minimal pairs")
def minimal_pairs(run: RunFiles) -> list[Block]:
    """Accuracies on minimal pairs by phenomenon, beside baselines, GPT-2 and people."""
    report = run.report
    if report is None:
        return [note("Not scored yet.", f"esnlm blimp --run {run.path} --data blimp")]
    data, scoring = report["data"], report["scoring"]
    items = counted(data["pairs"], "pair" if "kinds" not in data else "item")
    of = f"{items} of {counted(data['paradigms'], 'paradigm')}"
    shown = [note(f"Step {report['step']:,}, {of}, {scoring['name']} scoring: {scoring['description']}.")]
    shown += [note(f"{report['status']}: {warning}") for warning in report["warnings"]]
    if report["overall"]["accuracy"] is not None:
        shown += _accuracies(report)
    shown += [note(line) for line in comparison_lines(report)]
    if len(run.reports) > 1:
        header, rows = score_table([[run.row]])
        shown += [block("heading", text="All reports of this run"), table(header[1:], [row[1:] for row in rows])]
    return shown


def _accuracies(report: dict) -> list[Block]:
    level = "phenomena" if report["data"]["phenomena"] > 1 else "paradigms"
    anchors, baselines = report["anchors"], report["baselines"]
    known = [name for name, entry in report[level].items() if entry["accuracy"] is not None]
    marks = {f"{name} only": ("tick", BASELINES[i % len(BASELINES)]) for i, name in enumerate(baselines)}
    marks |= {label: (mark, colour) for label, mark, colour in PUBLISHED.values()} if anchors else {}
    bars = []
    for name in ["overall", *sorted(known, key=lambda name: -report[level][name]["accuracy"])]:
        entry = entry_of(report, level, name)
        beside = {f"{other} only": entry_of(its, level, name)["accuracy"] for other, its in baselines.items()}
        if anchors:
            beside |= {label: entry_of(anchors, level, name)[key] for key, (label, _, _) in PUBLISHED.items()}
        shown = {label: value for label, value in beside.items() if value is not None}
        own = {"name": readable(name), "value": entry["accuracy"], "interval": entry["interval"]}
        bars.append(own | {"marks": shown})
    chance = report.get("chance", 50)  # reports of pairs do not name it
    text = f"Accuracy in percent; dashes at {chance:.3g} are chance."
    text += f" In a baseline a tie counts {worth_of_a_tie(report['data'])}."
    text += " GPT-2 and people: as published with BLiMP (Warstadt et al. 2020)." if anchors else ""
    return [accuracy_chart(bars, marks, chance), note(text)]


@section("By paradigm")
def paradigms(run: RunFiles) -> list[Block]:
    """Every paradigm in a table that a reader can sort and filter."""
    report = run.report
    if report is None:
        return []

    def figure(value: float | None) -> Cell:
        return Cell("–", -1) if value is None else Cell(f"{value:.1f}", value)

    baselines, anchors = report["baselines"], report["anchors"]
    rows = []
    for name, entry in report["paradigms"].items():
        low, high = entry["interval"] or (-1, -1)
        row = [readable(name), figure(entry["accuracy"]), Cell("" if low < 0 else f"{low:.1f} – {high:.1f}", low)]
        row += [figure(its["paradigms"][name]["accuracy"]) for its in baselines.values()]
        row += [figure(value) for value in anchors["paradigms"][name].values()] if anchors else []
        counts = [Cell(f"{entry[count]:,}", entry[count]) for count in ("pairs", "ties")]
        rows.append([*row, *counts, readable(entry["phenomenon"])])
    names = list(ANCHORS.values()) if anchors else []
    unbroken = [name.replace("-", "\N{NON-BREAKING HYPHEN}") for name in names]
    header = ["paradigm", "accuracy", "95 %", *baselines, *unbroken, "pairs", "ties", "phenomenon"]
    published = f" As published with BLiMP: {', '.join(names)}." if anchors else ""
    shown = table(header, rows, align=f"l{'r' * (len(header) - 2)}l", tools="paradigms")
    return [shown, note(f"Accuracy in percent. Baselines: {', '.join(baselines)}.{published}")]


@section("Wrong by the largest margin")
def wrong_pairs(run: RunFiles) -> list[Block]:
    """The pairs that the run has wrong by the largest margin."""
    if run.report is None or run.report["status"] != "ok":
        return []
    try:
        chosen = worst(run.pairs(next(iter(run.reports))))
    except InputError as error:
        return [note(f"{error}.", f"esnlm blimp --run {run.path}")]
    text = "Pairs in which the wrong sentence is more probable, by the largest margins; at most"
    pairs = [
        (f"{_margin(line):.1f} nats", readable(line["UID"]), *_marked(line["sentence_good"], line["sentence_bad"]))
        for line in chosen
    ]
    shown = [note(f"{text} {OF_A_PARADIGM} of a paradigm. Right sentence first."), block("pairs", pairs=pairs)]
    return shown if chosen else []


def worst(pairs: list[dict]) -> list[dict]:
    """Returns the wrong pairs of the largest margins, log p(bad) - log p(good) in nats, the largest first."""
    known = [line for line in pairs if None not in (line["log_prob_good"], line["log_prob_bad"])]
    wrong = [line for line in known if line["right"] is False and not line["tie"]]
    chosen: list[dict] = []
    for line in sorted(wrong, key=lambda line: -_margin(line)):
        if sum(other["UID"] == line["UID"] for other in chosen) < OF_A_PARADIGM and len(chosen) < MOST_WRONG:
            chosen.append(line)
    return chosen


def _margin(line: dict) -> float:
    return line["log_prob_bad"] - line["log_prob_good"]


def _marked(good: str, bad: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Returns both sentences in pieces, with whether the other one has it not."""
    sides = good.split(" "), bad.split(" ")
    pieces: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    for kind, *bounds in SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        for side, words, start, end in zip(pieces, sides, bounds[::2], bounds[1::2], strict=True):
            if text := " ".join(words[start:end]):
                side.append((text, kind != "equal"))
    return pieces


@section("State diagnostics")
def diagnostics(run: RunFiles) -> list[Block]:
    """Does the reservoir forget, and what does it hold: what `esnlm diagnose` measured."""
    if not isinstance(run.experiment.model, EchoStateConfig):
        return []
    if run.diagnostics is None:
        command = f"esnlm diagnose --run {run.path}"
        return [note("Contraction, memory and activity of the states are not measured yet.", command)]
    return [each for found in run.diagnostics["reservoirs"] for each in _reservoir(found)]


def _reservoir(found: dict[str, Any]) -> list[Block]:
    charts: list[Block] = []
    series: list[Series] = []
    curves = {"two start states": found["state_contraction"], "two histories": found["input_forgetting"]}
    for colour, (name, curve) in enumerate(curves.items()):
        if isinstance(curve, dict):
            distance = np.array(curve["distance"], float)
            by_token = np.column_stack([np.arange(len(distance)), distance])[np.isfinite(distance) & (distance > 0)]
            series += [Series(name, by_token, colour)] if len(by_token) > 1 else []
    if series:
        says = f"Distance of two states that read the same tokens. {found['verdict']}"
        charts.append(line_chart(series, ("tokens read", "distance of the states"), says, log=(False, True)))
    memory = found["memory_capacity"]
    if isinstance(memory, dict) and len(memory["by_delay"]) > 1:
        by_delay = np.array(memory["by_delay"], float)
        capacity = Series("memory capacity", np.column_stack([1 + np.arange(len(by_delay)), by_delay]), 2)
        says = f"Memory capacity by delay, {memory['total']:.1f} in all"
        charts.append(line_chart([capacity], ("delay, time steps", "r²"), says))
    text, facts = block("text", text=found["verdict"]), block("facts", facts=format_rows(found))
    return [text, block("beside", blocks=charts), facts]


@section("Spectrum")
def spectrum(run: RunFiles) -> list[Block]:
    """The eigenvalues of W_rec, and of the linearisation at the state 0, in the plane."""
    model = run.experiment.model
    if not isinstance(model, EchoStateConfig):
        return []
    reservoir = model.reservoir
    if reservoir.state_size * reservoir.layers > MOST_UNITS:
        reason = f"The eigenvalues of more than {MOST_UNITS:,} units are not computed for a page. Radii come with"
        return [note(reason, f"esnlm diagnose --run {run.path}")]
    if isinstance(run.loaded, dict):
        return [run.loaded]
    decay, rule, activation = reservoir.decay, reservoir.update_rule, reservoir.activation
    text = "Eigenvalues in the complex plane."
    if known := is_known(activation, rule):
        text += " Beside W_rec stands what a time step does near the state 0, where the leaks a count:"
        text += f" {describe_linearisation(rule, decay)}. An eigenvalue close to 1 is a slow memory."
    shown: list[Block] = []
    for i, layer in enumerate(run.loaded.model.reservoir.layers):  # type: ignore[attr-defined]
        planes = []
        for name, values in zip(["W_rec", *(["Linearisation at 0"] * known)], eigenvalues(layer, decay), strict=False):
            circles = {"unit circle": (1.0, "reference"), "spectral radius": (float(np.abs(values).max()), "s0")}
            planes.append(plane(values, circles, f"{name} of layer {i + 1}" if reservoir.layers > 1 else name))
        shown.append(block("beside", blocks=planes))
    return [*shown, note(text)]


def eigenvalues(layer: Reservoir, decay: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the eigenvalues of W_rec and of the linearisation at 0 (reservoir/linearisation.py), (N,) each."""
    w, linear = (
        each if isinstance(each, np.ndarray) else each.toarray()
        for each in (as_scipy(layer.stored_w_rec), linearise(layer, decay))
    )
    return np.linalg.eigvals(w), np.linalg.eigvals(linear)


@section("Samples")
def samples(run: RunFiles) -> list[Block]:
    """Text that the model writes, from a seed that is named."""
    if isinstance(run.loaded, dict):
        return [run.loaded]
    try:
        texts = run.loaded.generate(**SAMPLES)
    except InputError as error:  # the model has diverged
        return [note(f"None: {error}.")]
    count, length, seed = SAMPLES.values()
    text = f"{count} sentences that the model writes without a prompt, of at most {length} tokens, seed {seed}."
    return [note(text), block("samples", texts=[each.strip() or "(an empty sentence)" for each in texts])]


@section("How to make it again")
def commands(run: RunFiles) -> list[Block]:
    """The commands that make it all again."""
    source, reservoir = run.experiment.data, getattr(run.experiment.model, "reservoir", None)
    shown, lines = [], {}
    if source.is_in_run_only or (reservoir is not None and reservoir.topology.kind == "given"):
        shown.append(note("No command trains it anew: its sentences, or its W_rec, were given in Python."))
    elif source.has_corpus:
        config = shlex.quote(str(run.directory.config))
        lines["Train it anew, into another folder"] = f"esnlm train --config {config} --run again"
    for name, report in run.reports.items():
        command = report.get("provenance", {}).get("command") or f"esnlm blimp --run {run.path}"
        lines[f"The report {name}"] = command
    if run.diagnostics is not None and run.diagnostics.get("command"):
        lines["The state diagnostics"] = run.diagnostics["command"]
    if run.summary["status"] == "finished" and not isinstance(run.loaded, dict):
        options = " ".join(f"--{name} {value}" for name, value in SAMPLES.items())
        lines["The samples"] = f"esnlm generate --run {run.path} {options}"
    hashes = {name: value for name, value in (run.summary.get("data_sha256") or {}).items() if value}
    same = "The same machine, number of cores and versions give the same bits."
    data = f" sha256 of the data: {'; '.join(f'{name} {value[:16]}…' for name, value in hashes.items())}"
    shown += [block("command", what=what, line=line) for what, line in lines.items()]
    return [*shown, note(same + (data if hashes else ""))]
