"""The learning curve of a run, from its checkpoints to the figures, the page and the picture."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from esnlm import loaded_run
from esnlm.compute import in_float32
from esnlm.config import TrainingConfig
from esnlm.data.store import TokenStore, open_store
from esnlm.errors import InputError, require
from esnlm.evaluation import conventions, minimal_pairs
from esnlm.evaluation.evaluate import config_sha256, evaluate
from esnlm.evaluation.likelihood import Likelihood, of_ngrams
from esnlm.evaluation.minimal_pairs import Item
from esnlm.interchange.revisions import words_of_checkpoints
from esnlm.io.atomic import require_writable, write_file, writing
from esnlm.io.console import stage, working
from esnlm.io.json_file import parse_json, write_json
from esnlm.io.remote import full_name, is_url
from esnlm.io.sealed_folder import MANIFEST, file_sha256
from esnlm.loaded_run import Run
from esnlm.models.ngrams import NgramModel, WittenBellModel
from esnlm.provenance import provenance
from esnlm.reporting import learning_curve
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import batches

FORMAT = {"format": "esnlm learning curve", "format_version": 1}
CLOSE = 0.01  # [ours] a checkpoint that has read at most this share more than another is at the same point of the curve


@in_float32
def measure_curve(
    run: str | Path,
    store: Path,
    data: Sequence[str | Path] | None = None,
    scoring: str | None = None,
    order: int = 5,
    out: Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> dict:
    """Measures every saved checkpoint of a run, and writes the figures (.json), the page (.md) and the picture (.png).

    The figures are written after each checkpoint. Called again with the same arguments, it goes on where it was broken off.

    Args:
        run: the run directory.
        store: the token store whose NLL is measured.
        data: minimal pairs; None: none are scored.
        scoring: the name of their convention; None: paper.
        order: n of the largest n-gram model, at least 2.
        out: the JSON file; None: RUN/evaluation/curve/curve.json.
        overwrite: whether to replace what is there. Everything is measured again then.
        command: what the figures name as their origin.

    Returns:
        The figures, as the JSON file has them.

    Raises:
        InputError: the run, its training store, the text, the pairs or the place of the figures is not usable, or the run
            is named by a URL.
    """
    require(scoring is None or bool(data), f"--scoring {scoring}: no minimal pairs are scored; name them with --data")
    scoring = scoring or "paper"
    conventions.get(scoring)
    require(order >= 2, f"--order {order}: give 2 (a bigram model) or more")
    require(not is_url(run), f"{run}: a learning curve reads all checkpoints; copy the run to this machine first")
    with working(f"loading {run}"):
        newest = loaded_run.load(run)
    directory = RunDirectory(newest.directory)
    words = _checkpoints(newest, directory)
    validation = open_store(store)
    newest.require_store(validation)
    text = newest.training_store()
    assert text is not None  # `_checkpoints` has refused a run without one
    pairs = minimal_pairs.load(data) if data else []
    path = out or directory.evaluation / "curve" / "curve.json"
    result = {
        **FORMAT,
        "run": newest.name,
        "config_sha256": config_sha256(newest),
        "order": order,
        "validation": {
            "path": full_name(store),
            "sha256": validation.manifest["sha256"]["tokens.bin"],
            "tokens": len(validation.tokens) - len(validation),
            "words": int(validation.words.sum(dtype=np.int64)),
        },
        "pairs": {"scoring": scoring, "pairs": len(pairs), "sha256": minimal_pairs.digest(pairs)} if pairs else None,
        "units": "nll: nats per predicted token, with and without EOS; accuracies in percent; words: of training text",
    }
    saved = {step: _digest(directory.checkpoints / str(step)) for step in words}
    known = _known_points(path, result, saved, overwrite)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    require_writable(path)
    if newest.config.parent.run is not None:
        result["parent"] = newest.config.parent.run
    # A point stays whose checkpoint is gone by now; not one that is passed over since another one stands right behind it, and not one of
    # a training before that got further.
    gone = set(range(newest.step)).difference(checkpoint.all_steps(directory.checkpoints))
    result["points"] = points = [point for point in known if point["step"] in words or point["step"] in gone]
    for step, count in words.items():
        if step not in {point["step"] for point in points}:
            point = _measure(newest, step, count, validation, text, pairs, scoring, order)
            points.append(point | {"checkpoint_sha256": saved[step]})
            points.sort(key=lambda point: point["words"])
            result["provenance"] = provenance(command)
            write_json(path, result)
    write_file(path.with_suffix(".md"), learning_curve.markdown(result))
    picture, note = learning_curve.plot(result)
    if picture is not None:
        write_file(path.with_suffix(".png"), picture)
    learning_curve.show(result)
    print(f"written: {path} (and .md{'' if note else ', .png'} beside it){f'; {note}' if note else ''}")
    return result


def sentences_read(lengths: np.ndarray, training: TrainingConfig, seed: int, step: int) -> np.ndarray:
    """Returns the numbers of the sentences that a run has read after `step` updates, ascending.

    Args:
        lengths: tokens of each sentence of the training store, (sentences,).
        training: the settings of the training.
        seed: the run's seed.
        step: updates since the beginning of the run.
    """
    if step * training.batch_size >= len(lengths):
        return np.arange(len(lengths))
    plan = batches.plan_epoch(lengths, seed, 0, training.batch_size, 1, training.order)
    return np.sort(np.concatenate(plan.updates[:step]))


def _checkpoints(run: Run, directory: RunDirectory) -> dict[int, int]:
    """Returns the words that each saved checkpoint has read, by step and ascending. Raises InputError where there is no curve."""
    require(
        run.config.data.has_corpus,
        f"{run.directory}: this run was imported: it has no training text and no learning curve",
    )
    kind = run.config.training.kind
    require(
        isinstance(run.config.training, TrainingConfig),
        f"{run.directory}: its readout was fitted by {kind}: a learning curve needs a run that was trained by updates",
    )
    saved = [(step, count) for step, count in sorted(words_of_checkpoints(directory).items()) if count]
    following = [count for _, count in saved[1:]] + [None]
    # The last checkpoint of a run may stand right behind one that was asked for: of two such points the last is enough.
    words = {
        step: count
        for (step, count), after in zip(saved, following, strict=True)
        if after is None or after > (1 + CLOSE) * count
    }
    require(
        len(words) > 0, f"{directory.checkpoints}: no checkpoint after an update: train on, or restore one from a copy"
    )
    return words


def _digest(folder: Path) -> str:
    """Returns the sha256 of a checkpoint's manifest, which tells two checkpoints of one update apart."""
    try:
        return file_sha256(folder / MANIFEST)
    except OSError as error:
        found = f"{folder / MANIFEST}: {error.strerror}"
        raise InputError(f"{found}; delete this checkpoint, or restore it from a copy") from None


