"""Draws the learning curve of a run: NLL and minimal-pair accuracy of each saved checkpoint by
words of training text.

The baselines are a unigram, a bigram and a Witten-Bell n-gram model, counted on the sentences that
the run had read at each checkpoint. The page lists the words after which the run leads each, in
NLL, on all minimal pairs (with --data) and by phenomenon.

`training.checkpoint_words` keeps the checkpoints to measure. The same command resumes an
interrupted measurement.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from esnlm.base.console import spinner
from esnlm.base.errors import InputError
from esnlm.commands.arguments import PAIRS, RUN, SCORING, Argument, load_run, local_path

if TYPE_CHECKING:
    import numpy as np

    from esnlm.data.store import TokenStore
    from esnlm.evaluation.minimal_pairs import Pair
    from esnlm.loaded_run import Run
    from esnlm.models.ngrams import NgramModel

FORMAT = {"format": "esnlm learning curve", "format_version": 1}
# [ours] checkpoints whose words differ by at most this share are one point of the curve
CLOSE = 0.01


ARGUMENTS = [
    RUN,
    Argument(
        "--store", required=True, type=Path, metavar="STORE", help="token store to measure NLL on"
    ),
    PAIRS,
    SCORING,
    Argument(
        "--order",
        type=int,
        default=5,
        metavar="N",
        help="order of the largest n-gram model (default: %(default)s)",
    ),
    Argument(
        "--out",
        type=local_path,
        metavar="FILE",
        help="JSON file for the figures, with .md and .png beside it (default:"
        " DIR/evaluation/curve/curve.json)",
    ),
    Argument(
        "--overwrite",
        action="store_true",
        help="measure all checkpoints again and replace existing figures",
    ),
]


def run(args: argparse.Namespace) -> None:
    """Measures every saved checkpoint, writing the figures after each, and then the page and the
    plot."""
    from esnlm import loaded_run
    from esnlm.data.store import open_store
    from esnlm.evaluation import minimal_pairs
    from esnlm.evaluation.evaluate import config_sha256
    from esnlm.reports import learning_curve, plots
    from esnlm.reports.report import Report
    from esnlm.runs.directory import RunDirectory

    if args.order < 2:
        raise InputError(f"--order {args.order}: give 2 (a bigram model) or more")
    newest = load_run(args)
    directory = RunDirectory(newest.directory)
    words = _words_by_step(newest)
    validation = open_store(args.store)
    newest.check_store(validation)
    text = newest.training_store()
    assert text is not None  # `_words_by_step` rejects runs without one
    pairs = minimal_pairs.load(args.data) if args.data else []
    report = Report(args.out or directory.evaluation / "curve" / "curve.json", args.command)
    header = {
        **FORMAT,
        "run": newest.name,
        "config_sha256": config_sha256(newest),
        "order": args.order,
        "validation": {
            "path": str(args.store),
            "sha256": validation.manifest["sha256"]["tokens.bin"],
            "tokens": len(validation.tokens) - len(validation),
            "words": int(validation.words.sum(dtype="int64")),
        },
        "pairs": None,
        "units": (
            "nll: nats per predicted token, with and without EOS; accuracies in percent; words: of"
            " training text"
        ),
    }
    if pairs:
        digest = minimal_pairs.digest(pairs)
        header["pairs"] = {"scoring": args.scoring, "pairs": len(pairs), "sha256": digest}
    points = [] if args.overwrite else _read_points(report.file, header)
    report.check()
    result = header | {"points": points}
    if newest.config.parent.run is not None:
        result["parent"] = newest.config.parent.run
    measured = {point["step"] for point in points}
    for step, count in words.items():
        if step in measured:
            continue
        with spinner(f"counting the {count:,} words that the run has read", announce=True):
            ngrams = _count_ngrams(newest, text, step, args.order)
        checkpoint = loaded_run.load(newest.directory, step=step)
        figures = _measure(checkpoint, validation, ngrams, pairs, args.scoring)
        points.append({"step": step, "words": count, **figures})
        points.sort(key=lambda point: point["words"])
        report.write(result)
    page = learning_curve.markdown(result)
    picture, note = plots.render(lambda: learning_curve.draw(result))
    written = report.write(result, page, picture)
    print(page)
    print("; ".join(filter(None, [written, note])))


def _words_by_step(run: "Run") -> dict[int, int]:
    """Returns the number of words read by each saved checkpoint, by step, ascending."""
    from esnlm.runs import checkpoint
    from esnlm.runs.directory import RunDirectory

    if run.config.fitter is not None or not run.config.data.has_corpus:
        raise InputError(
            f"{run.directory}: imported or fitted by regression: a curve needs training by updates"
        )
    directory = RunDirectory(run.directory)
    saved = {
        step: n for step, n in sorted(checkpoint.words_by_step(directory.checkpoints).items()) if n
    }
    # The last checkpoint of a run may closely follow a requested one; the last of the two is
    # enough.
    following = [*list(saved.values())[1:], math.inf]
    words = {
        step: n
        for (step, n), after in zip(saved.items(), following, strict=True)
        if after > (1 + CLOSE) * n
    }
    if not words:
        raise InputError(
            f"{directory.checkpoints}: no checkpoint after an update: train on, or restore one from"
            " a copy"
        )
    return words


def _read_points(path: Path, header: dict) -> list[dict]:
    """Returns the points of an earlier, unfinished measurement; the path of its text may differ."""
    if not path.exists():
        return []
    try:
        result = json.loads(path.read_bytes())
        matches = [
            result[key] == header[key] for key in ("format", "config_sha256", "order", "pairs")
        ]
        matches.append(result["validation"]["sha256"] == header["validation"]["sha256"])
    except (ValueError, KeyError, TypeError):
        matches = [False]
    if not all(matches):
        raise InputError(
            f"{path}: holds other data than this curve; name another file with --out, or give"
            " --overwrite"
        )
    for point in result["points"]:
        for key in ("nll", "nll_without_eos"):  # "inf" or "nan" in a diverged run
            point[key] = {name: float(nll) for name, nll in point[key].items()}
    return list(result["points"])


def _measure(
    run: "Run",
    validation: "TokenStore",
    ngrams: "Mapping[str, NgramModel]",
    pairs: "Sequence[Pair]",
    scoring: str,
) -> dict:
    """Returns the figures of a checkpoint and of n-gram models of the same words."""
    from esnlm.evaluation.evaluate import evaluate
    from esnlm.evaluation.likelihood import of_ngrams

    likelihoods = {"model": run.likelihood(validation, progress=True)}
    likelihoods |= {name: of_ngrams(model, validation) for name, model in ngrams.items()}
    figures: dict = {
        key: {name: getattr(likelihood, key) for name, likelihood in likelihoods.items()}
        for key in ("nll", "nll_without_eos")
    }
    if pairs:
        result = evaluate(run, pairs, scoring, ngrams, progress=True).result
        figures["pairs"] = {
            "status": result["status"],
            "chance": result.get("chance", 50),  # reports on pairs leave it out
            "model": _accuracies(result),
            **{name: _accuracies(result["baselines"][name]) for name in ("length", *ngrams)},
        }
    return figures


def _accuracies(result: dict) -> dict:
    """Returns accuracies and, of a baseline, the run's lead, overall and by phenomenon."""
    lead = result.get("run_above")

    def select(entry: dict, difference: dict | None) -> dict:
        selected = {name: entry[name] for name in ("accuracy", "interval")}
        if difference is not None:
            selected["run_above"] = {name: difference[name] for name in ("difference", "interval")}
        return selected

    phenomena = {
        name: select(entry, lead and lead["phenomena"][name])
        for name, entry in result["phenomena"].items()
    }
    return {"overall": select(result["overall"], lead and lead["overall"]), "phenomena": phenomena}


def _count_ngrams(run: "Run", text: "TokenStore", step: int, order: int) -> "dict[str, NgramModel]":
    """Returns n-gram models of the text that the run has read after `step` updates, by name."""
    import numpy as np

    from esnlm.models.ngrams import NgramModel
    from esnlm.training import batches

    numbers = np.concatenate(batches.plan_of(run.config, text, epoch=0).updates[:step])
    largest = NgramModel.fit(_Sentences(text, np.sort(numbers)), run.tokenizer.vocab_size, order)
    models: dict[str, NgramModel] = {"unigram": largest.lower(1), "bigram": largest.lower(2)}
    if order > 2:
        models[f"{order}-gram"] = largest
    return models


@dataclass(frozen=True)
class _Sentences:
    """Sentences of a store, read again in each iteration, since a list would take much memory."""

    store: "TokenStore"
    numbers: "np.ndarray"

    def __iter__(self) -> "Iterator[np.ndarray]":
        return (self.store.sentence(int(number)) for number in self.numbers)
