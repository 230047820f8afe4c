"""BabyLM's zero-shot evaluation of a run: the pipeline's prediction files by esnlm's scorer.

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
from typing import Any, NamedTuple

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
    folders = find_sets(Path(data), sets)
    items_of = {name: read(name, folder) for name, folder in folders.items()}
    results_folder = Path(out) if out else RunDirectory(newest.directory).evaluation / "babylm"
    model = results_folder / (model_name or newest.name)
    files = {
        # where the pipeline expects a set's predictions
        (revision, name): model
        / f"{revision}/zero_shot/causal/{FOLDERS[name]}/{name}/predictions.json"
        for revision in steps
        for name in folders
    }
    for file in files.values():
        if file.exists() and not overwrite:
            raise InputError(
                f"{file}: exists; name another folder with --out, or replace it with --overwrite"
            )
    for file in files.values():
        with writing(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)

    header: dict[str, Any] = {
        "model": model.name,
        "run": newest.name,
        "config_sha256": config_sha256(newest),
        "scoring": f"{SCORING[bos]}; {TIES}",
        "provenance": provenance(command),
    }
    results: list[dict] = []
    for revision, step_of in steps.items():
        loaded = newest if step_of == newest.step else load(run, step=step_of)
        for name, items in items_of.items():
            say(f"{revision}: {name}")
            texts = [
                pair
                for item in items
                for pair in zip(item.sentences, item.completions, strict=True)
            ]
            log_probs = completion_log_probs(loaded, texts, bos)
            predictions, scores = choose(FOLDERS[name], items, log_probs)
            content = b"".join(file.read_bytes() for file in files_of(folders[name]))
            result = header | {
                "revision": revision,
                "step": step_of,
                "set": name,
                "data_sha256": hashlib.sha256(content).hexdigest(),
                **scores,
            }
            results.append(result)
            file = files[revision, name]
            scores_file = file.with_name("scores.json")
            write_files({scores_file: json_text(result), file: json.dumps(predictions)})
    print(f"{newest.name}: BabyLM's sets, scoring {SCORING[bos]}; {TIES}")
    _print_table(results)
    print(f"written: {len(results)} sets below {model}")
    return results


def _checkpoints(run: str | Path, step: Step, every: bool) -> tuple[Run, dict[str, int]]:
    """Returns a run at a step (None: the newest), and the steps to score by revision name."""
    if every or step is not None:
        run = run_copy(run, every_step=True)
    with working(f"loading {run}"):
        loaded = load(run, step=step)
    if not every and step is None:
        return loaded, {MAIN: loaded.step}
    names = revision_names(words_of_checkpoints(RunDirectory(loaded.directory)))
    if not every:
        return loaded, {names.get(loaded.step, f"step_{loaded.step}"): loaded.step}
    steps = {name: number for number, name in names.items() if name.startswith("chck_")}
    if not steps:
        raise InputError(
            f"{run}: no checkpoint at 1M, 2M, ... words: save them with training.checkpoint_words"
        )
    return loaded, steps


def _print_table(results: list[dict]) -> None:
    rows = []
    for result in results:
        for metric, value in result["scores"].items():
            text = "not defined" if value is None else f"{value:.2f}"
            items, ties = f"{result['items']:,}", str(result["ties"])
            name = metric.replace("_", " ")
            rows.append([result["revision"], result["set"], name, text, items, ties])
    Screen().table(["revision", "set", "score", "value", "items", "ties"], rows)


class Item(NamedTuple):
    """A choice between sentences; the first one is right."""

    uid: str  # its subset
    sentences: list[str]
    completions: list[str]  # the scored end of each sentence; the text before it is context
    names: list[str]  # of each sentence in the prediction file
    ratio: float = math.nan  # share of people who chose the first one, for the WUG sets


def find_sets(data: Path, names: Sequence[str] | None = None) -> dict[str, Path]:
    """Returns the folder of each set in the pipeline's folder full_eval or fast_eval, by name."""
    folders = {name: data / name for name in FOLDERS if (data / name).is_dir()}
    if missing := [name for name in names or () if name not in folders]:
        raise InputError(f"{data}: has no set {', '.join(missing)}: sets are {', '.join(FOLDERS)}")
    if not folders:
        raise InputError(
            f"{data}: none of the pipeline's sets is here; give its folder full_eval or fast_eval"
        )
    return {name: folder for name, folder in folders.items() if not names or name in names}