def _known_points(path: Path, header: dict, saved: Mapping[int, str], overwrite: bool) -> list[dict]:
    """Returns the points that a file has of the same measurement of the same checkpoints.

    Args:
        path: the file, which need not exist.
        header: what the file has of the measurement.
        saved: the sha256 of each checkpoint's manifest, by step.
        overwrite: whether to go on without what is there.

    Raises:
        InputError: The file holds something else, and is not to be overwritten.
    """
    require(
        path.suffix == ".json" and not path.is_dir(), f"{path}: no name for a JSON file; give one such as curve.json"
    )
    if overwrite:
        return []
    if not os.path.lexists(path):
        for beside in (path.with_suffix(".md"), path.with_suffix(".png")):
            require(not os.path.lexists(beside), f"{beside}: exists; name another file with --out, or give --overwrite")
        return []
    try:
        found = parse_json(path.read_bytes())
        same = _without_path({key: found[key] for key in header}) == _without_path(json.loads(json.dumps(header)))
        points = [_with_numbers(point) for point in found["points"]]
        # A run that was trained again under its name has other checkpoints of the same updates.
        changed = [p["step"] for p in points if p["step"] in saved and p.get("checkpoint_sha256") != saved[p["step"]]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        same = False
    if not same:
        raise InputError(
            f"{path}: holds something else than this curve; name another file with --out, or give --overwrite"
        )
    require(
        not changed,
        f"{path}: was measured on another checkpoint of update {min(changed, default=0)} than the run has now, or by an earlier"
        " version, which did not note its checkpoints; name another file with --out, or give --overwrite to measure all again",
    )
    return points


def _without_path(header: dict) -> dict:
    """Returns a header without the name of the validation text, which its sha256 tells from others."""
    return header | {"validation": {key: value for key, value in header["validation"].items() if key != "path"}}


def _with_numbers(point: dict) -> dict:
    """Returns a point that was read from a file, where the NLL of a diverged run is spelled "inf" or "nan"."""
    figures = ("nll", "nll_without_eos")
    return point | {figure: {name: float(nll) for name, nll in point[figure].items()} for figure in figures}


def _measure(
    newest: Run,
    step: int,
    words: int,
    validation: TokenStore,
    text: TokenStore,
    pairs: Sequence[Item],
    scoring: str,
    order: int,
) -> dict:
    """Returns one point of the curve."""
    with stage(f"counting the {words:,} words that the run has read"):
        baselines = _ngrams(newest, text, step, order)
    run = loaded_run.load(newest.directory, step=step)
    found = {"model": run.likelihood(validation, progress=True)}
    found |= {name: of_ngrams(model, validation) for name, model in baselines.items()}
    point = {"step": step, "words": words, "nll": _nll(found, "nll"), "nll_without_eos": _nll(found, "nll_without_eos")}
    if pairs:
        evaluation = evaluate(run, pairs, scoring, baselines, progress=True).result
        kept = ("length", *baselines)
        point["pairs"] = {
            "status": evaluation["status"],
            "chance": evaluation.get("chance", 50),  # reports of pairs do not name it, and tests of regions have none
            "model": _accuracies(evaluation),
            **{name: _accuracies(evaluation["baselines"][name]) for name in kept},
        }
    return point


def _ngrams(run: Run, text: TokenStore, step: int, order: int) -> dict[str, NgramModel]:
    """Returns n-gram models of what the run has read after `step` updates, by name."""
    training = run.config.training
    assert isinstance(training, TrainingConfig)
    read = _Sentences(text, sentences_read(text.lengths, training, run.config.seed, step))
    largest = WittenBellModel.fit(read, run.tokenizer.vocab_size, order)
    found: dict[str, NgramModel] = {"unigram": largest.unigram, "bigram": largest.lower(2)}
    return found if order == 2 else found | {f"{order}-gram": largest}


class _Sentences:
    """Sentences of a store, read anew whenever they are gone through: a list of them takes as much again as the counts of some orders."""

    def __init__(self, store: TokenStore, numbers: Sequence[int] | np.ndarray) -> None:
        self._store, self._numbers = store, numbers

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self._store.sentence(int(number)) for number in self._numbers)


def _nll(found: Mapping[str, Likelihood], figure: str) -> dict[str, float]:
    return {name: getattr(likelihood, figure) for name, likelihood in found.items()}


def _accuracies(tree: dict) -> dict:
    """Returns accuracies with their intervals, and by how much the run is above a baseline, overall and by phenomenon."""
    above = tree.get("run_above")

    def entry(found: dict, difference: dict | None) -> dict:
        kept = {name: found[name] for name in ("accuracy", "interval")}
        return (
            kept if difference is None else kept | {"run_above": {k: difference[k] for k in ("difference", "interval")}}
        )

    return {
        "overall": entry(tree["overall"], above and above["overall"]),
        "phenomena": {
            name: entry(found, above and above["phenomena"][name]) for name, found in tree["phenomena"].items()
        },
    }
