"""A readout on any states: fit, predict and score, for token ids or classes, and for real numbers.

    ids (n,) int, with `classes`  log-probabilities of o = W h + b, as in a language model
    numbers (n,) or (n, L) float  y = W h + b, by least squares

Example:
    reservoir = esnlm.Reservoir.draw(400, inputs=1, spectral_radius=0.9)
    x = reservoir.states(u)
    readout = esnlm.Readout("ridge").fit(x[100:800], y[100:800])
    readout.score(x[800:], y[800:])                    # R^2
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import log_softmax

from esnlm.api import readout_fits
from esnlm.base.errors import InputError
from esnlm.base.rng import check_seed
from esnlm.base.settings import build
from esnlm.machine.compute import backend, in_float32
from esnlm.readout.base import Fitter
from esnlm.training.config import FITTERS


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
        if kind not in FITTERS:
            raise InputError(f"readout is {kind!r}: choose from {', '.join(FITTERS)}")
        self.rule: Fitter = build(FITTERS[kind], settings, f"readout {kind}: ")
        if rank is not None and not (self.rule.makes_low_rank and rank >= 1):
            raise InputError(f"rank is {rank}: give at least 1, with ridge, or None for full rank")
        check_seed(seed)
        self.rank, self.classes, self.seed = rank, classes, seed
        # {"w", "bias"} or {"a", "b", "bias"}; empty before `fit`
        self.arrays: dict[str, np.ndarray] = {}
        self._of_ids = self._flat = False

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
        of_ids = y.dtype.kind in "iu"
        if of_ids:
            if self.classes is None:
                least, largest = int(y.min()), int(y.max())
                advice = "give targets.astype(float) for numbers"
                if least >= 0:
                    advice += f", or set classes={largest + 1} if they are ids"
                raise InputError(f"targets are integers, {least} to {largest}: {advice}")
            _require_ids(y, self.classes)
            if self.rule.kind == "ridge" and self.rank is not None and self.rank > h.shape[1]:
                raise InputError(
                    f"rank is {self.rank}: it must be at most the {h.shape[1]} features"
                )
            fitted = readout_fits.fit_ids(
                self.rule, h, y.astype(np.int32), lengths, self.classes, self.rank, self.seed
            )
        elif self.classes is not None or self.rank is not None:
            line = (
                f"targets are {y.dtype}: classes and rank are for ids, whole numbers; y.astype(int)"
                " makes them"
            )
            raise InputError(line)
        elif y.dtype.kind != "f" or y.ndim > 2 or not np.isfinite(y).all():
            line = (
                f"targets of shape {y.shape} and type {y.dtype}: give ids, or finite numbers (n,)"
                " or (n, L)"
            )
            raise InputError(line)
        else:
            fitted = readout_fits.fit_numbers(
                self.rule, h, y.reshape(len(y), -1).astype(np.float64), lengths, self.seed
            )
        if not all(np.isfinite(array).all() for array in fitted.values()):
            kind = self.rule.kind
            advice = "lower learning_rate" if kind == "lms" else "bring the states to a size near 1"
            raise InputError(
                f"the fit diverged: readout {kind} has weights that are not finite; {advice}"
            )
        self.arrays, self._of_ids, self._flat = fitted, of_ids, y.ndim == 1
        return self

    def predict(self, states: Any) -> Any:
        """Returns the most probable ids, (n,) int64, or numbers in the targets' shape; a list for a
        list of states."""
        return self._each(
            states, lambda h: self._outputs(h).argmax(axis=1) if self._of_ids else self._numbers(h)
        )

    def log_probs(self, states: Any) -> Any:
        """Returns log p of every id, (n, V) float64 in nats, or a list of these if states are a
        list."""
        if self.arrays and not self._of_ids:
            raise InputError("this readout was fitted to real numbers, which have no probabilities")
        return self._each(states, self._log_probs)

    def score(self, states: Any, targets: Any) -> float:
        """Returns the mean log p of the ids, in nats, or R^2 of the numbers over all columns.
        Higher is better."""
        h, y, _ = _rows(states, targets)
        self._require_fitted(h)
        outputs = len(self.arrays["bias"])
        if self._of_ids:
            _require_ids(y, outputs)
            return float(self._log_probs(h)[np.arange(len(y)), y].mean())
        shape = (len(h),) if self._flat else (len(h), outputs)
        if y.shape != shape:
            raise InputError(f"targets have shape {y.shape}: give {shape}, as in the fit")
        unexplained = np.sum((y - self._numbers(h)) ** 2)
        return float(1 - unexplained / np.sum((y - y.mean(axis=0)) ** 2))

    def _each(self, states: Any, compute: Callable[[np.ndarray], np.ndarray]) -> Any:
        several = isinstance(states, list | tuple)
        arrays = [_numbers(each) for each in states] if several else [_numbers(states)]
        for h in arrays:
            self._require_fitted(h)
        found = [compute(h) for h in arrays]
        return found if several else found[0]

    def _outputs(self, h: np.ndarray) -> np.ndarray:
        """Returns W h + b in float64, (n, V)."""
        arrays, z = self.arrays, np.asarray(h, np.float64)
        for name in ("w",) if "w" in arrays else ("b", "a"):
            z = z @ np.asarray(arrays[name], np.float64).T
        return z + arrays["bias"]

    def _numbers(self, h: np.ndarray) -> np.ndarray:
        found = self._outputs(h)
        return found[:, 0] if self._flat else found

    def _log_probs(self, h: np.ndarray) -> np.ndarray:
        return log_softmax(self._outputs(h), axis=1)

    def _require_fitted(self, h: np.ndarray) -> None:
        if not self.arrays:
            raise InputError("this readout is not fitted yet: call fit")
        width = self.arrays["w" if "w" in self.arrays else "b"].shape[1]
        if h.ndim != 2 or h.shape[1] != width or np.count_nonzero(np.isfinite(h)) < h.size:
            raise InputError(f"states have shape {h.shape}: give finite numbers (n, {width})")


def _require_ids(y: np.ndarray, classes: int) -> None:
    if y.ndim != 1 or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= classes:
        raise InputError(f"ids must be (n,) of 0 .. {classes - 1}")


def _numbers(states: Any) -> np.ndarray:
    """Converts states to an array of numbers, also from a table with mixed columns."""
    h = np.asarray(states)
    return h if h.dtype.kind in "fiub" else h.astype(np.float64)


def _rows(states: Any, targets: Any) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Returns states (n, F), targets (n,) or (n, L), and sequence lengths; rows of an array have
    length 1."""
    if isinstance(states, list | tuple):
        several, given = [_numbers(each) for each in states], [np.asarray(each) for each in targets]
        lengths = [len(each) if each.ndim == 2 else 0 for each in several]
        if (
            0 in lengths
            or not lengths
            or lengths != [each.shape[0] if each.ndim else 0 for each in given]
        ):
            raise InputError(
                "states and targets are lists: each sequence must have (T, F) states and T targets"
            )
        h, y = np.concatenate(several), np.concatenate(given)
    else:
        h, y = _numbers(states), np.asarray(targets)
        lengths = [1] * len(h)
    if h.ndim != 2 or not len(h) or len(y) != len(h) or not np.isfinite(h).all():
        raise InputError(
            f"states of shape {h.shape} and targets {y.shape}: give finite numbers (n, F) and n"
            " targets"
        )
    return h, y, lengths
