"""BabyLM's zero-shot evaluation of a run: writes the pipeline's prediction files with esnlm's
scorer.

Formats and rules follow sentence_zero_shot of babylm-org/babylm-eval, folder strict/ (the same as
babylm/evaluation-pipeline-2025). For reading times and ages of acquisition, run the pipeline on an
`esnlm export`. BOS precedes each text, as with an exported run's tokenizer (convention `babylm`).
Without `bos`, the first token is only a condition (`without-bos`). If sums are equal, the pipeline
chooses the first sentence, which is the right one.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from esnlm.base.console import say, working
from esnlm.base.errors import InputError
from esnlm.base.files import json_text, write_files, writing
from esnlm.base.remote import run_copy
from esnlm.base.screen import Screen
from esnlm.base.versions import provenance
from esnlm.evaluation.alignment import token_spans
from esnlm.evaluation.evaluate import config_sha256
from esnlm.evaluation.sequences import check_defined, sum_log_probs
from esnlm.interchange.revisions import revision_names, words_of_checkpoints
from esnlm.loaded_run import Run, Step, load
from esnlm.runs.directory import RunDirectory

# The pipeline's task for each folder of sentences.
FOLDERS = dict.fromkeys(
    ("blimp_filtered", "supplement_filtered", "blimp_fast", "supplement_fast"), "blimp"
)
FOLDERS |= dict.fromkeys(("ewok_filtered", "ewok_fast"), "ewok")
FOLDERS |= dict.fromkeys(("entity_tracking", "entity_tracking_fast"), "entity_tracking")
FOLDERS |= {"wug_adj_nominalization": "wug_adj", "wug_past_tense": "wug_past", "comps": "comps"}
MAIN = "main"  # the revision of the newest checkpoint
SCORING = {
    False: (
        "without-bos: the sentence alone, without BOS, EOS or leading space; its first token is not"
        " scored"
    ),
    True: "babylm: BOS and the text; every token after BOS can be scored",
}
TIES = "a tie counts as right (the pipeline chooses the first sentence)"


def evaluate_babylm(
    run: str | Path,
    data: str | Path,
    out: str | Path | None = None,
    model_name: str | None = None,
    sets: Sequence[str] | None = None,
    step: Step = None,
    checkpoints: bool = False,
    bos: bool = True,
    overwrite: bool = False,
    command: str | None = None,
) -> list[dict]:
    """Scores data sets of the pipeline, writes the prediction files and prints the scores.

    Reads all data before it scores. Returns the content of each scores.json.

    Args:
        run: the run directory.
        data: the folder full_eval or fast_eval of the pipeline.
        out, model_name: the folder of results, the model's folder in it; None:
            RUN/evaluation/babylm, the run's name.
        sets: names of sets; None: all in the data.
        step: the checkpoint to score, named by its revision; None: the newest, as `main`.
        checkpoints: whether to score all kept checkpoints at BabyLM's word counts.
        bos: whether BOS precedes each text, as in the pipeline with an exported run.
        overwrite: whether to replace predictions.
        command: the command, recorded in scores.json.
    """
    newest, steps = _checkpoints(run, step, checkpoints)
    places = find_sets(Path(data), sets)
    sources = {name: read(name, place) for name, place in places.items()}

    model = (Path(out) if out else RunDirectory(newest.directory).evaluation / "babylm") / (
        model_name or newest.name
    )
    files = [_file(model, revision, name) for revision in steps for name in places]
    if there := [file for file in files if file.exists() and not overwrite]:
        raise InputError(
            f"{there[0]}: exists; name another folder with --out, or replace it with --overwrite"
        )
    for file in files:
        with writing(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)

    about: dict = {"model": model.name, "run": newest.name, "config_sha256": config_sha256(newest)}
    about |= {"scoring": f"{SCORING[bos]}; {TIES}", "provenance": provenance(command)}
    results: list[dict] = []

    for revision, its_step in steps.items():
        loaded = newest if its_step == newest.step else load(run, step=its_step)
        for name, items in sources.items():
            say(f"{revision}: {name}")
            texts = [
                pair
                for item in items
                for pair in zip(item.sentences, item.completions, strict=True)
            ]
            predictions, scores = choose(
                FOLDERS[name], items, completion_log_probs(loaded, texts, bos)
            )
            content = b"".join(file.read_bytes() for file in files_of(places[name]))
            known = {"revision": revision, "step": its_step, "set": name}
            known["data_sha256"] = hashlib.sha256(content).hexdigest()
            results.append(about | known | scores)
            file = _file(model, revision, name)
            write_files(
                {
                    file.with_name("scores.json"): json_text(results[-1]),
                    file: json.dumps(predictions),
                }
            )
    print(f"{newest.name}: BabyLM's sets, scoring {SCORING[bos]}; {TIES}")
    _show(results)
    print(f"written: {len(results)} sets below {model}")
    return results


def _checkpoints(run: str | Path, step: Step, every: bool) -> tuple[Run, dict[str, int]]:
    """Returns a run at the given or newest step, and the steps to score by revision name."""
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
            f"{run}: no checkpoint at 1M, 2M, ... words: save them with training.checkpoint_words"
        )
    return loaded, steps


def _file(model: Path, revision: str, name: str) -> Path:
    """Returns the path of a set's predictions, where the pipeline expects it."""
    return model / revision / "zero_shot" / "causal" / FOLDERS[name] / name / "predictions.json"


