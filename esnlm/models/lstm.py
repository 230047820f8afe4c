"""The LSTM language model that the papers compare with: embedding, one layer, full-rank readout.

Hashed n-grams may be added to its features [ours], to compare it with a deep readout that has them.
The gradient through time is `recurrent_outputs`, which is faster than autodiff's.
"""

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from esnlm.base.rng import Stream, generator
from esnlm.base.settings import Count, Rate, settings
from esnlm.features.recurrence import State, scan_sentences
from esnlm.machine.matmul import matmul
from esnlm.models.base import READOUT_ARRAYS, Counts, ModelConfig, RecurrentModel
from esnlm.models.trunk import HashedNgrams, HashedNgramsConfig, TokenHistory, ids_of
from esnlm.readout import linear
from esnlm.readout.linear import FullRankReadout, ReadoutConfig, normal, uniform

LstmState = tuple[jax.Array, jax.Array]  # h and c, each (H, B)
Product = Callable[[jax.Array], jax.Array]  # from h (H, B) to W h (G, B)
Advance = Callable[[Product, State, jax.Array], tuple[State, jax.Array]]


@settings
class LstmConfig(ModelConfig):
    """An LSTM with one layer; by default that of Ueda et al. 2025a."""

    family: str = "lstm"
    width: Count = 512  # size of the embedding and of the hidden state (Ueda et al. 2025a)
    # dropout rate, applied after the embedding and before the readout (Ueda et al. 2025a)
    dropout: Rate = 0.1
    # Use the readout matrix, times sqrt(width), as the embedding (Press and Wolf 2017). The papers
    # do not.
    tied: bool = False
    ngrams: HashedNgramsConfig = field(default_factory=HashedNgramsConfig)

    @property
    def title(self) -> str:
        ngrams = f", {self.ngrams.title}" if self.ngrams.orders else ""
        return f"LSTM {self.width:,}{', tied' if self.tied else ''}{ngrams}"

    @property
    def feature_size(self) -> int:
        return self.width

    @property
    def token_arrays(self) -> tuple[str, ...]:
        return ("embedding", *READOUT_ARRAYS)

    @property
    def readout_can_be_padded(self) -> bool:
        return not self.tied

    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns 2 V H + V + 8 H (H + 1) (two biases, as in PyTorch); V H less if tied."""
        tables = (1 if self.tied else 2) * vocab_size * self.width
        layer = 8 * self.width * (self.width + 1)
        count = tables + vocab_size + layer + self.ngrams.parameters(self.width)
        return Counts(count, count, count)

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> "Lstm":
        """Draws as PyTorch: the embedding ~ N(0, 1), layer and readout ~ U(-1/sqrt H, 1/sqrt H).

        N-grams do not change the initial values of the other arrays.
        """
        rng = generator(seed, Stream.WEIGHTS)
        readout = linear.initialize(ReadoutConfig(rank=None), self.width, vocab_size, seed)
        assert isinstance(readout, FullRankReadout)
        return (LstmWithNgrams if self.ngrams.orders else Lstm)(self, readout, rng)


class Bias(nnx.Module):
    """The readout of a tied LSTM, whose W_out is the embedding: `bias` (V,)."""

    def __init__(self, bias: nnx.Param) -> None:
        self.bias = bias


class Lstm(RecurrentModel):
    """torch.nn.LSTM's equations between an embedding and a readout; the state is (h, c).

        i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
        c' = sigmoid(f) * c + sigmoid(i) * tanh(g);   h' = sigmoid(o) * tanh(c')

    The embedding is (V, H), w_ih and w_hh (4 H, H), b_ih and b_hh (4 H,), and the readout (V, H)
    with its bias, or only a bias if it is tied to the embedding.
    """

    config: LstmConfig

    def __init__(
        self, config: LstmConfig, readout: FullRankReadout, rng: np.random.Generator
    ) -> None:
        self.config, width = config, config.width
        self.embedding = nnx.Param(normal(rng, (len(readout.bias[...]), width)))
        self.w_ih, self.w_hh = (
            nnx.Param(uniform(rng, (4 * width, width), fan_in=width)) for _ in range(2)
        )
        self.b_ih, self.b_hh = (
            nnx.Param(uniform(rng, (4 * width,), fan_in=width)) for _ in range(2)
        )
        self.readout: FullRankReadout | Bias = readout
        if config.tied:
            self.embedding, self.readout = readout.w, Bias(readout.bias)

    @property
    def output_size(self) -> int:
        return self.config.width

    mask_size = output_size

    def initial_state(self, slots: int, length: int | None = None) -> LstmState:
        return (jnp.zeros((self.output_size, slots), jnp.float32),) * 2

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        """Returns W_ih x + b_ih + b_hh, (4 H, B), for tokens (B,) and dropout's mask (H, B)."""
        x = embedding_scale(self.config) * self.embedding[...][tokens]  # (B, H)
        x = x if keep is None else x * keep.T
        bias = (self.b_ih[...] + self.b_hh[...])[:, None]
        return matmul(self.w_ih[...], x, (1, 1), self.precision) + bias

    def advance(self, state: LstmState, x: jax.Array) -> LstmState:
        return _advance(lambda h: matmul(self.w_hh[...], h, (1, 0), self.precision), state, x)[0]

    def through_time(
        self, x: jax.Array, positions: jax.Array, start: LstmState
    ) -> tuple[LstmState, jax.Array]:
        """Returns the last state, and h after each token, (T, H, B), for x (T, 4 H, B)."""
        return recurrent_outputs(_advance, self.w_hh[...], start, x, positions, self.precision)

    def step(self, state: LstmState, tokens: jax.Array) -> LstmState:
        return self.advance(state, self.embed(tokens))

    def output(self, state: LstmState) -> jax.Array:
        return state[0]

    @property
    def layer_sizes(self) -> dict[str, int]:
        return dict.fromkeys(("features", "h", "c"), self.config.width)

    def layer(self, name: str, state: Any) -> jax.Array:
        h, c = state
        return c if name == "c" else h

    def readout_arrays(self, params: dict) -> dict:
        return params["readout"] | ({"w": params["embedding"]} if self.config.tied else {})

    def counts(self) -> Counts:
        return self.config.expected_counts(self.readout.bias.shape[0])


class LstmWithNgrams(Lstm):
    """An LSTM with features z = h + the embeddings of the last n tokens, for some n.

    Only the readout reads z: n-grams affect neither the gates nor the next h. The state is a pair
    of the LSTM's state and that of a TokenHistory.
    """

    def __init__(
        self, config: LstmConfig, readout: FullRankReadout, rng: np.random.Generator
    ) -> None:
        super().__init__(config, readout, rng)
        self.ngrams = HashedNgrams(config.ngrams, config.width, rng)
        self.history = TokenHistory(config.ngrams.history)

    def initial_state(self, slots: int, length: int | None = None) -> Any:
        return super().initial_state(slots), self.history.initial_state(slots)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> Any:
        """Returns the results of `embed` of the LSTM, (4 H, B), and of TokenHistory, (1, B)."""
        return super().embed(tokens, keep), self.history.embed(tokens)

    def advance(self, state: Any, x: Any) -> Any:
        return super().advance(state[0], x[0]), self.history.advance(state[1], x[1])

    def through_time(self, x: Any, positions: jax.Array, start: Any) -> tuple[Any, jax.Array]:
        """Returns the last state, and z after each token, (T, H, B)."""
        last_tokens, history = self.history.through_time(x[1], positions, start[1])  # (T, K, B)
        # (T B, H)
        added = self.ngrams(ids_of(history.mT.reshape(-1, history.shape[1])), self.precision)
        end, h = super().through_time(x[0], positions, start[0])
        return (end, last_tokens), h + added.reshape(*positions.shape, -1).mT

    def output(self, state: Any) -> jax.Array:
        (h, _), history = state
        return h + self.ngrams(ids_of(history.T), self.precision).T

    def layer(self, name: str, state: Any) -> jax.Array:
        return self.output(state) if name == "features" else super().layer(name, state[0])


def embedding_scale(config: LstmConfig) -> float:
    """Returns the factor on embeddings: tied ones begin at about 1 / sqrt H, others at about 1."""
    return config.width**0.5 if config.tied else 1.0


def _advance(recurrent: Product, state: LstmState, x: jax.Array) -> tuple[LstmState, jax.Array]:
    """Returns the next (h, c), and h, from h -> W_hh h and W_ih x + b_ih + b_hh, (4 H, B)."""
    h, c = state
    i, f, g, o = jnp.split(x + recurrent(h), 4)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


@partial(jax.custom_vjp, nondiff_argnums=(0, 5))
def recurrent_outputs(
    advance: Advance, w: jax.Array, start: State, x: jax.Array, positions: jax.Array, precision: str
) -> tuple[State, jax.Array]:
    """Returns the last state of sentences in slots, and all outputs, (T, H, B).

    A step adds W h to its input x, and h is the last output. So the gradient with respect to x_t
    equals that with respect to W h, and the gradient with respect to W is

        dW = sum over t of dx_t h_{t-1}^T

    Autodiff of a scan adds one product to dW at each time step; this function computes one product
    over all steps and slots. XLA's CPU backend transposes W for each product W^T dx; this function
    does it once. Without both, an update of an LSTM of 512 units took about 1.6 times as long on
    two cores of an EPYC (results/families.md).

    It can be differentiated once, in w and x; the last state has no gradient.

    Args:
        advance: (product with W, state, input (G, B)) -> (next state, its output h' (H, B)). It
            must use the input only as x + W h, h being the last output, or zeros at the start of a
            sentence, and read no other trained array.
        w: (G, H), the matrix W.
        start: the state before the first token. Its first array is the last output.
        x: (T, G, B).
        positions: (T, B) int32, position of each token in its sentence; 0 resets the state.
        precision: of the products (machine/matmul.py).
    """
    return _scan(advance, w, start, x, positions, precision)


def _scan(
    advance: Advance, w: jax.Array, start: State, x: jax.Array, positions: jax.Array, precision: str
) -> tuple[State, jax.Array]:
    return scan_sentences(partial(advance, partial(_times, precision, w, w.T)), start, x, positions)


def _forward(
    advance: Advance, w: jax.Array, start: State, x: jax.Array, positions: jax.Array, precision: str
) -> tuple[tuple[State, jax.Array], Any]:
    def scan(x: jax.Array) -> tuple[jax.Array, State]:
        end, h = _scan(advance, w, start, x, positions, precision)
        return h, end

    h, back, end = jax.vjp(scan, x, has_aux=True)
    return (end, h), (back, jax.tree.leaves(start)[0], h, positions)


def _backward(
    advance: Advance, precision: str, residuals: Any, cotangents: tuple[State, jax.Array]
) -> tuple[Any, ...]:
    back, before, h, positions = residuals
    (dx,) = back(cotangents[1])
    last = jnp.concatenate([before[None], h[:-1]])
    last = jnp.where(positions[:, None] == 0, 0.0, last)  # (T, H, B)
    dw = matmul(_by_unit(dx), _by_unit(last), (1, 1), precision)
    return dw, None, dx, None


recurrent_outputs.defvjp(_forward, _backward)


def _by_unit(x: jax.Array) -> jax.Array:
    """Returns x (T, H, B) as (H, T B)."""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _times(precision: str, w: jax.Array, transposed: jax.Array, h: jax.Array) -> jax.Array:
    """Returns W h, (G, B), with a gradient in h by `transposed` and none in W."""
    return matmul(w, h, (1, 0), precision)


def _times_forward(
    precision: str, w: jax.Array, transposed: jax.Array, h: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return _times(precision, w, transposed, h), transposed


def _times_backward(
    precision: str, transposed: jax.Array, dx: jax.Array
) -> tuple[None, None, jax.Array]:
    return None, None, matmul(transposed, dx, (1, 0), precision)


_times.defvjp(_times_forward, _times_backward)
