"""Measures the likelihood of texts under a trained run, beside unigram and bigram models of its
training text.

Prints NLL (nats per predicted token) with and without EOS, bits per byte, nats per word and
perplexity. All figures but "without EOS" include the nats of EOS, which counts as no word and no
bytes. Words are separated by white space.

--text reads one sentence per line and keeps all sentences; of records and tables, the lines of the
field `text`. To split running text into sentences, make a store: esnlm prepare --input FILE
--tokenizer DIR/tokenizer --out STORE, which also drops sentences of fewer than 6 tokens.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.base.console import spinner
from esnlm.base.errors import InputError
from esnlm.base.remote import full_name
from esnlm.commands.arguments import (
    CACHE,
    OVERWRITE,
    RUN,
    SEVERAL,
    STEP,
    UNTRAINED,
    Argument,
    OneOf,
    load_run,
    local_path,
)

if TYPE_CHECKING:
    from esnlm.data.store import TokenStore
    from esnlm.loaded_run import Run

FORMAT = {"format": "esnlm likelihood", "format_version": 1}
COUNTS = ("sentences", "tokens", "words", "bytes")
COLUMNS = ("nll", "nll_without_eos", "bits_per_byte", "nats_per_word", "perplexity")
FIGURES = (*COLUMNS, "nats", "eos_nats")  # of a model, in the file


ARGUMENTS = [
    RUN,
    Argument(
        "--store",
        dest="stores",
        **SEVERAL,
        type=Path,
        default=[],
        metavar="STORE",
        help="token stores to measure",
    ),
    Argument(
        "--text",
        dest="texts",
        **SEVERAL,
        type=Path,
        default=[],
        metavar="FILE",
        help="texts, one sentence per line; a blank line ends a document",
    ),
    OneOf(
        STEP,
        UNTRAINED,
    ),
    CACHE,
    Argument(
        "--out", type=local_path, metavar="FILE", help="JSON file for the figures (default: none)"
    ),
    OVERWRITE,
]


def run(args: argparse.Namespace) -> None:
    """Measures all texts, prints a table and writes the file. Checks all input first."""
    from esnlm.data.encode import encode_file
    from esnlm.data.store import open_store
    from esnlm.evaluation.evaluate import config_sha256
    from esnlm.reports.report import Report

    if not args.stores and not args.texts:
        raise InputError("nothing to measure: give token stores (--store), texts (--text) or both")
    report = None if args.out is None else Report(args.out, args.command)
    if report is not None:
        report.check(args.overwrite)
    loaded = load_run(args)
    texts = [(full_name(store), open_store(store)) for store in args.stores]
    texts += [(str(text), encode_file(text, loaded.tokenizer)) for text in args.texts]
    for _, text in texts:
        loaded.check_store(text)
    baselines, notes = _baselines(loaded)
    result = {
        **FORMAT,
        "run": loaded.name,
        "step": loaded.step,
        "config_sha256": config_sha256(loaded),
        "tokenizer": {
            name: getattr(loaded.tokenizer, name) for name in ("name", "sha256", "vocab_size")
        },
        "texts": [_measure(loaded, baselines, path, text, args.cache) for path, text in texts],
        "cache": dataclasses.asdict(loaded.cache_fit) if args.cache else None,
        "notes": notes,
    }
    _print_table(result)  # first, so that the figures are not lost if the file cannot be written
    if report is not None:
        report.write(result)


def _baselines(run: "Run") -> tuple[dict[str, Any], list[str]]:
    """Returns the n-gram baselines of a run by name, and a note if one is not available."""
    if (unigram := run.unigram()) is None:
        return {}, [
            "no unigram or bigram model: this run was imported, and its training text is unknown"
        ]
    try:
        with spinner("counting the training text for the bigram model", announce=True):
            return {"unigram": unigram, "bigram": run.bigram()}, []
    except InputError as error:
        note = f"no bigram model, which needs the run's training store: {error}"
        return {"unigram": unigram}, [note]


def _measure(
    run: "Run", baselines: dict[str, Any], path: str, text: "TokenStore", cache: bool
) -> dict:
    """Returns the file's entry for a text: its path, its size, and the figures of each model."""
    from esnlm.evaluation.cache import FITTED
    from esnlm.evaluation.likelihood import of_ngrams

    likelihoods = {"model": run.likelihood(text, progress=True, cache=cache)}
    likelihoods |= {name: of_ngrams(model, text) for name, model in baselines.items()}
    return {
        "path": path,
        "sha256": text.tokens_sha256,
        "note": FITTED if cache and text.tokens_sha256 == run.cache_fit.store_sha256 else None,
        **{name: getattr(likelihoods["model"], name) for name in COUNTS},
        "models": {
            name: {figure: getattr(likelihood, figure) for figure in FIGURES}
            for name, likelihood in likelihoods.items()
        },
    }


def _print_table(result: dict) -> None:
    """Prints one row per text and model, then the size of each text and the notes."""
    from esnlm.base.screen import Screen
    from esnlm.reports.figures import format_figure, titles

    screen = Screen()
    name = f"{result['run']}, step {result['step']}" + ", with the cache" * bool(result["cache"])
    screen.line(f"{name}: NLL in nats per predicted token, with EOS except in 'NLL without EOS'")
    rows = []
    for text in result["texts"]:
        for model, figures in text["models"].items():
            is_run = model == "model"
            labels = [text["path"] if is_run else "", result["run"] if is_run else model]
            rows.append([*labels, *(format_figure(name, figures[name]) for name in COLUMNS)])
    screen.table(["text", "model", *titles(COLUMNS)], rows, align="llr")
    for text in result["texts"]:
        counts = f"{text['sentences']:,} sentences, {text['tokens']:,} predicted tokens"
        screen.line(f"{text['path']}: {counts}, {text['words']:,} words, {text['bytes']:,} bytes")
    for note in result["notes"]:
        screen.line(note)
