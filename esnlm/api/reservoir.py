"""A reservoir in the hand: drawn, looked at, changed, and run over tokens or numbers.

It holds the reservoir that training runs (reservoir/cell.py) and the settings that a run writes down for it
(reservoir/weights.py). Nothing is changed in place: `replace` returns another reservoir.
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from flax import nnx
from jax.experimental.sparse import BCOO

from esnlm.compute import backend, default_batch_slots, in_float32
from esnlm.data.tokenizer import Tokenizer
from esnlm.diagnosis import lyapunov
from esnlm.errors import InputError, whole_number
from esnlm.features.stream import FeatureStream
from esnlm.loaded_run import Run
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir import cell as cells
from esnlm.reservoir import functions, weights
from esnlm.reservoir.arrays import Matrix, as_scipy, bcoo, checked_matrix
from esnlm.reservoir.spectrum import spectral_radius as radius_of
from esnlm.reservoir.topology import TOPOLOGIES, Topology
from esnlm.reservoir.topology.function import register
from esnlm.reservoir.topology.given import Given
from esnlm.reservoir.weights import DENSE_FROM, ReservoirConfig
from esnlm.rng import Stream, check_seed, seed_sequence
from esnlm.settings import build

MOST_BYTES = 256 << 20  # of states that are computed at once
HOST_ACTIVATIONS: dict[str, Callable] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
Shown: TypeAlias = scipy.sparse.csr_array | np.ndarray  # sparse, or dense from a connectivity of 1/4 on


@dataclass(frozen=True, eq=False)
class Reservoir:
    """W_rec, W_in and the leaks, and the functions that run them. `draw`, `from_matrices` and `of` make one.

    A setting, matrix or sequence that cannot be used raises an InputError that names it.
    """

    settings: ReservoirConfig  # what a run's config.yaml says of it
    cell: cells.Reservoir | cells.Stack  # what training runs
    reads_tokens: bool  # False: it reads vectors of real numbers

    # ---- making one ----

    @classmethod
    def draw(
        cls,
        state_size: int,
        *,
        vocabulary: int | Tokenizer | None = None,
        inputs: int | None = None,
        leak: float | tuple[float, float] = (0.0, 1.0),
        topology: str | Topology | dict | Callable = "erdos_renyi",
        activation: str | Callable = "tanh",
        update_rule: str | Callable = "leaky_output",
        seed: int = 0,
        **settings: Any,
    ) -> "Reservoir":
        """Draws a reservoir. The same arguments give the same one, and a training of these settings the same, too.

        Args:
            state_size: N, units of a layer.
            vocabulary: V, token ids that it reads, or a tokenizer that has them. Give this or `inputs`.
            inputs: D, real numbers that it reads at each time step.
            leak: a of every unit, or the ends of the interval that it is drawn from.
            topology: of W_rec: a name such as "ring", {"kind": "small_world", "degree": 8}, or a function
                (state_size, rng) -> (N, N), see `esnlm.topology`.
            activation, update_rule: f and the equation of a time step: names such as "relu" and "leaky_membrane", or
                functions, see `esnlm.activation` and `esnlm.update_rule`.
            settings: any other setting of `model.reservoir` (docs/settings.md): spectral_radius=0.99, input_scale, layers, ...
                Without it mean_degree is at most N, and input_connectivity for numbers is 1.

        Example:
            esnlm.Reservoir.draw(1024, vocabulary=8192, topology="ring", leak=0.5)
        """
        if (vocabulary is None) == (inputs is None):
            raise InputError("give vocabulary, for tokens, or inputs, for numbers, and not both")
        name = "vocabulary" if inputs is None else "inputs"
        given = vocabulary.vocab_size if isinstance(vocabulary, Tokenizer) else vocabulary or inputs or 0
        if (size := whole_number(name, given)) < 1:
            raise InputError(f"{name} is {size}: give a whole number above 0")
        check_seed(seed)
        backend()  # It says in a line if JAX finds no device.
        low, high = (leak, leak) if np.ndim(leak) == 0 else tuple(leak)  # type: ignore[arg-type]
        tree: dict[str, Any] = {"state_size": state_size, "leak_min": low, "leak_max": high}
        tree |= {"mean_degree": float(min(32, max(1, state_size))), **settings, "topology": _topology(topology)}
        if inputs is not None:
            tree.setdefault("input_connectivity", 1.0)
        config = build(ReservoirConfig, tree | _named(activation, update_rule), "reservoir.")
        cell = weights.initialize_reservoir(config, size, seed).reservoir
        if functions.is_anonymous(config.topology.kind):  # no other process could draw it
            nonzeros = sum(layer.nonzeros[0] for layer in cell.layers) // len(cell.layers)
            config = dataclasses.replace(config, topology=Given(nonzeros=nonzeros))
        return cls(config, cell, inputs is None)

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
        """Makes a reservoir of matrices of one's own.

        Args:
            w_rec: W_rec (N, N), of NumPy or SciPy. It is taken as it is, in float32.
            w_in: W_in (N, V) for tokens, a column a token, or (N, D) for numbers.
            leak: a, one number or (N,), in [0, 1].
            reads_tokens: whether it reads tokens, or else vectors of numbers.
            activation, update_rule: as in `draw`.

        Example:
            esnlm.Reservoir.from_matrices(0.9 * np.eye(3), np.ones((3, 1)), 0.5, reads_tokens=False)
        """
        if np.ndim(w_rec) != 2 or np.ndim(w_in) != 2:
            shapes = f"w_rec has the shape {np.shape(w_rec)} and w_in {np.shape(w_in)}"
            raise InputError(f"{shapes}: give (N, N) and (N, columns)")
        backend()
        size, columns = np.shape(w_rec)[0], np.shape(w_in)[1]
        named = _named(activation, update_rule)
        config = ReservoirConfig(state_size=size, topology=Given(), input_connectivity=1.0, **named)
        # sparse: dense zeros may be gigabytes where the matrices are not
        entries = np.zeros(0, np.float32), np.zeros((0, 2), np.int32)
        matrices = bcoo(*entries, (size, size)), bcoo(*entries, (size, columns))
        blank = cls(config, cells.Reservoir(*matrices, np.ones(size, np.float32), **config.dynamics), reads_tokens)
        return blank.replace(w_rec=w_rec, w_in=w_in, leak=leak)

    @classmethod
    def of(cls, run: Run) -> "Reservoir":
        """Returns the reservoir of a run that `esnlm.load` has restored. W_in of an ESN+i is as it was trained, and frozen here.

        Example:
            reservoir = esnlm.Reservoir.of(esnlm.load("runs/quickstart"))
        """
        config = run.config.model
        if not isinstance(config, EchoStateConfig):
            raise InputError(f"{run.name}: a model of family {config.family} is no echo state network")
        cell = run.model.reservoir  # type: ignore[attr-defined]
        return cls(config.reservoir, cell.with_frozen_input() if config.train_input else cell, True)

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
        """Returns the same reservoir with some parts replaced; what is None stays.

        Args:
            w_rec: W_rec (N, N), of NumPy or SciPy.
            w_in: W_in (N, V), or (N, D) for numbers or behind an embedding.
            leak: a, one number or (N,), in [0, 1].
            spectral_radius: to which W_rec is scaled, after it was replaced.
            activation, update_rule: as in `draw`.

        Raises:
            InputError: a matrix or leak cannot be used, or there are several layers.

        Example:
            reservoir = reservoir.replace(w_rec=abs(reservoir.w_rec), spectral_radius=0.95)  # no inhibition
        """
        old, config = self._one_layer(), self.settings
        changes = _named(activation or config.activation, update_rule or config.update_rule)
        recurrent, into, a = old.stored_w_rec, old.stored_w_in, np.asarray(old.leak[...])
        if w_rec is not None:
            recurrent = _matrix("w_rec", w_rec, old.state_size, old.state_size)
            changes |= {"topology": Given(nonzeros=int(np.count_nonzero(_entries(recurrent)))), "connectivity": None}
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
                raise InputError("leak: in continuous time it would change the decay, too; draw another reservoir")
            a = np.asarray(leak, np.float32)
            if a.shape not in ((), (old.state_size,)) or not ((a >= 0) & (a <= 1)).all():
                raise InputError(f"leak has the shape {a.shape}: give one number or ({old.state_size},), in [0, 1]")
            a = np.broadcast_to(a, old.state_size).copy()
            changes |= {"leak_min": float(a.min()), "leak_max": float(a.max())}
            changes |= {"leak_spacing": "uniform", "continuous": None}
        config = dataclasses.replace(config, **changes)
        functions.check_own_functions(config.activation, config.update_rule, old.state_size)
        embedding = None if old.embedding is None else np.asarray(old.embedding[...])
        return Reservoir(config, cells.Reservoir(recurrent, into, a, embedding, **config.dynamics), self.reads_tokens)

    # ---- looking at it ----

    @property
    def state_size(self) -> int:
        """N, the units of a layer."""
        return self.settings.state_size

    @property
    def input_size(self) -> int:
        """V, the token ids that it reads, or D, the numbers."""
        return self.cell.layers[0].vocab_size

    @property
    def w_rec(self) -> Shown:
        """W_rec, (N, N) float32: a copy, a SciPy matrix, or an array if a quarter or more of it is not 0."""
        return _shown(self._one_layer().stored_w_rec)

    @property
    def w_in(self) -> Shown:
        """W_in, (N, V) float32, or (N, D) for numbers or behind an embedding: a copy, as `w_rec`."""
        return _shown(self._one_layer().stored_w_in)

    @property
    def leak(self) -> np.ndarray:
        """a, (N,) float32: a copy."""
        return np.array(self._one_layer().leak[...])

    def measured_radius(self) -> float:
        """Computes the spectral radius of W_rec as it is, in float64 (reservoir/spectrum.py)."""
        return _radius(self._one_layer().stored_w_rec)

    def __repr__(self) -> str:
        of = f"{self.input_size:,} {'tokens' if self.reads_tokens else 'numbers'}"
        units = f"{self.state_size:,}" if self.settings.layers == 1 else f"{self.settings.layers} x {self.state_size:,}"
        return f"<Reservoir of {units} units, {self.settings.topology.kind}, reads {of}>"

    # ---- running it ----

    def states(self, inputs: Any, *, washout: int = 0) -> Any:
        """Returns the states after each time step of one or more sequences, each from the state 0.

        Args:
            inputs: an array (T,) of token ids, or (T, D) of numbers; or a list of such, or one array (n, T, D).
            washout: time steps that are left out at the beginning of each sequence.

        Returns:
            (T - washout, F), or a list of such if several sequences were given. F is N, of several layers L N. They are float32
            for tokens, as in training, and float64 for numbers.

        Example:
            reservoir.states([np.array([5, 17, 3]), np.array([8])])
        """
        alone = not isinstance(inputs, list | tuple) and np.ndim(inputs) <= (1 if self.reads_tokens else 2)
        sequences = [self._sequence(each) for each in ([inputs] if alone else inputs)]
        if not 0 <= washout < min(map(len, sequences), default=0):
            raise InputError(f"washout is {washout}: it must leave a time step of each sequence, and there must be one")
        found = self._token_states(sequences) if self.reads_tokens else self._number_states(sequences)
        found = [states[washout:] for states in found]
        return found[0] if alone else found

    def run(self, inputs: np.ndarray, start: Any = None) -> tuple[np.ndarray, Any]:
        """Reads one sequence of numbers and returns its states, (T, F) float64, and what to go on from.

        Args:
            inputs: (T, D).
            start: what an earlier call returned; None: the state 0.

        Example:
            first, end = reservoir.run(series[:500])
            second, _ = reservoir.run(series[500:], start=end)   # as if the two had been one
        """
        if self.reads_tokens:
            raise InputError("this reservoir reads tokens: call states")
        outputs, end = self._drive(self._sequence(inputs)[:, :, None], start)
        return outputs[:, 0], jax.tree.map(np.array, end)  # arrays that can be written to

    def lyapunov_exponent(self, inputs: np.ndarray, *, washout: int = 100) -> float:
        """Computes the largest Lyapunov exponent under an input (T,) of ids or (T, D) of numbers, in nats a time step.

        Below 0 the reservoir forgets its states, above 0 it is chaotic. The first `washout` time steps are left out.
        """
        sequence = self._sequence(inputs)[..., None]
        if not 0 <= washout < len(sequence):
            raise InputError(f"washout is {washout}: it must leave a time step of {len(sequence)}")
        with jax.enable_x64(not self.reads_tokens):
            cell = self.cell.for_device("bcoo") if self.reads_tokens else self._double
            return float(lyapunov.largest_exponent(cell, sequence, washout)[0])

    def require_named(self, done: str) -> None:
        """Raises InputError if the reservoir has a function that no other process could find by its name."""
        for kind in ("activation", "update_rule"):
            name = getattr(self.settings, kind)
            if functions.is_anonymous(name):
                advice = f"write @esnlm.{kind} above its def"
                raise InputError(f"{kind} {name} is not registered: it cannot be {done}; {advice}")

    def __getstate__(self) -> dict:
        self.require_named("pickled")
        arrays = jax.tree.map(np.asarray, self.cell.arrays())
        return {"settings": self.settings, "arrays": arrays, "reads_tokens": self.reads_tokens, "size": self.input_size}

    def __setstate__(self, state: dict) -> None:
        settings = state["settings"]
        functions.require_registered("activation", settings.activation)
        functions.require_registered("update_rule", settings.update_rule)
        cell = cells.from_arrays(state["arrays"], state["size"], **settings.dynamics)
        self.__dict__.update(settings=settings, cell=cell, reads_tokens=state["reads_tokens"])

    @in_float32
    def _token_states(self, sequences: list[np.ndarray]) -> list[np.ndarray]:
        most = max(1, MOST_BYTES // (4 * self.cell.output_size))  # tokens
        window = np.cumsum([0, *map(len, sequences)])[:-1] // most
        found = []
        for number in np.unique(window):
            buffer, rows = self._stream.read([sequences[i] for i in np.flatnonzero(window == number)])
            host = np.asarray(buffer)
            found += [host[each] for each in rows]
        return found

    def _number_states(self, sequences: list[np.ndarray]) -> list[np.ndarray]:
        """Reads sequences of like lengths side by side."""
        found = [np.empty(0)] * len(sequences)
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        while order:
            steps = 2 * len(sequences[order[0]])
            most = max(1, MOST_BYTES // (8 * steps * self.cell.output_size))
            here = [i for i in order if len(sequences[i]) <= steps][:most]
            order = order[len(here) :]
            laid = np.zeros((len(sequences[here[-1]]), self.input_size, len(here)))
            for slot, i in enumerate(here):
                laid[: len(sequences[i]), :, slot] = sequences[i]
            outputs, _ = self._drive(laid)
            for slot, i in enumerate(here):
                found[i] = outputs[: len(sequences[i]), slot].copy()
        return found

    def _drive(self, inputs: np.ndarray, start: list[np.ndarray] | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns the outputs (T, B, F) and the last state of each layer, (N, B), of inputs (T, D, B), in float64.

        The host computes them: it has run a series before JAX has compiled a program for it.
        """
        blank = np.zeros((self.state_size, inputs.shape[2]))
        states = [blank] * self.settings.layers if start is None else list(start)
        outputs = np.empty((len(inputs), inputs.shape[2], self.cell.output_size))
        with nullcontext() if self._is_built_in else jax.enable_x64(True):
            seen = [output(state) for (_, output, _, _), state in zip(self._on_host, states, strict=True)]
            for t, below in enumerate(inputs):
                for i, (step, output, w_rec, w_in) in enumerate(self._on_host):
                    states[i] = step(states[i], w_rec @ seen[i] + w_in @ below)
                    below = seen[i] = np.asarray(output(states[i]))
                    outputs[t, :, i * len(below) : (i + 1) * len(below)] = below.T
        return outputs, states

    @cached_property
    def _double(self) -> cells.Reservoir | cells.Stack:
        """The same cell, ready for numbers, with arrays of float64."""
        layers = [layer.for_device(reads_tokens=False) for layer in self.cell.layers]
        ready: Any = layers[0] if len(layers) == 1 else cells.Stack(layers)
        graphdef, state = nnx.split(ready)

        def double(x: Any) -> Any:
            return jnp.asarray(np.asarray(x, np.float64)) if jnp.issubdtype(x.dtype, jnp.floating) else x

        return nnx.merge(graphdef, jax.tree.map(double, state))

    @property
    def _is_built_in(self) -> bool:
        return functions.is_built_in(self.settings.activation) and functions.is_built_in(self.settings.update_rule)

    @cached_property
    def _on_host(self) -> list[tuple]:
        """Step, output, W_rec and W_in of each layer for `_drive`: by NumPy, or compiled if a function is one's own, in float64."""
        found, built_in = [], self._is_built_in
        for layer in self.cell.layers:
            f = HOST_ACTIVATIONS[layer.activation] if built_in else layer.f
            leak = np.asarray(layer.leak[...], np.float64)[:, None]
            step = partial(layer.rule.step, leak=leak, f=f, decay=layer.decay)
            equations: list[Any] = [step, partial(layer.rule.output, f=f)]
            matrices = as_scipy(layer.stored_w_rec), as_scipy(layer.stored_w_in)
            found.append((*(equations if built_in else map(jax.jit, equations)), *matrices))
        return found

    @cached_property
    def _stream(self) -> FeatureStream:
        slots = default_batch_slots(self.state_size, backend())
        return FeatureStream(self.cell.for_device(), slots, 1024)

    def _sequence(self, given: Any) -> np.ndarray:
        """Returns a sequence as an array, (T,) int32 or (T, D) float64."""
        array = np.asarray(given)
        if self.reads_tokens:
            if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
                rule = "give (T,) of token ids, np.array(ids) for one sequence, or [ids]"
                raise InputError(f"a sequence of shape {array.shape} and type {array.dtype}: {rule}")
            if array.min() < 0 or array.max() >= self.input_size:
                raise InputError(f"a sequence has an id outside 0 .. {self.input_size - 1}")
            return array.astype(np.int32)
        if array.ndim != 2 or array.shape[1] != self.input_size or array.dtype.kind not in "fiub" or not len(array):
            hint = "; give u[:, None]" if array.ndim == 1 and self.input_size == 1 else ""
            shape = f"(T, {self.input_size})"
            raise InputError(f"a sequence of shape {array.shape}: it must be {shape}, of real numbers{hint}")
        if not np.isfinite(array).all():
            raise InputError("a sequence holds a number that is not finite")
        return array.astype(np.float64)

    def _one_layer(self) -> cells.Reservoir:
        if not isinstance(self.cell, cells.Reservoir):
            raise InputError(f"this reservoir has {len(self.cell.layers)} layers: see .cell.layers[i]")
        return self.cell


