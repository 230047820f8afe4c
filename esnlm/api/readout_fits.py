"""How a readout is fitted to states in memory: with the fitters of esnlm/regression and the optimizers of training.

In all functions h are states (n, F) of sequences that stand one after another, and `lengths` are the lengths of these.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from esnlm.config import TrainingConfig
from esnlm.errors import InputError
from esnlm.models.ngrams import UnigramModel
from esnlm.readout import linear
from esnlm.readout.linear import ReadoutConfig
from esnlm.regression import rls
from esnlm.regression.base import Fitter, Window, row_blocks
from esnlm.regression.calibration import HeldOut
from esnlm.regression.ridge import Ridge
from esnlm.regression.rls import RecursiveLeastSquares
from esnlm.regression.solvers import RidgeSums, folds
from esnlm.rng import Stream, generator
from esnlm.training.average import evaluated
from esnlm.training.learning_rate import learning_rates
from esnlm.training.update import make_optimizer

PRECISION = "float32"  # of the products of gradient and lms
MOST_HELD_OUT = 0.1  # of the rows

Arrays = dict[str, np.ndarray]


def fit_ids(
    rule: TrainingConfig | Fitter,
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
    if isinstance(rule, TrainingConfig):
        module = linear.initialize(ReadoutConfig(rank), h.shape[1], classes, seed)
        names = ("w", "bias") if rank is None else ("a", "b", "bias")
        params = {name: getattr(module, name)[...] for name in names}

        def nll(params: dict, h: jax.Array, y: jax.Array, weights: jax.Array) -> jax.Array:
            return linear.weighted_nll(params["readout"], h, y, weights, PRECISION)

        return _descend(rule, params, nll, h, y, lengths, seed)
    held = _held_out(lengths, rule.held_out_tokens, seed)
    fitted = [rows[~held[rows]] for rows in _sequences(lengths)]
    fitted = [rows for rows in fitted if len(rows)]
    accumulators = rule.start(h.shape[1], classes)
    window = Window(jnp.asarray(h), fitted, y[np.concatenate(fitted)])
    for _ in range(rule.epochs):
        rule.accumulate(accumulators, window, PRECISION)
    rule.finish(accumulators, PRECISION)
    log_p = UnigramModel.from_counts(np.bincount(window.targets, minlength=classes)).log_p
    return rule.solve(accumulators, rank, HeldOut(h[held], y[held]), log_p)[0]


def fit_numbers(rule: TrainingConfig | Fitter, h: np.ndarray, y: np.ndarray, lengths: list[int], seed: int) -> Arrays:
    """Fits y = W h + b by least squares to numbers y (n, L) float64.

    Returns:
        {"w" (L, F), "bias" (L,)}, float64.
    """
    if isinstance(rule, Ridge):
        sums, grid = RidgeSums(y.shape[1]), rule.regularizations
        fold = folds(lengths if len(lengths) < len(h) else [len(h)], generator(seed, Stream.HELD_OUT))
        for part in row_blocks(len(h), h.shape[1]):
            sums.add(h[part], y[part], fold[part])
        w, bias = sums.solve(grid[0] if len(grid) == 1 else sums.choose(grid))
        return {"w": w, "bias": bias}
    if isinstance(rule, RecursiveLeastSquares):
        accumulators = rule.start(h.shape[1], y.shape[1])
        rule.accumulate(accumulators, Window(h, _sequences(lengths), y), PRECISION)  # type: ignore[arg-type]
        w, bias = rls.solution(accumulators)
        return {"w": w, "bias": bias}
    raise InputError(f"targets are numbers: readout {rule.kind} is for ids; choose ridge or rls")


def _descend(
    rule: TrainingConfig,
    params: dict[str, jax.Array],
    loss: Callable[..., jax.Array],
    h: np.ndarray,
    y: np.ndarray,
    lengths: list[int],
    seed: int,
) -> Arrays:
    """Takes an optimizer's steps on the mean loss of each batch. Returns the arrays, or with `ema` their average."""
    sequences, size = _sequences(lengths), rule.batch_size
    updates = rule.epochs * -(-len(sequences) // size)
    optimizer, rates = make_optimizer(rule), learning_rates(rule, updates)

    @jax.jit
    def update(params: dict, state: Any, h: jax.Array, y: jax.Array, weights: jax.Array) -> tuple[dict, Any]:
        changes, state = optimizer.update(jax.grad(loss)(params, h, y, weights), state, params, rates=rates)
        return optax.apply_updates(params, changes), state

    tree: dict = {"readout": {name: jnp.asarray(array, jnp.float32) for name, array in params.items()}}
    state = optimizer.init(tree)
    for epoch in range(rule.epochs):
        order = np.arange(len(sequences))
        if rule.order == "shuffled":
            order = generator(seed, Stream.SENTENCE_ORDER, epoch).permutation(order)
        for first in range(0, len(order), size):
            rows = np.concatenate([sequences[i] for i in order[first : first + size]])
            padding = (1 << (len(rows) - 1).bit_length()) - len(rows)  # few sizes, so few compilations
            weights = np.pad(np.full(len(rows), 1 / len(rows), np.float32), (0, padding))
            taken = np.pad(rows, (0, padding))
            tree, state = update(tree, state, h[taken], y[taken], weights)
    return {name: np.asarray(array) for name, array in evaluated(tree, state)["readout"].items()}


def _sequences(lengths: list[int]) -> list[np.ndarray]:
    """Returns the rows of each sequence."""
    return np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])


def _held_out(lengths: list[int], most: int, seed: int) -> np.ndarray:
    """Returns which rows are held out, (n,) bool: at most `most` and a tenth, at least one, of a list whole sequences.

    The rows of a sequence are alike, so a penalty that is chosen by some of them beside others of the fit is too small.
    """
    rows = sum(lengths)
    if rows < 2:
        raise InputError(f"there is {rows} row: give at least 2, one to hold out")
    most = max(1, min(most, int(MOST_HELD_OUT * rows)))
    held, rng = np.zeros(rows, bool), generator(seed, Stream.HELD_OUT)
    if 1 < len(lengths) < rows:
        sequences, room = _sequences(lengths), max(most, min(lengths))
        for i in rng.permutation(len(lengths)):
            if lengths[i] <= room:
                held[sequences[i]] = True
                room -= lengths[i]
    if not held.any():
        held[rng.permutation(rows)[:most]] = True
    return held
