"""Echo state networks for real-valued sequences as scikit-learn estimators (needs esnlm[sklearn]).

The reservoir is an `esnlm.Reservoir` in float64. The readout is a ridge regression on (u, x), the
input and the state, with an intercept; a classifier reads its scores by Bayes' rule (both in
readout/least_squares.py). Both need only sums over the states, so at most the states of some
thousand steps, or of the longest sequence with `predicts="sequences"`, are in memory.

Example:
    from esnlm.sklearn import ReservoirRegressor
    u, y = ...  # (n, D) and (n, L), such as examples.series.narma10(3000, 0)
    network = ReservoirRegressor(400, washout=100, random_state=0).fit(u[:2000], y[:2000])
    network.score(u[2000:], y[2000:])  # R^2, without the first 100 steps: 0.93
"""

import zlib
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.special import softmax

from esnlm.api.reservoir import Reservoir, input_scales
from esnlm.base.errors import InputError, warn_caller
from esnlm.features.batching import group_by_tokens
from esnlm.readout.base import BLOCK
from esnlm.readout.least_squares import DiscriminantSums, RidgeSums, Solution
from esnlm.readout.ridge import Ridge

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils import (
        check_array,
        check_consistent_length,
        check_random_state,
        check_scalar,
        column_or_1d,
    )
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError(
        "esnlm.sklearn needs scikit-learn 1.6 or newer: pip install 'esnlm[sklearn]'"
    ) from None


