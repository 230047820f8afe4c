"""Measures the learning curve of a run, from its checkpoints to the figures, the page and the
plot."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from esnlm import loaded_run
from esnlm.base.console import stage, working
from esnlm.base.errors import InputError
from esnlm.data.store import TokenStore, open_store
from esnlm.evaluation import conventions, minimal_pairs
from esnlm.evaluation.evaluate import config_sha256, evaluate
from esnlm.evaluation.likelihood import of_ngrams
from esnlm.evaluation.minimal_pairs import Pair
from esnlm.interchange.revisions import words_of_checkpoints
from esnlm.loaded_run import Run
from esnlm.machine.compute import in_float32
from esnlm.models.ngrams import NgramModel, WittenBellModel
from esnlm.reports import learning_curve, plots
from esnlm.reports.report import Report
from esnlm.runs.directory import RunDirectory
from esnlm.training import batches

FORMAT = {"format": "esnlm learning curve", "format_version": 1}
# [ours] checkpoints whose words differ by at most this share are one point of the curve
CLOSE = 0.01


@in_float32
def measure_curve(
    run: str | Path,
    store: Path,
    data: Sequence[str | Path] | None = None,
    scoring: str = "paper",
    order: int = 5,
    out: Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> dict:
    """Measures every saved checkpoint of a run, and writes the figures (.json), the page (.md) and
    the plot (.png).

    Writes the figures after each checkpoint, to `out` or RUN/evaluation/curve/curve.json. A second
    call with the same arguments resumes an interrupted measurement; with `overwrite` it measures
    all again.
    """
    if order < 2:
        raise InputError(f"--order {order}: give 2 (a bigram model) or more")
    conventions.get(scoring)
    with working(f"loading {run}"):
        newest = loaded_run.load(run)
    directory = RunDirectory(newest.directory)
    words = _checkpoints(newest, directory)
    validation = open_store(store)
    newest.require_store(validation)
    text = newest.training_store()
    assert text is not None  # `_checkpoints` rejects runs without one
    pairs = minimal_pairs.load(data) if data else []
    report = Report(out or directory.evaluation / "curve" / "curve.json", command)
    result = {
        **FORMAT,
        "run": newest.name,
        "config_sha256": config_sha256(newest),
        "order": order,
        "validation": {
            "path": str(store),
            "sha256": validation.manifest["sha256"]["tokens.bin"],
            "tokens": len(validation.tokens) - len(validation),
            "words": int(validation.words.sum(dtype=np.int64)),
        },
        "pairs": (
            {"scoring": scoring, "pairs": len(pairs), "sha256": minimal_pairs.digest(pairs)}
            if pairs
            else None
        ),
        "units": (
            "nll: nats per predicted token, with and without EOS; accuracies in percent; words: of"
            " training text"
        ),
    }
    result["points"] = points = [] if overwrite else _known_points(report.file, result)
    report.check()
    if newest.config.parent.run is not None:
        result["parent"] = newest.config.parent.run
    for step in [step for step in words if step not in {point["step"] for point in points}]:
        with stage(f"counting the {words[step]:,} words that the run has read"):
            ngrams = _ngrams(newest, text, step, order)
        measured = _measure(
            loaded_run.load(newest.directory, step=step), validation, ngrams, pairs, scoring
        )
        points.append({"step": step, "words": words[step], **measured})
        points.sort(key=lambda point: point["words"])
        report.write(result)
    page = learning_curve.markdown(result)
    picture, note = plots.render(lambda: learning_curve.draw(result))
    written = report.write(result, page, picture)
    print(page)
    print("; ".join(filter(None, [written, note])))
    return result


def _checkpoints(run: Run, directory: RunDirectory) -> dict[int, int]:
    """Returns the number of words read by each saved checkpoint, by step, ascending."""
    if run.config.fitter is not None or not run.config.data.has_corpus:
        raise InputError(
            f"{run.directory}: imported or fitted by regression: a curve needs training by updates"
        )
    saved = [
        (step, count) for step, count in sorted(words_of_checkpoints(directory).items()) if count
    ]
    # The last checkpoint of a run may closely follow a requested one; the last of the two is
    # enough.
    following = [count for _, count in saved[1:]] + [np.inf]
    words = {
        step: n
        for (step, n), after in zip(saved, following, strict=True)
        if after > (1 + CLOSE) * n
    }
    if not words:
        raise InputError(
            f"{directory.checkpoints}: no checkpoint after an update: train on, or restore one from"
            " a copy"
        )
    return words


def _known_points(path: Path, header: dict) -> list[dict]:
    """Returns the points of an earlier, unfinished measurement; the path of its text may differ."""
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_bytes())
        same = all(
            found[key] == header[key] for key in ("format", "config_sha256", "order", "pairs")
        )
        same = same and found["validation"]["sha256"] == header["validation"]["sha256"]
    except (ValueError, KeyError, TypeError):
        same = False
    if not same:
        advice = "name another file with --out, or give --overwrite"
        raise InputError(f"{path}: holds other data than this curve; {advice}")
    for point in found["points"]:
        for key in ("nll", "nll_without_eos"):  # "inf" or "nan" in a diverged run
            point[key] = {name: float(nll) for name, nll in point[key].items()}
    return list(found["points"])


def _measure(
    run: Run,
    validation: TokenStore,
    ngrams: Mapping[str, NgramModel],
    pairs: Sequence[Pair],
    scoring: str,
) -> dict:
    """Returns a point of the curve: the figures of a checkpoint and of n-gram models of the same
    words."""
    found = {"model": run.likelihood(validation, progress=True)}
    found |= {name: of_ngrams(model, validation) for name, model in ngrams.items()}
    point: dict = {
        key: {name: getattr(each, key) for name, each in found.items()}
        for key in ("nll", "nll_without_eos")
    }
    if pairs:
        result = evaluate(run, pairs, scoring, ngrams, progress=True).result
        point["pairs"] = {
            "status": result["status"],
            "chance": result.get("chance", 50),  # reports on pairs leave it out
            "model": _accuracies(result),
            **{name: _accuracies(result["baselines"][name]) for name in ("length", *ngrams)},
        }
    return point


def _accuracies(tree: dict) -> dict:
    """Returns accuracies with intervals, and the run's lead over a baseline, overall and by
    phenomenon."""
    above = tree.get("run_above")

    def entry(found: dict, difference: dict | None) -> dict:
        kept = {name: found[name] for name in ("accuracy", "interval")}
        if difference is not None:
            kept["run_above"] = {name: difference[name] for name in ("difference", "interval")}
        return kept

    phenomena = {
        name: entry(each, above and above["phenomena"][name])
        for name, each in tree["phenomena"].items()
    }
    return {"overall": entry(tree["overall"], above and above["overall"]), "phenomena": phenomena}


def _ngrams(run: Run, text: TokenStore, step: int, order: int) -> dict[str, NgramModel]:
    """Returns n-gram models of the text that the run has read after `step` updates, by name."""
    numbers = np.concatenate(batches.plan_of(run.config, text, epoch=0).updates[:step])
    read = _Sentences(text, np.sort(numbers))
    largest = WittenBellModel.fit(read, run.tokenizer.vocab_size, order)
    found: dict[str, NgramModel] = {"unigram": largest.unigram, "bigram": largest.lower(2)}
    return found if order == 2 else found | {f"{order}-gram": largest}


class _Sentences:
    """Sentences of a store, read again in each iteration, since a list would take as much memory as
    the counts."""

    def __init__(self, store: TokenStore, numbers: np.ndarray) -> None:
        self._store, self._numbers = store, numbers

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self._store.sentence(int(number)) for number in self._numbers)
