"""Echo state networks for real-valued sequences as scikit-learn's estimators. It needs esnlm[sklearn].

The reservoir is that of `esnlm.Reservoir`, in float64. What is fitted is a ridge regression on (u, x), the input and the
state, with an intercept.

Example:
    from esnlm.sklearn import ReservoirRegressor
    u, y = ...                                             # (n, D) and (n, L), such as examples.series.narma10(3000, 0)
    network = ReservoirRegressor(400, washout=100, random_state=0).fit(u[:2000], y[:2000])
    network.score(u[2000:], y[2000:])                      # R^2, without the first 100 steps: 0.91
"""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from esnlm.api.reservoir import Reservoir
from esnlm.errors import InputError
from esnlm.regression.solvers import solve_centred

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils import check_random_state, check_scalar
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        check_array,
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError:
    raise ImportError("esnlm.sklearn needs scikit-learn 1.6 or newer: pip install 'esnlm[sklearn]'") from None


class _ReservoirEstimator(BaseEstimator):
    """The reservoir, and the ridge regression on its states. The arguments are described at ReservoirRegressor."""

    _default = "steps"  # of `predicts`

    def __init__(
        self,
        state_size: int = 200,
        *,
        spectral_radius: float = 0.9,
        leak: float | tuple[float, float] = 1.0,
        mean_degree: float | None = 10.0,
        topology: Any = "erdos_renyi",
        input_scale: float = 0.5,
        bias_scale: float = 0.2,
        activation: str | Callable = "tanh",
        update_rule: str | Callable = "leaky_output",
        ridge: float = 1e-8,
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
    def _of_steps(self) -> bool:
        """Whether a target belongs to each step, and not to a whole sequence."""
        return (self.predicts or self._default) == "steps"

    def states(self, X: Any) -> Any:
        """Returns the states x of each step, from which `predict` predicts: (n, N) float64, or a list for several sequences."""
        check_is_fitted(self)
        sequences, several, _ = self._read(X)
        found = self._states(sequences)
        return found if several or not self._of_steps else found[0]

    def _fit(self, sequences: list[np.ndarray], targets: list[np.ndarray]) -> None:
        """Draws the reservoir and fits the readout to targets (T, L) of each sequence, or [(n, L)] of n whole sequences."""
        if self.predicts not in (None, "steps", "sequences"):
            raise InputError(f"predicts is {self.predicts!r}: choose steps, sequences")
        check_scalar(self.state_size, "state_size", Integral, min_val=1)
        check_scalar(self.washout, "washout", Integral, min_val=0)
        check_scalar(self.ridge, "ridge", Real, min_val=0)
        for name in ("input_scale", "bias_scale"):
            check_scalar(getattr(self, name), name, Real)
        if not self._of_steps and (self.washout or self.carry_state):
            raise InputError(
                "washout and carry_state are for predicts='steps': a whole sequence is read by its last state"
            )
        if self._of_steps and self.washout >= (longest := max(map(len, sequences))):
            raise InputError(f"washout is {self.washout}: it must leave some of the {longest} steps")
        inputs, density = sequences[0].shape[1], dict[str, Any]()
        if self.mean_degree is not None:
            density["mean_degree"] = min(self.mean_degree, self.state_size)
        drawn = Reservoir.draw(
            self.state_size,
            inputs=inputs + 1,  # the last one is a constant 1
            spectral_radius=self.spectral_radius,
            leak=self.leak,
            topology=self.topology,
            activation=self.activation,
            update_rule=self.update_rule,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            **density,
        )
        self.reservoir_ = drawn.replace(w_in=drawn.w_in * np.append(np.full(inputs, self.input_scale), self.bias_scale))
        self._end = None
        kept = slice(self.washout, None) if self._of_steps else slice(-1, None)
        x = [each[kept] for each in self._inputs_and_states(sequences)]
        y = [each[kept] for each in targets] if self._of_steps else targets
        self.coef_, self.intercept_ = solve_centred(np.concatenate(x), np.concatenate(y), self.ridge)
        if self.carry_state:
            self._end = self.reservoir_.run(_with_bias(sequences[-1]))[1]

    def _outputs(self, X: Any) -> Any:
        """Returns W (u, x) + b: (T, L) of one sequence or a list of such, or (n, L) of n whole sequences."""
        check_is_fitted(self)
        sequences, several, _ = self._read(X)
        kept = slice(None) if self._of_steps else slice(-1, None)
        found = [each[kept] @ self.coef_.T + self.intercept_ for each in self._inputs_and_states(sequences)]
        if not self._of_steps:
            return np.concatenate(found)
        return found if several else found[0]

    def _counted(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Returns targets, predictions and weights of all steps that a score counts: without the washout of the fit."""
        found = self.predict(X)
        several, skipped = isinstance(found, list), 0 if self.carry_state else self.washout

        def cut(given: Any) -> np.ndarray:
            return np.concatenate([np.asarray(each)[skipped:] for each in (_by_row(given) if several else [given])])

        return cut(y), cut(found), None if sample_weight is None else cut(sample_weight)

    def _states(self, sequences: list[np.ndarray]) -> list[np.ndarray]:
        inputs = [_with_bias(u) for u in sequences]
        if self._end is not None:
            return [self.reservoir_.run(u, self._end)[0] for u in inputs]
        return self.reservoir_.states(inputs)

    def _inputs_and_states(self, sequences: list[np.ndarray]) -> list[np.ndarray]:
        return [np.hstack([u, x]) for u, x in zip(sequences, self._states(sequences), strict=True)]

    def _read(self, X: Any, reset: bool = False, y: Any = None, **checks: Any) -> tuple[list[np.ndarray], bool, Any]:
        """Returns the sequences (T, D) of X, whether they are several, and y; in a fit, which resets, with scikit-learn's checks."""
        if self._is_several(X):
            sequences = [check_array(each, dtype=np.float64) for each in X]
            if reset:
                check_consistent_length(sequences, y)
                self.n_features_in_ = sequences[0].shape[1]
                self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to one table, whose columns had names
            for each in sequences:
                if each.shape[1] != self.n_features_in_:
                    raise InputError(f"X has {each.shape[1]} features at a step, and the fit has {self.n_features_in_}")
            return sequences, True, _by_row(y)
        if reset:
            X, y = validate_data(self, X, y, dtype=np.float64, **checks)
        else:
            X = validate_data(self, X, reset=False, dtype=np.float64)
        return [X] if self._of_steps else [row[:, None] for row in X], False, y

    def _is_several(self, X: Any) -> bool:
        """Returns whether X is several sequences of vectors, and not one array of two axes."""
        if not isinstance(X, list | tuple) or not X:
            return isinstance(X, np.ndarray) and X.ndim == 3
        if self._of_steps and isinstance(X[0], np.ndarray) and X[0].ndim == 1:
            raise InputError("X is a list of arrays of one axis: give each sequence as (T, 1)")
        return np.ndim(X[0]) == 2


class ReservoirRegressor(RegressorMixin, _ReservoirEstimator):
    """Predicts a number, or several, at each time step of a sequence, or of each sequence.

    Args:
        state_size: N, units of the reservoir.
        spectral_radius: of W_rec.
        leak: a, one number, or the interval that each unit's is drawn from.
        mean_degree: nonzeros of a row of an erdos_renyi W_rec; None: 32. Other topologies have their own settings, as in
            {"kind": "fixed_in_degree", "degree": 10}.
        topology, activation, update_rule: as in `esnlm.Reservoir.draw`. A pickle needs functions that are registered.
        input_scale: standard deviation of W_in. Bring the inputs to a size near 1 before (StandardScaler).
        bias_scale: the same of the weights of a constant input 1.
        ridge: the penalty, relative to the mean eigenvalue of the covariance of (u, x).
        washout: first steps of each sequence that the fit leaves out, and `score`, too, unless carry_state is on. Predictions
            are made for all steps.
        predicts: "steps" (of None, in a regressor): a target belongs to each step. X (n, D) is one sequence of n steps in the
            order of time, and y is (n,) or (n, L). "sequences": a target belongs to each sequence, and is predicted from its
            last state. X (n, T) is n sequences of T steps of one number, and y is (n,) or (n, L). In both cases X may also be
            (n, T, D) or a list of n arrays or tables (T, D); for "steps" y is then a list of n arrays (T,) or (T, L).
        carry_state: whether predictions of "steps" go on from the state in which the last sequence of the fit ended, as if a
            series is cut into a part to learn from and a part to predict; otherwise each sequence begins with the state 0.
        random_state: of the reservoir; an int gives the same one each time.

    Attributes:
        reservoir_: the `esnlm.Reservoir`. Its last input is the constant 1.
        coef_, intercept_: of the readout on (u, x): (L, D + N) and (L,), float64.

    Example:
        ReservoirRegressor(400, washout=100, random_state=0).fit(u, y).predict(u)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fits it, and returns it. Raises ValueError if X or y has the wrong shape, or a number that is not finite."""
        sequences, several, y = self._read(X, True, y, multi_output=True, y_numeric=True)
        parts = y if several and self._of_steps else [y]
        targets = [check_array(each, ensure_2d=False, dtype=np.float64) for each in parts]
        if self._of_steps:
            _check_lengths(sequences, targets)
        self._flat = targets[0].ndim == 1
        self._fit(sequences, [each.reshape(len(each), -1) for each in targets])
        return self

    def predict(self, X: Any) -> Any:
        """Returns the predictions in the shape of the y that it was fitted with, (n,) or (n, L) float64, or a list of such."""
        return _each(self._outputs(X), lambda found: found[:, 0] if self._flat else found)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns R^2 over the steps of all sequences; 1 is perfect, and predicting the mean scores 0.

        The first `washout` steps of each sequence are not counted, as in the fit, unless carry_state is on. scikit-learn's
        `scoring=None` calls this method; `scoring="r2"` calls `predict` and counts all.

        Args:
            X, y: as for `fit`.
            sample_weight: of each target, in the form of y.
        """
        y, found, sample_weight = self._counted(X, y, sample_weight)
        return float(r2_score(y, found, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class ReservoirClassifier(ClassifierMixin, _ReservoirEstimator):
    """Predicts a class for each sequence, or for each step of one, by a ridge regression onto one-hot classes.

    The arguments are those of ReservoirRegressor. By default a class belongs to a whole sequence: `predicts="sequences"`.

    Attributes:
        classes_: the classes, sorted.

    Example:
        ReservoirClassifier(random_state=0).fit([a_series, another], ["rising", "falling"])    # each (T, D)
    """

    _default = "sequences"

    def fit(self, X: Any, y: Any) -> Self:
        """Fits it to classes of any type, and returns it. Raises ValueError as ReservoirRegressor does."""
        sequences, several, y = self._read(X, True, y)
        parts = [column_or_1d(each) for each in (y if several and self._of_steps else [y])]
        if self._of_steps:
            _check_lengths(sequences, parts)
        labels = np.concatenate(parts)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        one_hot, ends = np.eye(len(self.classes_))[numbers], np.cumsum([len(each) for each in parts])
        self._fit(sequences, np.split(one_hot, ends[:-1]))
        return self

    def decision_function(self, X: Any) -> Any:
        """Returns a score for each class, (n, classes) float64, or of two classes the difference, (n,); or a list."""
        found = self._outputs(X)
        return _each(found, lambda scores: scores[:, 1] - scores[:, 0]) if len(self.classes_) == 2 else found

    def predict(self, X: Any) -> Any:
        """Returns the class of the highest score, (n,), or a list of such."""

        def best(scores: np.ndarray) -> np.ndarray:
            return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

        return _each(self.decision_function(X), best)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns the share of classes that are right, counted as by `ReservoirRegressor.score`."""
        y, found, sample_weight = self._counted(X, y, sample_weight)
        return float(accuracy_score(y, found, sample_weight=sample_weight))


def _check_lengths(sequences: list[np.ndarray], targets: list[np.ndarray]) -> None:
    for u, y in zip(sequences, targets, strict=True):
        check_consistent_length(u, y)


def _by_row(y: Any) -> Any:
    """Returns y, whose rows belong to sequences. A table that is iterated gives its columns."""
    return y.to_numpy() if hasattr(y, "to_numpy") else y


def _each(found: Any, function: Callable[[np.ndarray], np.ndarray]) -> Any:
    return [function(each) for each in found] if isinstance(found, list) else function(found)


def _with_bias(u: np.ndarray) -> np.ndarray:
    return np.hstack([u, np.ones((len(u), 1))])
