"""Evaluates a run on minimal pairs.

The steps of `evaluate`: pairs -> sequences of ids -> log-probabilities -> outcomes -> result.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from esnlm.base.errors import InputError
from esnlm.evaluation import conventions, minimal_pairs, statistics
from esnlm.evaluation.anchors import anchors
from esnlm.evaluation.minimal_pairs import Pair, sentences_of, wrong_of
from esnlm.evaluation.sequences import (
    ScorableRun,
    describe_unscored,
    encode,
    list_texts,
    sum_log_probs,
)
from esnlm.models.ngrams import NgramModel

FORMAT = "esnlm minimal pairs"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Evaluation:
    """The results of one run on n pairs."""

    result: dict  # the report, ready for JSON
    pairs: list[Pair]
    log_prob_good: np.ndarray  # (n,) float64, nats
    log_prob_bad: np.ndarray  # (n,)
    # (n,) all ids of a sequence, with BOS and EOS if the convention has them
    tokens_good: np.ndarray
    tokens_bad: np.ndarray  # (n,)
    outcome: np.ndarray  # (n,) 1 right, 0.5 a tie, 0 wrong, NaN undefined
    details: dict[int, dict]  # further figures of sets, by row

    @property
    def right(self) -> np.ndarray:
        """Whether each pair is right under the convention's rule for ties, (n,) bool."""
        return self.outcome >= (0.5 if self.result["scoring"]["ties_count_as"] == 1 else 1.0)


