"""A reservoir in the hand: drawn, looked at, changed, and run over tokens or numbers.

What is held is the reservoir that training runs (reservoir/cell.py) and the settings that a run writes down for it
(reservoir/weights.py). Nothing is changed in place: `replace` returns another reservoir.

Example:
    reservoir = esnlm.Reservoir.draw(1024, vocabulary=8192, spectral_radius=0.99, leak=(0, 1), seed=0)
    reservoir.states([np.array([5, 17, 3])])[0].shape        # (3, 1024)
    series = esnlm.Reservoir.draw(400, inputs=1, spectral_radius=0.9, leak=0.5)
    series.states(np.sin(np.arange(1000))[:, None]).shape    # (1000, 400)
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from flax import nnx
from jax.experimental.sparse import BCOO

from esnlm.compute import in_float32
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import require, whole_number
from esnlm.features import recurrence
from esnlm.features.stream import FeatureStream, default_batch_slots
from esnlm.library import parts
from esnlm.loaded_run import Run
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir import cell as cells
from esnlm.reservoir import functions, weights
from esnlm.reservoir.arrays import bcoo
from esnlm.reservoir.own_functions import check_own_functions
from esnlm.reservoir.topology import TOPOLOGIES, Topology
from esnlm.reservoir.topology.given import Given
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.rng import check_seed
from esnlm.settings import build

MOST_BYTES = 256 << 20  # of states that are computed at once


@dataclass(frozen=True, eq=False)
class Reservoir:
    """W_rec, W_in and the leaks, and the functions that run them. `draw` makes one; `from_matrices` and `of` do, too."""

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
        spectral_radius: float = 0.99,
        leak: float | tuple[float, float] = (0.0, 1.0),
        leak_spacing: str = "uniform",
        topology: str | Topology | dict | Callable = "erdos_renyi",
        mean_degree: float | None = None,
        connectivity: float | None = None,
        input_connectivity: float | None = None,
        input_scale: float = 1.0,
        activation: str | Callable = "tanh",
        update_rule: str | Callable = "leaky_output",
        diffusion: float = 0.001,
        embedding: int | None = None,
        layers: int = 1,
        seed: int = 0,
    ) -> "Reservoir":
        """Draws a reservoir. The same arguments give the same one, and a training of these settings the same, too.

        Args:
            state_size: N, units of a layer.
            vocabulary: V, token ids that it reads, or a tokenizer that has them. Give this or `inputs`.
            inputs: D, real numbers that it reads at each time step.
            spectral_radius: of W_rec.
            leak: a of every unit, or the ends of the interval that it is drawn from.
            leak_spacing: "uniform" in that interval, or "log": the logarithms are uniform.
            topology: of W_rec: a name such as "ring", {"kind": "small_world", "degree": 8}, an object of
                reservoir/topology, or a function (state_size, rng) -> (N, N), see `esnlm.topology`.
            mean_degree: d, nonzeros of a row of an erdos_renyi W_rec, and of a column of W_in for tokens; None: 32, or N where
                that is less. Other topologies have settings of their own for W_rec.
            connectivity: d / N, in place of d. Other topologies than erdos_renyi refuse it.
            input_connectivity: share of nonzeros of W_in; None: that of W_rec for tokens, and 1 for numbers.
            input_scale: standard deviation of W_in's nonzeros.
            activation: f: "tanh", "relu", or a function of an array, see `esnlm.activation`.
            update_rule: "leaky_output", "leaky_membrane", "euler_state", "residual_shift", or a function (state, drive, leak, f)
                -> state, see `esnlm.update_rule`.
            diffusion: how fast a state fades under "euler_state", which alone reads it.
            embedding: width of a frozen random embedding of the tokens; None: there is none.
            layers: reservoirs above each other. The states of all are given, side by side.
            seed: of all that is drawn.

        Raises:
            InputError: a setting that cannot be built, in one line.

        Example:
            esnlm.Reservoir.draw(1024, vocabulary=8192, topology="ring", leak=0.5)
        """
        require(
            (vocabulary is None) != (inputs is None),
            "give vocabulary, for tokens, or inputs, for numbers, and not both",
        )
        reads_tokens = inputs is None
        given: Any = inputs if vocabulary is None else vocabulary
        size = given.vocab_size if isinstance(given, Tokenizer) else given
        name, or_else = (
            ("vocabulary", " or a tokenizer, such as esnlm.tokenizer('gpt2')") if reads_tokens else ("inputs", "")
        )
        size = whole_number(name, size, f"it must be a whole number{or_else}")
        require(size >= 1, f"{name} is {size}: it must be at least 1")
        twice = mean_degree is not None and connectivity is not None
        require(not twice, f"give mean_degree, {mean_degree}, or connectivity, {connectivity}, and not both")
        require(reads_tokens or embedding is None, f"embedding is {embedding}: only tokens are embedded; leave it out")
        low, high = parts.interval(leak)
        above = leak_spacing != "log" or low > 0
        require(above, f"leak is {leak!r}: leak_spacing 'log' needs an interval above 0, such as leak=(0.01, 1)")
        numbers = {
            "state_size": state_size,
            "mean_degree": mean_degree,
            "connectivity": connectivity,
            "input_connectivity": 1.0 if input_connectivity is None and not reads_tokens else input_connectivity,
            "spectral_radius": spectral_radius,
            "input_scale": input_scale,
            "diffusion": diffusion,
            "embedding": embedding,
            "layers": layers,
            "leak_min": low,
            "leak_max": high,
            "leak_spacing": leak_spacing,
            "activation": functions.name_of("activation", activation),
            "update_rule": functions.name_of("update_rule", update_rule),
        }
        may_be_none = ("mean_degree", "connectivity", "input_connectivity", "embedding")
        numbers = {name: value for name, value in numbers.items() if value is not None or name not in may_be_none}
        if mean_degree is None and isinstance(state_size, int):
            numbers["mean_degree"] = float(min(32, max(1, state_size)))
        chosen, is_anonymous = parts.topology_of(topology)
        config = build(ReservoirConfig, numbers | {"topology": chosen}, "reservoir.")
        try:
            is_read = not chosen.has_own_density or (reads_tokens and input_connectivity is None)
            own = "".join(f", {each.name!r}: ..." for each in dataclasses.fields(chosen)[1:])
            advice = f", or give topology={{'kind': {chosen.kind!r}{own}}}" if own and not is_anonymous else ""
            require(
                mean_degree is None or is_read,
                f"mean_degree is {mean_degree}: topology {chosen.kind} has a density of its own; leave it out{advice}",
            )
            check_seed(seed)
            cell = weights.initialize_reservoir(config, size, seed).reservoir
        finally:
            if is_anonymous:
                TOPOLOGIES.pop(chosen.kind, None)  # another thread may have drawn with the same function
        if is_anonymous:  # whoever reads the settings could not call the function: they say that the matrix was given
            nonzeros = sum(layer.nonzeros[0] for layer in cell.layers) // len(cell.layers)
            config = dataclasses.replace(config, topology=Given(nonzeros=nonzeros))
        return cls(config, cell, reads_tokens)

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

        Raises:
            InputError: a shape does not fit, or an entry is not finite.

        Example:
            esnlm.Reservoir.from_matrices(0.9 * np.eye(3), np.ones((3, 1)), 0.5, reads_tokens=False)
        """
        size = np.shape(w_rec)[0] if np.ndim(w_rec) == 2 or scipy.sparse.issparse(w_rec) else 0
        require(size >= 1, f"w_rec has the shape {np.shape(w_rec)}: it must be (N, N)")
        columns = w_in.shape[1] if getattr(w_in, "ndim", 0) == 2 else (np.shape(w_in) + (0, 0))[1]
        require(columns >= 1, f"w_in has the shape {np.shape(w_in)}: it must be ({size}, columns)")
        config = ReservoirConfig(
            state_size=size,
            activation=functions.name_of("activation", activation),
            update_rule=functions.name_of("update_rule", update_rule),
            topology=Given(),
            input_connectivity=1.0,
        )
        # They are sparse: dense zeros may be gigabytes where the matrices are not.
        entries = np.zeros(0, np.float32), np.zeros((0, 2), np.int32)
        matrices = bcoo(*entries, (size, size)), bcoo(*entries, (size, columns))
        blank = cls(config, cells.Reservoir(*matrices, np.ones(size, np.float32), **config.dynamics), reads_tokens)
        return blank.replace(w_rec=w_rec, w_in=w_in, leak=leak)

    @classmethod
    def of(cls, run: Run) -> "Reservoir":
        """Returns the reservoir of a run that `esnlm.load` has restored. W_in of an ESN+i is as it was trained, and frozen here.

        Raises:
            InputError: the model has none.

        Example:
            reservoir = esnlm.Reservoir.of(esnlm.load("runs/quickstart"))
        """
        config = run.config.model
        require(
            isinstance(config, EchoStateConfig),
            f"{run.name}: a model of family {config.family} is no echo state network",
        )
        assert isinstance(config, EchoStateConfig)
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
            InputError: a shape does not fit, an entry is not finite, there are several layers, or a leak is given to a reservoir
                of continuous time whose decay is not 1.

        Example:
            reservoir = reservoir.replace(w_rec=abs(reservoir.w_rec), spectral_radius=0.95)  # no inhibition
        """
        old, config = self._one_layer("changed"), self.settings
        changes: dict[str, Any] = {}
        recurrent, into, a = old.stored_w_rec, old.stored_w_in, np.asarray(old.leak[...])
        if w_rec is not None or spectral_radius is not None:
            recurrent = recurrent if w_rec is None else parts.matrix_of("w_rec", w_rec, old.state_size, old.state_size)
            recurrent, changes["spectral_radius"] = parts.scaled(recurrent, spectral_radius)
        if w_rec is not None:
            changes |= {"topology": Given(nonzeros=parts.nonzeros(recurrent)), "connectivity": None}
            changes["input_connectivity"] = config.input_gamma
        if w_in is not None:
            into = parts.matrix_of("w_in", w_in, old.state_size, old.input_size)
            entries = np.asarray(into.data if isinstance(into, BCOO) else into)
            entries = entries[entries != 0]
            require(len(entries) > 0, "w_in has no entry but 0: no input would reach the reservoir")
            share = len(entries) / (old.state_size * old.input_size)
            changes |= {
                "input_weights": "random",
                "input_connectivity": share,
                "input_scale": float(np.sqrt(np.mean(np.square(entries, dtype=np.float64)))),
            }
        if leak is not None:
            decay = 1.0 if config.continuous is None else config.continuous.decay
            apart = (
                f"leak: this reservoir has continuous.decay {decay:g}, and a leak alone would make it 1; draw another"
            )
            require(decay == 1, apart)
            a = parts.leaks(leak, old.state_size)
            changes |= {"leak_min": float(a.min()), "leak_max": float(a.max())}
            changes |= {"leak_spacing": "uniform", "continuous": None}
        if activation is not None:
            changes["activation"] = functions.name_of("activation", activation)
        if update_rule is not None:
            changes["update_rule"] = functions.name_of("update_rule", update_rule)
        config = dataclasses.replace(config, **changes)
        check_own_functions(config.activation, config.update_rule, old.state_size)
        embedding = None if old.embedding is None else np.asarray(old.embedding[...])
        return Reservoir(config, cells.Reservoir(recurrent, into, a, embedding, **config.dynamics), self.reads_tokens)

    # ---- looking at it ----

    @property
    def state_size(self) -> int:
        """N, the units of a layer."""
        return self.settings.state_size

    @property
    def features(self) -> int:
        """F = L N, the numbers of a state: the units of all layers."""
        return self.cell.output_size

    @property
    def input_size(self) -> int:
        """V, the token ids that it reads, or D, the numbers."""
        return self.cell.layers[0].vocab_size

    @property
    def w_rec(self) -> parts.Shown:
        """W_rec, (N, N) float32: a copy, a SciPy matrix, or an array where a quarter or more of it is not 0."""
        return parts.shown(self._one_layer("shown").stored_w_rec)

    @property
    def w_in(self) -> parts.Shown:
        """W_in, (N, V) float32, or (N, D) for numbers or behind an embedding: a copy, as `w_rec`."""
        return parts.shown(self._one_layer("shown").stored_w_in)

    @property
    def leak(self) -> np.ndarray:
        """a, (N,) float32: a copy."""
        return np.array(self._one_layer("shown").leak[...])

    def measured_radius(self) -> float:
        """Computes the spectral radius of W_rec as it is, in float64 (reservoir/spectrum.py)."""
        return parts.radius(self._one_layer("measured").stored_w_rec)

    def __repr__(self) -> str:
        of = f"{self.input_size:,} tokens" if self.reads_tokens else f"{self.input_size} numbers"
        units = f"{self.state_size:,}" if self.settings.layers == 1 else f"{self.settings.layers} x {self.state_size:,}"
        return f"<Reservoir of {units} units, {self.settings.topology.kind}, reads {of}>"

    # ---- running it ----

    def states(self, inputs: Any, *, washout: int = 0) -> Any:
        """Returns the states after each time step of one or more sequences, each from the state 0.

        Args:
            inputs: for tokens an int array (T,) of ids, or a list of such. `tokenizer.encode` returns a list of ids: give
                np.array(ids), or [ids] for a list of one. For numbers an array (T, D), or a list of such, or one array
                (n, T, D).
            washout: time steps that are left out at the beginning of each sequence.

        Returns:
            (T - washout, F), or a list of such where a list or (n, T, D) was given. They are float32 for tokens, as in
            training, and float64 for numbers.

        Raises:
            InputError: a sequence has the wrong shape, an id that is not in the vocabulary, a number that is not finite, or
                no time step after the washout.

        Example:
            reservoir.states([np.array([5, 17, 3]), np.array([8])])
        """
        sequences, alone = self._sequences(inputs)
        washout = whole_number("washout", washout, "give a whole number of time steps")
        for i, sequence in enumerate(sequences):
            require(
                0 <= washout < len(sequence), f"washout is {washout}: sequence {i} has {len(sequence)} time steps only"
            )
        found = self._token_states(sequences) if self.reads_tokens else self._number_states(sequences)
        found = [states[washout:] for states in found]
        return found[0] if alone else found

    def run(self, inputs: np.ndarray, start: Any = None) -> tuple[np.ndarray, Any]:
        """Reads one sequence of numbers and returns its states, (T, F) float64, and what to go on from.

        Args:
            inputs: (T, D).
            start: what an earlier call returned; None: the state 0.

        Raises:
            InputError: the reservoir reads tokens, there are several sequences, or the sequence or the start has the wrong shape.

        Example:
            first, end = reservoir.run(series[:500])
            second, _ = reservoir.run(series[500:], start=end)   # as if the two had been one
        """
        require(not self.reads_tokens, "this reservoir reads tokens: call states")
        try:
            one = np.asarray(inputs)
        except ValueError:  # of several lengths
            one = np.empty((0, 0, 0))
        require(one.ndim <= 2, f"run reads one sequence, an array (T, {self.input_size}): call states for several")
        (sequence,), _ = self._sequences(one)
        with jax.enable_x64(True):
            zeros = _zeros(self._double, 1)
            begin = zeros if start is None else start
            given, expected = ([np.shape(each) for each in jax.tree.leaves(state)] for state in (begin, zeros))
            line = f"start has arrays of the shapes {given}, and a state of this reservoir {expected}: give what its `run` returned"
            require(given == expected, line)
            numbers = [np.asarray(each, np.float64) for each in jax.tree.leaves(begin)]
            begin = jax.tree.unflatten(jax.tree.structure(zeros), numbers)
            outputs, end = recurrence.drive(self._double, jnp.asarray(sequence)[:, :, None], begin)
            # copies: JAX's own arrays cannot be written to
            return np.array(outputs)[:, 0], jax.tree.map(np.array, end)

    def __getstate__(self) -> dict:
        """Returns what a pickle holds: the settings, which must not name a function of this process only, and arrays."""
        parts.refuse_anonymous(self.settings, "pickled")
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
        most = max(1, MOST_BYTES // (4 * self.features))  # tokens
        window = np.cumsum([0, *map(len, sequences)])[:-1] // most
        found = []
        for number in np.unique(window):
            buffer, rows = self._stream.read([sequences[i] for i in np.flatnonzero(window == number)])
            host = np.asarray(buffer)
            found += [host[each] for each in rows]
        return found

    def _number_states(self, sequences: list[np.ndarray]) -> list[np.ndarray]:
        """Reads sequences of like lengths side by side, padded to few sizes, so that few programs are compiled."""
        found: list[Any] = [None] * len(sequences)
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        with jax.enable_x64(True):
            while order:
                steps = 1 << (len(sequences[order[0]]) - 1).bit_length()
                most = max(1, MOST_BYTES // (8 * steps * self.features))
                here = [i for i in order if len(sequences[i]) <= steps][:most]
                order = order[len(here) :]
                laid = np.zeros((steps, self.input_size, 1 << (len(here) - 1).bit_length()))
                for slot, i in enumerate(here):
                    laid[: len(sequences[i]), :, slot] = sequences[i]
                outputs, _ = recurrence.drive(self._double, jnp.asarray(laid), _zeros(self._double, laid.shape[2]))
                host = np.asarray(outputs)  # (T, B, F)
                for slot, i in enumerate(here):
                    found[i] = host[: len(sequences[i]), slot].copy()
        return found

    @cached_property
    def _stream(self) -> FeatureStream:
        slots = default_batch_slots(self.state_size, jax.default_backend())
        return FeatureStream(self.cell.for_device(), slots, 1024)

    @cached_property
    def _double(self) -> cells.Reservoir | cells.Stack:
        """The same cell, ready for numbers, with arrays of float64."""
        layers = [layer.for_device(reads_tokens=False) for layer in self.cell.layers]
        ready: Any = layers[0] if len(layers) == 1 else cells.Stack(layers)
        graphdef, state = nnx.split(ready)
        with jax.enable_x64(True):

            def double(x: Any) -> Any:
                return jnp.asarray(np.asarray(x, np.float64)) if jnp.issubdtype(x.dtype, jnp.floating) else x

            return nnx.merge(graphdef, jax.tree.map(double, state))

    def _sequences(self, inputs: Any) -> tuple[list[np.ndarray], bool]:
        """Checks sequences, and says whether one was given alone."""
        dimensions = 1 if self.reads_tokens else 2
        alone = not isinstance(inputs, list | tuple) and np.ndim(inputs) == dimensions
        several = isinstance(inputs, list | tuple) or np.ndim(inputs) > 0
        require(several, f"the sequence is {inputs!r}: give an array, or a list of such")
        given = [inputs] if alone else list(inputs)
        require(len(given) > 0, "there is no sequence: give at least one")
        hint = "; give u[:, None]" if self.input_size == 1 else ""
        flat = not self.reads_tokens and all(np.ndim(each) == 0 for each in given)
        require(
            not flat,
            f"the sequence has the shape ({len(given)},): it must be (T, {self.input_size}), of real numbers{hint}",
        )
        arrays = []
        for i, each in enumerate(given):
            try:
                array = np.asarray(each)
            except ValueError:
                array = np.empty((0, 0, 0, 0))
            if self.reads_tokens:
                # As `tokenizer.encode` returns ids. It is not taken as one sequence: what is returned for a list is a list.
                in_list = array.ndim == 0 and array.dtype.kind in "iu"
                require(
                    array.ndim == 1 and array.dtype.kind in "iu",
                    f"sequence {i} has the shape {array.shape} and the type {array.dtype}: it must be (T,) of token ids"
                    + ("; give np.array(ids) for one sequence, or [ids]" if in_list else ""),
                )
                inside = len(array) == 0 or (array.min() >= 0 and array.max() < self.input_size)
                require(inside, f"sequence {i} has an id outside 0 .. {self.input_size - 1}")
                array = array.astype(np.int32)
            else:
                fits = array.ndim == 2 and array.shape[1] == self.input_size and array.dtype.kind in "fiub"
                require(
                    fits,
                    f"sequence {i} has the shape {array.shape}: it must be (T, {self.input_size}), of real numbers"
                    + (hint if array.ndim == 1 else ""),
                )
                array = array.astype(np.float64)
                require(bool(np.isfinite(array).all()), f"sequence {i} holds a number that is not finite")
            require(len(array) > 0, f"sequence {i} is empty: give at least one time step")
            arrays.append(array)
        return arrays, alone

    def _one_layer(self, done: str) -> cells.Reservoir:
        require(
            isinstance(self.cell, cells.Reservoir),
            f"this reservoir has {len(self.cell.layers)} layers, which are not {done} as one; see .cell.layers[i]",
        )
        assert isinstance(self.cell, cells.Reservoir)
        return self.cell


def _zeros(cell: Any, slots: int) -> Any:
    return jax.tree.map(lambda x: np.zeros(x.shape), cell.initial_state(slots))
