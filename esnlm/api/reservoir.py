"""Reservoirs in Python: draw, inspect, change, and run them over tokens or numbers.

A `Reservoir` holds the cell used in training (reservoir/cell.py) and the settings that a run
records for it (reservoir/weights.py). It is immutable: `replace` returns another reservoir.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO

from esnlm.base.errors import InputError, whole_number
from esnlm.base.rng import Stream, check_seed, seed_sequence
from esnlm.base.settings import build
from esnlm.data.tokenizer import Tokenizer
from esnlm.diagnosis import contraction
from esnlm.features.batching import read_by_tokens
from esnlm.features.stream import FeatureStream
from esnlm.loaded_run import Run
from esnlm.machine.compute import backend, default_batch_slots, in_float32
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir import cell as cells
from esnlm.reservoir import functions, weights
from esnlm.reservoir.arrays import (
    FrozenMatrix,
    Matrix,
    as_scipy,
    bcoo,
    checked_matrix,
    scale,
)
from esnlm.reservoir.on_host import HostLayer, HostRecurrence, host_layers
from esnlm.reservoir.spectrum import spectral_radius as radius_of
from esnlm.reservoir.topology import TOPOLOGIES, FromMatrix, Topology, register
from esnlm.reservoir.weights import DENSE_FROM, ReservoirConfig

MOST_BYTES = 256 << 20  # of states computed at once
HostMatrix: TypeAlias = scipy.sparse.csr_array | np.ndarray  # dense from a connectivity of 1/4


@dataclass(frozen=True, eq=False)
class Reservoir:
    """W_rec, W_in and the leaks, made by `draw`, `from_matrices` or `of`, and how to run them.

    Unusable settings, matrices or sequences raise an InputError that names them.
    """

    settings: ReservoirConfig  # as in a run's config.yaml
    cell: cells.ReservoirLayer | cells.Stack  # as in training
    reads_tokens: bool  # False: it reads vectors of real numbers

    # ---- making a reservoir ----

    @classmethod
    def draw(
        cls,
        state_size: int,
        *,
        vocabulary: int | Tokenizer | None = None,
        inputs: int | None = None,
        leak: float | tuple[float, float] = (0.0, 1.0),
        input_scale: float | Sequence[float] | np.ndarray = 1.0,
        topology: str | Topology | dict | Callable = "erdos_renyi",
        activation: str | Callable = "tanh",
        update_rule: str | Callable = "leaky_output",
        seed: int = 0,
        **settings: Any,
    ) -> "Reservoir":
        """Draws a reservoir, the same one for the same arguments, as training does.

        Args:
            state_size: N, units per layer.
            vocabulary: V, the number of token ids, or a tokenizer. Give this or `inputs`.
            inputs: D, the number of real inputs per time step.
            leak: a of every unit, or the bounds of the interval to draw it from.
            input_scale: standard deviation of W_in's nonzeros; for `inputs` and one layer also one
                of each input, (D,).
            topology: topology of W_rec: a name such as "ring", {"kind": "small_world", "degree":
                8}, or a function (state_size, rng) -> (N, N), see `esnlm.topology`.
            activation, update_rule: f and the equation of a time step: names such as "relu" and
                "leaky_membrane", or functions, see `esnlm.activation` and `esnlm.update_rule`.
            settings: any other setting of `model.reservoir` (docs/settings.md):
                spectral_radius=0.99, layers=2, ... By default, mean_degree is at most N, and
                input_connectivity for numbers is 1.

        Example:
            esnlm.Reservoir.draw(1024, vocabulary=8192, topology="ring", leak=0.5)
        """
        if (vocabulary is None) == (inputs is None):
            raise InputError("give either vocabulary, for tokens, or inputs, for numbers")
        name = "vocabulary" if inputs is None else "inputs"
        if isinstance(vocabulary, Tokenizer):
            vocabulary = vocabulary.vocab_size
        size = whole_number(name, (inputs or 0) if vocabulary is None else vocabulary)
        if size < 1:
            raise InputError(f"{name} is {size}: give a whole number above 0")
        check_seed(seed)
        backend()  # raises a clear error if JAX finds no device
        per_input = None
        if inputs is not None and np.ndim(input_scale) and settings.get("layers", 1) == 1:
            per_input, input_scale = input_scales(input_scale, inputs), 1.0
        low, high = (leak, leak) if np.ndim(leak) == 0 else tuple(leak)  # type: ignore[arg-type]
        tree = {
            "state_size": state_size,
            "leak_min": low,
            "leak_max": high,
            "mean_degree": float(min(32, max(1, state_size))),
            **({} if inputs is None else {"input_connectivity": 1.0}),
            **settings,
            **_function_names(activation, update_rule),
            "topology": _topology(topology),
            "input_scale": input_scale,
        }
        config = build(ReservoirConfig, tree, "reservoir.")
        cell = weights.initialize_reservoir(config, size, seed).reservoir
        if functions.is_anonymous(config.topology.kind):  # other processes could not draw it
            nonzeros = sum(layer.nonzeros[0] for layer in cell.layers) // len(cell.layers)
            config = dataclasses.replace(config, topology=FromMatrix(nonzeros=nonzeros))
        drawn = cls(config, cell, inputs is None)
        return drawn if per_input is None else drawn.replace(w_in=drawn.w_in * per_input)

    @classmethod
    def from_matrices(
        cls,
        w_rec: Any,
        w_in: Any,
        leak: float | Sequence[float] | np.ndarray = 1.0,
        *,
        reads_tokens: bool,
        activation: str | Callable = "tanh",
        update_rule: str | Callable = "leaky_output",
    ) -> "Reservoir":
        """Makes a reservoir from given matrices.

        Args:
            w_rec: W_rec (N, N), from NumPy or SciPy, used without scaling, in float32.
            w_in: W_in (N, V) for tokens, one column per token, or (N, D) for numbers.
            leak: a, one number or (N,), in [0, 1].
            reads_tokens: True: inputs are tokens; False: vectors of numbers.
            activation, update_rule: as in `draw`.

        Example:
            esnlm.Reservoir.from_matrices(0.9 * np.eye(3), np.ones((3, 1)), 0.5, reads_tokens=False)
        """
        if np.ndim(w_rec) != 2 or np.ndim(w_in) != 2:
            shapes = f"w_rec has the shape {np.shape(w_rec)} and w_in {np.shape(w_in)}"
            raise InputError(f"{shapes}: give (N, N) and (N, columns)")
        backend()
        size, columns = np.shape(w_rec)[0], np.shape(w_in)[1]
        names = _function_names(activation, update_rule)
        config = ReservoirConfig(
            state_size=size, topology=FromMatrix(), input_connectivity=1.0, **names
        )
        # sparse, since dense zeros could take gigabytes
        entries = np.zeros(0, np.float32), np.zeros((0, 2), np.int32)
        matrices = bcoo(*entries, (size, size)), bcoo(*entries, (size, columns))
        cell = cells.ReservoirLayer(*matrices, np.ones(size, np.float32), **config.dynamics)
        return cls(config, cell, reads_tokens).replace(w_rec=w_rec, w_in=w_in, leak=leak)

    @classmethod
    def of(cls, run: Run) -> "Reservoir":
        """Returns the reservoir of a run from `esnlm.load`. A trained W_in (ESN+i) is frozen in it.

        Example:
            reservoir = esnlm.Reservoir.of(esnlm.load("runs/quickstart"))
        """
        config = run.config.model
        if not isinstance(config, EchoStateConfig):
            raise InputError(f"{run.name}: a model of family {config.family} has no reservoir")
        cell = run.model.reservoir  # type: ignore[attr-defined]
        if config.train_input:
            cell = cells.with_input(cell, FrozenMatrix)
        return cls(config.reservoir, cell, True)

    def replace(
        self,
        *,
        w_rec: Any = None,
        w_in: Any = None,
        leak: float | Sequence[float] | np.ndarray | None = None,
        spectral_radius: float | None = None,
        activation: str | Callable | None = None,
        update_rule: str | Callable | None = None,
    ) -> "Reservoir":
        """Returns the same reservoir with some parts replaced; None keeps a part.

        Args:
            w_rec: W_rec (N, N), from NumPy or SciPy.
            w_in: W_in (N, V), or (N, D) for numbers or after an embedding.
            leak: a, one number or (N,), in [0, 1].
            spectral_radius: the radius to scale W_rec to, after any replacement.
            activation, update_rule: as in `draw`.

        Raises:
            InputError: a matrix or leak is not usable, or the reservoir has several layers.

        Example:
            reservoir.replace(w_rec=abs(reservoir.w_rec), spectral_radius=0.95)  # no inhibition
        """
        old, config = self._one_layer(), self.settings
        changes = _function_names(
            activation or config.activation, update_rule or config.update_rule
        )
        recurrent, into, a = old.stored_w_rec, old.stored_w_in, np.asarray(old.leak[...])
        if w_rec is not None:
            recurrent = _matrix("w_rec", w_rec, old.state_size, old.state_size)
            nonzeros = np.count_nonzero(_entries(recurrent))
            changes |= {"topology": FromMatrix(nonzeros=int(nonzeros)), "connectivity": None}
            changes["input_connectivity"] = config.input_gamma
        if w_rec is not None or spectral_radius is not None:
            recurrent, changes["spectral_radius"] = _scaled(recurrent, spectral_radius)
        if w_in is not None:
            into = _matrix("w_in", w_in, old.state_size, old.input_size)
            entries = _entries(into)
            entries = entries[entries != 0]
            changes["input_weights"] = "random"
            changes["input_connectivity"] = len(entries) / (old.state_size * old.input_size)
            changes["input_scale"] = float(np.sqrt(np.mean(np.square(entries, dtype=np.float64))))
        if leak is not None:
            if config.continuous is not None and config.continuous.decay != 1:
                raise InputError(
                    "leak: in continuous time it would also change the decay; draw another"
                    " reservoir"
                )
            a = np.asarray(leak, np.float32)
            if a.shape not in ((), (old.state_size,)) or not ((a >= 0) & (a <= 1)).all():
                raise InputError(
                    f"leak has shape {a.shape}: give one number or ({old.state_size},), in [0, 1]"
                )
            a = np.broadcast_to(a, old.state_size).copy()
            changes |= {
                "leak_min": float(a.min()),
                "leak_max": float(a.max()),
                "leak_spacing": "uniform",
                "continuous": None,
            }
        config = dataclasses.replace(config, **changes)
        functions.check_own_functions(config.activation, config.update_rule, old.state_size)
        embedding = None if old.embedding is None else np.asarray(old.embedding[...])
        cell = cells.ReservoirLayer(recurrent, into, a, embedding, **config.dynamics)
        return Reservoir(config, cell, self.reads_tokens)

    # ---- inspecting a reservoir ----

    @property
    def state_size(self) -> int:
        """N, the units per layer."""
        return self.settings.state_size

    @property
    def input_size(self) -> int:
        """V, the number of token ids, or D, the number of real inputs."""
        return self.cell.layers[0].vocab_size

    @property
    def w_rec(self) -> HostMatrix:
        """A copy of W_rec, (N, N) float32, of SciPy, or of NumPy from a connectivity of 1/4."""
        return as_scipy(self._one_layer().stored_w_rec).astype(np.float32)

    @property
    def w_in(self) -> HostMatrix:
        """A copy of W_in in the form of W_rec, (N, V), or (N, D) for numbers or an embedding."""
        return as_scipy(self._one_layer().stored_w_in).astype(np.float32)

    @property
    def leak(self) -> np.ndarray:
        """a, (N,) float32: a copy."""
        return np.array(self._one_layer().leak[...])

    def measured_radius(self) -> float:
        """Computes the spectral radius of the current W_rec, in float64 (reservoir/spectrum.py)."""
        return _radius(self._one_layer().stored_w_rec)

    def __repr__(self) -> str:
        inputs = f"{self.input_size:,} {'tokens' if self.reads_tokens else 'numbers'}"
        layers = "" if self.settings.layers == 1 else f"{self.settings.layers} x "
        units, kind = f"{layers}{self.state_size:,}", self.settings.topology.kind
        return f"<Reservoir of {units} units, {kind}, reads {inputs}>"

    # ---- running a reservoir ----

    def states(self, inputs: Any, *, washout: int = 0) -> Any:
        """Returns the states after each time step of one or more sequences, each from the state 0.

        Args:
            inputs: an array (T,) of token ids, or (T, D) of numbers; or a list of these, or one
                array (n, T, D).
            washout: number of time steps to leave out at the beginning of each sequence.

        Returns:
            (T - washout, F), or a list of these for several sequences. F is N, or L N for L layers.
            The type is float32 for tokens, as in training, and float64 for numbers.

        Example:
            reservoir.states([np.array([5, 17, 3]), np.array([8])])
        """
        axes = 1 if self.reads_tokens else 2  # of one sequence
        is_one = not isinstance(inputs, list | tuple) and np.ndim(inputs) <= axes
        sequences = [self._sequence(each) for each in ([inputs] if is_one else inputs)]
        if not 0 <= washout < min(map(len, sequences), default=0):
            raise InputError(
                f"washout is {washout}: it must leave at least one time step of each sequence"
            )
        compute = self._token_states if self.reads_tokens else self._number_states
        states = [each[washout:] for each in compute(sequences)]
        return states[0] if is_one else states

    def run(self, inputs: np.ndarray, start: Any = None) -> tuple[np.ndarray, Any]:
        """Returns the states of one sequence of numbers, (T, F) float64, and the final state.

        Args:
            inputs: (T, D).
            start: the final state from an earlier call; None: the state 0.

        Example:
            first, end = reservoir.run(series[:500])
            second, _ = reservoir.run(series[500:], start=end)   # as in one call with all inputs
        """
        if self.reads_tokens:
            raise InputError("this reservoir reads tokens: call states")
        outputs, end = self._drive(self._sequence(inputs)[:, :, None], start)
        return outputs[:, 0], [np.array(state) for state in end]  # writable arrays

    def lyapunov_exponent(self, inputs: np.ndarray, *, washout: int = 100) -> float:
        """Computes the largest Lyapunov exponent for ids (T,) or numbers (T, D), in nats per step.

        Below 0, the reservoir forgets its states; above 0, it is chaotic. Leaves out the first
        `washout` time steps.
        """
        sequence = self._sequence(inputs)[..., None]
        if not 0 <= washout < len(sequence):
            raise InputError(
                f"washout is {washout}: it must be below the {len(sequence)} time steps"
            )
        with jax.enable_x64(not self.reads_tokens):
            cell = self.cell.for_device("bcoo") if self.reads_tokens else self._in_float64()
            return float(contraction.largest_exponent(cell, sequence, washout)[0])

    def check_named(self, done: str) -> None:
        """Raises InputError if a function of the reservoir is not registered by name."""
        for kind in ("activation", "update_rule"):
            name = getattr(self.settings, kind)
            if functions.is_anonymous(name):
                raise InputError(
                    f"{kind} {name} is not registered: it cannot be {done}; write @esnlm.{kind}"
                    " above its def"
                )

    def __getstate__(self) -> dict:
        self.check_named("pickled")
        return {
            "settings": self.settings,
            "arrays": jax.tree.map(np.asarray, self.cell.arrays()),
            "reads_tokens": self.reads_tokens,
            "size": self.input_size,
        }

    def __setstate__(self, state: dict) -> None:
        settings = state["settings"]
        functions.check_registered("activation", settings.activation)
        functions.check_registered("update_rule", settings.update_rule)
        cell = cells.from_arrays(state["arrays"], state["size"], **settings.dynamics)
        self.__dict__.update(settings=settings, cell=cell, reads_tokens=state["reads_tokens"])

    @in_float32
    def _token_states(self, sequences: list[np.ndarray]) -> list[np.ndarray]:
        states, windows = [], read_by_tokens(sequences, self._stream.capacity)
        for buffer, rows in self._stream.read_windows(windows):
            host = np.asarray(buffer)
            states += [host[each] for each in rows]
        return states

    def _number_states(self, sequences: list[np.ndarray]) -> list[np.ndarray]:
        """Reads sequences of similar lengths side by side."""
        states = [np.empty(0)] * len(sequences)
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        while order:
            longest = 2 * len(sequences[order[0]])
            most = max(1, MOST_BYTES // (8 * longest * self.cell.output_size))
            batch = [i for i in order[:most] if len(sequences[i]) <= longest]
            order = order[len(batch) :]
            inputs = np.zeros((len(sequences[batch[-1]]), self.input_size, len(batch)))
            for slot, i in enumerate(batch):
                inputs[: len(sequences[i]), :, slot] = sequences[i]
            outputs, _ = self._drive(inputs)
            for slot, i in enumerate(batch):
                states[i] = outputs[: len(sequences[i]), slot].copy()
        return states

    def _drive(
        self, inputs: np.ndarray, start: list[np.ndarray] | None = None
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns the outputs (T, B, F) and the last state of each layer, (N, B), in float64.

        Inputs are (T, D, B). Runs on the host, which finishes a series before JAX would have
        compiled its program.
        """
        slots, size = inputs.shape[2], self.state_size
        recurrence = HostRecurrence(self._on_host, slots, start)
        outputs = np.empty((len(inputs), slots, self.cell.output_size))
        for t, vectors in enumerate(inputs):
            for i, output in enumerate(recurrence.read(vectors)):
                outputs[t, :, i * size : (i + 1) * size] = output.T
        return outputs, recurrence.states

    def _in_float64(self) -> cells.ReservoirLayer | cells.Stack:
        """Returns the cell for numbers, with float64 arrays."""
        layers = [layer.for_device(reads_tokens=False) for layer in self.cell.layers]
        return jax.tree.map(
            lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x,
            layers[0] if len(layers) == 1 else cells.Stack(layers),
        )

    @cached_property
    def _on_host(self) -> list[HostLayer]:
        return host_layers(self.cell, np.float64, reads_tokens=False)

    @cached_property
    def _stream(self) -> FeatureStream:
        slots = default_batch_slots(self.state_size, backend())
        most = max(1, MOST_BYTES // (4 * self.cell.output_size))  # tokens
        return FeatureStream(self.cell.for_device(), slots, most)

    def _sequence(self, sequence: Any) -> np.ndarray:
        """Returns a sequence as an array, (T,) int32 or (T, D) float64."""
        array = np.asarray(sequence)
        if self.reads_tokens:
            if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
                raise InputError(
                    f"a sequence of shape {array.shape} and type {array.dtype}: give (T,) of token"
                    " ids, np.array(ids) for one sequence, or [ids]"
                )
            if array.min() < 0 or array.max() >= self.input_size:
                raise InputError(f"a sequence has an id outside 0 .. {self.input_size - 1}")
            return array.astype(np.int32)
        if (
            array.ndim != 2
            or array.shape[1] != self.input_size
            or array.dtype.kind not in "fiub"
            or not len(array)
        ):
            hint = "; give u[:, None]" if array.ndim == 1 and self.input_size == 1 else ""
            raise InputError(
                f"a sequence has shape {array.shape}: give (T, {self.input_size}) of real"
                f" numbers{hint}"
            )
        # for one time step, half the time of `all`
        if np.count_nonzero(np.isfinite(array)) < array.size:
            raise InputError("a sequence has a number that is not finite")
        return array.astype(np.float64)

    def _one_layer(self) -> cells.ReservoirLayer:
        if not isinstance(self.cell, cells.ReservoirLayer):
            raise InputError(
                f"this reservoir has {len(self.cell.layers)} layers: see .cell.layers[i]"
            )
        return self.cell


def input_scales(scale: Any, inputs: int) -> np.ndarray:
    """Returns the scale of each input, (D,), for one number or (D,)."""
    try:
        array = np.asarray(scale, np.float64)
    except (TypeError, ValueError):
        array = np.array([np.nan])
    if array.shape not in ((), (inputs,)) or not (np.isfinite(array) & (array >= 0)).all():
        raise InputError(
            f"input_scale is {scale!r}: give one number, or one for each of the {inputs} inputs, at"
            " least 0"
        )
    return np.broadcast_to(array, inputs)


def _function_names(activation: str | Callable, update_rule: str | Callable) -> dict[str, Any]:
    """Returns the settings that name these functions."""
    return {
        "activation": functions.name_of("activation", activation),
        "update_rule": functions.name_of("update_rule", update_rule),
    }


def _topology(topology: str | Topology | dict | Callable) -> Any:
    """Returns a topology or its settings.

    An unregistered function becomes a topology with a name in angle brackets.
    """
    if isinstance(topology, str):
        return {"kind": topology}
    if not callable(topology):
        return topology
    known: Any
    for known in TOPOLOGIES.values():
        if getattr(known, "function", None) is topology:
            return known()
    kind = f"<{getattr(topology, '__name__', 'function').strip('<>')}>"
    registered: Any = register(kind, topology)
    del TOPOLOGIES[kind]
    return registered()


def _matrix(name: str, values: Any, rows: int, columns: int) -> Matrix:
    """Converts a NumPy or SciPy matrix to a reservoir's format: float32, BCOO or dense."""
    matrix = checked_matrix(name, values, (rows, columns))
    if matrix.nnz >= DENSE_FROM * rows * columns:
        return matrix.toarray()
    return bcoo(matrix.data, np.stack(matrix.coords, axis=1).astype(np.int32), (rows, columns))


def _entries(matrix: Matrix) -> np.ndarray:
    return np.asarray(matrix.data if isinstance(matrix, BCOO) else matrix)


def _radius(matrix: Matrix) -> float:
    return radius_of(as_scipy(matrix), seed=seed_sequence(0, Stream.SPECTRAL_START)).radius


def _scaled(matrix: Matrix, radius: float | None) -> tuple[Matrix, float]:
    """Returns W_rec, scaled to a spectral radius unless it is None, and its radius."""
    current = _radius(matrix)
    if radius is None:
        return matrix, current
    if not (radius > 0 and current > 0):
        raise InputError(
            f"spectral_radius is {radius}: w_rec has the radius {current}; both must be above 0"
        )
    return scale(matrix, radius / current), radius
