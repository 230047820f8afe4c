"""Running the zero-shot sets of BabyLM's evaluation pipeline with a run, up to the files that the pipeline would write."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.errors import require
from esnlm.evaluation import conventions
from esnlm.evaluation.evaluate import config_sha256
from esnlm.interchange import babylm_data, babylm_scoring
from esnlm.interchange.babylm_data import AOA, FOLDERS, READING, Item, Reading
from esnlm.interchange.revisions import remarks, revision_name, revision_names, words_of_checkpoints
from esnlm.io.atomic import require_folders_above, require_writable, write_files, writing
from esnlm.io.console import say, tell, working
from esnlm.io.json_file import json_text, parse_json
from esnlm.io.remote import run_copy
from esnlm.io.screen import Screen
from esnlm.loaded_run import Run, Step, load
from esnlm.provenance import provenance
from esnlm.runs.directory import RunDirectory

FORMAT = "esnlm babylm"
FORMAT_VERSION = 1
MAIN = "main"  # the revision of a model as it is at last
PREDICTIONS, SURPRISALS, SCORES = "predictions.json", "surprisal.json", "scores.json"
AOA_FOLDER = "AoA_word"
SAME = ("run", "config_sha256", "step", "scoring")  # in all files of scores of a revision


def evaluate_babylm(
    run: str | Path,
    data: str | Path,
    out: str | Path | None = None,
    model_name: str | None = None,
    sets: Sequence[str] | None = None,
    step: Step = None,
    all_checkpoints: bool = False,
    bos: bool = False,
    overwrite: bool = False,
    command: str | None = None,
) -> list[dict]:
    """Scores sets of the pipeline's data, writes the files of predictions and prints the scores.

    All of the data is read before anything is scored. The files of a set are written together, once the set is scored.

    Args:
        run: the run directory.
        data: the pipeline's folder full_eval or fast_eval.
        out: the folder of results; None: RUN/evaluation/babylm.
        model_name: the folder of the model in it; None: the name of the run.
        sets: names of sets; None: all that the data has.
        step: the checkpoint of this step, under the name of its revision; None: the newest, as `main`.
        all_checkpoints: whether to score every checkpoint at a number of words that the pipeline asks for. Only so are
            surprisals for the age of acquisition computed.
        bos: whether BOS stands before every text, as with a tokenizer that adds it.
        overwrite: whether to replace predictions that are there, and to keep sets of another model, step or convention beside them.
        command: what the files of scores name as their origin.

    Returns:
        What was written into each scores.json.

    Raises:
        InputError: the run, its checkpoints, the data or the place of the results is not usable.
    """
    if all_checkpoints or step is not None:
        run = run_copy(run, every_step=True)
    with working(f"loading {run}"):
        newest = load(run, step=step)
    directory = RunDirectory(newest.directory)
    name = model_name or newest.name
    is_word = Path(name).name == name != ".."
    require(is_word, f"model name {name!r}: it names a folder of the results: give one word")
    steps = {MAIN: newest.step}
    words: dict[int, int] = {}
    if all_checkpoints or step is not None:
        words = words_of_checkpoints(directory)
        steps = {revision_name(newest.step, words): newest.step}
    if all_checkpoints:
        steps = {revision: its_step for its_step, revision in revision_names(words).items()}
        require(
            len(steps) > 0,
            f"{directory.checkpoints}: no checkpoint at a number of words that BabyLM's pipeline asks for (1M, 2M, ...):"
            " save them in training with training.checkpoint_words",
        )
    for line in remarks(newest, words):
        tell(line)

    places = babylm_data.find_sets(Path(data), list(sets) if sets else None)
    if AOA in places and not all_checkpoints:
        require(not sets, f"set {AOA!r} needs the checkpoints of a training: give --all-checkpoints")
        tell(f"{AOA}: left out; it needs the checkpoints of a training (--all-checkpoints)")
        del places[AOA]
    sources: dict[str, Any] = {set_name: _read(set_name, place) for set_name, place in places.items()}

    results = Path(out) if out else directory.evaluation / "babylm"
    folders = {
        (revision, set_name): _folder(results / name, revision, set_name) for revision in steps for set_name in places
    }
    for folder in dict.fromkeys(folders.values()):
        require_folders_above(folder)
        file = _predictions(folder)
        require(
            overwrite or not file.exists(),
            f"{file}: exists: name another folder with --out, or replace it with --overwrite",
        )
    about = _describe(newest, name, MAIN, bos)
    written = steps | ({MAIN: newest.step} if AOA in places else {})
    for revision, its_step in written.items():
        _require_same_model(results / name / revision, about | {"step": its_step}, folders.values(), overwrite)

    for folder in dict.fromkeys(folders.values()):
        _make_folder(folder)

    made_by = provenance(command)
    found: list[dict] = []
    acquisition: list[dict] = []
    for revision, its_step in steps.items():
        loaded = newest
        if its_step != newest.step:
            with working(f"loading {run}, step {its_step}"):
                loaded = load(run, step=its_step)
        about = _describe(loaded, name, revision, bos)
        for set_name, source in sources.items():
            say(f"{revision}: {set_name}")
            if set_name == AOA:
                surprisals = babylm_scoring.aoa_surprisals(loaded, source, bos)
                millions = int(revision.removeprefix("chck_").removesuffix("M"))
                acquisition += babylm_scoring.aoa_results(revision, millions * 10**6, source, surprisals)
                continue
            predictions, scores = _score(loaded, set_name, source, bos)
            scores = about | {"set": set_name, "data_sha256": _digest(places[set_name])} | scores
            _write(folders[revision, set_name], json.dumps(predictions), scores | {"provenance": made_by})
            found.append(scores)
    if AOA in places:
        counts = {"total_steps": len(steps), "completed_steps": len(steps)}
        content = {"metadata": {"model_name": name, "use_bos_only": False} | counts, "results": acquisition}
        scores = _describe(newest, name, MAIN, bos) | {"set": AOA, "data_sha256": _digest(places[AOA])}
        scores |= {"items": len(acquisition), "revisions": steps, "scores": {}}
        _write(
            _folder(results / name, MAIN, AOA),
            json.dumps(content, indent=2),
            scores | {"provenance": made_by},
        )
        found.append(scores)
    _show(newest, bos, found)
    print(f"written: {len(found)} sets below {results / name}")
    return found


def _read(set_name: str, place: Path) -> list[Item] | Reading | dict[str, list[str]]:
    if set_name == READING:
        return babylm_data.read_reading(place)
    return babylm_data.read_aoa(place) if set_name == AOA else babylm_data.read_items(place)


def _folder(model: Path, revision: str, set_name: str) -> Path:
    """Returns the folder of a set's results, where the pipeline looks for them."""
    if set_name == AOA:
        return model / MAIN / "zero_shot" / "causal" / AOA_FOLDER
    causal = model / revision / "zero_shot" / "causal"
    return causal / READING if set_name == READING else causal / FOLDERS[set_name].task / set_name