def evaluate(
    run: ScorableRun,
    pairs: Sequence[Pair],
    scoring: str = "paper",
    baselines: Mapping[str, NgramModel] | None = None,
    compare_with: tuple[dict, np.ndarray] | None = None,
    progress: bool = False,
    normalize: str = "none",
) -> Evaluation:
    """Scores pairs with a run and with baselines that use only length and word frequency.

    Baselines count a tie as half, like a coin toss: `length` ties if both sentences have the same
    number of tokens. In a set, a tie counts one over the number of sentences at the top. The run's
    `accuracy_ties_half` counts ties in the same way, and `run_above` is the paired difference.

    Args:
        run, pairs, scoring: the results of `esnlm.load` and `minimal_pairs.load`, and the name of
            the convention.
        baselines: further models besides `length` and `unigram`, by name.
        compare_with: run, step and accuracy of another evaluation of these pairs, and which it has
            right, (n,) bool.
        progress: whether to show the progress of scoring.
        normalize: "tokens" or "bytes": adds `normalized`, the accuracies by log p per scored token
            or per UTF-8 byte.

    Returns:
        The evaluation. If log-probabilities are not numbers or the model has collapsed
        (`statistics.has_collapsed`), the accuracies are None, and `status` and `warnings` of the
        result explain why.
    """
    convention = conventions.get(scoring)
    if not pairs:
        raise InputError("no pairs to score; give at least one")
    if normalize not in conventions.NORMALIZATIONS:
        raise InputError(
            f"normalize is {normalize!r}: choose one of {', '.join(conventions.NORMALIZATIONS)}"
        )
    rows_of = minimal_pairs.rows_by_paradigm(pairs)
    phenomenon_of = {pair.uid: pair.phenomenon for pair in pairs}

    # From pairs to sequences of ids: each distinct sentence is scored once.
    sentences = list(dict.fromkeys(sentence for pair in pairs for sentence in sentences_of(pair)))
    sequences = encode(list_texts(sentences), run.tokenizer, scoring)
    judge = Judge(pairs, sentences)
    tokens = np.array([len(ids) for ids in sequences])

    # From sequences to log-probabilities of sentences, (sentences,), for the run and the baselines.
    log_prob = sum_log_probs(run.token_log_probs_of(sequences, progress=progress))
    models = dict(baselines or {})
    if (unigram := run.unigram()) is not None:
        models = {"unigram": unigram} | models
    guesses = {"length": sum_log_probs(np.full(len(ids), -1.0) for ids in sequences)}
    guesses |= {
        name: sum_log_probs(model.token_log_probs_of(sequences)) for name, model in models.items()
    }

    # From log-probabilities to outcomes and accuracies.
    outcome, coin = judge.outcomes(log_prob), judge.tie_worth(log_prob)
    tie_is_right = float(convention.tie_is_right)
    accuracies = statistics.accuracies(
        outcome, judge.identical, rows_of, phenomenon_of, tie_is_right, coin
    )
    for uid, entry in accuracies["paradigms"].items():
        first = pairs[rows_of[uid][0]]
        entry.update(phenomenon=first.phenomenon, field=first.field)
    length_only = statistics.sees_length_only(log_prob, tokens - 1)
    status, warnings = _verdict(log_prob, outcome, judge.identical, accuracies, length_only)
    if (unscored := describe_unscored(sequences, scoring)) is not None:
        warnings.append(unscored)
    if status == "collapsed":
        for entry in (
            accuracies["overall"],
            *accuracies["phenomena"].values(),
            *accuracies["paradigms"].values(),
        ):
            entry.update(
                dict.fromkeys([key for key in entry if key.startswith(("accuracy", "interval"))])
            )

    def baseline(guess_log_prob: np.ndarray) -> dict:
        guess, tie = judge.outcomes(guess_log_prob), judge.tie_worth(guess_log_prob)
        above = None
        if status == "ok":  # both count ties by the same rule
            own, worth = np.where(outcome == 0.5, coin, outcome), np.where(guess == 0.5, tie, guess)
            above = statistics.compare(own, worth, rows_of, phenomenon_of)
        return statistics.accuracies(guess, judge.identical, rows_of, phenomenon_of, tie, tie) | {
            "run_above": above
        }

    result = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "status": status,
        "warnings": warnings,
        "run": run.name,
        "step": run.step,
        "config_sha256": config_sha256(run),
        "scoring": {
            "name": convention.name,
            "description": convention.description,
            "ties_count_as": tie_is_right,
        },
        "tokenizer": {
            name: getattr(run.tokenizer, name) for name in ("name", "sha256", "vocab_size")
        },
        "data": {
            "sha256": minimal_pairs.digest(pairs),
            "pairs": len(pairs),
            "distinct_sentences": len(sentences),
            "identical_pairs": int(judge.identical.sum()),
            "paradigms": len(rows_of),
            "phenomena": len(accuracies["phenomena"]),
        },
        "units": (
            "accuracies and intervals in percent, log-probabilities in nats; ties count half in"
            " baselines"
        ),
        "intervals": statistics.INTERVALS,
        **accuracies,
        "baselines": {name: baseline(its) for name, its in guesses.items()},
        "anchors": anchors(pairs),
    }
    if normalize != "none" and status != "collapsed":
        lengths = (
            tokens - 1
            if normalize == "tokens"
            else np.array([len(sentence.encode()) for sentence in sentences])
        )
        mean = log_prob / np.maximum(lengths, 1)  # (sentences,), nats per token or byte
        by_mean = (
            judge.outcomes(mean),
            judge.identical,
            rows_of,
            phenomenon_of,
            tie_is_right,
            judge.tie_worth(mean),
        )
        result["normalized"] = {"by": normalize, **statistics.accuracies(*by_mean)}
    if sets := int((judge.wrong_count > 1).sum()):
        chances = [(1 / (1 + judge.wrong_count[rows])).mean() for rows in rows_of.values()]
        result["data"] |= {"kinds": {"pairs": len(pairs) - sets, "sets": sets}}
        result["units"] += ", in sets one over the number of sentences at the top"
        result["chance"] = 100 * float(np.mean(chances))
    good, bad = judge.good, judge.bad(log_prob)
    log_probs, counts = (log_prob[good], log_prob[bad]), (tokens[good], tokens[bad])
    found = Evaluation(result, list(pairs), *log_probs, *counts, outcome, judge.details(log_prob))
    if compare_with is not None:
        other, other_right = compare_with
        differences = statistics.compare(found.right, other_right, rows_of, phenomenon_of)
        result["comparison"] = {"with": other, **differences} if status == "ok" else None
    return found


