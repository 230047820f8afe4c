"""Jaeger's network: a frozen reservoir with feedback from its own prediction (Jaeger 2001).

    p(n)   = softmax(o(n)),  0 before the first prediction of a sentence
    x(n+1) = (1 - a) x(n) + a f(W_in u(n+1) + W x(n) + W_back p(n))   frozen: W_in, W, W_back, a
    o(n+1) = A (B x(n+1) + B_u u(n+1) + B_y p(n)) + b_out             trained: A, B, B_u, B_y, b_out

These are eq. 1 and 2 of Jaeger 2001, as summarised by Ichimura 2019, with y = o and W_out = A (B_u
B B_y), the readout on (u, x, y). The leaks a and the low rank of W_out come from Ueda et al. 2025a
and are not in his equations. In next-token prediction the teacher y(n) would be u(n+1), and feeding
it back would make W_back a second W_in. So the network's own predicted distribution is fed back, in
training, scoring and generation alike [ours]. u is one-hot, so B_u u is a row of a table.

There is no gradient through time: at each time step x(n+1) and p(n) are constants. But they depend
on the readout, so features cannot be precomputed, and the family is trained end to end. The
features are z = B x + B_u u + B_y p, (r,) per token, and the shared readout computes A z + b_out.
With output feedback the echo state property is not defined (definition 1), whatever W's spectral
radius.
"""

from dataclasses import field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jax.experimental.sparse import BCOO

from esnlm.base.rng import Stream, generator
from esnlm.base.settings import Count, Positive, settings
from esnlm.data.store import TokenStore
from esnlm.machine.compute import Recurrence, ResolvedCompute
from esnlm.machine.matmul import matmul
from esnlm.models.base import Counts, ModelConfig, RecurrentModel
from esnlm.models.echo_state import (
    EchoStateConfig,
    Reservoirs,
    reservoir_layer,
    reservoir_layers,
    reservoir_nonzeros,
)
from esnlm.readout.linear import LowRankReadout, ReadoutConfig, uniform
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import Frozen, FrozenMatrix, Matrix, matrix_from_arrays
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.topology import bernoulli_positions
from esnlm.reservoir.weights import ReservoirConfig

# the reservoir's state, z (r, B), and whether there was a prediction (1, B)
State = tuple[Any, jax.Array, jax.Array]


@settings
class JaegerConfig(ModelConfig):
    """Jaeger's network (Jaeger 2001): an echo state network with output feedback."""

    family: str = "jaeger"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    rank: Count = 512  # rank of W_out = A (B_u B B_y) [r]
    # standard deviation of W_back's nonzeros; W_back is as sparse as W_in
    feedback_scale: Positive = 1.0

    dropout = 0.0

    @property
    def title(self) -> str:
        return f"{without_feedback(self).title}, output feedback"

    @property
    def feature_size(self) -> int:
        return self.rank

    @property
    def recurrence(self) -> Recurrence:
        reservoirs = Reservoirs(self.reservoir)
        return Recurrence(reservoirs.size, reservoirs.matrices)

    @property
    def readout_can_be_padded(self) -> bool:
        return False  # The recurrence reads A and b_out, and its other tables are V wide, too.

    def expected_counts(self, vocab_size: int) -> Counts:
        counts = without_feedback(self).expected_counts(vocab_size)
        tables = 2 * vocab_size * self.rank
        entries = self.reservoir.state_size * vocab_size  # of W_back
        return Counts(
            counts.trainable + tables,
            counts.total + tables + round(entries * feedback_gamma(self)),
            counts.entries + tables + entries,
        )

    def frozen_bytes(self, vocab_size: int) -> int:
        # a value and two indices per entry
        w_back = 12 * self.reservoir.state_size * vocab_size * feedback_gamma(self)
        return without_feedback(self).frozen_bytes(vocab_size) + round(w_back)

    def initialize_frozen(
        self, vocab_size: int, seed: int, text: TokenStore | None = None
    ) -> tuple[dict, dict]:
        """Draws the reservoir, and W_back: Bernoulli connectivity, N(0, feedback_scale^2)."""
        arrays, record = without_feedback(self).initialize_frozen(vocab_size, seed, text)
        rng, size = generator(seed, Stream.FEEDBACK), self.reservoir.state_size
        positions = bernoulli_positions(size, vocab_size, feedback_gamma(self), rng)
        indices = np.stack(positions, axis=1).astype(np.int32)
        values = np.float32(self.feedback_scale) * rng.standard_normal(len(indices), np.float32)
        record |= {"nonzeros": record["nonzeros"] + len(indices)}
        return arrays | {"feedback": {"values": values, "indices": indices}}, record

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> "Jaeger":
        """Draws A, B and b_out as Ueda et al. 2025a, and B_u and B_y like B: ~ U(+-1 / sqrt N)."""
        reservoir = {name: arrays for name, arrays in frozen.items() if name != "feedback"}
        plain = without_feedback(self).initialize(vocab_size, seed, reservoir)
        rng, width = generator(seed, Stream.FEEDBACK_TABLES), plain.config.feature_size
        b_u = uniform(rng, (vocab_size, self.rank), fan_in=width)
        b_y = uniform(rng, (self.rank, vocab_size), fan_in=width)
        w_back = matrix_from_arrays(frozen["feedback"], (self.reservoir.state_size, vocab_size))
        assert isinstance(plain.readout, LowRankReadout)
        return Jaeger(self, plain.reservoir, w_back, plain.readout, b_u, b_y)


