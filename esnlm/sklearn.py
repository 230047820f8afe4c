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
from typing import Any, Self

import numpy as np

from esnlm.api.reservoir import Reservoir
from esnlm.errors import InputError, whole_number
from esnlm.regression.solvers import solve_centred
from esnlm.reservoir.topology import TOPOLOGIES

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise ImportError("esnlm.sklearn needs scikit-learn 1.6 or newer: pip install 'esnlm[sklearn]'") from None

Sequences = list[np.ndarray]


class _ReservoirEstimator(BaseEstimator):
    """What the two estimators share. Their arguments are described at ReservoirRegressor.

    scikit-learn reads names and defaults from the signature of each estimator's own `__init__`, so ReservoirClassifier, which
    has one other default, names them all again.
    """

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
        predicts: str = "steps",
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

    def states(self, X: Any) -> Any:
        """Returns the states x of each step, from which `predict` predicts: (n, N) float64, or a list for a list of sequences.

        Raises:
            NotFittedError: it is not fitted.
        """
        check_is_fitted(self)
        sequences, alone = self._sequences(X, reset=False)
        found = self._states(sequences, self._end)
        return found[0] if alone else found

    def _fit(self, sequences: Sequences, targets: Sequences) -> None:
        """Draws the reservoir and fits the readout to targets (T, L), or (1, L) of a whole sequence."""
        whole_number("state_size", self.state_size)
        whole_number("washout", self.washout, "give a whole number of time steps")
        for name in ("mean_degree", "input_scale", "bias_scale", "ridge"):
            value = getattr(self, name)
            number = np.asarray(value).dtype.kind in "fiub" or (value is None and name == "mean_degree")
            if not number:
                raise InputError(f"{name} is {value!r}: give a number")
        if not (self.ridge >= 0):
            raise InputError(f"ridge is {self.ridge}: it must not be negative")
        if self.washout < 0:
            raise InputError(f"washout is {self.washout}: it must not be negative")
        idle = "of a whole sequence the last state alone is read; leave it out, or choose predicts='steps'"
        if self.predicts != "steps" and self.washout:
            raise InputError(f"washout is {self.washout}: {idle}")
        apart = "each sequence begins with the state 0; leave it out, or choose predicts='steps'"
        if self.predicts != "steps" and self.carry_state:
            raise InputError(f"carry_state is {self.carry_state}: {apart}")
        longest = max(len(each) for each in sequences)
        too_long = f"washout is {self.washout}: it must leave some of the {longest} steps"
        if self.predicts == "steps" and self.washout >= longest:
            raise InputError(too_long)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        inputs = sequences[0].shape[1]
        size = self.state_size
        density: dict[str, Any] = {}
        if self.mean_degree is not None and _reads_degree(self.topology):
            density["mean_degree"] = min(self.mean_degree, size)
        drawn = Reservoir.draw(
            size,
            inputs=inputs + 1,
            spectral_radius=self.spectral_radius,
            leak=self.leak,
            **density,
            topology=self.topology,
            activation=self.activation,
            update_rule=self.update_rule,
            seed=seed,
        )
        scale = np.append(np.full(inputs, self.input_scale), self.bias_scale)  # a constant 1 is the last input
        self.reservoir_ = drawn.replace(w_in=_dense(drawn.w_in) * scale)
        self._end = None
        states = self._states(sequences)
        kept = slice(self.washout, None) if self.predicts == "steps" else slice(-1, None)
        x = [np.hstack([u, state])[kept] for u, state in zip(sequences, states, strict=True)]
        y = [each[kept] if self.predicts == "steps" else each for each in targets]
        self.coef_, self.intercept_ = solve_centred(np.concatenate(x), np.concatenate(y), self.ridge)
        if self.carry_state:
            self._end = self.reservoir_.run(_with_bias(sequences[-1]))[1]

    def _outputs(self, sequences: Sequences) -> Sequences:
        """Returns the readout's outputs, (T, L) or (1, L) a sequence."""
        kept = slice(None) if self.predicts == "steps" else slice(-1, None)
        states = self._states(sequences, self._end)
        return [
            np.hstack([u, x])[kept] @ self.coef_.T + self.intercept_ for u, x in zip(sequences, states, strict=True)
        ]

    def _counted(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Returns what a score counts: targets, predictions and weights, without the washout of each sequence.

        Until a state has forgotten that it began with 0, it is none of those that the readout was fitted to. A state that
        goes on where the fit ended has nothing to forget.
        """
        found = self.predict(X)
        skipped = 0 if self.carry_state else self.washout
        several = isinstance(found, list)
        if self.predicts != "steps" or not (several or skipped):
            return y, found, sample_weight
        found, y = (found, list(_of_each(y, found))) if several else ([found], [y])
        lengths = [len(each) for each in found]
        fits = [np.shape(each)[:1] for each in y] == [(length,) for length in lengths]
        if not fits:
            raise InputError("y must have a target for each step of each sequence of X")
        if skipped >= max(lengths):
            raise InputError(f"washout is {skipped}: it must leave some of the {max(lengths)} steps to score")
        if sample_weight is not None:
            listed = several and np.ndim(next(iter(sample_weight), 0)) > 0
            flat = np.concatenate([np.atleast_1d(each) for each in (sample_weight if listed else [sample_weight])])
            fits = flat.shape == (sum(lengths),)
            if not fits:
                raise InputError(
                    f"sample_weight has the shape {flat.shape}: give a weight for each of the {sum(lengths)} steps"
                )
            parts = np.split(flat, np.cumsum(lengths)[:-1])
            sample_weight = np.concatenate([each[skipped:] for each in parts])
        y, found = (np.concatenate([np.asarray(each)[skipped:] for each in arrays]) for arrays in (y, found))
        return y, found, sample_weight

    def _states(self, sequences: Sequences, start: Any = None) -> Sequences:
        inputs = [_with_bias(u) for u in sequences]
        if start is not None:
            return [self.reservoir_.run(u, start)[0] for u in inputs]
        return self.reservoir_.states(inputs)

    def _sequences(self, X: Any, reset: bool, y: Any = "no_validation", **options: Any) -> Any:
        """Returns sequences (T, D), whether X was one sequence alone, and the checked y where it is given."""
        if self.predicts not in ("steps", "sequences"):
            raise InputError(f"predicts is {self.predicts!r}: choose steps, sequences")
        if _is_several(X):
            if any(map(np.iscomplexobj, X)):
                raise InputError("X holds complex numbers: give real ones")
            sequences = [np.asarray(each, np.float64) for each in X]
            widths = {each.shape[1] if each.ndim == 2 else -1 for each in sequences}
            lone = min(widths) if len(widths) == 1 else -1
            if not (lone >= 1 and min(map(len, sequences)) >= 1):
                raise InputError("X is several sequences: give each as (T, D), of one D")
            finite = all(np.isfinite(each).all() for each in sequences)
            if not finite:
                raise InputError("X holds a number that is not finite")
            if reset:
                self.n_features_in_ = lone
                self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to one table, whose columns had names
            self._require_width(lone, reset)
            return sequences, False
        flat = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], np.ndarray) and X[0].ndim == 1
        if self.predicts != "sequences" and flat:
            raise InputError("X is a list of arrays of one axis: give each sequence as (T, 1) for steps")
        unequal = flat and len({np.shape(each) for each in X}) > 1
        if unequal:
            raise InputError("X is a list of arrays of one axis and unequal lengths: give each sequence as (T, 1)")
        alone = self.predicts == "steps"
        if not isinstance(y, str):
            checked, y = validate_data(self, X, y, reset=reset, dtype=np.float64, **options)
        elif not alone and self.n_features_in_ == self._known_width() == 1:  # It was fitted to (T, 1): any T will do.
            checked = check_array(X, dtype=np.float64)
        else:
            checked = validate_data(self, X, reset=reset, dtype=np.float64)
        self._require_width(checked.shape[1] if alone else 1, reset)
        sequences = [checked] if alone else [row[:, None] for row in checked]
        return (sequences, alone) if isinstance(y, str) else (sequences, alone, y)

    def _require_width(self, width: int, reset: bool) -> None:
        """Keeps D, the numbers of a step, in a fit, and raises ValueError where another D is given later."""
        if reset:
            self._width = width
        name, known = type(self).__name__, self._known_width()
        if known != width:
            raise InputError(f"X has {width} features at each step, but {name} was fitted with {known}")

    def _known_width(self) -> int:
        """Returns D of the fit. A pickle of an earlier version does not have it: there it follows from the columns of X."""
        return getattr(self, "_width", self.n_features_in_ if self.predicts == "steps" else 1)


class ReservoirRegressor(RegressorMixin, _ReservoirEstimator):
    """Predicts a number, or several, at each time step of a sequence, or of each sequence.

    Args:
        state_size: N, units of the reservoir.
        spectral_radius: of W_rec.
        leak: a, one number, or the interval that each unit's is drawn from.
        mean_degree: nonzeros of a row of an erdos_renyi W_rec; None: 32. Other topologies do not read it: their own settings,
            as in {"kind": "fixed_in_degree", "degree": 10}, decide.
        topology: as in `esnlm.Reservoir.draw`.
        input_scale: standard deviation of W_in. Bring the inputs to a size near 1 before (StandardScaler).
        bias_scale: the same of the weights of a constant input 1.
        activation, update_rule: as in `esnlm.Reservoir.draw`. A pickle needs functions that are registered.
        ridge: the penalty, relative to the mean eigenvalue of the covariance of (u, x).
        washout: first steps of each sequence that the fit leaves out, where it predicts "steps", and `score`, too, unless
            carry_state is on. Predictions are made for all steps.
        predicts: "steps": a target belongs to each step. X (n, D) is one sequence of n steps in the order of time, and y is
            (n,) or (n, L). "sequences": a target belongs to each sequence, and is predicted from its last state. X (n, T)
            is n sequences of T steps of one number, and y is (n,) or (n, L). In both cases X may also be (n, T, D) or a
            list of n arrays or tables (T, D); for "steps" y is then a list of n arrays (T,) or (T, L).
        carry_state: whether predictions go on from the state in which the last sequence of the fit ended, as where a series
            is cut into a part to learn from and a part to predict; otherwise each sequence begins with the state 0. It is for
            "steps" alone.
        random_state: of the reservoir; an int gives the same one each time.

    Attributes:
        reservoir_: the `esnlm.Reservoir`. Its last input is the constant 1.
        coef_, intercept_: of the readout on (u, x): (L, D + N) and (L,), float64.

    Example:
        ReservoirRegressor(400, washout=100, random_state=0).fit(u, y).predict(u)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fits it, and returns it.

        Raises:
            ValueError: X or y has the wrong shape, or holds a number that is not finite.
        """
        if _is_several(X):
            sequences, _ = self._sequences(X, reset=True)
            targets = self._targets(y, sequences)
        else:
            sequences, alone, y = self._sequences(X, True, y, multi_output=True, y_numeric=True)
            y = np.asarray(y, np.float64)
            self._flat = y.ndim == 1
            y = y.reshape(len(y), -1)
            targets = [y] if alone else list(y[:, None])
        self._fit(sequences, targets)
        return self

    def predict(self, X: Any) -> Any:
        """Returns the predictions in the shape of the y that it was fitted with, (n,) or (n, L) float64, or a list of such.

        Raises:
            NotFittedError: it is not fitted.
        """
        check_is_fitted(self)
        sequences, alone = self._sequences(X, reset=False)
        found = self._outputs(sequences)
        if self.predicts == "sequences":
            found, alone = [np.concatenate(found)], True
        found = [each[:, 0] if self._flat else each for each in found]
        return found[0] if alone else found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns R^2 over the steps of all sequences; 1 is perfect, and predicting the mean scores 0.

        Where it predicts "steps" without carry_state, the first `washout` steps of each sequence are not counted: the fit
        leaves them out, too. scikit-learn's `scoring=None` calls this method. `scoring="r2"` calls `predict` and counts all.

        Args:
            X, y: as for `fit`.
            sample_weight: of each step, (n,) over all sequences one after another, or a list of arrays (T,) as y is; of
                "sequences" (n,).

        Raises:
            NotFittedError: it is not fitted.
            ValueError: a shape does not fit, or no sequence is longer than `washout`.
        """
        y, found, sample_weight = self._counted(X, y, sample_weight)
        return float(r2_score(y, found, sample_weight=sample_weight))

    def _targets(self, y: Any, sequences: Sequences) -> Sequences:
        arrays = [np.asarray(each, np.float64) for each in _of_each(y, sequences)]
        if not all(np.isfinite(each).all() for each in arrays):
            raise InputError("y holds a number that is not finite")
        steps = self.predicts == "steps"
        self._flat = arrays[0].ndim == (1 if steps else 0)
        found = [each.reshape(len(each) if steps else 1, -1) for each in map(np.atleast_1d, arrays)]
        for i, (u, each) in enumerate(zip(sequences, found, strict=True)):
            fits = each.shape == (len(u) if steps else 1, found[0].shape[1])
            if not fits:
                raise InputError(
                    f"y of sequence {i} has the shape {arrays[i].shape}: it must fit the {len(u)} steps of X"
                )
        return found

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
        predicts: str = "sequences",
        carry_state: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            state_size,
            spectral_radius=spectral_radius,
            leak=leak,
            mean_degree=mean_degree,
            topology=topology,
            input_scale=input_scale,
            bias_scale=bias_scale,
            activation=activation,
            update_rule=update_rule,
            ridge=ridge,
            washout=washout,
            predicts=predicts,
            carry_state=carry_state,
            random_state=random_state,
        )

    def fit(self, X: Any, y: Any) -> Self:
        """Fits it to classes of any type, and returns it.

        Raises:
            ValueError: X or y has the wrong shape, or holds a number that is not finite.
        """
        ends: Any = []  # of the steps of each sequence but the last
        if _is_several(X):
            sequences, _ = self._sequences(X, reset=True)
            y = _of_each(y, sequences)
            steps = self.predicts == "steps"
            fits = not steps or all(np.shape(each) == (len(u),) for u, each in zip(sequences, y, strict=True))
            if not fits:
                raise InputError(
                    "y must have a class for each step of each sequence of X; predicts='sequences' takes one a sequence"
                )
            labels = np.concatenate([np.asarray(each) for each in y]) if steps else column_or_1d(y)
            ends = np.cumsum([len(each) for each in y])[:-1] if steps else []
        else:
            sequences, _, labels = self._sequences(X, True, y)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        one_hot = np.eye(len(self.classes_))[numbers]
        targets = list(one_hot[:, None]) if self.predicts == "sequences" else np.split(one_hot, ends)
        self._fit(sequences, targets)
        return self

    def decision_function(self, X: Any) -> Any:
        """Returns a score for each class, (n, classes) float64, or of two classes the difference, (n,); or a list."""
        check_is_fitted(self)
        sequences, alone = self._sequences(X, reset=False)
        found = self._outputs(sequences)
        if self.predicts == "sequences":
            found, alone = [np.concatenate(found)], True
        if len(self.classes_) == 2:
            found = [each[:, 1] - each[:, 0] for each in found]
        return found[0] if alone else found

    def predict(self, X: Any) -> Any:
        """Returns the class of the highest score, (n,), or a list of such."""
        scores = self.decision_function(X)
        found = [self._classes_of(each) for each in (scores if isinstance(scores, list) else [scores])]
        return found if isinstance(scores, list) else found[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns the share of classes that are right, counted as by `ReservoirRegressor.score`.

        So `scoring=None` of scikit-learn leaves out the first `washout` steps, and `scoring="accuracy"` counts them.

        Raises:
            NotFittedError: it is not fitted.
            ValueError: a shape does not fit, or no sequence is longer than `washout`.
        """
        y, found, sample_weight = self._counted(X, y, sample_weight)
        return float(accuracy_score(y, found, sample_weight=sample_weight))

    def _classes_of(self, scores: np.ndarray) -> np.ndarray:
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


def _reads_degree(topology: Any) -> bool:
    """Returns whether a topology has no density of its own."""
    kind = topology.get("kind") if isinstance(topology, dict) else topology
    known = TOPOLOGIES.get(kind) if isinstance(kind, str) else topology
    return not getattr(known, "has_own_density", True)


def _is_several(X: Any) -> bool:
    """Returns whether X is several sequences of vectors, and not one array of two axes."""
    if isinstance(X, list | tuple):
        return len(X) > 0 and np.ndim(X[0]) == 2
    return isinstance(X, np.ndarray) and X.ndim == 3


def _of_each(y: Any, sequences: Sequences) -> Any:
    """Returns y, whose entry i belongs to sequence i. Of a table these are the rows; whoever iterates it gets its columns."""
    if y is None or len(y) != len(sequences):
        raise InputError(f"y must have a target for each of the {len(sequences)} sequences of X")
    return y.to_numpy() if hasattr(y, "to_numpy") else y


def _with_bias(u: np.ndarray) -> np.ndarray:
    return np.hstack([u, np.ones((len(u), 1))])


def _dense(matrix: Any) -> np.ndarray:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
