"""Evaluates a run on minimal pairs: pairs -> sequences of ids -> log-probabilities -> outcomes."""

import csv
import hashlib
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from esnlm.base.errors import InputError, check_choice
from esnlm.evaluation import conventions, minimal_pairs, statistics
from esnlm.evaluation.conventions import (
    ScorableRun,
    describe_unscored,
    encode,
    list_texts,
    sum_log_probs,
)
from esnlm.evaluation.minimal_pairs import Pair, indices_by_paradigm, sentences_of, wrong_of
from esnlm.models.ngrams import NgramModel

FORMAT = "esnlm minimal pairs"
FORMAT_VERSION = 1
UNITS = (
    "accuracies and intervals in percent, log-probabilities in nats; ties count half in baselines"
)
SET_UNITS = f"{UNITS}, in sets one over the number of sentences at the top"
FOLDER = resources.files("esnlm.evaluation")


class ComparedRun(NamedTuple):
    """Another evaluation of the same pairs under the same convention."""

    summary: dict  # its run, step and accuracy
    right: np.ndarray  # (n,) bool


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
    right: np.ndarray  # (n,) bool, under the convention's rule for ties
    details: dict[int, dict]  # further figures of sets, by index


def evaluate(
    run: ScorableRun,
    pairs: Sequence[Pair],
    scoring: str = "paper",
    baselines: Mapping[str, NgramModel] | None = None,
    compare_with: ComparedRun | None = None,
    progress: bool = False,
    normalize: str = "none",
) -> Evaluation:
    """Scores pairs with a run and with baselines that use only length and word frequency.

    Baselines count a tie as half, like a coin toss: `length` ties if both sentences have the same
    number of tokens. A set is a pair with several wrong sentences; there, a tie with k of them
    counts 1 / (1 + k). The run's `accuracy_ties_half` counts ties in the same way, and `run_above`
    is the paired difference.

    Args:
        run: a trained run, from `esnlm.load`.
        pairs: pairs and sets, from `minimal_pairs.load`.
        scoring: the name of the convention.
        baselines: further models besides `length` and `unigram`, by name.
        compare_with: another evaluation of these pairs.
        progress: whether to show the progress of scoring.
        normalize: "tokens" or "bytes": adds `normalized`, the accuracies by log p per scored token
            or per UTF-8 byte.

    Returns:
        The evaluation. Its result has a `status`: "ok"; "collapsed": no accuracies
        (`statistics.has_collapsed`); "not defined": none for paradigms with an undefined
        log-probability, and for means over them. `warnings` explain it.
    """
    convention = conventions.get(scoring)
    if not pairs:
        raise InputError("no pairs to score; give at least one")
    check_choice("normalize", normalize, conventions.NORMALIZATIONS)
    judge = Judge(pairs)
    sequences = encode(list_texts(judge.sentences), run.tokenizer, scoring)
    tokens = np.array([len(ids) for ids in sequences])
    scored = tokens - 1  # the first token is only read
    log_prob = sum_log_probs(run.token_log_probs_of_ids(sequences, progress=progress))

    tie_is_right = float(convention.tie_is_right)
    accuracies = judge.accuracies(log_prob, tie_is_right)
    status, warnings = _find_status(judge, log_prob, scored, accuracies["paradigms"])
    can_compare = status == "ok"
    if status == "collapsed":
        accuracies = _blank_accuracies(accuracies)
    if (unscored := describe_unscored(sequences, scoring)) is not None:
        warnings.append(unscored)
    baseline_entries = {}
    for name, other in _baseline_log_probs(run, sequences, baselines or {}).items():
        above = judge.compare_outcomes(log_prob, other) if can_compare else None
        entry = judge.accuracies(other, judge.tie_credit(other))
        baseline_entries[name] = entry | {"run_above": above}

    outcome = judge.outcomes(log_prob)
    right = outcome >= (0.5 if convention.tie_is_right else 1.0)
    optional: dict[str, Any] = {}
    if normalize != "none" and status != "collapsed":
        bytes_of = np.array([len(sentence.encode()) for sentence in judge.sentences])
        sizes = scored if normalize == "tokens" else bytes_of
        mean = log_prob / np.maximum(sizes, 1)  # (sentences,), nats per token or byte
        optional["normalized"] = {"by": normalize, **judge.accuracies(mean, tie_is_right)}
    if judge.is_set.any():
        chances = [judge.chance[indices].mean() for indices in judge.indices.values()]
        optional["chance"] = 100 * float(np.mean(chances))
    if compare_with is not None:
        other_run, is_right = compare_with
        differences = statistics.compare(right, is_right, judge.indices, judge.phenomena)
        optional["comparison"] = {"with": other_run, **differences} if can_compare else None

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
        "data": judge.describe(),
        "units": SET_UNITS if judge.is_set.any() else UNITS,
        "intervals": statistics.INTERVALS,
        "overall": accuracies["overall"],
        "phenomena": accuracies["phenomena"],
        "paradigms": {
            uid: entry | judge.origin(uid) for uid, entry in accuracies["paradigms"].items()
        },
        "baselines": baseline_entries,
        "anchors": anchors(pairs),
        **optional,
    }
    good, bad = judge.good, judge.bad(log_prob)
    return Evaluation(
        result,
        list(pairs),
        log_prob_good=log_prob[good],
        log_prob_bad=log_prob[bad],
        tokens_good=tokens[good],
        tokens_bad=tokens[bad],
        outcome=outcome,
        right=right,
        details=judge.details(log_prob),
    )