def without_feedback(config: JaegerConfig) -> EchoStateConfig:
    """Returns the same network without feedback, whose readout reads x only."""
    return EchoStateConfig(reservoir=config.reservoir, readout=ReadoutConfig(config.rank))


def feedback_gamma(config: JaegerConfig) -> float:
    """Returns the share of nonzeros of W_back, the same as in a random W_in."""
    share = config.reservoir.input_connectivity
    return min(1.0, config.reservoir.gamma if share is None else share)


class Jaeger(RecurrentModel):
    """`reservoir`, `feedback` W_back (N, V), `readout` A, B, b_out, `b_u` (V, r), `b_y` (r, V)."""

    config: JaegerConfig

    def __init__(
        self,
        config: JaegerConfig,
        reservoir: ReservoirLayer | Stack,
        w_back: Matrix,
        readout: LowRankReadout,
        b_u: jax.Array,
        b_y: jax.Array,
    ) -> None:
        self.config, self.readout = config, readout
        self.b_u, self.b_y = nnx.Param(b_u), nnx.Param(b_y)
        self.reservoir: Any = reservoir
        self.feedback: Frozen = FrozenMatrix(w_back)

    @property
    def w_back(self) -> BCOO:
        """W_back, (N, V) BCOO. It is not available after `for_device`."""
        return self.feedback.get_value()

    @property
    def output_size(self) -> int:
        return self.config.rank

    @property
    def mask_size(self) -> int:
        return self.reservoir.mask_size

    def initial_state(self, slots: int, length: int | None = None) -> State:
        return (
            self.reservoir.initial_state(slots),
            jnp.zeros((self.output_size, slots)),
            jnp.zeros((1, slots)),
        )

    def embed(
        self, tokens: jax.Array, keep: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns W_in u, (N, B), and B_u u, (r, B), for tokens (B,); there is no dropout."""
        return self.reservoir.embed(tokens), self.b_u[...][tokens].T

    # p is recomputed for the gradient: keeping it would take V numbers per token of an update.
    @partial(jax.checkpoint, prevent_cse=False)
    def advance(self, state: State, x: tuple[jax.Array, jax.Array]) -> State:
        below, z, predicted = lax.stop_gradient(state)
        w_in_u, b_u_u = x
        frozen = lax.stop_gradient(self)
        logits = matmul(frozen.readout.a[...], z, (1, 0), self.precision)
        p = jax.nn.softmax(logits + frozen.readout.bias[...][:, None], axis=0) * predicted  # (V, B)
        feedback = sparse.matmul(frozen.feedback.get_value(), p)
        below = frozen.reservoir.advance(below, lax.stop_gradient(w_in_u) + feedback)
        b_x = matmul(self.readout.b[...], frozen.reservoir.output(below), (1, 0), self.precision)
        z = b_x + b_u_u + matmul(self.b_y[...], p, (1, 0), self.precision)
        return below, z, jnp.ones_like(predicted)

    def step(self, state: State, tokens: jax.Array) -> State:
        return self.advance(state, self.embed(tokens))

    def output(self, state: State) -> jax.Array:
        return state[1]

    @property
    def layer_sizes(self) -> dict[str, int]:
        rank = self.config.rank
        return {"features": rank, "z": rank} | reservoir_layers(self.reservoir)

    def layer(self, name: str, state: State) -> jax.Array:
        reservoir, z, _ = state
        return z if name in ("features", "z") else reservoir_layer(self.reservoir, name, reservoir)

    def for_device(self, compute: ResolvedCompute) -> "Jaeger":
        """Returns the model with its kernels' operands; frozen arrays compute in float32."""
        ready = super().for_device(compute)
        ready.reservoir = self.reservoir.for_device(
            compute.kernel, state_precision=compute.state_precision
        )
        ready.feedback = Frozen(
            sparse.prepare(self.w_back, "csr" if jax.default_backend() == "cpu" else "bcoo")
        )
        return ready

    def readout_arrays(self, params: dict) -> dict:
        """Returns {"w": A, "bias"}, which readout/linear.py treats as a full-rank readout of z."""
        return {"w": params["readout"]["a"], "bias": params["readout"]["bias"]}

    def counts(self) -> Counts:
        expected = self.config.expected_counts(self.reservoir.vocab_size)
        frozen = reservoir_nonzeros(self.reservoir) + self.w_back.nse
        return Counts(expected.trainable, expected.trainable + frozen, expected.entries)
