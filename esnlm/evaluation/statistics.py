"""What the outcomes of minimal pairs say, and how surely: accuracies, intervals, paired comparisons.

An outcome is 1 (right), 0.5 (a tie), 0 (wrong) or NaN (a log-probability was not a number). A paradigm's accuracy is
the mean over its pairs; a phenomenon's and the overall accuracy are means over paradigms, each paradigm counting the
same (Warstadt et al. 2020). Everything given back is in percent, ready for JSON: None stands for "not defined".

Intervals are of 95 %. A paradigm has Wilson's, which stays honest at 0 and 100 %. Means over several paradigms have
a percentile bootstrap, stratified: pairs are redrawn within each paradigm, the paradigms stay. (Where every pair of
every paradigm is right, it has no width.) They answer "what if other sentences of the same templates had been drawn",
not "what if the run had another seed".
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import bdtr, ndtri

LEVEL = 0.95
RESAMPLES = 10_000
TAILS = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]  # percentiles
COUNTS = ("pairs", "right", "wrong", "ties", "identical", "undefined")

INTERVALS = (
    f"{LEVEL:.0%}; paradigms: Wilson; means over paradigms: percentile bootstrap over pairs, stratified by paradigm, "
    f"{RESAMPLES} resamples"
)


def outcomes(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Outcome of each pair, (n,) float64, from the log-probabilities of its two sentences, (n,) each, in nats.

    Minus infinity is a value like any other (two of them tie); NaN and plus infinity, which no log-probability can
    be, make the pair undefined: NaN.
    """
    undefined = np.isnan(good) | np.isnan(bad) | np.isposinf(good) | np.isposinf(bad)
    return np.where(undefined, np.nan, (good > bad) + 0.5 * (good == bad))


def has_collapsed(outcome: np.ndarray, identical: np.ndarray) -> bool:
    """Whether at least half of the pairs whose sentences differ are tied: then no accuracy means anything.

    A model that gives every sentence the same log-probability, or one that sees nothing but length, would otherwise
    show as 0 or 100 % by the rule for ties. `identical` (n,) marks pairs of twice the same sentence.
    """
    return 2 * np.sum((outcome == 0.5) & ~identical) >= np.sum(~identical)


def sees_length_only(log_prob: np.ndarray, predicted: np.ndarray) -> bool:
    """Whether every prediction has the same log-probability, as in a model whose readout is 0.

    log_prob (n,) in nats, over so many predicted tokens each, (n,). Of one length the pairs tie, and `has_collapsed` tells.
    """
    a_token = log_prob[predicted > 0] / predicted[predicted > 0]
    # A model's float32 has 24 bits; those of a hundred sums in other orders agree to about 20.
    return len(a_token) > 1 and np.isfinite(a_token).all() and np.ptp(a_token) <= 2.0**-20 * np.abs(a_token).max()


def accuracies(
    outcome: np.ndarray,
    identical: np.ndarray,
    members: Mapping[str, np.ndarray],
    phenomenon_of: Mapping[str, str],
    ties_count_as: float,
    seed: int = 0,
) -> dict:
    """Accuracies by paradigm, by phenomenon and overall, with their intervals and counts.

    outcome, identical: (n,); members: the pairs of each paradigm, as indices; phenomenon_of: the phenomenon of each
    paradigm; ties_count_as: 0, 0.5 or 1, the worth of a tie in `accuracy`.

    Gives {"overall": entry, "phenomena": {name: entry}, "paradigms": {name: entry}} with, in each entry, `accuracy`,
    its `interval`, `accuracy_ties_half`, `accuracy_without_identical`, and counts of `pairs` = `right` + `wrong` +
    `ties` + `identical` + `undefined`: `ties` are pairs of different sentences, `identical` pairs of the same. An
    undefined pair leaves its paradigm, and every mean that includes it, without an accuracy.
    """
    rng = np.random.default_rng(seed)
    worth = np.where(outcome == 0.5, ties_count_as, outcome)  # (n,)
    paradigms, resampled = {}, {}
    for name, rows in members.items():
        tie = outcome[rows] == 0.5
        accuracy = _percent(worth[rows])
        paradigms[name] = {
            "accuracy": accuracy,
            "interval": None if accuracy is None else wilson(accuracy, len(rows)),
            "accuracy_ties_half": _percent(outcome[rows]),
            "accuracy_without_identical": _percent(worth[rows][~identical[rows]]),
            "pairs": len(rows),
            "right": int(np.sum(outcome[rows] == 1)),
            "wrong": int(np.sum(outcome[rows] == 0)),
            "ties": int(np.sum(tie & ~identical[rows])),
            "identical": int(np.sum(tie & identical[rows])),
            "undefined": int(np.sum(np.isnan(outcome[rows]))),
        }
        resampled[name] = resampled_means(worth[rows], rng)

    def mean_over(names: Sequence[str]) -> dict:
        entries = [paradigms[name] for name in names]
        accuracy = _mean([entry["accuracy"] for entry in entries])
        interval = entries[0]["interval"] if len(names) == 1 else _interval([resampled[name] for name in names])
        return {
            "accuracy": accuracy,
            "interval": None if accuracy is None else interval,
            "accuracy_ties_half": _mean([entry["accuracy_ties_half"] for entry in entries]),
            "accuracy_without_identical": _mean([entry["accuracy_without_identical"] for entry in entries]),
            "paradigms": len(names),
            **{key: sum(entry[key] for entry in entries) for key in COUNTS},
        }

    return _grouped(paradigms, phenomenon_of, mean_over)