def _named(activation: str | Callable, update_rule: str | Callable) -> dict[str, Any]:
    """Returns the settings that name these functions."""
    given = {"activation": activation, "update_rule": update_rule}
    return {kind: functions.name_of(kind, each) for kind, each in given.items()}


def _topology(given: str | Topology | dict | Callable) -> Any:
    """Returns a topology, or its settings. A function that nobody registered makes one under a name in angle brackets."""
    if isinstance(given, str):
        return {"kind": given}
    if not callable(given):
        return given
    known: Any
    for known in TOPOLOGIES.values():
        if getattr(known, "function", None) is given:
            return known()
    kind = f"<{getattr(given, '__name__', 'function').strip('<>')}>"
    made: Any = register(kind, given)
    del TOPOLOGIES[kind]
    return made()


def _matrix(name: str, given: Any, rows: int, columns: int) -> Matrix:
    """Returns a matrix of NumPy or SciPy as a reservoir holds it: float32, BCOO or dense."""
    found = checked_matrix(name, given, (rows, columns))
    if found.nnz >= DENSE_FROM * rows * columns:
        return found.toarray()
    return bcoo(found.data, np.stack(found.coords, axis=1).astype(np.int32), (rows, columns))


def _entries(matrix: Matrix) -> np.ndarray:
    return np.asarray(matrix.data if isinstance(matrix, BCOO) else matrix)


def _radius(matrix: Matrix) -> float:
    return radius_of(as_scipy(matrix), seed=seed_sequence(0, Stream.SPECTRAL_START)).radius


def _scaled(matrix: Matrix, asked: float | None) -> tuple[Matrix, float]:
    """Returns W_rec, scaled if a spectral radius is asked for, and its radius."""
    found = _radius(matrix)
    if asked is None:
        return matrix, found
    if not (asked > 0 and found > 0):
        raise InputError(f"spectral_radius is {asked}: w_rec has the radius {found}; both must be above 0")
    scale = np.float32(asked / found)
    if isinstance(matrix, BCOO):
        return bcoo(np.asarray(matrix.data) * scale, matrix.indices, matrix.shape), asked
    return np.asarray(matrix) * scale, asked


def _shown(matrix: Matrix) -> Shown:
    """Returns a copy of SciPy or NumPy, float32."""
    return as_scipy(matrix).astype(np.float32)
