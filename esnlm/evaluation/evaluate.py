"""Evaluates a run on minimal pairs: pairs -> sequences of ids -> log-probabilities -> outcomes."""

import hashlib
import itertools
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
    details: dict[int, dict]  # further figures of sets, by index

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
    judge = Judge(pairs)
    sequences = encode(list_texts(judge.sentences), run.tokenizer, scoring)
    tokens = np.array([len(ids) for ids in sequences])
    log_prob = sum_log_probs(run.token_log_probs_of(sequences, progress=progress))

    tie_is_right = float(convention.tie_is_right)
    accuracies = judge.accuracies(log_prob, tie_is_right)
    status, warnings = _verdict(judge, log_prob, tokens - 1, accuracies)
    if (unscored := describe_unscored(sequences, scoring)) is not None:
        warnings.append(unscored)
    for uid, entry in accuracies["paradigms"].items():
        first = pairs[judge.indices[uid][0]]
        entry.update(phenomenon=first.phenomenon, field=first.field)
    if status == "collapsed":
        groups = accuracies["phenomena"], accuracies["paradigms"], {"": accuracies["overall"]}
        for entry in itertools.chain(*(group.values() for group in groups)):
            keys = [key for key in entry if key.startswith(("accuracy", "interval"))]
            entry.update(dict.fromkeys(keys))
    guesses = _guess(run, sequences, baselines or {})

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
            "distinct_sentences": len(judge.sentences),
            "identical_pairs": int(judge.identical.sum()),
            "paradigms": len(judge.indices),
            "phenomena": len(accuracies["phenomena"]),
        },
        "units": (
            "accuracies and intervals in percent, log-probabilities in nats; ties count half in"
            " baselines"
        ),
        "intervals": statistics.INTERVALS,
        **accuracies,
        "baselines": {
            name: judge.accuracies(guess, judge.tie_credit(guess))
            | {"run_above": judge.compare(log_prob, guess) if status == "ok" else None}
            for name, guess in guesses.items()
        },
        "anchors": anchors(pairs),
    }
    if normalize != "none" and status != "collapsed":
        sizes = tokens - 1
        if normalize == "bytes":
            sizes = np.array([len(sentence.encode()) for sentence in judge.sentences])
        mean = log_prob / np.maximum(sizes, 1)  # (sentences,), nats per token or byte
        result["normalized"] = {"by": normalize, **judge.accuracies(mean, tie_is_right)}
    if sets := int(judge.is_set.sum()):
        result["data"]["kinds"] = {"pairs": len(pairs) - sets, "sets": sets}
        result["units"] += ", in sets one over the number of sentences at the top"
        chances = [judge.chance[indices].mean() for indices in judge.indices.values()]
        result["chance"] = 100 * float(np.mean(chances))
    good, bad = judge.good, judge.bad(log_prob)
    evaluation = Evaluation(
        result,
        list(pairs),
        log_prob_good=log_prob[good],
        log_prob_bad=log_prob[bad],
        tokens_good=tokens[good],
        tokens_bad=tokens[bad],
        outcome=judge.outcomes(log_prob),
        details=judge.details(log_prob),
    )
    if compare_with is not None:
        other, is_right = compare_with
        differences = statistics.compare(evaluation.right, is_right, judge.indices, judge.phenomena)
        result["comparison"] = {"with": other, **differences} if status == "ok" else None
    return evaluation


