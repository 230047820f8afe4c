"""Jaeger's network as a language model: a frozen reservoir that its own prediction is fed back to (Jaeger 2001).

    p(n)   = softmax(o(n)),  0 before the first prediction of a sentence
    x(n+1) = (1 - a) x(n) + a f(W_in u(n+1) + W x(n) + W_back p(n))                  frozen: W_in, W, W_back and a
    o(n+1) = A (B x(n+1) + B_u u(n+1) + B_y p(n)) + b_out                            trained: A, B, B_u, B_y and b_out

which is eq. 1 and 2 of Jaeger 2001, as summarised by Ichimura 2019, with y = o and W_out = A (B_u B B_y), the readout on (u, x, y). The
leaks a and the low rank of W_out are those of Ueda et al. 2025a, and not in these equations. In
next-token prediction the taught y(n) is the next token, which is u(n+1): fed back, it would make W_back a second W_in. So
what is fed back is the distribution that the network itself predicted, in training, scoring and generation alike [ours].
u is one-hot, so B_u u is a row of a table. Of full rank the tables would be V x V each: there is only low rank.

There is no gradient through time: at each time step x(n+1) and p(n) are constants, and the gradient is the exact one of a
readout on them. But they depend on the readout, so no features can be precomputed: the family is trained end to end, like
the LSTM. The features are z = B x + B_u u + B_y p, (r,) a token, and what the shared readout computes is A z + b_out.

With output feedback the echo state property is not defined (definition 1), whatever W's spectral radius.
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

from esnlm.compute import ComputeConfig
from esnlm.data.store import TokenStore
from esnlm.features.stream import default_batch_slots
from esnlm.models.base import Counts, ModelConfig, RecurrentModel
from esnlm.models.echo_state import EchoState, EchoStateConfig
from esnlm.ops.matmul import matmul
from esnlm.readout.linear import LowRankReadout, ReadoutConfig
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import Frozen, FrozenMatrix, Matrix, matrix_from_arrays
from esnlm.reservoir.cell import Reservoir, Stack
from esnlm.reservoir.random_matrix import bernoulli_positions
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.rng import Stream, generator
from esnlm.settings import Count, Positive, settings

State = tuple[Any, jax.Array, jax.Array]  # the reservoir's, z (r, B), and whether there was a prediction (1, B)


@settings
class JaegerConfig(ModelConfig):
    """An echo state network with output feedback (Jaeger 2001); everything else is as in Ueda et al. 2025a."""

    family: str = "jaeger"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    rank: Count = 512  # of W_out = A (B_u B B_y) [r]
    feedback_scale: Positive = 1.0  # standard deviation of W_back's nonzeros, of which there are as many as in W_in

    dropout = 0.0

    @property
    def without_feedback(self) -> EchoStateConfig:
        """The echo state network that is left where nothing is fed back, and nothing but x is read."""
        return EchoStateConfig(reservoir=self.reservoir, readout=ReadoutConfig(self.rank))

    @property
    def feedback_gamma(self) -> float:
        """Share of nonzeros of W_back, which is that of a random W_in."""
        shares = self.reservoir.input_connectivity, self.reservoir.gamma
        return min(1.0, shares[1] if shares[0] is None else shares[0])

    @property
    def title(self) -> str:
        return f"{self.without_feedback.title}, output feedback"

    @property
    def feature_size(self) -> int:
        return self.rank

    @property
    def reservoir_units(self) -> int:
        return self.without_feedback.feature_size

    @property
    def readout_can_be_padded(self) -> bool:
        return False  # the recurrence reads A and b_out, and its other tables are V wide too

    def kernel(self, backend: str) -> str:
        return self.without_feedback.kernel(backend)

    def batch_slots(self, backend: str) -> int:
        return default_batch_slots(self.without_feedback.feature_size, backend)

    @property
    def token_arrays(self) -> None:
        """Nothing: each prediction, over the whole vocabulary, is read at the next time step."""
        return

    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns the counts of the network without feedback, and W_back, B_u and B_y."""
        matrix = self.reservoir.state_size * vocab_size
        nonzeros = round(matrix * self.feedback_gamma)
        return self.with_feedback(self.without_feedback.expected_counts(vocab_size), vocab_size, nonzeros)

    def with_feedback(self, without: Counts, vocab_size: int, nonzeros: int) -> Counts:
        """Returns the counts of a network `without` feedback and those of W_back, with its nonzeros, B_u and B_y."""
        tables, matrix = 2 * vocab_size * self.rank, self.reservoir.state_size * vocab_size
        return Counts(without.trainable + tables, without.total + tables + nonzeros, without.entries + tables + matrix)

    def flops_per_token(self, vocab_size: int) -> int:
        """Returns the operations of training.

        Beside the network without feedback, A z and W_back p are computed twice, and B_y p has a gradient too.
        """
        w_back = vocab_size * self.feedback_gamma * self.reservoir.state_size
        feedback = round(8 * vocab_size * self.rank + 4 * w_back)
        return self.without_feedback.flops_per_token(vocab_size) + feedback

    def frozen_bytes(self, vocab_size: int) -> int:
        """Returns the memory of what is frozen as it is saved; W_back is a value and two indices an entry."""
        w_back = 12 * self.reservoir.state_size * vocab_size * self.feedback_gamma
        return self.without_feedback.frozen_bytes(vocab_size) + round(w_back)

    def initialize_frozen(self, vocab_size: int, seed: int, text: TokenStore | None = None) -> tuple[dict, dict]:
        """Returns the arrays of the reservoir and of W_back (Bernoulli connectivity, N(0, feedback_scale^2)), and a record."""
        arrays, record = self.without_feedback.initialize_frozen(vocab_size, seed, text)
        rng, size = generator(seed, Stream.FEEDBACK), self.reservoir.state_size
        indices = np.stack(bernoulli_positions(size, vocab_size, self.feedback_gamma, rng), axis=1).astype(np.int32)
        values = rng.standard_normal(len(indices), dtype=np.float32) * np.float32(self.feedback_scale)
        record |= {"nonzeros": record["nonzeros"] + len(indices)}
        return arrays | {"feedback": {"values": values, "indices": indices}}, record

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> "Jaeger":
        """Returns A, B and b_out as in Ueda et al. 2025a, and B_u and B_y ~ U(-1/sqrt N, 1/sqrt N) like B."""
        of_reservoir = {name: arrays for name, arrays in frozen.items() if name != "feedback"}
        plain = self.without_feedback.initialize(vocab_size, seed, of_reservoir)
        rng = generator(seed, Stream.FEEDBACK_TABLES)
        bound = np.float32(1 / np.sqrt(self.without_feedback.feature_size))
        b_u, b_y = (
            rng.uniform(-bound, bound, shape).astype(np.float32)
            for shape in ((vocab_size, self.rank), (self.rank, vocab_size))
        )
        w_back = matrix_from_arrays(frozen["feedback"], (self.reservoir.state_size, vocab_size))
        assert isinstance(plain.readout, LowRankReadout)
        return Jaeger(self, plain.reservoir, w_back, plain.readout, b_u, b_y)

    def readout_arrays(self, params: dict) -> dict:
        """Returns {"w": A, "bias"}: for readout/linear.py it is a readout of full rank on z."""
        return {"w": params["readout"]["a"], "bias": params["readout"]["bias"]}