def _require_same_model(model: Path, about: dict, replaced: Iterable[Path], overwrite: bool) -> None:
    """Raises InputError where scores of a revision are there that are of another model, step or convention.

    Args:
        model: the folder of the revision.
        about: what the new files of scores will say of the model and of the scoring.
        replaced: the folders whose files will be replaced.
        overwrite: whether to tell it only, and to keep what is there.
    """
    for file in sorted(model.glob(f"zero_shot/causal/**/{SCORES}")):
        if file.parent in replaced:
            continue
        try:
            there = dict(parse_json(file.read_bytes()))
        except (OSError, ValueError, TypeError):
            there = {}
        other = next((key for key in SAME if there.get(key) != about[key]), None)
        if other is None:
            continue
        line = f"{file}: {other} is {there.get(other)!r}, and now {about[other]!r}"
        require(
            overwrite,
            f"{line}: all sets of a submission are of one model: name another folder with --out, or keep this set with --overwrite",
        )
        tell(f"{line}: this set stays as it is")


def _describe(loaded: Run, name: str, revision: str, bos: bool) -> dict:
    """Returns what a file of scores says of the model and of the scoring."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": name,
        "revision": revision,
        "run": loaded.name,
        "step": loaded.step,
        "config_sha256": config_sha256(loaded),
        "scoring": _scoring(bos),
    }


def _scoring(bos: bool) -> str:
    """Returns the convention in words."""
    if bos:
        return "BOS and the text; every token after BOS can be scored; of equal sentences the first is chosen, which is right"
    convention = conventions.get("babylm")
    what = convention.description.partition(";")[0]
    return f"{convention.name}: {what}; its first token is not scored; of equal sentences the first is chosen, which is right"


def _score(loaded: Run, set_name: str, source: Any, bos: bool) -> tuple[dict, dict]:
    """Returns the predictions of a set, and what its file of scores says of them."""
    if set_name == READING:
        asked = list(zip(source.contexts, source.words, strict=True))
        before = [place for place in source.previous if place is not None]
        surprisals = babylm_scoring.word_surprisals(loaded, asked + before, bos)
        previous = np.full(len(asked), np.nan)
        previous[[place is not None for place in source.previous]] = surprisals[len(asked) :]
        surprisals = surprisals[: len(asked)]
        scores = babylm_scoring.reading_scores(source, surprisals, previous)
        return babylm_scoring.reading_predictions(surprisals, previous), {"items": len(asked), "scores": scores}
    kind = FOLDERS[set_name]
    is_wug = kind.task.startswith("wug")
    texts = [pair for item in source for pair in zip(item.sentences, item.completions, strict=True)]
    log_probs = babylm_scoring.completion_log_probs(loaded, texts, bos)
    predictions, right, ties = babylm_scoring.predict(source, log_probs, with_prob=is_wug)
    if is_wug:
        scores = {"spearman": babylm_scoring.correlation(source, predictions)}
        return predictions, {"items": len(source), "ties": ties, "scores": scores}
    accuracy, subsets = babylm_scoring.accuracies(kind.task, right)
    return predictions, {"items": len(source), "ties": ties, "scores": {"accuracy": accuracy}, "subsets": subsets}


def _digest(place: Path) -> str:
    """Returns the sha256 of the files of a set, one after the other."""
    content = hashlib.sha256()
    for file in babylm_data.find_item_files(place) if place.is_dir() else [place]:
        content.update(file.read_bytes())
    return content.hexdigest()


def _predictions(folder: Path) -> Path:
    """Returns the file of the pipeline in the folder of a set's results, which has our scores beside it."""
    return folder / (SURPRISALS if folder.name == AOA_FOLDER else PREDICTIONS)


def _make_folder(folder: Path) -> None:
    """Makes the folder of a set's results. Raises InputError where it cannot be made, or its files cannot be written."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for file in (folder / SCORES, _predictions(folder)):
        require_writable(file)


def _write(folder: Path, text: str, scores: dict) -> None:
    write_files({folder / SCORES: json_text(scores), _predictions(folder): text})


def _show(loaded: Run, bos: bool, found: list[dict]) -> None:
    """Prints how texts were scored, and a table of the scores."""
    print(f"{loaded.name}: BabyLM's sets, scoring {_scoring(bos)}")
    if not bos:
        say("the pipeline reads BOS before each text with a model that esnlm export wrote: --bos predicts as it does")
    rows = []
    for its in found:
        for metric, value in its["scores"].items() or [("", "")]:
            shown = "not defined" if value is None else value if isinstance(value, str) else f"{value:.2f}"
            rows.append(
                [
                    its["revision"],
                    its["set"],
                    metric.replace("_", " "),
                    shown,
                    f"{its['items']:,}",
                    str(its.get("ties", "")),
                ]
            )
    Screen().table(["revision", "set", "score", "value", "items", "ties"], rows, edge=True)
