"""One step of an echo state network, on weights that are made ready for a backend."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from esnlm.reservoir import sparse
from esnlm.reservoir.weights import Reservoir

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EchoStateCell:
    """h' = (1 - alpha a) * h + a * f(W_rec h + W_in u), a cell as features/recurrence.py has it; S1 eq. 1 at alpha 1."""

    w_rec: sparse.Operator
    w_in: sparse.Columns | jax.Array
    leak: jax.Array  # a, (N,)
    activation: str = field(default="tanh", metadata={"static": True})  # f
    decay: float = field(default=1.0, metadata={"static": True})  # alpha of the continuous-time form (S2)

    @property
    def output_size(self) -> int:
        return self.leak.shape[0]

    @property
    def input_size(self) -> int:
        return self.leak.shape[0]

    def zeros(self, lanes: int) -> jax.Array:
        return jnp.zeros((self.output_size, lanes), jnp.float32)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        """W_in u of one-hot u, (N, B), for tokens (B,) and dropout's mask (N, B)."""
        x = sparse.add_columns(self.zeros(len(tokens)), self.w_in, tokens)
        return x if keep is None else x * keep

    def step(self, h: jax.Array, x: jax.Array) -> jax.Array:
        """The state after h (N, B), where x (N, B) is W_in u."""
        return self._blend(h, sparse.matmul(self.w_rec, h) + x)

    def read(self, h: jax.Array, tokens: jax.Array) -> jax.Array:
        """The same, for tokens (B,), in one pass less over the states."""
        return self._blend(h, sparse.add_columns(sparse.matmul(self.w_rec, h), self.w_in, tokens))

    def output(self, h: jax.Array) -> jax.Array:
        return h

    def _blend(self, h, drive):
        a = self.leak[:, None]  # (N, 1)
        return (1 - self.decay * a) * h + a * ACTIVATIONS[self.activation](drive)


def prepare(
    reservoir: Reservoir, activation: str = "tanh", kernel: str = "auto", decay: float = 1.0, differentiable: bool = False
) -> EchoStateCell:
    """The cell of a reservoir, with the product's kernel chosen by `sparse.choose_kernel` unless it is named.

    Args:
        differentiable: store the transpose of W_rec too, with which gradients flow back through time.
    """
    w_rec = reservoir.stored_w_rec
    if kernel == "auto":
        nonzeros = w_rec.nse if hasattr(w_rec, "nse") else w_rec.size
        kernel = sparse.choose_kernel(reservoir.state_size, nonzeros, jax.default_backend())
    operator = sparse.prepare_differentiable(w_rec, kernel) if differentiable else sparse.prepare(w_rec, kernel)
    return EchoStateCell(operator, sparse.prepare_columns(reservoir.stored_w_in), reservoir.leak[...], activation, decay)