class Judge:
    """Judges which of n pairs and sets a model has right from log p of their sentences.

    In all methods `log_prob` (sentences,) has one value for each of `sentences`.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs
        self.indices = minimal_pairs.indices_by_paradigm(pairs)
        self.phenomena = {pair.uid: pair.phenomenon for pair in pairs}
        # the distinct sentences, each of which is scored once
        self.sentences = list(dict.fromkeys(text for pair in pairs for text in sentences_of(pair)))
        index = {sentence: i for i, sentence in enumerate(self.sentences)}
        self.good = np.array([index[pair.good] for pair in pairs])  # (n,)
        # The indices of the wrong sentences, (n, K). Rows with fewer repeat the first one.
        wrong = [[index[sentence] for sentence in wrong_of(pair)] for pair in pairs]
        counts = np.array([len(row) for row in wrong])
        width = counts.max()
        self._wrong = np.array([row + row[:1] * (width - len(row)) for row in wrong])
        self._is_wrong = np.arange(width) < counts[:, None]  # (n, K), false for repetitions
        self.is_set, self.chance = counts > 1, 1 / (1 + counts)
        self.identical = (self._wrong == self.good[:, None]).any(axis=1)

    def bad(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the index of the most probable wrong sentence of each pair, (n,)."""
        most = log_prob[self._wrong].argmax(axis=1)  # NumPy's argmax treats NaN as the largest
        return self._wrong[np.arange(len(most)), most]

    def outcomes(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the outcome of each pair, (n,), as in `statistics.outcomes`."""
        return statistics.outcomes(log_prob[self.good], log_prob[self.bad(log_prob)])

    def tie_credit(self, log_prob: np.ndarray) -> np.ndarray:
        """Returns the credit for a tie, (n,): one over the number of sentences at the top."""
        is_equal = log_prob[self._wrong] == log_prob[self.good][:, None]
        return 1 / (1 + (is_equal & self._is_wrong).sum(axis=1))

    def accuracies(self, log_prob: np.ndarray, ties_count_as: float | np.ndarray) -> dict:
        """Returns `statistics.accuracies` of the pairs."""
        return statistics.accuracies(
            self.outcomes(log_prob),
            self.identical,
            self.indices,
            self.phenomena,
            ties_count_as,
            self.tie_credit(log_prob),
        )

    def compare(self, log_prob: np.ndarray, other: np.ndarray) -> dict:
        """Returns `statistics.compare` of two models by their outcomes, with credit for ties."""
        credited, of_other = self._credited(log_prob), self._credited(other)
        return statistics.compare(credited, of_other, self.indices, self.phenomena)

    def _credited(self, log_prob: np.ndarray) -> np.ndarray:
        outcome = self.outcomes(log_prob)
        return np.where(outcome == 0.5, self.tie_credit(log_prob), outcome)

    def details(self, log_prob: np.ndarray) -> dict[int, dict]:
        """Returns the further figures of each set in a report, by index."""
        details = {}
        for i in np.flatnonzero(self.is_set).tolist():
            sentences = wrong_of(self._pairs[i])
            log_probs = log_prob[self._wrong[i][self._is_wrong[i]]]
            details[i] = {
                "sentence_bad": sentences[int(log_probs.argmax())],
                "sentences_bad": list(sentences),
                "log_probs_bad": log_probs.tolist(),
            }
        return details


def config_sha256(run: ScorableRun) -> str:
    """Returns the sha256 of the run's configuration, which distinguishes runs of the same name."""
    return hashlib.sha256((run.directory / "config.yaml").read_bytes()).hexdigest()


def _guess(
    run: ScorableRun, sequences: list[np.ndarray], baselines: Mapping[str, NgramModel]
) -> dict[str, np.ndarray]:
    """Returns log p of each sentence by each baseline, (sentences,)."""
    unigram = run.unigram()
    models = ({} if unigram is None else {"unigram": unigram}) | dict(baselines)
    guesses = {"length": sum_log_probs(np.full(len(ids), -1.0) for ids in sequences)}
    for name, model in models.items():
        guesses[name] = sum_log_probs(model.token_log_probs_of(sequences))
    return guesses


def _verdict(
    judge: Judge, log_prob: np.ndarray, scored: np.ndarray, accuracies: dict
) -> tuple[str, list[str]]:
    """Returns the status ("ok", "not defined" or "collapsed") and warnings.

    `scored` is the number of scored tokens of each sentence.
    """
    if undefined := int(np.sum(np.isnan(log_prob) | np.isposinf(log_prob))):
        affected = sum(entry["undefined"] > 0 for entry in accuracies["paradigms"].values())
        return "not defined", [
            f"{undefined} of {len(log_prob)} sentences have a log-probability that is not a number,"
            f" in {affected} of {len(accuracies['paradigms'])} paradigms: these, and all means over"
            " them, have no accuracy"
        ]
    outcome = judge.outcomes(log_prob)
    if statistics.has_collapsed(outcome, judge.identical):
        ties = int(np.sum((outcome == 0.5) & ~judge.identical))
        return "collapsed", [
            f"{ties} of the {int(np.sum(~judge.identical))} pairs of different sentences have equal"
            " log-probabilities: the model tells them apart by length alone or not at all, so there"
            " is no accuracy"
        ]
    if statistics.sees_length_only(log_prob, scored):
        return "collapsed", [
            "every token has the same log-probability: only length decides, so there is no accuracy"
        ]
    return "ok", []