def _show(results: list[dict]) -> None:
    """Prints a table of the scores."""
    rows = []
    for its in results:
        for metric, value in its["scores"].items() or [("", "")]:
            shown = (
                "not defined"
                if value is None
                else value
                if isinstance(value, str)
                else f"{value:.2f}"
            )
            items, ties = f"{its['items']:,}", str(its.get("ties", ""))
            rows.append([its["revision"], its["set"], metric.replace("_", " "), shown, items, ties])
    Screen().table(["revision", "set", "score", "value", "items", "ties"], rows)


class Item(NamedTuple):
    """A choice between sentences; the first one is right."""

    uid: str  # its subset
    sentences: list[str]
    completions: list[str]  # the scored end of each sentence; the text before it is context
    shown: list[str]  # the name of each sentence in the prediction file
    ratio: float = math.nan  # share of people who chose the first one, for the WUG sets


def find_sets(data: Path, asked: Sequence[str] | None = None) -> dict[str, Path]:
    """Returns the path of each set in the pipeline's folder full_eval or fast_eval, by set name."""
    places = {name: data / name for name in FOLDERS}
    found = {
        name: place
        for name, place in places.items()
        if place.is_dir() and (not asked or name in asked)
    }
    if missing := [name for name in asked or () if name not in found]:
        raise InputError(f"{data}: has no set {', '.join(missing)}: sets are {', '.join(places)}")
    if not found:
        raise InputError(
            f"{data}: none of the pipeline's sets is here; give its folder full_eval or fast_eval"
        )
    return found


def files_of(place: Path) -> list[Path]:
    """Returns the files of a set, sorted by name."""
    return sorted(place.glob("[!.]*.jsonl"))


def read(name: str, place: Path) -> list[Item]:
    """Reads the items of a set. Raises InputError if a file is not in the pipeline's format."""
    items: list[Item] = []
    for file in files_of(place):
        try:
            lines = [line for line in file.read_text("utf-8").split("\n") if line.strip()]
            items += [_item(FOLDERS[name], json.loads(line), file.stem) for line in lines]
        except (OSError, ValueError, TypeError, LookupError) as error:
            what = f"field {error} is missing" if isinstance(error, KeyError) else error
            raise InputError(
                f"{file}: cannot be read ({what}): download the pipeline's data again"
            ) from None
    return items