def compare(
    worth: np.ndarray,
    other: np.ndarray,
    members: Mapping[str, np.ndarray],
    phenomenon_of: Mapping[str, str],
    seed: int = 0,
) -> dict:
    """Paired comparison of two models on the same pairs: accuracy of the first minus that of the second, in points.

    worth, other: (n,) in 0 .. 1, what each pair counts for either model (bool will do). Gives the same groups as `accuracies`, each entry
    with `difference`, its bootstrap `interval` (a pair is redrawn with both its outcomes, so what makes a pair easy
    for both cancels), how many pairs count more for `only_this` and for `only_other`, and the `p_value` of McNemar's exact
    test on these two counts (pairs pooled; not corrected for the number of groups looked at).
    """
    rng = np.random.default_rng(seed)
    difference = worth.astype(float) - other.astype(float)  # (n,)
    paradigms, resampled = {}, {}
    for name, rows in members.items():
        resampled[name] = resampled_means(difference[rows], rng)
        paradigms[name] = {
            "difference": _percent(difference[rows]),
            "interval": _interval([resampled[name]]),
            **_discordance(difference[rows]),
        }

    def mean_over(names: Sequence[str]) -> dict:
        rows = np.concatenate([members[name] for name in names])
        return {
            "difference": _mean([paradigms[name]["difference"] for name in names]),
            "interval": _interval([resampled[name] for name in names]),
            **_discordance(difference[rows]),
        }

    return _grouped(paradigms, phenomenon_of, mean_over)


def resampled_means(values: np.ndarray, rng: np.random.Generator, resamples: int = RESAMPLES) -> np.ndarray:
    """(resamples,) means of the values (n,), each over n of them drawn with replacement.

    A mean only needs to know how often each distinct value was drawn, and that is multinomial: exactly the bootstrap,
    at the cost of a few draws a resample in place of n.
    """
    distinct, counts = np.unique(values, return_counts=True)
    drawn = rng.multinomial(len(values), counts / len(values), size=resamples)  # (resamples, distinct values)
    return drawn @ distinct / len(values)


def wilson(accuracy: float, n: int) -> list[float]:
    """Wilson's score interval of an accuracy in percent over n pairs.

    Where ties count half it is too wide, never too narrow: halves spread less than zeros and ones of the same mean.
    """
    p, z = accuracy / 100, ndtri(0.5 + LEVEL / 2)
    centre = p + z * z / (2 * n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    return [float(100 * max(low, 0.0)), float(100 * min(high, 1.0))]


def mcnemar(only_this: int, only_other: int) -> float:
    """Two-sided exact p-value that the two counts of discordant pairs come from a fair coin."""
    fewer, all_discordant = min(only_this, only_other), only_this + only_other
    return min(1.0, 2 * float(bdtr(fewer, all_discordant, 0.5)))


def _discordance(difference: np.ndarray) -> dict:
    only_this, only_other = int(np.sum(difference > 0)), int(np.sum(difference < 0))
    return {"only_this": only_this, "only_other": only_other, "p_value": mcnemar(only_this, only_other)}


def _grouped(paradigms: dict, phenomenon_of: Mapping[str, str], mean_over) -> dict:
    by_phenomenon: dict[str, list[str]] = {}
    for name in paradigms:
        by_phenomenon.setdefault(phenomenon_of[name], []).append(name)
    return {
        "overall": mean_over(list(paradigms)),
        "phenomena": {name: mean_over(by_phenomenon[name]) for name in sorted(by_phenomenon)},
        "paradigms": paradigms,
    }


def _percent(values: np.ndarray) -> float | None:
    if len(values) == 0 or np.isnan(values).any():
        return None
    return float(100 * values.sum() / len(values))


def _mean(values: Sequence[float | None]) -> float | None:
    return None if None in values else float(np.mean(values))


def _interval(resampled: Sequence[np.ndarray]) -> list[float]:
    """Percentiles, in percent, of the mean over paradigms of their resampled means, each (resamples,)."""
    return [float(x) for x in 100 * np.percentile(np.mean(resampled, axis=0), TAILS)]
