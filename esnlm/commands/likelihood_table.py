"""`esnlm likelihood`, from the run directory to the table and the JSON file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esnlm import loaded_run
from esnlm.base.console import stage, working
from esnlm.base.errors import InputError
from esnlm.base.remote import full_name
from esnlm.base.screen import Screen
from esnlm.data.encode import encode_file
from esnlm.data.store import TokenStore, open_store
from esnlm.evaluation.evaluate import config_sha256
from esnlm.evaluation.likelihood import of_ngrams
from esnlm.loaded_run import Run, Step
from esnlm.reports.figures import spell, titles
from esnlm.reports.report import Report

FORMAT = {"format": "esnlm likelihood", "format_version": 1}
FIGURES = (
    "nll",
    "nll_without_eos",
    "bits_per_byte",
    "nats_per_word",
    "perplexity",
    "nats",
    "eos_nats",
)
COLUMNS = FIGURES[:5]  # of the table
COUNTS = ("sentences", "tokens", "words", "bytes")


def measure_run(
    run: str | Path,
    stores: Sequence[Path] = (),
    texts: Sequence[Path] = (),
    step: Step = None,
    untrained: bool = False,
    out: Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> dict:
    """Measures token stores and texts (one sentence per line) with a run, prints a table, and
    writes it to a JSON file.

    Checks all input before it measures. Returns the content of the JSON file.
    """
    if not stores and not texts:
        raise InputError("nothing to measure: give token stores (--store), texts (--text) or both")
    report = None if out is None else Report(out, command)
    if report is not None:
        report.check(overwrite)
    with working(f"loading {run}"):
        loaded = loaded_run.load(run, step=step, untrained=untrained)
    opened = [(full_name(store), open_store(store)) for store in stores]
    opened += [(str(text), encode_file(text, loaded.tokenizer)) for text in texts]
    for _, text in opened:
        loaded.require_store(text)
    baselines, notes = _baselines(loaded)
    result = {
        **FORMAT,
        "run": loaded.name,
        "step": loaded.step,
        "config_sha256": config_sha256(loaded),
        "tokenizer": {
            name: getattr(loaded.tokenizer, name) for name in ("name", "sha256", "vocab_size")
        },
        "texts": [_measure(loaded, baselines, path, text) for path, text in opened],
        "notes": notes,
    }
    _show(result)  # first, so that the figures are not lost if the file cannot be written
    if report is not None:
        report.write(result)
    return result


def _baselines(run: Run) -> tuple[dict[str, Any], list[str]]:
    """Returns the n-gram baselines of a run by name, and a note for each that is not available."""
    if (unigram := run.unigram()) is None:
        return {}, [
            "no unigram or bigram model: this run was imported, and its training text is unknown"
        ]
    try:
        with stage("counting the training text for the bigram model"):
            return {"unigram": unigram, "bigram": run.bigram()}, []
    except InputError as error:
        return {"unigram": unigram}, [
            f"no bigram model, which needs the run's training store: {error}"
        ]


def _measure(run: Run, baselines: dict[str, Any], path: str, text: TokenStore) -> dict:
    """Returns the JSON file's entry for a text: its path, its size, and the figures of each
    model."""
    found = {"model": run.likelihood(text, progress=True)}
    found |= {name: of_ngrams(model, text) for name, model in baselines.items()}
    return {
        "path": path,
        "sha256": text.tokens_sha256,
        **{name: getattr(found["model"], name) for name in COUNTS},
        "models": {
            name: {key: getattr(its, key) for key in FIGURES} for name, its in found.items()
        },
    }


def _show(result: dict) -> None:
    """Prints one row per text and model, then the size of each text and the notes."""
    screen = Screen()
    screen.line(
        f"{result['run']}, step {result['step']}: NLL in nats per predicted token, with EOS except"
        " in 'NLL without EOS'"
    )
    rows = []
    for text in result["texts"]:
        for i, (name, figures) in enumerate(text["models"].items()):
            names = ["" if i else text["path"], result["run"] if name == "model" else name]
            rows.append([*names, *(spell(name, figures[name]) for name in COLUMNS)])
    screen.table(["text", "model", *titles(COLUMNS)], rows, align="llr")
    for text in result["texts"]:
        counts = f"{text['sentences']:,} sentences, {text['tokens']:,} predicted tokens"
        screen.line(f"{text['path']}: {counts}, {text['words']:,} words, {text['bytes']:,} bytes")
    for note in result["notes"]:
        screen.line(note)
