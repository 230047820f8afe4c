"""The LSTM language model that the papers compare with: embedding, one layer, and a readout of full rank (S1)."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.errors import InputError
from esnlm.features import dropout
from esnlm.models.counts import Counts
from esnlm.ops.matmul import matmul
from esnlm.readout import linear
from esnlm.readout.linear import FullRankReadout, ReadoutConfig
from esnlm.rng import Stream, generator


@dataclass(frozen=True)
class LstmConfig:
    """An LSTM of one layer (S1: 512 units, dropout 0.1, embedding and readout not tied)."""

    family: str = "lstm"
    width: int = 512  # of the embedding and of the hidden state
    dropout: float = 0.1  # after the embedding, and before the output layer

    def check(self, name: str) -> None:
        if self.width < 1:
            raise InputError(f"{name}.width is {self.width}: it must be at least 1")
        dropout.check_rate(self.dropout, f"{name}.dropout")

    @property
    def title(self) -> str:
        return f"LSTM {self.width:,}"

    @property
    def features_are_frozen(self) -> bool:
        return False

    def kernel(self, backend: str) -> str:
        """There is no sparse product to choose one for."""
        return "auto"

    def batch_slots(self, backend: str) -> int:
        """Sentences to run side by side."""
        return 256 if backend == "cpu" else 4096

    @property
    def feature_size(self) -> int:
        return self.width

    @property
    def longest(self) -> None:
        """A sentence may be of any length."""

    @property
    def output_dropout(self) -> float:
        return self.dropout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LstmCell:
    """torch.nn.LSTM's equations, as a cell of features/recurrence.py; the state is (h, c), each (H, B).

    i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g);   h' = sigmoid(o) * tanh(c')
    """

    embedding: jax.Array  # (V, H)
    w_ih: jax.Array  # (4 H, H)
    w_hh: jax.Array  # (4 H, H)
    b_ih: jax.Array  # (4 H,)
    b_hh: jax.Array  # (4 H,)
    precision: str = field(default="float32", metadata={"static": True})

    @property
    def output_size(self) -> int:
        return self.w_hh.shape[1]

    @property
    def input_size(self) -> int:
        return self.embedding.shape[1]

    def zeros(self, slots: int) -> tuple[jax.Array, jax.Array]:
        return (jnp.zeros((self.output_size, slots), jnp.float32),) * 2

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        """W_ih x + b_ih + b_hh, (4 H, B), for tokens (B,) and dropout's mask (H, B)."""
        x = self.embedding[tokens]  # (B, H)
        x = x if keep is None else x * keep.T
        return matmul(self.w_ih, x, (1, 1), self.precision) + (self.b_ih + self.b_hh)[:, None]

    def step(self, state: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple[jax.Array, jax.Array]:
        h, c = state
        i, f, g, o = jnp.split(x + matmul(self.w_hh, h, (1, 0), self.precision), 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def read(self, state: tuple[jax.Array, jax.Array], tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.step(state, self.embed(tokens))

    def output(self, state: tuple[jax.Array, jax.Array]) -> jax.Array:
        return state[0]


class Lstm(nnx.Module):
    """`embedding` (V, H), `w_ih` and `w_hh` (4 H, H), `b_ih` and `b_hh` (4 H,), `readout` (V, H) with its bias."""

    def __init__(self, config: LstmConfig, embedding, w_ih, w_hh, b_ih, b_hh, readout: FullRankReadout):
        self.config = config
        self.embedding = nnx.Param(jnp.asarray(embedding))
        self.w_ih, self.w_hh = nnx.Param(jnp.asarray(w_ih)), nnx.Param(jnp.asarray(w_hh))
        self.b_ih, self.b_hh = nnx.Param(jnp.asarray(b_ih)), nnx.Param(jnp.asarray(b_hh))
        self.readout = readout

    @property
    def params(self) -> dict:
        """The trained arrays: all of them."""
        return nnx.to_pure_dict(nnx.state(self, nnx.Param))

    def with_params(self, params: dict) -> "Lstm":
        """The model with other trained arrays."""
        return Lstm(self.config, **params | {"readout": linear.from_arrays(params["readout"])})

    def arrays(self) -> dict:
        """Every weight, as nested dicts."""
        return self.params

    def prepare(self, kernel: str) -> None:
        """Nothing is frozen."""


def cell(frozen: None, params: dict, precision: str) -> LstmCell:
    """The cell of features/recurrence.py with the trained arrays in it."""
    return LstmCell(**{name: array for name, array in params.items() if name != "readout"}, precision=precision)


def readout(params: dict) -> dict:
    """The arrays of the readout, for readout/linear.py."""
    return params["readout"]


def expected_counts(config: LstmConfig, vocab_size: int) -> Counts:
    """Parameters: 2 V H + V + 8 H (H + 1), two bias vectors as in PyTorch."""
    count = 2 * vocab_size * config.width + vocab_size + 8 * config.width * (config.width + 1)
    return Counts(count, count, count)


def flops_per_token(config: LstmConfig, vocab_size: int) -> int:
    """Of training: each product costs 2 flops an entry forward, 4 more backward; the embedding is none."""
    return 6 * (vocab_size * config.width + 8 * config.width**2)


def frozen_bytes(config: LstmConfig, vocab_size: int) -> int:
    return 0


def actual_counts(model: Lstm) -> Counts:
    count = sum(array.size for array in jax.tree.leaves(model.params))
    return Counts(count, count, count)


def draw_frozen(config: LstmConfig, vocab_size: int, seed: int) -> tuple[dict, dict]:
    """Nothing is frozen."""
    return {}, {}


def untrained(config: LstmConfig, vocab_size: int, seed: int, frozen: dict) -> Lstm:
    """PyTorch's initialisations (S1): embedding ~ N(0, 1), the layer and the readout ~ U(-1/sqrt H, 1/sqrt H)."""
    rng, width = generator(seed, Stream.WEIGHTS), config.width
    bound = np.float32(1 / np.sqrt(width))

    def uniform(*shape: int) -> np.ndarray:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    embedding = rng.standard_normal((vocab_size, width), dtype=np.float32)
    layer = uniform(4 * width, width), uniform(4 * width, width), uniform(4 * width), uniform(4 * width)
    return Lstm(config, embedding, *layer, linear.initialize(ReadoutConfig(rank=None), width, vocab_size, seed))
