"""A readout on any states: fit, predict and score, for token ids or classes, and for real numbers.

    ids (n,) int, with `classes`  log-probabilities of o = W h + b, as in a language model
    numbers (n,) or (n, L) float  y = W h + b, by least squares

Example:
    reservoir = esnlm.Reservoir.draw(400, inputs=1, spectral_radius=0.9)
    x = reservoir.states(u)
    readout = esnlm.Readout("ridge").fit(x[100:800], y[100:800])
    readout.score(x[800:], y[800:])  # R^2
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax

from esnlm.base.errors import InputError, check_choice
from esnlm.base.rng import Stream, check_seed, generator
from esnlm.base.settings import build
from esnlm.machine.compute import backend, in_float32
from esnlm.models.ngrams import NgramModel
from esnlm.readout import rls
from esnlm.readout.base import Window, row_blocks
from esnlm.readout.calibration import HeldOut
from esnlm.readout.least_squares import RidgeSums
from esnlm.training.config import FITTERS

PRECISION = "float32"  # precision of lms's matrix products
MOST_HELD_OUT = 0.1  # maximum share of the rows


class Readout:
    """W (V, F), or A (V, r) and B (r, F), and b (V,), fitted by a rule.

    Args:
        kind: "ridge", "rls" or "lms".
        rank: r, for ids with ridge; None: full rank.
        classes: V, if the targets are ids 0 .. V-1; None: they are numbers, and `fit` rejects
            integers, which may be either.
        seed: seed of the choice of held-out rows or sequences.
        settings: settings of the rule, as in the section `training`: regularizations=(1e-6,),
            forgetting=0.99, ...

    Unusable settings, states or targets raise an InputError that names them.

    Example:
        esnlm.Readout("ridge", classes=8192, rank=32)
    """

    def __init__(
        self,
        kind: str = "ridge",
        *,
        rank: int | None = None,
        classes: int | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        check_choice("readout", kind, FITTERS)
        self.rule: Any = build(FITTERS[kind], settings, f"readout {kind}: ")
        if rank is not None and not (self.rule.makes_low_rank and rank >= 1):
            raise InputError(f"rank is {rank}: give at least 1, with ridge, or None for full rank")
        check_seed(seed)
        self.rank, self.classes, self.seed = rank, classes, seed
        self._arrays: dict[str, np.ndarray] = {}
        self._sums: Any = None  # of a fit to numbers, which further parts extend
        self._shapes: tuple = ()  # of a row of the states and of the targets

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """{"w", "bias"} or {"a", "b", "bias"}; empty before `fit`."""
        if not self._arrays and self._sums is not None:
            self._solve()
        return self._arrays

    @in_float32
    def fit(self, states: Any, targets: Any) -> "Readout":
        """Fits the readout from scratch, and returns it.

        For ids, about a tenth (rows of an array, or sequences of a list) is held out to calibrate
        log-probabilities and to choose ridge's penalty. Neighbouring rows of a series are similar,
        which makes this penalty too small: give several series as a list, or one penalty,
        regularizations=(1e-4,). For numbers, 4-fold cross-validation (over sequences of a list, or
        quarters of an array) chooses the penalty, and the fit uses all rows. Leave out the first
        steps of a single series, as `Reservoir.states` does with washout=100: predicting them from
        the other quarters would decide the choice. If all states are equal, the prediction is the
        mean.

        Args:
            states: features (n, F), or a list of sequences (T, F).
            targets: int ids (n,) if `classes` is set, otherwise float numbers (n,) or (n, L); a
                list of these if states are a list.

        Raises:
            InputError: states or targets are not usable, or the fit diverged.

        Example:
            esnlm.Readout("rls").fit(reservoir.states(u), y)
        """
        backend()  # raises a clear error if JAX finds no device
        h, y, lengths = _rows(states, targets)
        self._sums, self._arrays = None, {}
        if self._are_ids(h, y):
            self._fit_ids(h.astype(np.float32), y.astype(np.int32), lengths or [1] * len(h))
        else:
            self._add(h, y, lengths)
            self._solve()
        return self

    def partial_fit(self, states: Any, targets: Any) -> "Readout":
        """Adds further rows to a fit to numbers, and returns the readout.

        An array continues the last sequence, and a list adds sequences. The result is that of `fit`
        on all rows, up to rounding, and is computed when it is next used.

        Example:
            x, state = reservoir.run(u, start=state)  # the next inputs of a series
            readout.partial_fit(x, y)
        """
        h, y, lengths = _rows(states, targets)
        if self._are_ids(h, y):
            raise InputError("partial_fit is for numbers: give all ids to one call of fit")
        self._add(h, y, lengths)
        return self

    def predict(self, states: Any) -> Any:
        """Returns the most probable ids, (n,) int64, or numbers; a list of these for a list."""
        return self._each(states, self._predictions)

    def log_probs(self, states: Any) -> Any:
        """Returns log p of every id in nats, (n, V) float64; a list of these for lists."""
        if self._sums is not None:
            raise InputError("this readout was fitted to real numbers, which have no probabilities")
        return self._each(states, lambda outputs: log_softmax(outputs, axis=1))

    def score(self, states: Any, targets: Any) -> float:
        """Returns the mean log p of the ids, in nats, or R^2 of the numbers. Higher is better.

        R^2 is the mean over the outputs, as in scikit-learn.
        """
        h, y, _ = _rows(states, targets)
        outputs = self._outputs(h)
        if self._sums is None:
            _check_ids(y, outputs.shape[1])
            return float(log_softmax(outputs, axis=1)[np.arange(len(y)), y].mean())
        predictions = self._predictions(outputs)
        if y.shape != predictions.shape:
            raise InputError(
                f"targets have shape {y.shape}: give {predictions.shape}, as in the fit"
            )
        unexplained = np.sum((y - predictions) ** 2, axis=0)
        variation = np.sum((y - y.mean(axis=0)) ** 2, axis=0)
        varies = variation > 0  # a constant output is either met, 1, or not, 0
        ratio = np.where(varies, unexplained, unexplained > 0) / np.where(varies, variation, 1)
        return float(np.mean(1 - ratio))

    def _are_ids(self, h: np.ndarray, y: np.ndarray) -> bool:
        """Returns whether targets are ids. Raises InputError if they do not suit the settings."""
        if y.dtype.kind in "iu":
            if self.classes is None:
                least, largest = int(y.min()), int(y.max())
                advice = "give targets.astype(float) for numbers"
                if least >= 0:
                    advice += f", or set classes={largest + 1} if they are ids"
                raise InputError(f"targets are integers, {least} to {largest}: {advice}")
            _check_ids(y, self.classes)
            if self.rank is not None and self.rank > h.shape[1]:
                raise InputError(
                    f"rank is {self.rank}: it must be at most the {h.shape[1]} features"
                )
            return True
        if self.classes is not None or self.rank is not None:
            raise InputError(
                f"targets are {y.dtype}: classes and rank are for ids, whole numbers; y.astype(int)"
                " makes them"
            )
        if y.dtype.kind != "f" or y.ndim > 2 or not np.isfinite(y).all():
            raise InputError(
                f"targets of shape {y.shape} and type {y.dtype}: give ids, or finite numbers (n,)"
                " or (n, L)"
            )
        return False

    def _fit_ids(self, h: np.ndarray, y: np.ndarray, lengths: list[int]) -> None:
        """Fits log-probabilities of ids y (n,) for states h (n, F) of consecutive sequences."""
        rule, classes = self.rule, self.classes or 0
        held_out = choose_held_out(lengths, rule.held_out_tokens, self.seed)
        sequences = np.split(np.arange(len(h)), np.cumsum(lengths)[:-1])
        learned = [rows for rows in (rows[~held_out[rows]] for rows in sequences) if len(rows)]
        accumulators = rule.start(h.shape[1], classes)
        window = Window(jnp.asarray(h), learned, y[np.concatenate(learned)])
        for _ in range(rule.epochs):
            rule.accumulate(accumulators, window, PRECISION)
        rule.finish(accumulators, PRECISION)
        log_p = NgramModel.from_counts(np.bincount(window.targets, minlength=classes)).log_p
        unseen = HeldOut(h[held_out], y[held_out])
        self._keep(rule.solve(accumulators, self.rank, unseen, log_p)[0])
        self._shapes = h.shape[1:], ()

    def _add(self, h: np.ndarray, y: np.ndarray, lengths: list[int] | None) -> None:
        """Adds rows of numbers to the sums; without `lengths` they continue the last sequence."""
        if self.rule.kind == "lms":
            raise InputError("targets are numbers: readout lms is for ids; choose ridge or rls")
        shapes, begins = (h.shape[1:], y.shape[1:]), lengths is not None or self._sums is None
        y = y.reshape(len(y), -1).astype(np.float64)
        if self._sums is None:
            self._shapes = shapes
            if self.rule.kind == "ridge":
                rng = generator(self.seed, Stream.HELD_OUT)
                self._sums = RidgeSums(y.shape[1], rng, self.rule.regularizations)
            else:
                self._sums = self.rule.start(h.shape[1], y.shape[1])
        if shapes != self._shapes:
            raise InputError(
                f"rows of states and targets have the shapes {shapes}: give {self._shapes}, as in"
                " the first part"
            )
        self._arrays = {}
        if self.rule.kind == "rls":
            self.rule.accumulate(self._sums, Window(h, [np.arange(len(h))], y), PRECISION)
            return
        ends = np.cumsum(lengths or len(h))[:-1]
        for states, targets in zip(np.split(h, ends), np.split(y, ends), strict=True):
            for rows in row_blocks(len(states), h.shape[1]):
                self._sums.add(states[rows], targets[rows], begins and rows.start == 0)

    def _solve(self) -> None:
        if self.rule.kind == "ridge":
            _, w, bias = self._sums.solution
        else:
            w, bias = rls.solution(self._sums)
        self._keep({"w": w, "bias": bias})

    def _keep(self, arrays: dict[str, np.ndarray]) -> None:
        """Sets the arrays of the fit. Raises InputError if it diverged."""
        if not all(np.isfinite(array).all() for array in arrays.values()):
            kind = self.rule.kind
            advice = "lower learning_rate" if kind == "lms" else "bring the states to a size near 1"
            raise InputError(
                f"the fit diverged: readout {kind} has weights that are not finite; {advice}"
            )
        self._arrays = arrays

    def _each(self, states: Any, compute: Callable[[np.ndarray], np.ndarray]) -> Any:
        """Applies a function to the outputs for an array, or for each array of a list."""
        if isinstance(states, list | tuple):
            return [compute(self._outputs(_numbers(each))) for each in states]
        return compute(self._outputs(_numbers(states)))

    def _outputs(self, h: np.ndarray) -> np.ndarray:
        """Returns W h + b, (n, V) float64. Raises InputError without a fit or with unusable h."""
        arrays = self.arrays
        if not arrays:
            raise InputError("this readout is not fitted yet: call fit")
        width = self._shapes[0]
        if h.shape[1:] != width or np.count_nonzero(np.isfinite(h)) < h.size:
            raise InputError(f"states have shape {h.shape}: give finite numbers (n, {width[0]})")
        z = np.asarray(h, np.float64)
        for name in ("w",) if "w" in arrays else ("b", "a"):
            z = z @ np.asarray(arrays[name], np.float64).T
        return z + arrays["bias"]

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        """Returns the ids with the largest outputs, or the outputs in the targets' shape."""
        if self._sums is None:
            return outputs.argmax(axis=1)
        return outputs.reshape(len(outputs), *self._shapes[1])