class Judge:
    """Judges which of n pairs and sets a model has right.

    Args:
        items: pairs and sets.
        sentences: the distinct sentences of all items.
    """

    def __init__(self, items: Sequence[Pair], sentences: list[str]) -> None:
        number_of = {sentence: i for i, sentence in enumerate(sentences)}
        self._items = items
        # (n,) the index of the right sentence
        self.good = np.array([number_of[item.good] for item in items])
        # The indices of the wrong sentences, (n, K). Rows with fewer repeat the first one.
        wrong = [[number_of[sentence] for sentence in wrong_of(item)] for item in items]
        self.wrong_count = np.array([len(numbers) for numbers in wrong])  # (n,)
        most = self.wrong_count.max()
        self._wrong = np.array([numbers + numbers[:1] * (most - len(numbers)) for numbers in wrong])
        self._is_real = np.arange(most) < self.wrong_count[:, None]  # (n, K)
        self.identical = (self._wrong == self.good[:, None]).any(axis=1)

    def bad(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the index of the most probable wrong sentence of each item, (n,), given log p
        (sentences,)."""
        most = log_prob[self._wrong].argmax(axis=1)  # NumPy's argmax treats NaN as the largest
        return self._wrong[np.arange(len(most)), most]

    def outcomes(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the outcome of each item, (n,), as in `statistics.outcomes`, given log p
        (sentences,)."""
        return statistics.outcomes(log_prob[self.good], log_prob[self.bad(log_prob)])

    def tie_worth(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the worth of a tie of each item by a fair draw, (n,): one over the number of
        sentences at the top."""
        is_equal = log_prob[self._wrong] == log_prob[self.good][:, None]
        return 1 / (1 + (is_equal & self._is_real).sum(axis=1))

    def details(self, log_prob: np.ndarray) -> dict[int, dict]:
        """Returns the further figures of each set in a report, by row."""
        found = {}
        for row in np.flatnonzero(self.wrong_count > 1).tolist():
            wrong, log_probs = (
                self._items[row].bad,
                log_prob[self._wrong[row, : self.wrong_count[row]]],
            )
            found[row] = {
                "sentence_bad": wrong[int(log_probs.argmax())],
                "sentences_bad": list(wrong),
                "log_probs_bad": log_probs.tolist(),
            }
        return found


def config_sha256(run: ScorableRun) -> str:
    """Returns the sha256 of the run's configuration, which distinguishes runs of the same name."""
    return hashlib.sha256((run.directory / "config.yaml").read_bytes()).hexdigest()


def _verdict(
    log_prob: np.ndarray,
    outcome: np.ndarray,
    identical: np.ndarray,
    accuracies: dict,
    length_only: bool,
) -> tuple[str, list[str]]:
    """Returns the status ("ok", "not defined" or "collapsed") and warnings."""
    undefined = int(np.sum(np.isnan(log_prob) | np.isposinf(log_prob)))
    if undefined:
        where = sum(entry["undefined"] > 0 for entry in accuracies["paradigms"].values())
        return "not defined", [
            f"{undefined} of {len(log_prob)} sentences have a log-probability that is not a number,"
            f" in {where} of {len(accuracies['paradigms'])} paradigms: these, and all means over"
            " them, have no accuracy"
        ]
    if not statistics.has_collapsed(outcome, identical):
        alike = [
            "every token has the same log-probability: only length decides, so there is no accuracy"
        ]
        return ("collapsed", alike) if length_only else ("ok", [])
    ties, pairs = int(np.sum((outcome == 0.5) & ~identical)), int(np.sum(~identical))
    return "collapsed", [
        f"{ties} of the {pairs} pairs of different sentences have equal log-probabilities: the"
        " model tells them apart by length alone or not at all, so there is no accuracy"
    ]
