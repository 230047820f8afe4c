"""The recurrent network with frozen weights: one layer (`ReservoirLayer`), or several (`Stack`).

Both are cells of features/recurrence.py. A reservoir is built and saved with BCOO matrices, or
dense ones from a connectivity of 1/4. To run it over a corpus, call `for_device`, which returns the
same module with the operands of fast kernels; results agree up to rounding.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.experimental.sparse import BCOO

from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import (
    Frozen,
    FrozenMatrix,
    Matrix,
    arrays_by_name,
    as_bcoo,
    matrix_from_arrays,
)
from esnlm.reservoir.functions import ACTIVATIONS, UPDATE_RULES


class TrainedInput(nnx.Module):
    """The trained W_in (N, V) of an ESN+i, one column per token, as in `sparse.TokenColumns`.

    For a sparse W_in `values` (V, K) are the entries of the columns, and `rows` (V, K) the units
    that they drive, N for padding. For a dense W_in `values` (V, N) is its transpose, and
    `connected` (V, N) a mask of the connections. Padding and entries without a connection have no
    gradient and stay 0.
    """

    def __init__(self, w_in: Matrix) -> None:
        value, index = sparse.prepare_columns(w_in)
        self.units = w_in.shape[0]
        self.nonzeros = w_in.nse if isinstance(w_in, BCOO) else _count_entries(w_in)
        self.values = nnx.Param(value)
        self.rows = None if index is None else Frozen(index)
        self.connected: Any = Frozen(value != 0) if index is None else None

    def add(self, total: jax.Array, tokens: jax.Array) -> jax.Array:
        """Returns `total` (N, B) + W_in u for tokens (B,)."""
        if self.connected is None:
            return sparse.add_columns(total, self._columns(), tokens)
        # Only the columns of these tokens are masked: masking all of W_in would write all of it,
        # and of its gradient.
        connected = self.connected.get_value()[tokens]  # (B, N)
        return total + jnp.where(connected, self.values[...][tokens], 0).T

    def matrix(self) -> Matrix:
        """Returns W_in (N, V), BCOO or dense."""
        return sparse.matrix_of_columns(self._columns(), self.units)

    def _columns(self) -> sparse.TokenColumns:
        return sparse.TokenColumns(self.values[...], None if self.rows is None else self.rows[...])


class TokenInput(nnx.Module):
    """A frozen W_in that reads tokens on a device."""

    def __init__(self, columns: sparse.TokenColumns) -> None:
        self.columns = Frozen(columns)

    def add(self, total: jax.Array, tokens: jax.Array) -> jax.Array:
        """Returns `total` (N, B) + W_in u for tokens (B,)."""
        return sparse.add_columns(total, self.columns.get_value(), tokens)


class VectorInput(nnx.Module):
    """A frozen W_in that reads vectors on a device: the outputs of the layer below, or tokens
    behind an embedding (V, D)."""

    def __init__(self, operand: Any, embedding: jax.Array | None) -> None:
        self.operand = Frozen(operand)
        self.embedding = None if embedding is None else Frozen(embedding)

    def add(self, total: jax.Array, tokens: jax.Array) -> jax.Array:
        """Returns `total` (N, B) + W_in e for the embeddings e of tokens (B,)."""
        assert self.embedding is not None
        return total + self.product(self.embedding[...][tokens].T)

    def product(self, vectors: jax.Array) -> jax.Array:
        """Returns W_in r, (N, B), for vectors r (D, B)."""
        return sparse.matmul(self.operand.get_value(), vectors)


class ReservoirLayer(nnx.Module):
    """One layer, with an update rule of reservoir/functions.py or a registered one.

    The readout reads the vector that feeds back, h or r.

    Args:
        w_rec: W_rec (N, N).
        w_in: W_in (N, V), or (N, D) with an embedding; (N, N) above the first layer.
        leak: a (N,).
        embedding: (D, V); its columns replace the one-hot vectors u. None: no embedding.
        activation: f, by its name in ACTIVATIONS (reservoir/functions.py).
        decay: alpha of the continuous-time form (Ueda et al. 2025b); under euler_state the
            diffusion gamma.
        update_rule: leaky_output, leaky_membrane or another name in UPDATE_RULES.
    """

    # of W_rec's product: float32, tf32 or bf16; `for_device` sets it
    state_precision: str = "float32"

    def __init__(
        self,
        w_rec: Matrix,
        w_in: Matrix,
        leak: np.ndarray,
        embedding: np.ndarray | None = None,
        *,
        activation: str = "tanh",
        decay: float = 1.0,
        update_rule: str = "leaky_output",
    ) -> None:
        self.state_size, self.input_size = int(w_in.shape[0]), int(w_in.shape[1])
        self.output_size = self.mask_size = self.state_size
        self.vocab_size = self.input_size if embedding is None else embedding.shape[1]
        # Static attributes are part of the key of a compiled program, the functions included: a
        # name may be registered again with another function.
        self.activation, self.f = activation, ACTIVATIONS[activation]
        self.update_rule, self.rule = update_rule, UPDATE_RULES[update_rule]
        self.decay = decay
        self.recurrent: Frozen = FrozenMatrix(w_rec)
        # or a TrainedInput; on a device a TokenInput, VectorInput or TrainedInput
        self.input: Any = FrozenMatrix(w_in)
        self.leak = Frozen(jax.device_put(leak))  # (N,)
        self.embedding = None if embedding is None else Frozen(jax.device_put(embedding))  # (D, V)

    # ---- the arrays, not available after `for_device` ----

    @property
    def layers(self) -> tuple["ReservoirLayer"]:
        """The only layer, as in a Stack."""
        return (self,)

    @property
    def w_rec(self) -> BCOO:
        """W_rec, (N, N) BCOO."""
        return as_bcoo(self.stored_w_rec)

    @property
    def w_in(self) -> BCOO:
        """W_in, (N, V) BCOO, or (N, D) with an embedding."""
        return as_bcoo(self.stored_w_in)

    @property
    def stored_w_rec(self) -> Matrix:
        """W_rec as stored, BCOO or dense."""
        return self.recurrent.get_value()

    @property
    def stored_w_in(self) -> Matrix:
        """W_in as stored, BCOO or dense."""
        if isinstance(self.input, TrainedInput):
            return self.input.matrix()
        return self.input.get_value()

    @property
    def nonzeros(self) -> tuple[int, int]:
        """Numbers of nonzeros in W_rec and W_in."""
        # The arrays of a trained input may be donated, so it has its own count.
        is_trained = isinstance(self.input, TrainedInput)
        w_in = self.input.nonzeros if is_trained else _count_entries(self.input.get_value())
        return _count_entries(self.stored_w_rec), w_in

    def arrays(self) -> dict:
        """Returns the arrays to save: {"recurrent": {"values", "indices"}, "input": {...}, "leak"},
        and "embedding"."""
        return arrays_by_name(self)

    # ---- the recurrence ----

    def initial_state(self, slots: int) -> jax.Array:
        return jnp.zeros((self.state_size, slots), jnp.float32)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        """Returns W_in u, (N, B), for tokens (B,) and dropout's mask (N, B)."""
        x = self.input.add(self.initial_state(len(tokens)), tokens)
        return x if keep is None else x * keep

    def advance(self, state: jax.Array, x: jax.Array) -> jax.Array:
        """Returns the state after one more token per slot, (N, B), for x = W_in u (N, B), with
        dropout applied to x.

        The state is the membrane potentials x under leaky_membrane, and h under the other rules.
        """
        return self._blend(state, self._feed_back(state) + x)

    def step(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        """Returns the result of `embed` and `advance` for tokens (B,), with one pass less over the
        states."""
        return self._blend(state, self.input.add(self._feed_back(state), tokens))

    def output(self, state: jax.Array) -> jax.Array:
        """Returns the vector that feeds back and that the readout reads, (N, B): h, or r = f(x)."""
        return self.rule.output(state, self.f)

    def activations(self, state: jax.Array, x: jax.Array) -> jax.Array:
        """Returns f(.) of `advance(state, x)`, (N, B), before the old state is mixed in. For
        built-in rules only."""
        if self.update_rule in ("leaky_output", "residual_shift"):
            return self.f(self._feed_back(state) + x)
        if self.update_rule == "euler_state":
            return self.f(self._feed_back(state) + x - self.decay * state)
        return self.output(self.advance(state, x))

    def for_device(
        self,
        kernel: str = "auto",
        *,
        state_precision: str = "float32",
        differentiable: bool = False,
        reads_tokens: bool = True,
    ) -> "ReservoirLayer":
        """Returns the same reservoir with the operands of a kernel.

        Args:
            kernel: kernel of the recurrent product; "auto" calls `sparse.choose_kernel`.
            state_precision: precision of W_rec's product; bf16 rounds the states before it. See
                `sparse.matmul`.
            differentiable: store the transposes of frozen matrices, too, for gradients through time
                and layers.
            reads_tokens: False above the first layer.
        """
        make = sparse.prepare_differentiable if differentiable else sparse.prepare
        w_rec = self.stored_w_rec
        if kernel == "auto":
            entries = w_rec.nse if isinstance(w_rec, BCOO) else w_rec.size
            backend = jax.default_backend()
            kernel = sparse.choose_kernel(self.state_size, entries, backend, state_precision)
        operand = make(w_rec, kernel)
        if state_precision == "bf16" and isinstance(operand, jax.Array) and not differentiable:
            operand = operand.astype(jnp.bfloat16)  # once, instead of at each time step
        ready = nnx.merge(*nnx.split(self))
        ready.state_precision = state_precision
        ready.recurrent = Frozen(operand)
        if isinstance(self.input, TrainedInput):
            return ready
        ready.embedding = None
        if reads_tokens and self.embedding is None:
            ready.input = TokenInput(sparse.prepare_columns(self.stored_w_in))
        else:
            embedding = None if self.embedding is None else self.embedding[...].T
            ready.input = VectorInput(make(self.stored_w_in, kernel), embedding)
        return ready

    def read_below(self, below: jax.Array) -> jax.Array:
        """Returns W_in r, (N, B), of the output r of the layer below."""
        return self.input.product(below)

    def _feed_back(self, state: jax.Array) -> jax.Array:
        """Returns W_rec h or W_rec r, (N, B)."""
        return sparse.matmul(self.recurrent.get_value(), self.output(state), self.state_precision)

    def _blend(self, state: jax.Array, drive: jax.Array) -> jax.Array:
        """Returns the new state from the old one and the drive, W_rec h + W_in u or W_rec r + W_in
        u, all (N, B)."""
        return self.rule.step(state, drive, self.leak[...][:, None], self.f, self.decay)


class Stack(nnx.Module):
    """Layers; each reads the new output of the layer below in the same time step, and the readout
    reads all outputs.

    `layers[0]` reads the tokens. A state is a tuple with one array per layer. Dropout masks W_in u
    of the first layer.
    """

    def __init__(self, layers: list[ReservoirLayer]) -> None:
        self.layers = nnx.List(layers)
        self.vocab_size = layers[0].vocab_size
        self.activation = layers[0].activation
        self.mask_size = layers[0].mask_size
        self.output_size = sum(layer.output_size for layer in layers)

    def arrays(self) -> dict:
        """Returns the arrays to save: {"layers": {"0": arrays of a ReservoirLayer, "1": ...}}."""
        return arrays_by_name(self)

    def initial_state(self, slots: int) -> tuple[jax.Array, ...]:
        return tuple(layer.initial_state(slots) for layer in self.layers)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        return self.layers[0].embed(tokens, keep)

    def advance(self, states: tuple[jax.Array, ...], x: jax.Array) -> tuple[jax.Array, ...]:
        return self._advance_above(self.layers[0].advance(states[0], x), states)

    def step(self, states: tuple[jax.Array, ...], tokens: jax.Array) -> tuple[jax.Array, ...]:
        return self._advance_above(self.layers[0].step(states[0], tokens), states)

    def output(self, states: tuple[jax.Array, ...]) -> jax.Array:
        """Returns the outputs of all layers, the first on top, (L N, B)."""
        return jnp.concatenate(
            [layer.output(state) for layer, state in zip(self.layers, states, strict=True)]
        )

    def activations(self, states: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
        """Returns the activations f(.) of all layers, (L N, B)."""
        new = self.advance(states, x)
        inputs = [x, *(self._read_below(i, new[i - 1]) for i in range(1, len(new)))]
        activations = [
            layer.activations(state, drive)
            for layer, state, drive in zip(self.layers, states, inputs, strict=True)
        ]
        return jnp.concatenate(activations)

    def for_device(self, kernel: str = "auto", **options: Any) -> "Stack":
        """Returns the same stack with the operands of a kernel, as for one layer."""
        layers = [
            layer.for_device(kernel, reads_tokens=i == 0, **options)
            for i, layer in enumerate(self.layers)
        ]
        return Stack(layers)

    def _advance_above(
        self, first: jax.Array, states: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
        """Returns the new states of all layers from the first layer's."""
        new = [first]
        for i in range(1, len(states)):
            new.append(self.layers[i].advance(states[i], self._read_below(i, new[i - 1])))
        return tuple(new)

    def _read_below(self, layer: int, below: jax.Array) -> jax.Array:
        """Returns W_in r of a layer for the state of the layer below."""
        return self.layers[layer].read_below(self.layers[layer - 1].output(below))


def from_arrays(arrays: dict, vocab_size: int, **settings: Any) -> ReservoirLayer | Stack:
    """Returns a reservoir or a stack from its saved arrays; the settings are keyword arguments of
    ReservoirLayer."""
    members = arrays.get("layers", {"0": arrays})
    layers, columns = [], vocab_size
    for i in range(len(members)):
        layer = members[str(i)]
        size, embedding = len(layer["leak"]), layer.get("embedding")
        w_rec = matrix_from_arrays(layer["recurrent"], (size, size))
        width = columns if embedding is None else len(embedding)
        w_in = matrix_from_arrays(layer["input"], (size, width))
        layers.append(ReservoirLayer(w_rec, w_in, layer["leak"], embedding, **settings))
        columns = size
    return Stack(layers) if "layers" in arrays else layers[0]


def with_input(
    reservoir: ReservoirLayer | Stack, make: Callable[[Matrix], TrainedInput | FrozenMatrix]
) -> ReservoirLayer | Stack:
    """Returns the same reservoir with the first layer's W_in trained or frozen.

    `make` is TrainedInput or FrozenMatrix.
    """
    first, *above = reservoir.layers
    changed = nnx.merge(*nnx.split(first))
    changed.input = make(first.stored_w_in)
    return Stack([changed, *above]) if above else changed


def _count_entries(matrix: Matrix) -> int:
    return int(np.count_nonzero(matrix.data if isinstance(matrix, BCOO) else matrix))