def choose_held_out(lengths: list[int], most: int, seed: int) -> np.ndarray:
    """Returns which rows to hold out, (n,) bool, in whole sequences."""
    # Rows of a sequence are similar: choosing the penalty on some of them and fitting others would
    # make it too small. At most a tenth is held out, if one sequence is as short as that.
    rows = sum(lengths)
    if rows < 2:
        raise InputError(f"only {rows} row: give at least 2, one to hold out")
    if len(lengths) == 1:
        lengths = [1] * rows
    most = max(1, min(most, int(MOST_HELD_OUT * rows)))
    order = generator(seed, Stream.HELD_OUT).permutation(len(lengths))
    chosen = order[np.cumsum(np.take(lengths, order)) <= most]
    held_out = np.zeros(len(lengths), bool)
    held_out[chosen if len(chosen) else np.argmin(lengths)] = True
    return np.repeat(held_out, lengths)


def _check_ids(y: np.ndarray, classes: int) -> None:
    if y.ndim != 1 or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= classes:
        raise InputError(f"ids must be (n,) of 0 .. {classes - 1}")


def _numbers(states: Any) -> np.ndarray:
    """Converts states to an array of numbers, also from a table with mixed columns."""
    h = np.asarray(states)
    return h if h.dtype.kind in "fiub" else h.astype(np.float64)


def _rows(states: Any, targets: Any) -> tuple[np.ndarray, np.ndarray, list[int] | None]:
    """Returns states (n, F), targets (n,) or (n, L), and the lengths of the sequences of a list."""
    lengths = None
    if isinstance(states, list | tuple):
        sequences = [_numbers(each) for each in states]
        parts = [np.asarray(each) for each in targets]
        lengths = [len(each) if each.ndim == 2 else 0 for each in sequences]
        if not all(lengths) or lengths != [len(each) if each.ndim else 0 for each in parts]:
            raise InputError(
                "states and targets are lists: each sequence must have (T, F) states and T targets"
            )
        states, targets = np.concatenate(sequences), np.concatenate(parts)
    h, y = _numbers(states), np.asarray(targets)
    if h.ndim != 2 or not len(h) or len(y) != len(h) or not np.isfinite(h).all():
        raise InputError(
            f"states of shape {h.shape} and targets {y.shape}: give finite numbers (n, F) and n"
            " targets"
        )
    return h, y, lengths
