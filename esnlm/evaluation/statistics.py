"""Accuracies, intervals and paired comparisons from the outcomes of minimal pairs.

An outcome is 1 (right), 0.5 (a tie), 0 (wrong) or NaN (a log-probability was not a number). A
paradigm's accuracy is the mean over its pairs. A phenomenon's accuracy and the overall accuracy are
means over paradigms with equal weights (Warstadt et al. 2020). All results are in percent, ready
for JSON, with None for "not defined".

Intervals cover 95 %. A paradigm has Wilson's interval, which remains valid near 0 and 100 %. A mean
over paradigms has a percentile bootstrap interval, stratified by paradigm: pairs are resampled
within each paradigm. Intervals cover the choice of sentences from the same templates, not the seed
of the run.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import bdtr, ndtri, stdtrit

from esnlm.base.errors import InputError

LEVEL = 0.95
RESAMPLES = 10_000
FEWEST_SEEDS = 3  # needed for an interval over seeds
BOOTSTRAP_SEED = 0  # fixed, so that reports are reproducible
TAILS = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]  # percentiles
ACCURACIES = ("accuracy", "accuracy_ties_half", "accuracy_without_identical")
COUNTS = ("pairs", "right", "wrong", "ties", "identical", "undefined")

INTERVALS = (
    f"{LEVEL:.0%}; paradigms: Wilson; means over paradigms: percentile bootstrap over pairs,"
    f" stratified by paradigm, {RESAMPLES} resamples"
)


def outcomes(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Returns the outcome of each pair, (n,), from the log-probabilities of its sentences, (n,).

    Minus infinity is an ordinary value, and two of them tie. NaN and plus infinity make the outcome
    NaN.
    """
    undefined = np.isnan(good) | np.isnan(bad) | np.isposinf(good) | np.isposinf(bad)
    return np.where(undefined, np.nan, (good > bad) + 0.5 * (good == bad))


def has_collapsed(outcome: np.ndarray, identical: np.ndarray) -> bool:
    """Returns whether at least half of the pairs of different sentences are tied.

    Accuracies are then meaningless: the rule for ties could give a model that only uses length 0
    or 100 %.
    """
    return 2 * np.sum((outcome == 0.5) & ~identical) >= np.sum(~identical)


def sees_length_only(log_prob: np.ndarray, predicted: np.ndarray) -> bool:
    """Returns whether all tokens have the same log-probability, as if the readout is 0."""
    per_token = log_prob[predicted > 0] / predicted[predicted > 0]
    # A float32 has 24 bits. A hundred sums of them in different orders agree to about 20 bits.
    return (
        len(per_token) > 1
        and np.isfinite(per_token).all()
        and np.ptp(per_token) <= 2.0**-20 * np.abs(per_token).max()
    )