def _item(task: str, record: dict, stem: str) -> Item:
    """Returns the item of a line of `stem`.jsonl."""
    match task:
        case "blimp":
            pair = [record["sentence_good"], record["sentence_bad"]]
            return Item(record["UID"] if "field" in record else stem, pair, pair, pair)
        case "ewok":
            # Context2's texts are not scored
            targets = [" " + record["Target1"], " " + record["Target2"]]
            return Item(
                record["Domain"],
                [record["Context1"] + target for target in targets],
                targets,
                targets,
            )
        case "entity_tracking":
            options = record["options"]
            sentences = [record["input_prefix"] + option for option in options]
            return Item(f"{stem}_{record['numops']}_ops", sentences, options, options)
        case "comps":
            phrase = record["property_phrase"]
            sentences = [
                f"{record[name]} {phrase}" for name in ("prefix_acceptable", "prefix_unacceptable")
            ]
            subsets = {
                "comps_base": "base",
                "comps_wugs": "wugs",
                "comps_wugs_dist-before": "wugs_dist_before",
            }
            return Item(
                subsets.get(stem, "wugs_dist_in_between"), sentences, [phrase, phrase], sentences
            )
        case _:
            first, second = record["sentences"].split("\t")
            return Item(
                task, [first, second], [first, second], [first, second], float(record["ratio"])
            )


def choose(task: str, items: Sequence[Item], log_probs: np.ndarray) -> tuple[dict, dict]:
    """Chooses the most probable sentence of each item, given log p of the completions of all items
    in order.

    Returns the content of predictions.json, and the scores with the numbers of items and ties. The
    accuracy is the mean over subsets (for entity tracking, over three splits), in percent. The WUG
    sets also have Spearman's rho between the probability of the first of the two sentences and the
    share of people who chose it.
    """
    predictions: dict[str, dict[str, list[dict]]] = {}
    right: dict[str, list[bool]] = {}
    probs, ties = [], 0
    ends = np.cumsum([len(item.sentences) for item in items])
    for item, own in zip(items, np.split(log_probs, ends[:-1]), strict=True):
        chosen = int(own.argmax())  # the first one if equal
        ties += int((own == own.max()).sum() > 1)
        probs.append(float(np.exp(own[0] - own.max()) / np.exp(own - own.max()).sum()))
        entries = predictions.setdefault(item.uid, {"predictions": []})["predictions"]
        entries.append({"id": f"{item.uid}_{len(entries)}", "pred": item.shown[chosen]})
        if task.startswith("wug"):
            entries[-1]["prob"] = probs[-1]
        right.setdefault(item.uid, []).append(chosen == 0)
    found = {"items": len(items), "ties": ties}
    if task.startswith("wug"):
        people = [item.ratio for item in items]
        is_constant = len(set(probs)) < 2 or len(set(people)) < 2
        rho = None if is_constant else float(spearmanr(probs, people)[0])
        return predictions, found | {"scores": {"spearman": rho}}
    subsets = {uid: 100 * sum(its) / len(its) for uid, its in right.items()}
    groups = [list(subsets.values())]
    if task == "entity_tracking":
        splits = ("regular", "ambiref", "move_contents")
        groups = [
            [value for uid, value in subsets.items() if uid.startswith(split)] for split in splits
        ]
    means = [sum(values) / len(values) for values in groups if values]
    return predictions, found | {
        "scores": {"accuracy": sum(means) / len(means)},
        "subsets": subsets,
    }


def completion_log_probs(run: Run, texts: Sequence[tuple[str, str]], bos: bool) -> np.ndarray:
    """Returns log p(completion | text before it) in nats, (n,) float64, from pairs (whole text,
    completion at its end).

    A token with any character of the completion belongs to it.
    """
    before = [run.tokenizer.bos] if bos else []
    encoded = run.tokenizer.encode_batch([text for text, _ in texts])
    scored = run.token_log_probs_of(
        [np.array([*before, *ids], np.int32) for ids in encoded], progress=True
    )
    check_defined(scored, run.directory, run.step)
    scored_ends = []
    for (text, completion), ids, log_probs in zip(texts, encoded, scored, strict=True):
        context = len(text) - len(completion)
        ends = [end for _, end in token_spans(text, ids, run.tokenizer)]  # (T,) in characters
        first = int(np.searchsorted(ends, context, side="right")) if context else 0
        # The log-probability of token i has index i - 1, since the first token is not predicted.
        scored_ends.append(log_probs[max(first + len(before), 1) - 1 :])
    return sum_log_probs(scored_ends)