class Jaeger(RecurrentModel):
    """The network of this file.

    Args:
        config: the settings.
        reservoir: frozen.
        w_back: W_back (N, V), frozen.
        readout: A (V, r), B (r, N) of all layers, and b_out (V,).
        b_u: B_u, transposed, (V, r).
        b_y: B_y (r, V).
    """

    config: JaegerConfig

    def __init__(
        self,
        config: JaegerConfig,
        reservoir: Reservoir | Stack,
        w_back: Matrix,
        readout: LowRankReadout,
        b_u: np.ndarray,
        b_y: np.ndarray,
    ) -> None:
        self.config = config
        self.reservoir: Any = reservoir
        self.feedback: Frozen = FrozenMatrix(w_back)
        self.readout = readout
        self.b_u, self.b_y = nnx.Param(jnp.asarray(b_u)), nnx.Param(jnp.asarray(b_y))

    @property
    def w_back(self) -> BCOO:
        """W_back, (N, V) BCOO; not of what `for_device` returns."""
        return self.feedback.get_value()

    @property
    def output_size(self) -> int:
        return self.config.rank

    @property
    def mask_size(self) -> int:
        return self.reservoir.mask_size

    def initial_state(self, slots: int, length: int | None = None) -> State:
        return self.reservoir.initial_state(slots), jnp.zeros((self.output_size, slots)), jnp.zeros((1, slots))

    def embed(self, tokens: jax.Array, keep: None = None) -> tuple[jax.Array, jax.Array]:
        """Returns W_in u, (N, B), and B_u u, (r, B), for tokens (B,); there is no dropout."""
        return self.reservoir.embed(tokens), self.b_u[...][tokens].T

    # p is computed again for the gradient. If it were kept, it would be V numbers for each token of an update.
    @partial(jax.checkpoint, prevent_cse=False)
    def advance(self, state: State, x: tuple[jax.Array, jax.Array]) -> State:
        below, z, predicted = lax.stop_gradient(state)
        w_in_u, b_u_u = x
        frozen = lax.stop_gradient(self)
        logits = matmul(frozen.readout.a[...], z, (1, 0), self.precision) + frozen.readout.bias[...][:, None]
        p = jax.nn.softmax(logits, axis=0) * predicted  # (V, B)
        fed_back = sparse.matmul(frozen.feedback.get_value(), p)
        below = frozen.reservoir.advance(below, lax.stop_gradient(w_in_u) + fed_back)
        seen = matmul(self.readout.b[...], frozen.reservoir.output(below), (1, 0), self.precision)
        z = seen + b_u_u + matmul(self.b_y[...], p, (1, 0), self.precision)
        return below, z, jnp.ones_like(predicted)

    def step(self, state: State, tokens: jax.Array) -> State:
        return self.advance(state, self.embed(tokens))

    def output(self, state: State) -> jax.Array:
        return state[1]

    def for_device(self, compute: ComputeConfig) -> "Jaeger":
        """Returns the same model with kernels' operands. What is frozen runs in float32, whatever the precision."""
        ready = super().for_device(compute)
        ready.reservoir = self.reservoir.for_device(compute.kernel, state_precision=compute.state_precision)
        ready.feedback = Frozen(sparse.prepare(self.w_back, "csr" if jax.default_backend() == "cpu" else "bcoo"))
        return ready

    def counts(self) -> Counts:
        without = EchoState(self.config.without_feedback, self.reservoir, self.readout).counts()
        return self.config.with_feedback(without, self.reservoir.vocab_size, self.w_back.nse)
