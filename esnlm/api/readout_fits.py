"""Fits readouts to states in memory, with the fitters of esnlm/regression.

In all functions, h are the states (n, F) of consecutive sequences, and `lengths` are the lengths of
the sequences.
"""

import jax.numpy as jnp
import numpy as np

from esnlm.base.errors import InputError
from esnlm.base.rng import Stream, generator
from esnlm.models.ngrams import UnigramModel
from esnlm.readout import rls
from esnlm.readout.base import Fitter, Window, row_blocks
from esnlm.readout.calibration import HeldOut
from esnlm.readout.least_squares import RidgeSums
from esnlm.readout.ridge import Ridge
from esnlm.readout.rls import RecursiveLeastSquares

PRECISION = "float32"  # precision of lms's matrix products
MOST_HELD_OUT = 0.1  # maximum share of the rows

Arrays = dict[str, np.ndarray]


def fit_ids(
    rule: Fitter,
    h: np.ndarray,
    y: np.ndarray,
    lengths: list[int],
    classes: int,
    rank: int | None,
    seed: int,
) -> Arrays:
    """Fits log-probabilities of ids y (n,) int32.

    Returns:
        {"w" (V, F), "bias" (V,)} or {"a" (V, r), "b" (r, F), "bias" (V,)}, float32.
    """
    h = h.astype(np.float32)
    held = _held_out(lengths, rule.held_out_tokens, seed)
    fitted = [rows[~held[rows]] for rows in np.split(np.arange(len(h)), np.cumsum(lengths)[:-1])]
    fitted = [rows for rows in fitted if len(rows)]
    accumulators = rule.start(h.shape[1], classes)
    window = Window(jnp.asarray(h), fitted, y[np.concatenate(fitted)])
    for _ in range(rule.epochs):
        rule.accumulate(accumulators, window, PRECISION)
    rule.finish(accumulators, PRECISION)
    log_p = UnigramModel.from_counts(np.bincount(window.targets, minlength=classes)).log_p
    return rule.solve(accumulators, rank, HeldOut(h[held], y[held]), log_p)[0]


def fit_numbers(
    rule: Fitter, h: np.ndarray, y: np.ndarray, lengths: list[int], seed: int
) -> Arrays:
    """Fits y = W h + b by least squares to numbers y (n, L) float64.

    Returns:
        {"w" (L, F), "bias" (L,)}, float64.
    """
    if isinstance(rule, Ridge):
        grid = rule.regularizations
        sums = RidgeSums(y.shape[1], generator(seed, Stream.HELD_OUT))
        ends = np.cumsum(lengths)[:-1] if len(lengths) < len(h) else np.zeros(0, int)
        for states, targets in zip(np.split(h, ends), np.split(y, ends), strict=True):
            for rows in row_blocks(len(states), h.shape[1]):
                sums.add(states[rows], targets[rows], begins=rows.start == 0)
        w, bias = sums.solve(grid[0] if len(grid) == 1 else sums.choose(grid))
        return {"w": w, "bias": bias}
    if isinstance(rule, RecursiveLeastSquares):
        accumulators = rule.start(h.shape[1], y.shape[1])
        rule.accumulate(
            accumulators,
            Window(h, np.split(np.arange(len(h)), np.cumsum(lengths)[:-1]), y),
            PRECISION,
        )  # type: ignore[arg-type]
        w, bias = rls.solution(accumulators)
        return {"w": w, "bias": bias}
    raise InputError(f"targets are numbers: readout {rule.kind} is for ids; choose ridge or rls")


def _held_out(lengths: list[int], most: int, seed: int) -> np.ndarray:
    """Returns which rows to hold out, (n,) bool: whole sequences, at least one, at most `most` rows
    and a tenth."""
    # Rows of a sequence are similar: choosing the penalty on some of them and fitting others would
    # make it too small.
    rows = sum(lengths)
    if rows < 2:
        raise InputError(f"only {rows} row: give at least 2, one to hold out")
    lengths, most = (
        lengths if len(lengths) > 1 else [1] * rows,
        max(1, min(most, int(MOST_HELD_OUT * rows))),
    )
    order = generator(seed, Stream.HELD_OUT).permutation(len(lengths))
    held = order[np.cumsum(np.take(lengths, order)) <= most]
    taken = np.zeros(len(lengths), bool)
    taken[held if len(held) else np.argmin(lengths)] = True
    return np.repeat(taken, lengths)
