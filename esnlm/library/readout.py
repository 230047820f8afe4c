"""A readout on states of any origin: fit, predict and score, for token ids or classes, and for real numbers.

    targets (n,) int             log-probabilities of o = W h + b, as in a language model
    targets (n,) or (n, L) float y = W h + b, by least squares

Example:
    reservoir = esnlm.Reservoir.draw(400, inputs=1, spectral_radius=0.9)
    x = reservoir.states(u)
    readout = esnlm.Readout("ridge").fit(x[100:800], y[100:800])
    readout.score(x[800:], y[800:])                    # R^2
"""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from esnlm.compute import in_float32
from esnlm.config import TRAINING, TrainingConfig
from esnlm.errors import InputError, require, whole_number
from esnlm.library import readout_fits
from esnlm.regression.base import Fitter
from esnlm.rng import check_seed
from esnlm.settings import build

# Settings about what a run does beside its updates, and about words of text. A readout in memory has neither.
OF_RUNS = {
    "log_every", "checkpoint_every", "checkpoint_words", "keep_checkpoints", "validate_every", "stop_after", "stop_margin",
    "schedule_by", "schedule_words", "warmup_words",
}  # fmt: skip


class Readout:
    """W (V, F), or A (V, r) and B (r, F), and b (V,), fitted by a rule.

    Args:
        kind: "ridge", "rls", "lms" or "adamw".
        rank: r, for ids with ridge or adamw; None: full rank.
        classes: V, how many ids there are; None: one more than the largest that is given to `fit`. It says that the targets
            are ids, so that `fit` then refuses numbers.
        seed: of the rows or sequences that are held out, and of adamw's first weights and order.
        settings: of the rule, as below `training` in a configuration: regularizations=(1e-6,), epochs=3, ... A batch of
            adamw or lms is batch_size rows, or batch_size sequences where a list of sequences is given. What is about
            checkpoints, validation, logging and words of text belongs to runs and is refused.

    Raises:
        InputError: a setting is unknown or cannot be used.

    Example:
        esnlm.Readout("adamw", rank=32, epochs=5, learning_rate=0.01)
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
        self.rule = training_rule(kind, settings, left_out=OF_RUNS)
        for name in settings:
            require(name not in OF_RUNS, f"readout {kind} in memory: {name} is a setting of runs; leave it out")
        stops = isinstance(self.rule, TrainingConfig) and self.rule.on_nonfinite == "stop"
        require(not stops, "on_nonfinite is 'stop': a readout in memory cannot be stopped; choose continue or skip")
        low = isinstance(self.rule, TrainingConfig) or self.rule.makes_low_rank
        require(rank is None or low, f"rank is {rank}: {kind} makes a readout of full rank; leave it out")
        for name, value in (("rank", rank), ("classes", classes)):
            if value is not None:
                require(whole_number(name, value) >= 1, f"{name} is {value}: it must be at least 1")
        check_seed(seed)
        self.rank, self.classes, self.seed = rank, classes, seed
        self.arrays: dict[str, np.ndarray] = {}  # {"w", "bias"} or {"a", "b", "bias"}; empty before `fit`
        self._of_ids = self._flat = False

    @in_float32
    def fit(self, states: Any, targets: Any) -> "Readout":
        """Fits it anew, and returns it.

        About a tenth of the rows is held out: for ids to calibrate the log-probabilities by, for ridge to choose the penalty
        by. For numbers ridge then takes all rows.

        Of a list of sequences whole ones are held out, at least one, so that of a few long ones it is more than a tenth: of two
        the shorter one. A sequence whose ids hardly occur in the others stays in the fit. Of one array rows are held out.
        Neighbouring rows of one series are alike, so that a penalty which is chosen by rows beside those of the fit is too
        small: give a list of sequences, or one penalty, regularizations=(1e-4,).

        Args:
            states: features (n, F), or a list of sequences of them, (T, F) each.
            targets: ids (n,) of int, or numbers (n,) or (n, L) of float; a list of such where states are a list.

        Raises:
            InputError: the shapes do not fit, the targets are numbers where `classes` says that they are ids, an entry is not
                finite, or the fit diverged, so that a weight is not finite.

        Example:
            esnlm.Readout("rls").fit(reservoir.states(u), y)
        """
        h, y, lengths = _rows(states, targets)
        if y.dtype.kind in "iu":
            classes = int(y.max()) + 1 if self.classes is None else self.classes
            by_gradients = isinstance(self.rule, TrainingConfig)
            fits = self.rank is None or by_gradients or self.rank <= h.shape[1]
            require(fits, f"rank is {self.rank}: of {h.shape[1]} features ridge makes at most that rank; lower it")
            require(y.ndim == 1 and y.min() >= 0 and y.max() < classes, f"ids must be (n,) of 0 .. {classes - 1}")
            fitted = readout_fits.fit_ids(self.rule, h, y.astype(np.int32), lengths, classes, self.rank, self.seed)
        else:
            require(y.dtype.kind == "f" and y.ndim <= 2, f"targets are of type {y.dtype}: give ids or numbers")
            as_ids = (
                f"classes is {self.classes} and targets are {y.dtype}: give ids as whole numbers, such as y.astype(int)"
            )
            require(self.classes is None, as_ids)
            require(bool(np.isfinite(y).all()), "targets hold a number that is not finite")
            require(self.rank is None, f"rank is {self.rank}: a readout of numbers has full rank; leave it out")
            fitted = readout_fits.fit_numbers(
                self.rule, h, y.reshape(len(y), -1).astype(np.float64), lengths, self.seed
            )
        advice = "lower learning_rate" if hasattr(self.rule, "learning_rate") else "bring the states to a size near 1"
        finite = all(np.isfinite(array).all() for array in fitted.values())
        require(finite, f"the fit diverged: readout {self.rule.kind} has weights that are not finite; {advice}")
        self.arrays, self._of_ids, self._flat = fitted, y.dtype.kind in "iu", y.ndim == 1
        return self

    def predict(self, states: Any) -> Any:
        """Returns the most probable ids, (n,) int64, or numbers in the shape of the targets; a list for a list.

        Raises:
            InputError: it is not fitted, or the states have another width, or hold a number that is not finite.
        """
        return self._each(states, lambda h: self._outputs(h).argmax(axis=1) if self._of_ids else self._numbers(h))

    def log_probs(self, states: Any) -> Any:
        """Returns log p of every id, (n, V) float64 in nats, or a list of such.

        Raises:
            InputError: it is not fitted, was fitted to numbers, or the states do not fit.
        """
        require(not self.arrays or self._of_ids, "this readout was fitted to numbers, which have no probabilities")
        return self._each(states, self._log_probs)

    def score(self, states: Any, targets: Any) -> float:
        """Returns the mean log p of the ids, in nats, or R^2 of the numbers, over all columns: more is better.

        Raises:
            InputError: it is not fitted, the targets have another shape than those of the fit, or an id is none of its classes.
        """
        h, y, _ = _rows(states, targets)
        self._require_fitted(h)
        outputs = len(self.arrays["bias"])
        if self._of_ids:
            inside = y.ndim == 1 and y.dtype.kind in "iu" and y.min() >= 0 and y.max() < outputs
            require(inside, f"ids must be (n,) of 0 .. {outputs - 1}")
            return float(self._log_probs(h)[np.arange(len(y)), y].mean())
        shape = (len(h),) if self._flat else (len(h), outputs)
        require(y.shape == shape, f"targets have the shape {y.shape}: it must be {shape}, as in the fit")
        variation = np.sum((y - y.mean(axis=0)) ** 2)
        require(
            bool(variation > 0),
            "targets do not vary: R^2 is the share of their variance that is explained, and there is none",
        )
        return float(1 - np.sum((y - self._numbers(h)) ** 2) / variation)

    def _each(self, states: Any, compute: Callable[[np.ndarray], np.ndarray]) -> Any:
        several = isinstance(states, list | tuple)
        found = []
        for each in states if several else [states]:
            h = _numbers(each)
            self._require_fitted(h)
            require(bool(np.isfinite(h).all()), "states hold a number that is not finite")
            found.append(compute(h))
        return found if several else found[0]

    def _outputs(self, h: np.ndarray) -> np.ndarray:
        """Returns W h + b in float64, (n, V)."""
        arrays, h = self.arrays, h.astype(np.float64)
        z, w = (h, arrays["w"]) if "w" in arrays else (h @ arrays["b"].T.astype(np.float64), arrays["a"])
        return z @ w.T.astype(np.float64) + arrays["bias"]

    def _numbers(self, h: np.ndarray) -> np.ndarray:
        found = self._outputs(h)
        return found[:, 0] if self._flat else found

    def _log_probs(self, h: np.ndarray) -> np.ndarray:
        o = self._outputs(h)
        o -= o.max(axis=1, keepdims=True)
        return o - np.log(np.exp(o).sum(axis=1, keepdims=True))

    def _require_fitted(self, h: np.ndarray) -> None:
        if not self.arrays:
            raise InputError("this readout is not fitted yet: call fit")
        width = self.arrays["w" if "w" in self.arrays else "b"].shape[1]
        require(h.ndim == 2 and h.shape[1] == width, f"states have the shape {h.shape}: it must be (n, {width})")


def training_rule(
    kind: str, settings: dict[str, Any], left_out: Collection[str] = frozenset()
) -> TrainingConfig | Fitter:
    """Returns what a section `training` of this kind and with these settings is.

    Args:
        kind: "ridge", "rls", "lms" or "adamw".
        settings: by name.
        left_out: settings that the line on an unknown setting does not name.

    Raises:
        InputError: there is no such kind or setting, or a value has a wrong type.
    """
    require(kind in TRAINING, f"readout is {kind!r}: choose {', '.join(TRAINING)}")
    known = [each.name for each in dataclasses.fields(TRAINING[kind])][1:]
    for name in settings:
        proposed = ", ".join(each for each in known if each not in left_out)
        require(name in known, f"readout {kind} has no setting {name!r}: choose from {proposed}")
    return build(TRAINING[kind], settings, f"readout {kind}: ")


def _numbers(states: Any) -> np.ndarray:
    """Returns states as an array of numbers, as a table of mixed columns gives them, too."""
    h = np.asarray(states)
    if h.dtype.kind in "fiub":
        return h
    try:
        return h.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"states are of type {h.dtype}: give an array of numbers") from None


def _rows(states: Any, targets: Any) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Returns states (n, F), targets (n,) or (n, L), and the length of each sequence; a row alone is one of length 1."""
    if isinstance(states, list | tuple):
        count = len(targets) if isinstance(targets, list | tuple) or np.ndim(targets) else -1
        require(len(states) > 0 and len(states) == count, "states and targets are lists: give as many of both")
        several, given = [_numbers(each) for each in states], [np.asarray(each) for each in targets]
        alone = "targets hold one number a sequence: give one for each step, or the last states as one array (n, F)"
        require(all(each.ndim > 0 for each in given) or any(each.ndim < 2 for each in several), alone)
        lengths = [len(each) if each.ndim == 2 else 0 for each in several]
        fit = min(lengths) > 0 and lengths == [len(each) for each in given]
        require(fit, "states and targets: each sequence must have (T, F) states and T targets")
        h, y = np.concatenate(several), np.concatenate(given)
    else:
        h, y = _numbers(states), np.asarray(targets)
        lengths = [1] * len(h)
    require(h.ndim == 2 and len(h) > 0, f"states have the shape {h.shape}: it must be (n, F)")
    require(len(y) == len(h), f"there are {len(h)} states and {len(y)} targets: give as many of both")
    require(bool(np.isfinite(h).all()), "states hold a number that is not finite")
    return h, y, lengths
