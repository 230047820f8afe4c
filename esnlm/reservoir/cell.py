"""One step of an echo state network, of one layer or a stack, on weights that are made ready for a backend.

Cells are as features/recurrence.py has them.
"""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import Reservoir, Stack

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EchoStateCell:
    """One layer, by one of two update rules; the readout sees what feeds back, h or r.

    leaky_output    h' = (1 - alpha a) * h + a * f(W_rec h + W_in u)             S1 eq. 1 at alpha 1
    leaky_membrane  x' = (1 - alpha a) * x + a * (W_rec r + W_in u), r = f(x)    S3 eq. 1 and 2 at alpha 1
    """

    w_rec: sparse.Operator
    w_in: sparse.Columns | sparse.Operator  # the latter behind an embedding, and of a layer above another
    leak: jax.Array  # a, (N,)
    embedding: jax.Array | None = None  # (V, D); u is a row of it instead of one-hot
    activation: str = field(default="tanh", metadata={"static": True})  # f
    decay: float = field(default=1.0, metadata={"static": True})  # alpha of the continuous-time form (S2)
    rule: str = field(default="leaky_output", metadata={"static": True})

    @property
    def output_size(self) -> int:
        return self.leak.shape[0]

    @property
    def input_size(self) -> int:
        return self.leak.shape[0]

    def zeros(self, slots: int) -> jax.Array:
        return jnp.zeros((self.output_size, slots), jnp.float32)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        """W_in u, (N, B), for tokens (B,) and dropout's mask (N, B)."""
        x = self._add_input(self.zeros(len(tokens)), tokens)
        return x if keep is None else x * keep

    def step(self, state: jax.Array, x: jax.Array) -> jax.Array:
        """The state after h, or membrane potentials x, (N, B), where x (N, B) is W_in u."""
        return self._blend(state, sparse.matmul(self.w_rec, self.output(state)) + x)

    def read(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        """The same, for tokens (B,), in one pass less over the states."""
        return self._blend(state, self._add_input(sparse.matmul(self.w_rec, self.output(state)), tokens))

    def output(self, state: jax.Array) -> jax.Array:
        return state if self.rule == "leaky_output" else ACTIVATIONS[self.activation](state)

    def activations(self, state: jax.Array, x: jax.Array) -> jax.Array:
        """f(.) on the way to `step(state, x)`, (N, B): the output itself but for a leak outside of it."""
        unleaked = replace(self, leak=jnp.ones_like(self.leak), decay=1.0) if self.rule == "leaky_output" else self
        return self.output(unleaked.step(state, x))

    def _add_input(self, drive, tokens):
        if self.embedding is None:
            return sparse.add_columns(drive, self.w_in, tokens)
        return drive + sparse.matmul(self.w_in, self.embedding[tokens].T)

    def _blend(self, state, drive):
        a = self.leak[:, None]  # (N, 1)
        f = ACTIVATIONS[self.activation] if self.rule == "leaky_output" else lambda x: x
        return (1 - self.decay * a) * state + a * f(drive)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StackedCell:
    """Layers, each of which reads the new output of the one below in the same time step; the readout sees all.

    States are tuples, one a layer. Dropout on the embedding is that of the first layer's W_in u.
    """

    layers: tuple[EchoStateCell, ...]

    @property
    def activation(self) -> str:
        return self.layers[0].activation

    @property
    def output_size(self) -> int:
        return sum(layer.output_size for layer in self.layers)

    @property
    def input_size(self) -> int:
        return self.layers[0].input_size

    def zeros(self, slots: int) -> tuple[jax.Array, ...]:
        return tuple(layer.zeros(slots) for layer in self.layers)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        return self.layers[0].embed(tokens, keep)

    def step(self, states: tuple[jax.Array, ...], x: jax.Array) -> tuple[jax.Array, ...]:
        return self._climb(self.layers[0].step(states[0], x), states)

    def read(self, states: tuple[jax.Array, ...], tokens: jax.Array) -> tuple[jax.Array, ...]:
        return self._climb(self.layers[0].read(states[0], tokens), states)

    def output(self, states: tuple[jax.Array, ...]) -> jax.Array:
        """Of all layers, the first on top, (L N, B)."""
        return jnp.concatenate([layer.output(state) for layer, state in zip(self.layers, states, strict=True)])

    def activations(self, states: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
        """As of one layer, (L N, B)."""
        new = self.step(states, x)
        inputs = [x, *(self._between(i, new[i - 1]) for i in range(1, len(new)))]
        return jnp.concatenate(
            [layer.activations(*given) for layer, *given in zip(self.layers, states, inputs, strict=True)]
        )

    def _climb(self, first, states):
        """The new states of all layers, where that of the first is there already."""
        new = [first]
        for i, layer in enumerate(self.layers[1:], start=1):
            new.append(layer.step(states[i], self._between(i, new[i - 1])))
        return tuple(new)

    def _between(self, i, below):
        """What layer i is driven by, given the new state of the one below: W_in^i r, (N, B)."""
        return sparse.matmul(self.layers[i].w_in, self.layers[i - 1].output(below))


def prepare(
    reservoir: Reservoir | Stack,
    activation: str = "tanh",
    kernel: str = "auto",
    decay: float = 1.0,
    differentiable: bool = False,
    rule: str = "leaky_output",
) -> EchoStateCell | StackedCell:
    """The cell of a reservoir, with the product's kernel chosen by `sparse.choose_kernel` unless it is named.

    Args:
        differentiable: store the transposes of what is frozen too, with which gradients flow back through time and layers.
    """
    make = sparse.prepare_differentiable if differentiable else sparse.prepare

    def ready(layer: Reservoir, above: bool) -> EchoStateCell:
        w_rec, w_in, embedding = layer.stored_w_rec, layer.stored_w_in, layer.embedding
        chosen = _choose_kernel(w_rec) if kernel == "auto" else kernel
        operand = sparse.prepare_columns(w_in) if embedding is None and not above else make(w_in, chosen)
        table = None if embedding is None else embedding[...].T  # (V, D)
        return EchoStateCell(make(w_rec, chosen), operand, layer.leak[...], table, activation, decay, rule)

    first, *others = (ready(layer, above=i > 0) for i, layer in enumerate(reservoir.layers))
    return StackedCell((first, *others)) if others else first


def _choose_kernel(w_rec) -> str:
    entries, backend = getattr(w_rec, "nse", w_rec.size), jax.default_backend()
    longest = (
        np.bincount(np.asarray(w_rec.indices)[:, 0]).max(initial=0) if hasattr(w_rec, "indices") else w_rec.shape[1]
    )
    return sparse.choose_kernel(w_rec.shape[0], entries, backend, longest)
