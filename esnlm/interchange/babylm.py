"""The data sets, predictions and choices of BabyLM's zero-shot evaluation, and its branch names.

Formats and rules follow sentence_zero_shot of babylm-org/babylm-eval, folder strict/ (the same as
babylm/evaluation-pipeline-2025). For reading times and ages of acquisition, run the pipeline on an
`esnlm export`. BOS precedes each text, as with an exported run's tokenizer (convention `babylm`).
Without `bos`, the first token is only a condition (`without-bos`). If sums are equal, the pipeline
chooses the first sentence, which is the right one.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.evaluation.conventions import check_defined, sum_log_probs
from esnlm.evaluation.words import token_spans
from esnlm.loaded_run import Run

# The pipeline's task for each folder of sentences.
FOLDERS = dict.fromkeys(
    ("blimp_filtered", "supplement_filtered", "blimp_fast", "supplement_fast"), "blimp"
)
FOLDERS |= dict.fromkeys(("ewok_filtered", "ewok_fast"), "ewok")
FOLDERS |= dict.fromkeys(("entity_tracking", "entity_tracking_fast"), "entity_tracking")
FOLDERS |= {"wug_adj_nominalization": "wug_adj", "wug_past_tense": "wug_past", "comps": "comps"}

MILLION = 1_000_000
MILESTONES = (*range(1, 10), *range(10, 100, 10), *range(100, 1001, 100))  # millions of words
# [ours] A checkpoint is saved after an update, so it has read a few words more than requested. If
# it has read more than this share beyond a milestone, it is not named after it.
SURPLUS = 0.01


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


def predictions_file(model: Path, revision: str, name: str) -> Path:
    """Returns the path of a set's predictions, where the pipeline expects it."""
    return model / revision / "zero_shot" / "causal" / FOLDERS[name] / name / "predictions.json"


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
        from scipy.stats import spearmanr

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
    scored = run.token_log_probs_of_ids(sequences, progress=True)
    check_defined(scored, run.directory, run.step)
    tails = []
    for (text, completion), ids, log_probs in zip(texts, encoded, scored, strict=True):
        context = len(text) - len(completion)
        ends = [end for _, end in token_spans(text, ids, run.tokenizer)]  # (T,) in characters
        first = int(np.searchsorted(ends, context, side="right")) if context else 0
        # The log-probability of token i has index i - 1, since the first token is not predicted.
        tails.append(log_probs[max(first + len(before), 1) - 1 :])
    return sum_log_probs(tails)


def revision_names(words: Mapping[int, int]) -> dict[int, str]:
    """Returns the name of each checkpoint: `chck_NM` for the first one at N million words, `step_N`
    for others.

    BabyLM (strict/README.md) names the branches of a model after every million words up to ten,
    every ten million up to a hundred, and every hundred million up to a thousand, counted over all
    epochs. `training.checkpoint_words` saves such checkpoints. `words` is the number of words of
    training text that each checkpoint has read, by step.

    Example:
        >>> revision_names({10: 400_000, 25: 1_000_200, 50: 2_000_100, 60: 2_500_000})
        {10: 'step_10', 25: 'chck_1M', 50: 'chck_2M', 60: 'step_60'}
    """
    names: dict[int, str] = {}
    for step in sorted(words):
        reached = [number for number in MILESTONES if number * MILLION <= words[step]]
        name = f"step_{step}"
        if reached and words[step] <= (1 + SURPLUS) * reached[-1] * MILLION:
            milestone = f"chck_{reached[-1]}M"
            name = name if milestone in names.values() else milestone
        names[step] = name
    return names
