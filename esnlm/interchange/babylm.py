"""The sets of BabyLM's zero-shot evaluation, and the pipeline's predictions and scores from a run's own scorer.

Formats and rules are those of babylm-org/babylm-eval, folder strict/ (the same as babylm/evaluation-pipeline-2025):
sentence_zero_shot, reading and AoA_word. A sentence is encoded as Hugging Face's GPT-2 encodes it: nothing is put before it,
so its first token is only a condition (the scoring convention `babylm`). With `bos`, BOS stands before it and the first token
is scored too. Of equal sums the pipeline takes the first sentence, which is the right one.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.errors import InputError
from esnlm.evaluation.sequences import require_defined, sum_log_probs
from esnlm.loaded_run import Run

# The pipeline's task of each folder of sentences.
FOLDERS = dict.fromkeys(("blimp_filtered", "supplement_filtered", "blimp_fast", "supplement_fast"), "blimp")
FOLDERS |= dict.fromkeys(("ewok_filtered", "ewok_fast"), "ewok")
FOLDERS |= dict.fromkeys(("entity_tracking", "entity_tracking_fast"), "entity_tracking")
FOLDERS |= {"wug_adj_nominalization": "wug_adj", "wug_past_tense": "wug_past", "comps": "comps"}
READING, AOA = "reading", "aoa"
# Columns of reading_data.csv: reading times and their predictors.
EYE_TRACKING = ["RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound"]
SELF_PACED = "self_paced_reading_time"
PROPERTIES = ["Subtlex_log10", "length", "context_length"]


@dataclass(frozen=True)
class Item:
    """A choice between sentences; the first one is right."""

    uid: str  # its subset
    sentences: list[str]
    completions: list[str]  # the scored end of each sentence; the rest is its context
    shown: list[str]  # the prediction file's name for each sentence
    ratio: float = math.nan  # of the people who chose the first one, for the WUG sets


def find_sets(data: Path, asked: Sequence[str] | None = None) -> dict[str, Path]:
    """Returns the place of each set in the pipeline's folder full_eval or fast_eval, by the set's name.

    Raises:
        InputError: a set that is asked for is not there, or none is.
    """
    places = {name: data / name for name in FOLDERS} | {READING: data / "reading" / "reading_data.csv"}
    aoa = data / "aoa" / "cdi_childes.json"
    places[AOA] = aoa if aoa.exists() else data / "cdi_childes" / "cdi_childes.json"  # the pipeline names both
    found = {name: place for name, place in places.items() if place.exists() and (not asked or name in asked)}
    if missing := [name for name in asked or () if name not in found]:
        raise InputError(f"{data}: has no set {', '.join(missing)}: sets are {', '.join(places)}")
    if not found:
        raise InputError(f"{data}: none of the pipeline's sets is here: give its full_eval or fast_eval")
    return found


def files_of(place: Path) -> list[Path]:
    """Returns the files of a set in the order of their names."""
    return (
        sorted(file for file in place.glob("*.jsonl") if not file.name.startswith(".")) if place.is_dir() else [place]
    )


def read(name: str, place: Path) -> Any:
    """Reads a set.

    Returns:
        A list of items; of AOA the contexts of each word; of READING a data frame.

    Raises:
        InputError: a file is not in the pipeline's format, or pandas is not installed.
    """
    items: list[Item] = []
    for file in files_of(place):
        try:
            if name == READING:
                return _read_reading(file)
            if name == AOA:  # the pipeline leaves words of one letter out
                content = json.loads(file.read_text("utf-8"))
                return {word: [entry["context"] for entry in content[word]] for word in content if len(word) > 1}
            lines = [line for line in file.read_text("utf-8").split("\n") if line.strip()]
            items += [_item(FOLDERS[name], json.loads(line), file.stem) for line in lines]
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ImportError) as error:
            what = f"field {error} is missing" if isinstance(error, KeyError) else error
            raise InputError(f"{file}: cannot be read ({what}): copy the pipeline's data again") from None
    return items


def _item(task: str, record: dict, stem: str) -> Item:
    """Returns the item in a line of `stem`.jsonl."""
    match task:
        case "blimp":
            pair = [record["sentence_good"], record["sentence_bad"]]
            return Item(record["UID"] if "field" in record else stem, pair, pair, pair)
        case "ewok":
            targets = [" " + record["Target1"], " " + record["Target2"]]  # the pipeline scores nothing after Context2
            return Item(record["Domain"], [record["Context1"] + target for target in targets], targets, targets)
        case "entity_tracking":
            options = record["options"]
            sentences = [record["input_prefix"] + option for option in options]
            return Item(f"{stem}_{record['numops']}_ops", sentences, options, options)
        case "comps":
            phrase = record["property_phrase"]
            sentences = [f"{record[name]} {phrase}" for name in ("prefix_acceptable", "prefix_unacceptable")]
            subsets = {"comps_base": "base", "comps_wugs": "wugs", "comps_wugs_dist-before": "wugs_dist_before"}
            return Item(subsets.get(stem, "wugs_dist_in_between"), sentences, [phrase, phrase], sentences)
        case _:
            first, second = record["sentences"].split("\t")
            return Item(task, [first, second], [first, second], [first, second], float(record["ratio"]))


def _read_reading(file: Path) -> Any:
    """Returns the words that people read with their contexts and reading times, as a pandas.DataFrame."""
    import pandas  # the pipeline reads this file with it, too

    words = {"word": str, "prev_word": str}  # no word is a missing value, such as "null"
    table = pandas.read_csv(file, converters=words)
    figures = [*EYE_TRACKING, SELF_PACED, *PROPERTIES, "prev_length"]
    table[figures] = table[figures].astype(float)
    table["item"] = table["item"].fillna("None")  # as the pipeline writes a missing context
    return table[["item", "word", "prev_item", "prev_word", *figures]]


def score(run: Run, name: str, source: Any, bos: bool) -> tuple[dict, dict]:
    """Returns the content of predictions.json of a set, and its numbers of items and ties and its scores.

    Args:
        run: as from `esnlm.load`.
        name: of the set; any but AOA.
        source: the set, from `read`.
        bos: whether BOS stands before every text.

    Raises:
        InputError: a text is too long for the model, or a log-probability is not a number.
    """
    if name == READING:
        return _score_reading(run, source, bos)
    texts = [pair for item in source for pair in zip(item.sentences, item.completions, strict=True)]
    return choose(FOLDERS[name], source, completion_log_probs(run, texts, bos))


def choose(task: str, items: Sequence[Item], log_probs: np.ndarray) -> tuple[dict, dict]:
    """Chooses the most probable sentence of each item, given log p of all their completions, one item after the other.

    The accuracy is the mean over subsets, in percent, and of entity tracking that over three splits. The WUG sets have
    Spearman's rho between the probability of the first sentence among the two and the share of people who chose it.
    """
    from scipy.stats import spearmanr

    predictions: dict[str, dict[str, list[dict]]] = {}
    right: dict[str, list[bool]] = {}
    probs, ties = [], 0
    for item, own in zip(
        items, np.split(log_probs, np.cumsum([len(item.sentences) for item in items])[:-1]), strict=True
    ):
        chosen = int(own.argmax())  # the first of equal ones
        ties += int((own == own.max()).sum() > 1)
        probs.append(float(np.exp(own[0] - own.max()) / np.exp(own - own.max()).sum()))
        entries = predictions.setdefault(item.uid, {"predictions": []})["predictions"]
        entry = {"id": f"{item.uid}_{len(entries)}", "pred": item.shown[chosen]}
        entries.append(entry | ({"prob": probs[-1]} if task.startswith("wug") else {}))
        right.setdefault(item.uid, []).append(chosen == 0)
    found = {"items": len(items), "ties": ties}
    if task.startswith("wug"):
        people = [item.ratio for item in items]
        is_constant = len(set(probs)) < 2 or len(set(people)) < 2
        return predictions, found | {
            "scores": {"spearman": None if is_constant else float(spearmanr(probs, people)[0])}
        }
    subsets = {uid: 100 * sum(its) / len(its) for uid, its in right.items()}
    groups = [list(subsets.values())]
    if task == "entity_tracking":
        splits = ("regular", "ambiref", "move_contents")
        groups = [[value for uid, value in subsets.items() if uid.startswith(split)] for split in splits]
    means = [sum(values) / len(values) for values in groups if values]
    return predictions, found | {"scores": {"accuracy": sum(means) / len(means)}, "subsets": subsets}


def completion_log_probs(run: Run, texts: Sequence[tuple[str, str]], bos: bool) -> np.ndarray:
    """Returns log p(completion | text before it) in nats, (n,) float64.

    A token with characters of the completion belongs to it, even if it has others too.

    Args:
        run: as from `esnlm.load`.
        texts: a whole text and its end, the completion, each.
        bos: whether BOS stands before the text.
    """
    before = [run.tokenizer.bos] if bos else []
    encoded = run.tokenizer.encode_batch([text for text, _ in texts])
    first = [_first_token(run.tokenizer, *text, ids) for text, ids in zip(texts, encoded, strict=True)]
    scored = _token_log_probs(run, [[*before, *ids] for ids in encoded])
    # A token's log-probability has the number before the token's own, since nothing predicts the first one.
    return sum_log_probs(found[max(start + len(before), 1) - 1 :] for start, found in zip(first, scored, strict=True))


def _first_token(tokenizer: Any, text: str, completion: str, ids: list[int]) -> int:
    """Returns the number of the first token with characters of the completion, at the end of a text."""
    start = len(text) - len(completion)
    ends = np.cumsum([len(tokenizer.decode_bytes([token])) for token in ids])  # (T,) bytes up to the end of each token
    return int(np.searchsorted(ends, len(text[:start].encode()), side="right")) if start else 0


def _token_log_probs(run: Run, sequences: Iterable[list[int]]) -> list[np.ndarray]:
    found = run.token_log_probs_of([np.array(ids, np.int32) for ids in sequences], progress=True)
    require_defined(found, run.directory, run.step)
    return found


def word_surprisals(run: Run, words: Sequence[tuple[str, str]], bos: bool) -> np.ndarray:
    """Returns -log p(word | context) in nats of contexts and words, (n,) float64.

    The tokens of a word are scored one by one. Before each further one, the context and the word so far are encoded anew, so
    that their ids are not always those of the word's own encoding.
    """
    tokenizer = run.tokenizer
    before = [tokenizer.bos] if bos else []
    sequences, owners = [], []
    for number, (text, word) in enumerate(words):
        for position, token in enumerate(tokenizer.encode(word)):
            piece = tokenizer.decode([token])
            target = token if position == 0 else tokenizer.encode(piece)[0]
            sequences.append([*before, *tokenizer.encode(text), target])
            owners.append(number)
            text += piece
    parts: list[list[np.ndarray]] = [[np.empty(0)] for _ in words]
    for number, found in zip(owners, _token_log_probs(run, sequences), strict=True):
        parts[number].append(found[-1:])
    return -sum_log_probs(np.concatenate(part) for part in parts)


def _score_reading(run: Run, table: Any, bos: bool) -> tuple[dict, dict]:
    known = table["prev_item"].notna().to_numpy()  # no context before the word before: the beginning of a sentence
    asked = [*zip(table["item"], table["word"], strict=True)]
    asked += [*zip(table["prev_item"][known], table["prev_word"][known], strict=True)]
    found = word_surprisals(run, asked, bos)
    surprisals, previous = found[: len(table)], np.full(len(table), np.nan)
    previous[known] = found[len(table) :]
    pairs = enumerate(zip(surprisals.tolist(), previous.tolist(), strict=True))
    predictions = {"reading": {"predictions": [{"id": i, "pred": p, "prev_pred": q} for i, (p, q) in pairs]}}
    return predictions, {"items": len(table), "scores": reading_scores(table, surprisals, previous)}


def reading_scores(table: Any, surprisals: np.ndarray, previous: np.ndarray) -> dict[str, float | None]:
    """Returns how much better surprisal predicts reading times than the words' properties do, in percent.

    It is the part of the variance that the properties leave over, explained by adding surprisal to a linear regression:
    (R^2 - R^2_0) / (1 - R^2_0). For eye tracking it is the mean of four measures. For self-paced reading the word before is
    among the properties, with its surprisal.
    """
    properties = [table[name].to_numpy() for name in PROPERTIES]
    spillover = [*properties, table["prev_length"].to_numpy(), previous]
    eyes = [_gain(table[name].to_numpy(), properties, surprisals) for name in EYE_TRACKING]
    known = [gain for gain in eyes if gain is not None]
    return {
        "eye_tracking": sum(known) / len(known) if len(known) == len(eyes) else None,
        "self_paced_reading": _gain(table[SELF_PACED].to_numpy(), spillover, surprisals),
    }


def _gain(times: np.ndarray, properties: list[np.ndarray], surprisals: np.ndarray) -> float | None:
    """Returns (R^2 - R^2_0) / (1 - R^2_0) in percent, or None with too few words for the regression."""
    columns = [np.ones_like(times), *properties]
    columns += [a * b for i, a in enumerate(properties) for b in properties[i + 1 :]]
    known = np.isfinite(np.column_stack([times, *properties])).all(axis=1)
    if known.sum() <= len(columns) + 1:
        return None
    y, x = times[known], np.column_stack(columns)[known]
    before, after = _r_squared(y, x), _r_squared(y, np.column_stack([x, surprisals[known]]))
    return None if math.isclose(before, 1) else 100 * (after - before) / (1 - before)


def _r_squared(y: np.ndarray, x: np.ndarray) -> float:
    """Returns the R^2 of a linear regression of y (n,) on the columns of x (n, k), of which one is constant."""
    x = x / np.abs(x).max(axis=0).clip(min=1e-300)
    return float(1 - np.var(y - x @ np.linalg.lstsq(x, y)[0]) / np.var(y))


def acquisition(run: Run, revision: str, contexts: dict[str, list[str]], bos: bool) -> list[dict]:
    """Returns the entries of AoA_word/surprisal.json of a checkpoint `chck_NM`: -log p(word | context) in nats."""
    places = [(word, i, context) for word, its in contexts.items() for i, context in enumerate(its)]
    texts = [(f"{context.strip()} {word.strip()}", word.strip()) for word, _, context in places]
    known = {"step": revision, "word_count": int(revision.removeprefix("chck_").removesuffix("M")) * 10**6}
    return [
        known | {"target_word": word, "context_id": i, "context": context, "surprisal": -log_prob}
        for (word, i, context), log_prob in zip(places, completion_log_probs(run, texts, bos).tolist(), strict=True)
    ]
