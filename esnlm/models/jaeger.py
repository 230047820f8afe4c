"""Jaeger's network as a language model: a frozen reservoir that its own prediction is fed back to (S4).

    p(n)   = softmax(o(n)),  0 before the first prediction of a sentence
    x(n+1) = (1 - a) x(n) + a f(W_in u(n+1) + W x(n) + W_back p(n))                  frozen: W_in, W, W_back and a
    o(n+1) = A (B x(n+1) + B_u u(n+1) + B_y p(n)) + b_out                            trained: A, B, B_u, B_y and b_out

which is eq. 1 and 2 of echo_state_approach_summary_ja with y = o and W_out = A (B_u B B_y), the readout on (u, x, y). In
next-token prediction the taught y(n) is the next token, which is u(n+1): fed back, it would make W_back a second W_in. So
what is fed back is the distribution that the network itself predicted, in training, scoring and generation alike [ours].
u is one-hot, so B_u u is a row of a table. Of full rank the tables would be V x V each: there is only low rank.

There is no gradient through time: at each step x(n+1) and p(n) are constants, and the gradient is the exact one of a
readout on them. But they depend on the readout, so nothing can be computed ahead of the optimizer: the family takes the
way of the LSTM. The features are z = B x + B_u u + B_y p, (r,) a token, and what the shared readout does is A z + b_out.

With output feedback the echo state property is not defined (definition 1), whatever W's spectral radius.
"""

from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jax.experimental.sparse import BCOO

from esnlm.errors import InputError
from esnlm.features.stream import default_batch_slots
from esnlm.models import echo_state
from esnlm.models.counts import Counts
from esnlm.models.echo_state import EchoStateConfig
from esnlm.ops.matmul import matmul
from esnlm.readout import linear
from esnlm.readout.linear import LowRankReadout, ReadoutConfig
from esnlm.reservoir import arrays as held
from esnlm.reservoir import cell as cells
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import Frozen, Reservoir, Stack
from esnlm.reservoir.random_matrix import bernoulli_positions
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.rng import Stream, generator


