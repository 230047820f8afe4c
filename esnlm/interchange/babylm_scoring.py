"""What BabyLM's evaluation pipeline computes with a causal model, from a run's own scorer and without PyTorch.

A sentence is encoded as a GPT-2 of Hugging Face encodes it: nothing is put before it, so that its first token is only a
condition. This is esnlm's scoring convention `babylm`. With `bos` it is as with a tokenizer that puts BOS first, and the first
token is scored too. Of equal sums the pipeline takes the first sentence, which is the right one.

The rules are those of babylm-org/babylm-eval, folder strict/: sentence_zero_shot/dataset.py and compute_results.py,
reading/evaluation_functions.py and run.py, AoA_word/evaluation_functions.py.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from esnlm.errors import require
from esnlm.evaluation.sequences import require_defined, sum_log_probs
from esnlm.interchange.babylm_data import EYE_TRACKING, PROPERTIES, SELF_PACED, Item, Reading
from esnlm.loaded_run import Run

SPLITS = ("regular", "ambiref", "move_contents")  # of entity tracking; each counts as much as another


def completion_log_probs(run: Run, texts: Sequence[tuple[str, str]], bos: bool) -> np.ndarray:
    """Returns log p(completion | what is before it) in nats, (n,) float64.

    A token that has characters of the completion belongs to it, even where it has others too.

    Args:
        run: as from `esnlm.load`.
        texts: a whole text and its end, the completion, each.
        bos: whether BOS stands before the text.

    Raises:
        InputError: a text is too long for the model, or a log-probability is not a number.
    """
    before = [run.tokenizer.bos] if bos else []
    encoded = run.tokenizer.encode_batch([text for text, _ in texts])
    first = [_first_token(run.tokenizer, *text, ids) for text, ids in zip(texts, encoded, strict=True)]
    scored = _token_log_probs(run, [[*before, *ids] for ids in encoded])
    # The number of a token in its sequence is one more than that of its log-probability.
    return sum_log_probs(found[max(start + len(before), 1) - 1 :] for start, found in zip(first, scored, strict=True))


def predict(items: Sequence[Item], log_probs: np.ndarray, with_prob: bool) -> tuple[dict, dict[str, list[bool]], int]:
    """Chooses the most probable sentence of each item.

    Args:
        items: n choices.
        log_probs: of all their sentences' completions, one item after the other.
        with_prob: whether to add the probability of the first sentence among those of its item, as for the WUG sets.

    Returns:
        The content of predictions.json; by subset, whether each item is right; and the number of ties.
    """
    predictions: dict[str, Any] = {}
    right: dict[str, list[bool]] = {}
    ties, at = 0, 0
    for item in items:
        own = log_probs[at : at + len(item.sentences)]
        at += len(item.sentences)
        chosen = int(own.argmax())  # the first of equal ones
        ties += int((own == own.max()).sum() > 1)
        entries = predictions.setdefault(item.uid, {"predictions": []})["predictions"]
        entry: dict[str, Any] = {"id": f"{item.uid}_{len(entries)}", "pred": item.shown[chosen]}
        if with_prob:
            entry["prob"] = float(np.exp(own[0] - own.max()) / np.exp(own - own.max()).sum())
        entries.append(entry)
        right.setdefault(item.uid, []).append(chosen == 0)
    return predictions, right, ties


def accuracies(task: str, right: dict[str, list[bool]]) -> tuple[float, dict[str, float]]:
    """Returns the accuracy of a task in percent, as the pipeline takes its mean, and those of its subsets."""
    by_uid = {uid: 100 * sum(its) / len(its) for uid, its in right.items()}
    if task != "entity_tracking":
        return sum(by_uid.values()) / len(by_uid), by_uid
    splits = [[value for uid, value in by_uid.items() if uid.startswith(split)] for split in SPLITS]
    means = [sum(values) / len(values) for values in splits if values]
    require(len(means) > 0, f"entity tracking: no file is named after one of {', '.join(SPLITS)}: copy the data again")
    return sum(means) / len(means), by_uid


def correlation(items: Sequence[Item], predictions: dict) -> float | None:
    """Returns Spearman's rho between the model's probabilities and people's ratios; None where one of them is constant."""
    from scipy.stats import spearmanr

    model = [entry["prob"] for its in predictions.values() for entry in its["predictions"]]
    people = [item.ratio for item in items]
    if len(set(model)) < 2 or len(set(people)) < 2:
        return None
    return float(spearmanr(model, people)[0])


