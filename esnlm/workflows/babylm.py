"""Runs BabyLM's zero-shot sets with a run, and writes the files that BabyLM's pipeline would write."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from esnlm.errors import InputError
from esnlm.evaluation.evaluate import config_sha256
from esnlm.interchange import babylm
from esnlm.interchange.babylm import AOA, READING
from esnlm.interchange.revisions import revision_names, words_of_checkpoints
from esnlm.io.atomic import write_files, writing
from esnlm.io.console import say, tell, working
from esnlm.io.json_file import json_text
from esnlm.io.remote import run_copy
from esnlm.io.screen import Screen
from esnlm.loaded_run import Run, Step, load
from esnlm.provenance import provenance
from esnlm.runs.directory import RunDirectory

MAIN = "main"  # the revision of the newest checkpoint
SCORING = {
    False: "babylm: the sentence alone, without BOS, EOS or leading space; its first token is not scored",
    True: "BOS and the text; every token after BOS can be scored",
}
TIES = "of equal sentences the first is chosen, which is right"
SAME = ("run", "config_sha256", "step", "scoring")  # in all files of scores of a revision


def evaluate_babylm(
    run: str | Path,
    data: str | Path,
    out: str | Path | None = None,
    model_name: str | None = None,
    sets: Sequence[str] | None = None,
    step: Step = None,
    checkpoints: bool = False,
    bos: bool = False,
    overwrite: bool = False,
    command: str | None = None,
) -> list[dict]:
    """Scores sets of the pipeline's data, writes the files of predictions and prints the scores.

    All data is read before anything is scored. The files of a set are written together, once the set is scored.

    Args:
        run: the run directory.
        data: the pipeline's folder full_eval or fast_eval.
        out: the folder of results; None: RUN/evaluation/babylm.
        model_name: the folder of the model in it; None: the name of the run.
        sets: names of sets; None: all in the data.
        step: the checkpoint of this step, under the name of its revision; None: the newest, as `main`.
        checkpoints: whether to score every kept checkpoint at one of BabyLM's numbers of words. Surprisals for the age of
            acquisition are computed only then.
        bos: whether BOS stands before every text, as with a tokenizer that adds it.
        overwrite: whether to replace predictions, and to keep sets of another model, step or convention beside them.
        command: recorded in the files of scores.

    Returns:
        The content of each scores.json.

    Raises:
        InputError: the run, its checkpoints, the data or the place of the results is not usable.
    """
    newest, steps = _checkpoints(run, step, checkpoints)
    places = babylm.find_sets(Path(data), sets)
    if AOA in places and not checkpoints:
        if sets:
            raise InputError(f"set {AOA!r} needs the checkpoints of a training: give --checkpoints")
        tell(f"{AOA}: left out; it needs the checkpoints of a training (--checkpoints)")
        del places[AOA]
    sources = {name: babylm.read(name, place) for name, place in places.items()}

    model = (Path(out) if out else RunDirectory(newest.directory).evaluation / "babylm") / (model_name or newest.name)
    about: dict = {"model": model.name, "run": newest.name, "config_sha256": config_sha256(newest)}
    about |= {"scoring": f"{SCORING[bos]}; {TIES}", "provenance": provenance(command)}
    revisions = steps | ({MAIN: newest.step} if AOA in places else {})
    files = {(revision, name): _file(model, revision, name) for revision in steps for name in places}
    for file in files.values():
        if file.exists() and not overwrite:
            raise InputError(f"{file}: exists: name another folder with --out, or replace it with --overwrite")
    if not overwrite:
        for revision, its_step in revisions.items():
            _require_same_model(model / revision, about | {"step": its_step})
    for file in files.values():
        with writing(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)

    results: list[dict] = []

    def write(revision: str, name: str, predictions: str, scores: dict) -> None:
        content = b"".join(file.read_bytes() for file in babylm.files_of(places[name]))
        known = {
            "revision": revision,
            "step": revisions[revision],
            "set": name,
            "data_sha256": hashlib.sha256(content).hexdigest(),
        }
        results.append(about | known | scores)
        file = _file(model, revision, name)
        write_files({file.with_name("scores.json"): json_text(results[-1]), file: predictions})

    acquisition: list[dict] = []
    for revision, its_step in steps.items():
        loaded = newest if its_step == newest.step else load(run, step=its_step)
        for name, source in sources.items():
            say(f"{revision}: {name}")
            if name == AOA:
                acquisition += babylm.acquisition(loaded, revision, source, bos)
            else:
                predictions, scores = babylm.score(loaded, name, source, bos)
                write(revision, name, json.dumps(predictions), scores)
    if AOA in places:
        counts = {"total_steps": len(steps), "completed_steps": len(steps)}
        content = {"metadata": {"model_name": model.name, "use_bos_only": False} | counts, "results": acquisition}
        write(MAIN, AOA, json.dumps(content, indent=2), {"items": len(acquisition), "revisions": steps, "scores": {}})
    print(f"{newest.name}: BabyLM's sets, scoring {about['scoring']}")
    if not bos:
        say("the pipeline reads BOS before each text with a model that esnlm export wrote: --bos predicts as it does")
    _show(results)
    print(f"written: {len(results)} sets below {model}")
    return results


def _checkpoints(run: str | Path, step: Step, every: bool) -> tuple[Run, dict[str, int]]:
    """Returns a run at the asked or newest step, and the steps to score by the names of their revisions."""
    if every or step is not None:
        run = run_copy(run, every_step=True)
    with working(f"loading {run}"):
        loaded = load(run, step=step)
    if not every and step is None:
        return loaded, {MAIN: loaded.step}
    names = revision_names(words_of_checkpoints(RunDirectory(loaded.directory)))
    if not every:
        return loaded, {names.get(loaded.step, f"step_{loaded.step}"): loaded.step}
    steps = {name: its_step for its_step, name in names.items() if name.startswith("chck_")}
    if not steps:
        raise InputError(
            f"{run}: no checkpoint at one of BabyLM's numbers of words (1M, 2M, ...): save them with training.checkpoint_words"
        )
    return loaded, steps


def _file(model: Path, revision: str, name: str) -> Path:
    """Returns the file of a set's predictions, where the pipeline looks for it."""
    if name == AOA:
        return model / MAIN / "zero_shot" / "causal" / "AoA_word" / "surprisal.json"
    causal = model / revision / "zero_shot" / "causal"
    return (causal / READING if name == READING else causal / babylm.FOLDERS[name] / name) / "predictions.json"


def _require_same_model(folder: Path, about: dict) -> None:
    """Raises InputError if a revision's folder has scores of another run, step or convention: one table would mix them."""
    for file in folder.glob("**/scores.json"):
        there = json.loads(file.read_bytes())
        for key in SAME:
            if there.get(key) != about[key]:
                rule = "a submission is of one model: name another folder with --out, or keep this set with --overwrite"
                raise InputError(f"{file}: {key} is {there.get(key)!r}, and now {about[key]!r}: {rule}")


def _show(results: list[dict]) -> None:
    """Prints a table of the scores."""
    rows = []
    for its in results:
        for metric, value in its["scores"].items() or [("", "")]:
            shown = "not defined" if value is None else value if isinstance(value, str) else f"{value:.2f}"
            items, ties = f"{its['items']:,}", str(its.get("ties", ""))
            rows.append([its["revision"], its["set"], metric.replace("_", " "), shown, items, ties])
    Screen().table(["revision", "set", "score", "value", "items", "ties"], rows, edge=True)