class Judge:
    """Judges which of n pairs and sets a model has right from log p of their sentences.

    In all methods `log_prob` (sentences,) has one value for each of `sentences`.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs
        self.indices = indices_by_paradigm(pairs)
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

    def describe(self) -> dict[str, Any]:
        """Returns the digest and the counts of the pairs, for a report."""
        description: dict[str, Any] = {
            "sha256": minimal_pairs.digest(self._pairs),
            "pairs": len(self._pairs),
            "distinct_sentences": len(self.sentences),
            "identical_pairs": int(self.identical.sum()),
            "paradigms": len(self.indices),
            "phenomena": len(set(self.phenomena.values())),
        }
        if sets := int(self.is_set.sum()):
            description["kinds"] = {"pairs": len(self._pairs) - sets, "sets": sets}
        return description

    def origin(self, uid: str) -> dict[str, str]:
        """Returns the phenomenon and the field of a paradigm."""
        first = self._pairs[self.indices[uid][0]]
        return {"phenomenon": first.phenomenon, "field": first.field}

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

    def compare_outcomes(self, log_prob: np.ndarray, other: np.ndarray) -> dict:
        """Returns `statistics.compare` of two models by their outcomes, with credit for ties."""
        credit, other_credit = self._credit(log_prob), self._credit(other)
        return statistics.compare(credit, other_credit, self.indices, self.phenomena)

    def _credit(self, log_prob: np.ndarray) -> np.ndarray:
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


def _baseline_log_probs(
    run: ScorableRun, sequences: list[np.ndarray], baselines: Mapping[str, NgramModel]
) -> dict[str, np.ndarray]:
    """Returns log p of each sentence by each baseline, (sentences,)."""
    unigram = run.unigram()
    models = ({} if unigram is None else {"unigram": unigram}) | dict(baselines)
    log_probs = {"length": sum_log_probs(np.full(len(ids), -1.0) for ids in sequences)}
    for name, model in models.items():
        log_probs[name] = sum_log_probs(model.token_log_probs_of_ids(sequences))
    return log_probs


def _find_status(
    judge: Judge, log_prob: np.ndarray, scored: np.ndarray, paradigms: Mapping[str, dict]
) -> tuple[str, list[str]]:
    """Returns the status of a report and its warnings.

    `scored` is the number of scored tokens of each sentence.
    """
    if undefined := int(np.sum(np.isnan(log_prob) | np.isposinf(log_prob))):
        affected = sum(entry["undefined"] > 0 for entry in paradigms.values())
        return "not defined", [
            f"{undefined} of {len(log_prob)} sentences have a log-probability that is not a number,"
            f" in {affected} of {len(paradigms)} paradigms: these, and all means over"
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


def _blank_accuracies(groups: dict) -> dict:
    """Returns the result of `statistics.accuracies` without accuracies and intervals."""
    blank = dict.fromkeys((*statistics.ACCURACIES, "interval"))
    levels = {
        level: {name: entry | blank for name, entry in groups[level].items()}
        for level in ("phenomena", "paradigms")
    }
    return {"overall": groups["overall"] | blank, **levels}


def anchors(pairs: Sequence[Pair]) -> dict | None:
    """Returns the accuracies published with BLiMP, averaged over the paradigms of the pairs.

    The pairs of a paradigm, not its name, decide which of BLiMP's paradigms it is, in whole or in
    part. An unrelated pair has the checksum of one of BLiMP's pairs with probability 2e-5. The
    models are five_gram, lstm, transformer_xl, gpt2 and human (anchors.csv names the source).
    All figures are in percent (Warstadt et al. 2020).

    Returns:
        Entries by paradigm, by phenomenon and overall; None if a paradigm is not one of BLiMP's.
    """
    published = published_accuracies()
    checksums_of = dict(zip(published, map(frozenset, official_checksums().tolist()), strict=True))
    accuracies: dict[str, dict[str, float]] = {}
    for uid, indices in indices_by_paradigm(pairs).items():
        checksums = {checksum(pairs[index]) for index in indices}
        sources = [name for name, official in checksums_of.items() if checksums <= official]
        if len(sources) != 1:  # BLiMP has one pair in two paradigms
            return None
        accuracies[uid] = published[sources[0]]

    def mean_over(names: Sequence[str]) -> dict[str, float]:
        return {
            model: float(np.mean([accuracies[name][model] for name in names]))
            for model in accuracies[names[0]]
        }

    return statistics.grouped(accuracies, {pair.uid: pair.phenomenon for pair in pairs}, mean_over)


def published_accuracies() -> dict[str, dict[str, float]]:
    """Returns the accuracies in percent by paradigm and model."""
    lines = FOLDER.joinpath("anchors.csv").read_text("utf-8").splitlines()
    uid, _, *models = next(csv.reader(lines[1:]))
    rows = csv.DictReader(lines[1:])
    return {row[uid]: {model: float(row[model]) for model in models} for row in rows}


def official_checksums() -> np.ndarray:
    """Returns the checksums of BLiMP's pairs, (67, 1000) uint32, sorted within each paradigm.

    Paradigms are in the order of anchors.csv. docs/write_blimp_pairs.py writes the file.
    """
    return np.load(io.BytesIO(FOLDER.joinpath("blimp_pairs.npy").read_bytes()))


def checksum(pair: Pair) -> int:
    """Returns the CRC-32 of a pair."""
    return zlib.crc32(f"{pair.good}\n{pair.bad}".encode(errors="surrogatepass"))