def word_surprisals(run: Run, words: Sequence[tuple[str, str]], bos: bool) -> np.ndarray:
    """Returns -log p(word | context) in nats of words and their contexts, (n,) float64.

    The tokens of a word are scored one by one. Before each further one, the context and the word so far are encoded anew, so
    that their ids are not always those of the word's own encoding.
    """
    tokenizer = run.tokenizer
    before = [tokenizer.bos] if bos else []
    sequences, owners = [], []
    for number, (context, word) in enumerate(words):
        text = context
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


def reading_predictions(surprisals: np.ndarray, previous: np.ndarray) -> dict:
    """Returns the content of reading/predictions.json from the surprisals of the words and of those before them, (n,)."""
    pairs = zip(surprisals.tolist(), previous.tolist(), strict=True)
    return {"reading": {"predictions": [{"id": i, "pred": p, "prev_pred": q} for i, (p, q) in enumerate(pairs)]}}


def reading_scores(reading: Reading, surprisals: np.ndarray, previous: np.ndarray) -> dict[str, float | None]:
    """Returns how much better surprisal predicts reading times than the words' properties do, in percent.

    It is the part of the variance that the properties leave over, explained by adding surprisal to a linear regression:
    (R^2 - R^2_0) / (1 - R^2_0). For eye tracking it is the mean of four measures. For self-paced reading the word before is
    among the properties, with its surprisal.
    """
    columns = reading.columns
    properties = [columns[name] for name in PROPERTIES]
    spillover = [*properties, columns["prev_length"], previous]
    eyes = [_gain(columns[name], properties, surprisals) for name in EYE_TRACKING]
    known = [gain for gain in eyes if gain is not None]
    return {
        "eye_tracking": sum(known) / len(known) if len(known) == len(eyes) else None,
        "self_paced_reading": _gain(columns[SELF_PACED], spillover, surprisals),
    }


def aoa_surprisals(run: Run, contexts: dict[str, list[str]], bos: bool) -> np.ndarray:
    """Returns -log p(word | context) in nats of every word in each of its contexts, in this order."""
    texts = [(f"{context.strip()} {word.strip()}", word.strip()) for word, its in contexts.items() for context in its]
    return -completion_log_probs(run, texts, bos)


def aoa_results(revision: str, word_count: int, contexts: dict[str, list[str]], surprisals: np.ndarray) -> list[dict]:
    """Returns the entries of AoA_word/surprisal.json for one checkpoint."""
    places = [(word, i, context) for word, its in contexts.items() for i, context in enumerate(its)]
    return [
        {
            "step": revision,
            "word_count": word_count,
            "target_word": word,
            "context_id": i,
            "context": context,
            "surprisal": surprisal,
        }
        for (word, i, context), surprisal in zip(places, surprisals.tolist(), strict=True)
    ]


def _token_log_probs(run: Run, sequences: Iterable[list[int]]) -> list[np.ndarray]:
    found = run.token_log_probs_of([np.array(ids, np.int32) for ids in sequences], progress=True)
    require_defined(found, run.directory, run.step)
    return found


def _first_token(tokenizer: Any, text: str, completion: str, ids: list[int]) -> int:
    """Returns the number of the first token with characters of the completion, at the end of a text."""
    start = len(text) - len(completion)
    if start == 0:
        return 0
    start_byte = len(text[:start].encode())
    ends = np.cumsum([len(tokenizer.decode_bytes([token])) for token in ids])  # (T,) bytes up to the end of each token
    return int(np.searchsorted(ends, start_byte, side="right"))


def _gain(times: np.ndarray, properties: list[np.ndarray], surprisals: np.ndarray) -> float | None:
    """Returns (R^2 - R^2_0) / (1 - R^2_0) in percent, or None where there are too few words for the regression."""
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
    residual = y - x @ np.linalg.lstsq(x, y)[0]
    total = float(((y - y.mean()) ** 2).sum())
    return 1 - float((residual**2).sum()) / total if total else 1.0