def accuracies(
    outcome: np.ndarray,
    identical: np.ndarray,
    indices_by_paradigm: Mapping[str, np.ndarray],
    phenomenon_of: Mapping[str, str],
    tie_credit: float | np.ndarray,
    fair_credit: float | np.ndarray = 0.5,
) -> dict:
    """Computes accuracies by paradigm, by phenomenon and overall, with their intervals and counts.

    Args:
        outcome: (n,).
        identical: which pairs have two identical sentences, (n,) bool.
        indices_by_paradigm: the indices of the pairs of each paradigm.
        phenomenon_of: the phenomenon of each paradigm.
        tie_credit: the credit for a tie in `accuracy`: 0, 0.5 or 1, or (n,) one value per pair.
        fair_credit: the credit for a tie in `accuracy_ties_half`: 0.5, or (n,) if some are sets of
            more than two sentences.

    Returns:
        {"overall": entry, "phenomena": {name: entry}, "paradigms": {name: entry}}. An entry has
        `accuracy`, its `interval`, `accuracy_ties_half`, `accuracy_without_identical`, and the
        counts `pairs` = `right` + `wrong` + `ties` + `identical` + `undefined`; `ties` are between
        different sentences. A paradigm with an undefined pair, and every mean that includes it, has
        no accuracy.
    """
    credit = np.where(outcome == 0.5, tie_credit, outcome)  # (n,)
    credit_ties_half = np.where(outcome == 0.5, fair_credit, outcome)  # (n,)
    resampled = _resample(credit, indices_by_paradigm)
    paradigms: dict[str, dict] = {}
    for name, indices in indices_by_paradigm.items():
        accuracy, is_tie = _percent(credit[indices]), outcome[indices] == 0.5
        paradigms[name] = {
            "accuracy": accuracy,
            "interval": None if accuracy is None else wilson(accuracy, len(indices)),
            "accuracy_ties_half": _percent(credit_ties_half[indices]),
            "accuracy_without_identical": _percent(credit[indices][~identical[indices]]),
            "pairs": len(indices),
            "right": int(np.sum(outcome[indices] == 1)),
            "wrong": int(np.sum(outcome[indices] == 0)),
            "ties": int(np.sum(is_tie & ~identical[indices])),
            "identical": int(np.sum(is_tie & identical[indices])),
            "undefined": int(np.sum(np.isnan(outcome[indices]))),
        }

    def mean_over(names: Sequence[str]) -> dict:
        entries = [paradigms[name] for name in names]
        means = {key: _mean([entry[key] for entry in entries]) for key in ACCURACIES}
        counts = {key: sum(entry[key] for entry in entries) for key in COUNTS}
        interval = None if means["accuracy"] is None else _interval([resampled[n] for n in names])
        if len(names) == 1:
            interval = entries[0]["interval"]
        return means | {"interval": interval, "paradigms": len(names)} | counts

    return grouped(paradigms, phenomenon_of, mean_over)


def compare(
    credit: np.ndarray,
    other: np.ndarray,
    indices_by_paradigm: Mapping[str, np.ndarray],
    phenomenon_of: Mapping[str, str],
) -> dict:
    """Compares two models on the same pairs: this model's accuracy minus the other's, in points.

    Args:
        credit, other: the credit of each pair for this model and for the other one, (n,) in 0 .. 1
            or bool.
        indices_by_paradigm, phenomenon_of: as in `accuracies`.

    Returns:
        The groups of `accuracies`. An entry has the `difference`; its bootstrap `interval`, which
        resamples pairs with both outcomes; the numbers of pairs that count more for this model,
        `only_this`, and for the other, `only_other`; and the `p_value` of McNemar's exact test on
        these two counts (pairs pooled), with `p_value_holm` corrected for the number of paradigms
        or phenomena.
    """
    difference = credit.astype(float) - other.astype(float)  # (n,)
    resampled = _resample(difference, indices_by_paradigm)

    def mean_over(names: Sequence[str]) -> dict:
        parts = [difference[indices_by_paradigm[name]] for name in names]
        only_this = sum(int(np.sum(part > 0)) for part in parts)
        only_other = sum(int(np.sum(part < 0)) for part in parts)
        return {
            "difference": _mean([_percent(part) for part in parts]),
            "interval": _interval([resampled[name] for name in names]),
            "only_this": only_this,
            "only_other": only_other,
            "p_value": mcnemar(only_this, only_other),
        }

    paradigms = {name: mean_over([name]) for name in indices_by_paradigm}
    groups = grouped(paradigms, phenomenon_of, mean_over)
    for level in ("phenomena", "paradigms"):
        correct_p_values(groups[level].values())
    return groups


def correct_p_values(entries: Collection[dict]) -> None:
    """Adds `p_value_holm` to entries of `compare`, corrected for their number."""
    corrected = holm([entry["p_value"] for entry in entries])
    for entry, p_value in zip(entries, corrected, strict=True):
        entry["p_value_holm"] = float(p_value)


def resampled_means(
    values: np.ndarray, rng: np.random.Generator, resamples: int = RESAMPLES
) -> np.ndarray:
    """Returns the means of bootstrap resamples of values (n,), (resamples,).

    A mean depends only on the counts of the distinct values, which are multinomial, so each
    resample costs a few draws instead of n.
    """
    distinct, counts = np.unique(values, return_counts=True)
    # (resamples, distinct values)
    drawn = rng.multinomial(len(values), counts / len(values), size=resamples)
    return drawn @ distinct / len(values)