@dataclass(frozen=True)
class JaegerConfig:
    """An echo state network with output feedback (S4); everything else is as in S1."""

    family: str = "jaeger"
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    rank: int = 512  # r of W_out = A (B_u B B_y)
    feedback_scale: float = 1.0  # standard deviation of W_back's nonzeros, of which there are as many as in W_in

    dropout = output_dropout = 0.0

    def check(self, name: str) -> None:
        self.reservoir.check(f"{name}.reservoir")
        if self.rank < 1:
            raise InputError(
                f"{name}.rank is {self.rank}: it must be at least 1; of full rank the readout of u and y would be V x V"
            )
        if not self.feedback_scale > 0:
            raise InputError(
                f"{name}.feedback_scale is {self.feedback_scale}: it must be above 0; without feedback choose family esn"
            )

    @property
    def without_feedback(self) -> EchoStateConfig:
        """The echo state network that is left where nothing is fed back or read but x."""
        return EchoStateConfig(reservoir=self.reservoir, readout=ReadoutConfig(self.rank))

    @property
    def title(self) -> str:
        return f"{self.without_feedback.title}, output feedback"

    @property
    def features_are_frozen(self) -> bool:
        return False

    def kernel(self, backend: str) -> str:
        """The kernel of the recurrent product, chosen for a backend."""
        return self.without_feedback.kernel(backend)

    def batch_slots(self, backend: str) -> int:
        """Sentences to run side by side."""
        return default_batch_slots(self.without_feedback.feature_size, backend)

    @property
    def feature_size(self) -> int:
        return self.rank

    @property
    def longest(self) -> None:
        """A sentence may be of any length."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JaegerCell:
    """A cell of features/recurrence.py; the state is (the reservoir's, z (r, B), whether there was a prediction (1, B))."""

    reservoir: cells.EchoStateCell | cells.StackedCell
    w_back: sparse.Operator  # (N, V)
    a: jax.Array  # (V, r)
    b: jax.Array  # (r, N), of all layers
    b_u: jax.Array  # (V, r), transposed
    b_y: jax.Array  # (r, V)
    bias: jax.Array  # b_out, (V,)
    precision: str = field(default="float32", metadata={"static": True})

    @property
    def output_size(self) -> int:
        return self.b.shape[0]

    @property
    def input_size(self) -> int:
        return self.reservoir.input_size

    def zeros(self, slots: int) -> tuple:
        return self.reservoir.zeros(slots), jnp.zeros((self.output_size, slots)), jnp.zeros((1, slots))

    def embed(self, tokens: jax.Array, keep: None = None) -> tuple[jax.Array, jax.Array]:
        """W_in u, (N, B), and B_u u, (r, B), for tokens (B,); there is no dropout."""
        return self.reservoir.embed(tokens), self.b_u[tokens].T

    # p is made again for the gradient: kept, it would be V numbers for each token of an update.
    @partial(jax.checkpoint, prevent_cse=False)
    def step(self, state: tuple, x: tuple[jax.Array, jax.Array]) -> tuple:
        below, z, predicted = lax.stop_gradient(state)
        w_in_u, b_u_u = x
        frozen = lax.stop_gradient(self)
        logits = matmul(frozen.a, z, (1, 0), self.precision) + frozen.bias[:, None]
        p = jax.nn.softmax(logits, axis=0) * predicted  # (V, B)
        below = frozen.reservoir.step(below, lax.stop_gradient(w_in_u) + sparse.matmul(frozen.w_back, p))
        seen = matmul(self.b, frozen.reservoir.output(below), (1, 0), self.precision)
        z = seen + b_u_u + matmul(self.b_y, p, (1, 0), self.precision)
        return below, z, jnp.ones_like(predicted)

    def read(self, state: tuple, tokens: jax.Array) -> tuple:
        return self.step(state, self.embed(tokens))

    def output(self, state: tuple) -> jax.Array:
        return state[1]


class Jaeger(nnx.Module):
    """`reservoir`, `feedback` (W_back's values and indices), `readout` (A, B, b_out), `b_u` (V, r), transposed, and `b_y` (r, V)."""

    def __init__(
        self, config: JaegerConfig, reservoir: Reservoir | Stack, feedback: dict, readout: LowRankReadout, b_u, b_y
    ):
        self.config = config
        self.reservoir = reservoir
        self.feedback = nnx.Dict({name: Frozen(jnp.asarray(array)) for name, array in feedback.items()})
        self.readout = readout
        self.b_u, self.b_y = nnx.Param(jnp.asarray(b_u)), nnx.Param(jnp.asarray(b_y))

    @property
    def w_back(self) -> BCOO:
        """W_back, (N, V) BCOO."""
        shape = self.config.reservoir.state_size, self.reservoir.vocab_size
        return held.bcoo(self.feedback["values"][...], self.feedback["indices"][...], shape)

    @property
    def params(self) -> dict:
        """The trained arrays: {"readout": {"a", "b", "bias"}, "b_u", "b_y"}."""
        readout = nnx.to_pure_dict(nnx.state(self.readout, nnx.Param))
        return {"readout": readout, "b_u": self.b_u[...], "b_y": self.b_y[...]}

    def with_params(self, params: dict) -> "Jaeger":
        """The model with other trained arrays."""
        readout = linear.from_arrays(params["readout"])
        return Jaeger(self.config, self.reservoir, self._feedback(), readout, params["b_u"], params["b_y"])

    def arrays(self) -> dict:
        """Every weight, as nested dicts."""
        return {"reservoir": self.reservoir.arrays(), "feedback": self._feedback()} | self.params

    def prepare(self, kernel: str) -> tuple:
        """What is frozen, made ready for this backend: the reservoir's cell and W_back."""
        settings = self.config.reservoir
        reservoir = cells.prepare(
            self.reservoir, settings.activation, kernel, settings.decay, rule=settings.update_rule
        )
        return reservoir, sparse.prepare(self.w_back, "csr" if jax.default_backend() == "cpu" else "bcoo")

    def _feedback(self) -> dict:
        return {name: array[...] for name, array in self.feedback.items()}


def cell(frozen: tuple, params: dict, precision: str) -> JaegerCell:
    """The cell of features/recurrence.py with the trained arrays in it. What is frozen runs in float32, whatever the precision."""
    return JaegerCell(*frozen, **params["readout"], b_u=params["b_u"], b_y=params["b_y"], precision=precision)


def readout(params: dict) -> dict:
    """{"w": A, "bias"}: for readout/linear.py a readout of full rank on z."""
    return {"w": params["readout"]["a"], "bias": params["readout"]["bias"]}


def expected_counts(config: JaegerConfig, vocab_size: int) -> Counts:
    """Those of the network without feedback, and W_back, B_u and B_y."""
    rest = echo_state.expected_counts(config.without_feedback, vocab_size)
    tables, matrix = 2 * vocab_size * config.rank, config.reservoir.state_size * vocab_size
    return _more(rest, tables, round(matrix * config.reservoir.input_gamma), matrix)


def actual_counts(model: Jaeger) -> Counts:
    """Parameter counts of a drawn model."""
    plain = echo_state.EchoState(model.config.without_feedback, model.reservoir, model.readout)
    tables = model.b_u[...].size + model.b_y[...].size
    w_back = model.w_back
    return _more(echo_state.actual_counts(plain), tables, w_back.nse, w_back.shape[0] * w_back.shape[1])


def _more(rest: Counts, tables: int, nonzeros: int, entries: int) -> Counts:
    return Counts(rest.trainable + tables, rest.total + tables + nonzeros, rest.entries + tables + entries)


def flops_per_token(config: JaegerConfig, vocab_size: int) -> int:
    """Of training: beside the network without feedback, A z and W_back p are made twice, and B_y p has a gradient too."""
    w_back = vocab_size * config.reservoir.input_gamma * config.reservoir.state_size
    return echo_state.flops_per_token(config.without_feedback, vocab_size) + round(
        8 * vocab_size * config.rank + 4 * w_back
    )


def frozen_bytes(config: JaegerConfig, vocab_size: int) -> int:
    """Memory of what is frozen as stored; W_back is a value and two indices an entry."""
    w_back = 12 * config.reservoir.state_size * vocab_size * config.reservoir.input_gamma
    return echo_state.frozen_bytes(config.without_feedback, vocab_size) + round(w_back)


def draw_frozen(config: JaegerConfig, vocab_size: int, seed: int) -> tuple[dict, dict]:
    """The arrays of the reservoir and of W_back (Bernoulli connectivity, N(0, feedback_scale^2)), and a record."""
    arrays, record = echo_state.draw_frozen(config.without_feedback, vocab_size, seed)
    rng = generator(seed, Stream.FEEDBACK)
    places = np.stack(
        bernoulli_positions(config.reservoir.state_size, vocab_size, config.reservoir.input_gamma, rng), axis=1
    ).astype(np.int32)
    values = rng.standard_normal(len(places), dtype=np.float32) * np.float32(config.feedback_scale)
    return arrays | {"feedback": {"values": values, "indices": places}}, record | {
        "nonzeros": record["nonzeros"] + len(places)
    }


def untrained(config: JaegerConfig, vocab_size: int, seed: int, frozen: dict) -> Jaeger:
    """The model as initialised: A, B and b_out as in S1, B_u and B_y ~ U(-1/sqrt N, 1/sqrt N) as B."""
    plain = echo_state.untrained(
        config.without_feedback, vocab_size, seed, {name: frozen[name] for name in frozen if name != "feedback"}
    )
    rng, bound = generator(seed, Stream.FEEDBACK_TABLES), np.float32(1 / np.sqrt(config.without_feedback.feature_size))
    b_u, b_y = (
        rng.uniform(-bound, bound, shape).astype(np.float32)
        for shape in ((vocab_size, config.rank), (config.rank, vocab_size))
    )
    return Jaeger(config, plain.reservoir, frozen["feedback"], plain.readout, b_u, b_y)