class _ReservoirEstimator(BaseEstimator):
    """The reservoir and the regression on its states; ReservoirRegressor has the arguments."""

    partial_fit: Callable[..., Self]
    _default = "steps"  # default of `predicts`
    _regression: type[RidgeSums] = RidgeSums
    _sums: Any = None  # of this regression, over the data so far
    _end: Any = None  # with carry_state: the final state of the last series
    _steps = 0  # with carry_state: steps of the series that the next fit continues
    _fit_checksum: int | None = None  # with carry_state: of the inputs of `fit`

    def __init__(
        self,
        state_size: int = 200,
        *,
        spectral_radius: float = 0.9,
        leak: float | tuple[float, float] = 1.0,
        mean_degree: float | None = 10.0,
        topology: Any = "erdos_renyi",
        input_scale: Any = 0.5,
        bias_scale: float = 0.2,
        activation: str | Callable = "tanh",
        update_rule: str | Callable = "leaky_output",
        ridge: float | None = None,
        washout: int = 0,
        predicts: str | None = None,
        carry_state: bool = False,
        random_state: Any = None,
    ) -> None:
        self.state_size = state_size
        self.spectral_radius = spectral_radius
        self.leak = leak
        self.mean_degree = mean_degree
        self.topology = topology
        self.input_scale = input_scale
        self.bias_scale = bias_scale
        self.activation = activation
        self.update_rule = update_rule
        self.ridge = ridge
        self.washout = washout
        self.predicts = predicts
        self.carry_state = carry_state
        self.random_state = random_state

    @property
    def ridge_(self) -> float:
        return self._solution.relative_penalty

    @property
    def coef_(self) -> np.ndarray:
        return self._solution.w

    @property
    def intercept_(self) -> np.ndarray:
        return self._solution.intercept

    @property
    def _solution(self) -> Solution:
        if self._sums is None or not self._sums.sequences:
            raise AttributeError("no step after the washout has been fitted")
        return self._sums.solution

    @property
    def _of_steps(self) -> bool:
        """Whether each step has a target, instead of each sequence."""
        return (self.predicts or self._default) == "steps"

    def fit(self, X: Any, y: Any) -> Self:
        """Fits the estimator and returns it. Raises ValueError if X or y is not usable."""
        for name in ("_sums", "_end", "_steps"):
            self.__dict__.pop(name, None)
        self.partial_fit(X, y)
        if self.carry_state:
            self._check_washout([self._steps])
        check_is_fitted(self, "coef_")  # solves the regression
        return self

    def states(self, X: Any) -> Any:
        """Returns the states x after each step, (n, N) float64; a list for several sequences."""
        check_is_fitted(self)
        sequences, several, _ = self._read(X)
        states = [self.reservoir_.run(_with_bias(u), self._end)[0] for u in sequences]
        return states if several or not self._of_steps else states[0]

    def _add(self, sequences: list[np.ndarray], targets: list[np.ndarray]) -> None:
        """Adds sequences to the sums, with targets (T, L) of each of them, or [(n, L)]."""
        if self._of_steps:
            for u, target in zip(sequences, targets, strict=True):
                check_consistent_length(u, target)
            steps = [len(u) for u in sequences]
            steps[0] += self._steps
            # with carry_state, a later call may continue the last sequence
            self._check_washout(steps[:-1] if self.carry_state else steps)
        outputs = targets[0].shape[1] if self._sums is None else self._sums.outputs
        for target in targets:
            if target.shape[1] != outputs:
                raise InputError(
                    f"y has {target.shape[1]} numbers per row, but the first has {outputs}"
                )
        if self._sums is None:
            self._begin(sequences[0].shape[1], outputs)
        y = targets if self._of_steps else [target[None] for target in targets[0]]
        # With carry_state, the first sequence continues the last series.
        earlier_steps = [self._steps] + [0] * (len(sequences) - 1)
        starts = [self._end] + [None] * (len(sequences) - 1)
        for i, first, h, end in self._readout_inputs(sequences, starts):
            start, stop = max(first, self.washout - earlier_steps[i]), first + len(h)
            if start < stop:
                begins = earlier_steps[i] + start == self.washout
                self._sums.add(h[start - first :], y[i][start:stop], begins)
            if self.carry_state:
                self._end, self._steps = end, earlier_steps[i] + stop

    def _begin(self, inputs: int, outputs: int) -> None:
        """Checks the settings, draws the reservoir, and begins the sums."""
        if self.predicts not in (None, "steps", "sequences"):
            raise InputError(f"predicts is {self.predicts!r}: choose steps, sequences")
        check_scalar(self.state_size, "state_size", Integral, min_val=1)
        check_scalar(self.washout, "washout", Integral, min_val=0)
        if self.ridge is not None:
            check_scalar(self.ridge, "ridge", Real, min_val=0)
        if not self._of_steps and (self.washout or self.carry_state):
            raise InputError(
                "washout and carry_state are for predicts='steps': a whole sequence is read at"
                " its end"
            )
        mean_degree = 32.0 if self.mean_degree is None else self.mean_degree
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.reservoir_ = Reservoir.draw(
            self.state_size,
            inputs=inputs + 1,  # the last input is a constant 1
            input_scale=np.append(input_scales(self.input_scale, inputs), self.bias_scale),
            spectral_radius=self.spectral_radius,
            leak=self.leak,
            mean_degree=min(mean_degree, self.state_size),
            topology=self.topology,
            activation=self.activation,
            update_rule=self.update_rule,
            seed=seed,
        )
        penalties = Ridge.regularizations if self.ridge is None else (self.ridge,)
        rng = np.random.default_rng(seed)
        self._sums = self._regression(outputs, rng, penalties, from_rest=True)

    def _outputs(self, X: Any) -> Any:
        """Returns W (u, x) + b: (T, L) or a list of these for steps, (n, L) for sequences."""
        check_is_fitted(self, "coef_")
        sequences, several, _ = self._read(X)
        pieces: list[list[np.ndarray]] = [[] for _ in sequences]
        for i, _, h, _ in self._readout_inputs(sequences, [self._end] * len(sequences)):
            pieces[i].append(h @ self.coef_.T + self.intercept_)
        outputs = [np.concatenate(each) for each in pieces]
        if not self._of_steps:
            return np.concatenate(outputs)
        return outputs if several else outputs[0]

    def _readout_inputs(
        self, sequences: list[np.ndarray], starts: list
    ) -> Iterator[tuple[int, int, np.ndarray, Any]]:
        """Yields (i, first, h, end): h of sequence i from step `first` on, and the final state."""
        most = max(1, BLOCK // 2 // self.state_size)  # time steps
        if self._of_steps and (self.carry_state or max(map(len, sequences)) > most):
            for i, u in enumerate(sequences):
                state = starts[i]
                for first in range(0, len(u), most):
                    chunk = u[first : first + most]
                    x, state = self.reservoir_.run(_with_bias(chunk), state)
                    yield i, first, np.hstack([chunk, x]), state
            return
        # short sequences are read side by side
        for group in group_by_tokens(map(len, sequences), most):
            states = self.reservoir_.states([_with_bias(sequences[i]) for i in group])
            for i, x in zip(group, states, strict=True):
                h = np.hstack([sequences[i], x])
                if not self._of_steps:
                    h = np.hstack([h[-1:], h.mean(axis=0, keepdims=True)])
                yield i, 0, h, None

    def _scored(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Returns targets, predictions and weights of the steps that count in a score."""
        predictions = self.predict(X)
        several = isinstance(predictions, list)
        washout = 0 if self.carry_state else self.washout
        if washout:
            self._check_washout([len(each) for each in (predictions if several else [predictions])])

        def counted(values: Any) -> np.ndarray:
            sequences = _by_row(values) if several else [values]
            return np.concatenate([np.asarray(sequence)[washout:] for sequence in sequences])

        weights = None if sample_weight is None else counted(sample_weight)
        return counted(y), counted(predictions), weights

    def _check_washout(self, steps: list[int]) -> None:
        """Raises InputError if the washout leaves no step of a sequence."""
        for i, length in enumerate(steps):
            if self.washout >= length:
                name = f"sequence {i}" if len(steps) > 1 else "the sequence"
                raise InputError(
                    f"washout is {self.washout}, but {name} has only {length} steps: lower washout"
                    " or leave the sequence out"
                )

    def _read(
        self, X: Any, fits: bool = False, y: Any = None, **checks: Any
    ) -> tuple[list[np.ndarray], bool, list]:
        """Returns the sequences (T, D) of X, whether X has several, and the targets of a fit.

        The targets are those of each sequence, or one array. The first data of a fit decide the
        columns of X.
        """
        several, reset = self._is_several(X), fits and self._sums is None
        if several:
            if isinstance(X, np.ndarray) and X.size and X.ndim == 3:
                rows = X.reshape(-1, X.shape[2])  # together, since each check takes 0.2 ms
                rows = validate_data(self, rows, reset=reset, dtype=np.float64)
                sequences = list(rows.reshape(X.shape))
            else:
                sequences = []
                for i, table in enumerate(X):
                    _check_index(table)
                    sequences.append(
                        validate_data(self, table, reset=reset and i == 0, dtype=np.float64)
                    )
            if fits:
                check_consistent_length(sequences, y)
                y = _by_row(y)
        else:
            if self._of_steps:
                _check_index(X)
                _check_index(y)
            if fits:
                X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, **checks)
            else:
                X = validate_data(self, X, reset=False, dtype=np.float64)
            sequences = [X] if self._of_steps else [row[:, None] for row in X]
        if self.carry_state:
            self._compare_with_fit(sequences, reset, fits)
        return sequences, several, y if several and self._of_steps else [y]

    def _compare_with_fit(self, sequences: list[np.ndarray], reset: bool, fits: bool) -> None:
        """Warns if the inputs of the fit are read again for predictions."""
        checksum = 0
        for u in sequences:
            checksum = zlib.crc32(np.ascontiguousarray(u).data, checksum)
        if fits:
            # not of further parts: a short one may come again
            self._fit_checksum = checksum if reset else None
        elif checksum == self._fit_checksum:
            warn_caller(
                "X has the inputs of the fit: with carry_state, predictions continue after the"
                " fit's last step"
            )

    def _is_several(self, X: Any) -> bool:
        """Returns whether X is several sequences of vectors instead of one array with two axes."""
        if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
            X = list(X)
        if not isinstance(X, list | tuple) or not X:
            return isinstance(X, np.ndarray) and X.ndim == 3
        if self._of_steps and getattr(X[0], "ndim", None) == 1:
            raise InputError("X is a list of arrays with one axis: give each sequence as (T, 1)")
        return np.ndim(X[0]) == 2


class ReservoirRegressor(RegressorMixin, _ReservoirEstimator):
    """Predicts one or more numbers for each time step of a sequence, or for each sequence.

    Args:
        state_size: N, number of units of the reservoir.
        spectral_radius: spectral radius of W_rec.
        leak: a, one number, or the interval from which each unit draws its leak.
        mean_degree: mean nonzeros per row of an erdos_renyi W_rec; None: 32. Other topologies have
            other settings, as in {"kind": "fixed_in_degree", "degree": 10}.
        topology, activation, update_rule: as in `esnlm.Reservoir.draw`. Pickling needs registered
            functions.
        input_scale: standard deviation of W_in, one number or one for each input, (D,). Scale the
            inputs to a size near 1 first (StandardScaler).
        bias_scale: standard deviation of the weights of a constant input 1.
        ridge: penalty, relative to the mean variance of the readout's inputs; None: the best of
            1e-9, 1e-8, .., 1 by 4-fold cross-validation on all data so far. The folds are whole
            sequences, of which each four consecutive ones are assigned to four folds at random, or
            of a single sequence about its quarters. The first quarter is neither held out nor
            counted in the variance, because its states may depend on the state 0. A fold with a
            class that no other fold has is not held out either. Equal errors, or no fold to hold
            out, give the largest penalty. Penalties below 1e-14 times the number of inputs are lost
            in rounding: they are not tried, and a given one is raised. If all inputs of the readout
            are equal, it predicts the mean target.
        washout: number of first steps of each sequence left out of the fit and, unless carry_state
            is on, of `score`; sequences must be longer. `predict` returns all steps.
        predicts: "steps" (a regressor's default): each step has a target. X (n, D) is one sequence
            of n time steps. "sequences": each sequence has a target, predicted from its last and
            its mean state. X (n, T) is n sequences of T steps of one number. In both cases y is
            (n,) or (n, L). X may also be (n, T, D) or a list of n arrays or tables (T, D) with the
            same columns; for "steps" y is then a list of n arrays (T,) or (T, L).
        carry_state: for "steps", whether predictions continue from the final state of the last
            sequence in the fit, as when a series is cut into a training and a test part right after
            it; otherwise each sequence begins with the state 0. Only `fit` and `partial_fit` move
            this state: after `predict(a)`, `predict(b)` starts from it, too. In `partial_fit`, the
            first sequence of a call continues the last one of the call before, also its washout;
            further sequences of the call begin with the state 0.
        random_state: seed of the reservoir; an int gives the same reservoir each time.

    Attributes:
        reservoir_: the `esnlm.Reservoir`. Its last input is the constant 1.
        coef_, intercept_: the readout on (u, x), (L, D + N) and (L,), float64; with
            predicts="sequences" on (u, x) of the last step and their means over the steps, (L, 2 (D
            + N)).
        ridge_: the penalty.

    Example:
        ReservoirRegressor(400, washout=100, random_state=0).fit(u, y).predict(u)
    """

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Adds further sequences to the fit.

        Equal to `fit` on all data so far, up to rounding, however they are cut.

        In another order, sequences share other folds, which may change a penalty that is chosen.
        With carry_state, the parts of a series may be as short as one step; `predict` works once
        the series is longer than the washout.
        """
        sequences, _, parts = self._read(X, True, y, multi_output=True, y_numeric=True)
        targets = [check_array(part, ensure_2d=False, dtype=np.float64) for part in parts]
        if self._sums is None:
            self._flat = targets[0].ndim == 1
        self._add(sequences, [target.reshape(len(target), -1) for target in targets])
        return self

    def predict(self, X: Any) -> Any:
        """Returns predictions in the shape of the fitted y, (n,) or (n, L); a list for several."""
        return _each(self._outputs(X), lambda y: y[:, 0] if self._flat else y)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns R^2 over the steps of all sequences; predicting the mean scores 0.

        The first `washout` steps of each sequence do not count, as in the fit, unless carry_state
        is on. scikit-learn's `scoring=None` calls this method; `scoring="r2"` calls `predict` and
        counts all steps.

        Args:
            X, y: as for `fit`.
            sample_weight: weight of each target, in the form of y.
        """
        y, predictions, weights = self._scored(X, y, sample_weight)
        return float(r2_score(y, predictions, sample_weight=weights))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class ReservoirClassifier(ClassifierMixin, _ReservoirEstimator):
    """Predicts a class for each sequence, or for each time step.

    The arguments are those of ReservoirRegressor. By default each sequence has a class:
    `predicts="sequences"`.

    Attributes:
        classes_: the classes, sorted.

    Example:
        ReservoirClassifier(random_state=0).fit([a_series, another], ["rising", "falling"])    #
        each (T, D)
    """

    _default = "sequences"
    _regression = DiscriminantSums

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Adds further sequences to the fit, as `ReservoirRegressor.partial_fit` does.

        The first call must have all classes in y or in `classes`. In another order, also a given
        penalty leads to slightly other probabilities, because these come from held-out folds.
        """
        sequences, _, parts = self._read(X, True, y)
        parts = [column_or_1d(part) for part in parts]
        labels = np.concatenate(parts)
        check_classification_targets(labels)
        if self._sums is None:
            self.classes_ = np.unique(labels if classes is None else classes)
        indices = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[indices] != labels
        if unknown.any():
            raise InputError(
                f"y has the class {labels[unknown][0]}: give all classes to the first call of"
                " partial_fit"
            )
        ends = np.cumsum([len(part) for part in parts])
        self._add(sequences, np.split(np.eye(len(self.classes_))[indices], ends[:-1]))
        return self

    def decision_function(self, X: Any) -> Any:
        """Returns log p up to a common term, (n, classes), for two classes the difference, (n,)."""
        scores = self._outputs(X)
        if len(self.classes_) == 2:
            return _each(scores, lambda each: each[:, 1] - each[:, 0])
        return scores

    def predict_proba(self, X: Any) -> Any:
        """Returns the probability of each class, (n, classes) float64, or a list of these."""
        return _each(self._outputs(X), lambda scores: softmax(scores, axis=1))

    def predict(self, X: Any) -> Any:
        """Returns the class with the highest score, (n,), or a list of these."""
        return _each(self._outputs(X), lambda scores: self.classes_[scores.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns the accuracy, counted as in `ReservoirRegressor.score`."""
        y, predictions, weights = self._scored(X, y, sample_weight)
        return float(accuracy_score(y, predictions, sample_weight=weights))


def _check_index(table: Any) -> None:
    """Raises InputError if the rows of a pandas table belong to several series, by a MultiIndex."""
    index: Any = getattr(table, "index", None)
    if getattr(index, "nlevels", 1) == 1:
        return
    sizes = index.remove_unused_levels().levshape
    if sum(size > 1 for size in sizes) > 1:
        levels = ", ".join(map(str, index.names))
        split = "[part for _, part in X.groupby(level=0)]"
        one = "X.reset_index(drop=True) if it is one series"
        raise InputError(
            f"X or y has a MultiIndex ({levels}): give several series as a list, {split}, or {one}"
        )


def _by_row(y: Any) -> Any:
    """Returns y with one item per sequence. Iterating a table would give its columns."""
    return y.to_numpy() if hasattr(y, "to_numpy") else y


def _each(outputs: Any, function: Callable[[np.ndarray], np.ndarray]) -> Any:
    return [function(y) for y in outputs] if isinstance(outputs, list) else function(outputs)


def _with_bias(u: np.ndarray) -> np.ndarray:
    return np.hstack([u, np.ones((len(u), 1))])