def wilson(accuracy: float, n: int) -> list[float]:
    """Returns Wilson's score interval of an accuracy over n pairs, in percent.

    It is too wide if ties count half.
    """
    p, z = accuracy / 100, ndtri(0.5 + LEVEL / 2)
    centre = p + z * z / (2 * n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    bounds = np.array([centre - half, centre + half]) / (1 + z * z / n)
    return [float(bound) for bound in 100 * np.clip(bounds, 0.0, 1.0)]


def runs_by_seed(runs: Iterable[Mapping[str, Any]], name: str) -> dict[int, Mapping[str, Any]]:
    """Returns the runs of the row `name` by their `seed`.

    Raises InputError if two runs have the same seed, which a mean over seeds would count twice.
    """
    run_of: dict[int, Mapping[str, Any]] = {}
    for run in runs:
        if run["seed"] in run_of:
            raise InputError(
                f"{name}: two runs have seed {run['seed']}, which means would count twice; keep one"
                " of them"
            )
        run_of[run["seed"]] = run
    return run_of


def mean_over_seeds(values: Iterable[float | None]) -> dict[str, Any]:
    """Returns {mean, se, interval, n} of a figure of runs that differ only in their seed.

    `se` is one standard error, sd (n - 1) / sqrt n, and `interval` is `seed_interval`. Leaves out
    None, the figure of a run that has none; a part is None if n is too small.
    """
    known = [value for value in values if value is not None]
    with np.errstate(invalid="ignore", over="ignore"):  # a diverged run may have infinite figures
        mean = float(np.mean(known)) if known else None
        error = float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None
    return {"mean": mean, "se": error, "interval": seed_interval(known), "n": len(known)}


def seed_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Returns Student's t interval of a mean over seeds.

    None for fewer than FEWEST_SEEDS values, or if one is not finite.
    """
    n = len(values)
    if n < FEWEST_SEEDS or not np.isfinite(values).all():
        return None
    half = stdtrit(n - 1, 0.5 + level / 2) * np.std(values, ddof=1) / np.sqrt(n)
    return float(np.mean(values) - half), float(np.mean(values) + half)


def mcnemar(only_this: int, only_other: int) -> float:
    """Returns the two-sided exact p-value of two counts of discordant pairs under a fair coin."""
    fewer, all_discordant = min(only_this, only_other), only_this + only_other
    return min(1.0, 2 * float(bdtr(fewer, all_discordant, 0.5)))


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Returns p-values (n,) corrected for their number by the step-down method of Holm 1979."""
    p = np.asarray(p_values, float)
    order = np.argsort(p)
    scaled = p[order] * np.arange(len(p), 0, -1)  # the smallest times n, the next times n - 1, ...
    return np.minimum(1.0, np.maximum.accumulate(scaled))[np.argsort(order)]


def grouped(
    paradigms: dict, phenomenon_of: Mapping[str, str], mean_over: Callable[[Sequence[str]], dict]
) -> dict:
    """Returns the entries of paradigms, and their means over each phenomenon and over all."""
    by_phenomenon: dict[str, list[str]] = {}
    for name in paradigms:
        by_phenomenon.setdefault(phenomenon_of[name], []).append(name)
    return {
        "overall": mean_over(list(paradigms)),
        "phenomena": {name: mean_over(by_phenomenon[name]) for name in sorted(by_phenomenon)},
        "paradigms": paradigms,
    }


def _percent(values: np.ndarray) -> float | None:
    undefined = len(values) == 0 or np.isnan(values).any()
    return None if undefined else float(100 * values.sum() / len(values))


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if len(defined) == len(values) else None


def _resample(
    values: np.ndarray, indices_by_paradigm: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns resampled means of the values (n,) within each paradigm, (resamples,)."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    return {name: resampled_means(values[i], rng) for name, i in indices_by_paradigm.items()}


def _interval(resampled: Sequence[np.ndarray]) -> list[float]:
    """Returns the interval in percent of a mean over paradigms, from their resampled means."""
    return [float(x) for x in 100 * np.percentile(np.mean(resampled, axis=0), TAILS)]