def files_of(folder: Path) -> list[Path]:
    """Returns the files of a set, sorted by name."""
    return sorted(folder.glob("[!.]*.jsonl"))


def read(name: str, folder: Path) -> list[Item]:
    """Reads the items of a set. Raises InputError if a file is not in the pipeline's format."""
    items: list[Item] = []
    for file in files_of(folder):
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
    """Chooses the most probable sentence of each item, from log p of all completions in order.

    Returns the content of predictions.json, and the scores with the numbers of items and ties. The
    accuracy is the mean over subsets (for entity tracking, over three splits), in percent. The WUG
    sets also have Spearman's rho between the probability of the first of the two sentences and the
    share of people who chose it.
    """
    is_wug = task.startswith("wug")
    predictions: dict[str, dict[str, list[dict]]] = {}
    right: dict[str, list[bool]] = {}
    first_probs, ties = [], 0
    ends = np.cumsum([len(item.sentences) for item in items])
    for item, of_item in zip(items, np.split(log_probs, ends[:-1]), strict=True):
        chosen = int(of_item.argmax())  # the first one if equal
        ties += int((of_item == of_item.max()).sum() > 1)
        probs = np.exp(of_item - of_item.max())
        first_probs.append(float(probs[0] / probs.sum()))
        entries = predictions.setdefault(item.uid, {"predictions": []})["predictions"]
        entry = {"id": f"{item.uid}_{len(entries)}", "pred": item.names[chosen]}
        entries.append(entry | ({"prob": first_probs[-1]} if is_wug else {}))
        right.setdefault(item.uid, []).append(chosen == 0)
    counts = {"items": len(items), "ties": ties}
    if is_wug:
        people = [item.ratio for item in items]
        is_constant = len(set(first_probs)) < 2 or len(set(people)) < 2
        rho = None if is_constant else float(spearmanr(first_probs, people)[0])
        return predictions, counts | {"scores": {"spearman": rho}}
    subsets = {uid: 100 * sum(is_right) / len(is_right) for uid, is_right in right.items()}
    splits = ("regular", "ambiref", "move_contents") if task == "entity_tracking" else ("",)
    groups = [
        [value for uid, value in subsets.items() if uid.startswith(split)] for split in splits
    ]
    means = [sum(group) / len(group) for group in groups if group]
    scores = {"accuracy": sum(means) / len(means)}
    return predictions, counts | {"scores": scores, "subsets": subsets}


def completion_log_probs(run: Run, texts: Sequence[tuple[str, str]], bos: bool) -> np.ndarray:
    """Returns log p(completion | text before it) in nats, (n,) float64.

    Each text comes with the completion at its end. A token with any character of the completion
    belongs to it.
    """
    before = [run.tokenizer.bos] if bos else []
    encoded = run.tokenizer.encode_batch([text for text, _ in texts])
    sequences = [np.array([*before, *ids], np.int32) for ids in encoded]
    scored = run.token_log_probs_of(sequences, progress=True)
    check_defined(scored, run.directory, run.step)
    tails = []
    for (text, completion), ids, log_probs in zip(texts, encoded, scored, strict=True):
        context = len(text) - len(completion)
        ends = [end for _, end in token_spans(text, ids, run.tokenizer)]  # (T,) in characters
        first = int(np.searchsorted(ends, context, side="right")) if context else 0
        # The log-probability of token i has index i - 1, since the first token is not predicted.
        tails.append(log_probs[max(first + len(before), 1) - 1 :])
    return sum_log_probs(tails)
