"""GPT-2 as Hugging Face's GPT2LMHeadModel, with which Ueda et al. 2025a compare.

    x = wte[token] + wpe[position]
    x = x + attn(ln_1(x)),  x = x + mlp(ln_2(x))        in every layer
    h = ln_f(x),  o = wte h                             features; the embedding is the readout

Arrays have Hugging Face's names. The arrays of the layers are stacked, and one compiled block is
scanned over them, so that the time to compile does not grow with the depth.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx, traverse_util
from jax import lax

from esnlm.base.rng import Stream, generator
from esnlm.base.settings import Count, Positive, Rate, settings
from esnlm.features import dropout as dropouts
from esnlm.features.batching import PackedSteps, round_up
from esnlm.features.stream import BatchStream
from esnlm.machine.compute import ResolvedCompute
from esnlm.machine.matmul import einsum
from esnlm.machine.mesh import Placement
from esnlm.models.base import Counts, LanguageModel, ModelConfig
from esnlm.reservoir.arrays import arrays_by_name

# Sites of dropout masks: the embedding, and in layer l LAYER_SITES * l + one of the others.
EMBEDDING, ATTENTION, AFTER_ATTENTION, AFTER_MLP = range(4)
LAYER_SITES = 3
CACHE_STEP = 64  # The cache's length is a multiple of this, to limit the number of compilations.


@settings
class GPT2Config(ModelConfig):
    """GPT-2; the defaults are those of the released model of 124M parameters."""

    family: str = "gpt2"
    layers: Count = 12  # number of blocks of attention and MLP
    heads: Count = 12  # attention heads per block
    # size of the embedding and of the residual stream; the MLP is four times as wide
    width: Count = 768
    positions: Count = 1024  # maximum sentence length in tokens, BOS included and EOS not
    # dropout rate, applied to the embedding, the attention weights and the output of each branch
    dropout: Rate = 0.1
    layer_norm_epsilon: Positive = 1e-5  # added to the variance in a layer norm
    initializer_range: Positive = 0.02  # standard deviation of the initial weights

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}: it must divide width = {self.width}")

    @property
    def title(self) -> str:
        return f"GPT-2 {self.layers} x {self.width}"

    @property
    def feature_size(self) -> int:
        return self.width

    @property
    def max_length(self) -> int:
        return self.positions

    @property
    def token_arrays(self) -> tuple[str, ...]:
        return ("wte.weight",)

    @property
    def readout_can_be_padded(self) -> bool:
        return False  # The readout is the embedding, without a bias.

    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns equal counts: no array is frozen or sparse. The embedding counts once."""
        entries = sum(math.prod(shape) for shape in shapes(self, vocab_size).values())
        return Counts(entries, entries, entries)

    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> "GPT2":
        """Returns the model as Hugging Face initialises it.

        Embeddings and matrices ~ N(0, initializer_range**2); matrices at the end of a residual
        branch (c_proj) are divided by sqrt(2 * layers); biases are 0; LayerNorm begins with 1 and
        0.
        """
        rng, arrays = generator(seed, Stream.WEIGHTS), {}
        for name, shape in shapes(self, vocab_size).items():
            if name.endswith("bias"):
                arrays[name] = np.zeros(shape, np.float32)
            elif "ln_" in name:
                arrays[name] = np.ones(shape, np.float32)
            else:
                branch = math.sqrt(2 * self.layers) if "c_proj" in name else 1
                arrays[name] = rng.standard_normal(shape, dtype=np.float32)
                arrays[name] *= self.initializer_range / branch
        return GPT2(self, traverse_util.unflatten_dict(arrays, sep="."))


def shapes(config: GPT2Config, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each array. Matrices are (in, out), and `h` has an axis of layers."""
    width = config.width
    layer = {
        "ln_1.weight": (width,),
        "ln_1.bias": (width,),
        "attn.c_attn.weight": (width, 3 * width),  # query, key, value
        "attn.c_attn.bias": (3 * width,),
        "attn.c_proj.weight": (width, width),
        "attn.c_proj.bias": (width,),
        "ln_2.weight": (width,),
        "ln_2.bias": (width,),
        "mlp.c_fc.weight": (width, 4 * width),
        "mlp.c_fc.bias": (4 * width,),
        "mlp.c_proj.weight": (4 * width, width),
        "mlp.c_proj.bias": (width,),
    }
    return {
        "wte.weight": (vocab_size, width),
        "wpe.weight": (config.positions, width),
        **{f"h.{name}": (config.layers, *shape) for name, shape in layer.items()},
        "ln_f.weight": (width,),
        "ln_f.bias": (width,),
    }


class Cache(NamedTuple):
    """Keys and values of the tokens read so far, for B sentences side by side."""

    key: jax.Array  # (layers, B, heads, positions, E)
    value: jax.Array  # (layers, B, heads, positions, E)
    position: jax.Array  # () int32, of the next token
    features: jax.Array  # (width, B), after the last token


class GPT2(LanguageModel):
    """The arrays of `shapes`, nested by their names, such as model.h["attn"]["c_attn"]["weight"].

    All are trained. A token or position outside its table gives NaN.
    """

    config: GPT2Config
    output_dropout = 0.0  # All masks are inside the network.

    def __init__(self, config: GPT2Config, arrays: dict) -> None:
        self.config = config
        self.wte, self.wpe, self.h, self.ln_f = (
            _as_params(arrays[name]) for name in ("wte", "wpe", "h", "ln_f")
        )

    def __call__(self, batch: PackedSteps, key: jax.Array | None = None) -> jax.Array:
        keys = None if key is None else dropouts.token_keys(key, batch.corpus_positions).T
        features = self.hidden_states(batch.tokens.T, batch.positions.T, keys)  # (B, T, width)
        return features.transpose(1, 0, 2).reshape(-1, self.config.width)

    def hidden_states(
        self, tokens: jax.Array, positions: jax.Array, keys: jax.Array | None = None
    ) -> jax.Array:
        """Returns the features after each token, (B, T, width) float32.

        A slot holds several sentences one after another. A token attends to itself and to earlier
        tokens of its sentence, so the features do not depend on the layout of the sentences, up to
        rounding; with dropout too.

        Args:
            tokens: (B, T) int32.
            positions: (B, T) int32, each token's position in its sentence. Every 0 starts a
                sentence or padding.
            keys: dropout keys, one per token (B, T); None: no dropout.
        """
        return self._run_layers(tokens, positions, keys)[0]

    def _run_layers(
        self,
        tokens: jax.Array,
        positions: jax.Array,
        keys: jax.Array | None = None,
        with_layers: bool = False,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns `hidden_states` and, `with_layers`, each layer's output (layers, B, T, width)."""
        config, length = self.config, tokens.shape[1]
        keys = keys if config.dropout else None

        x = _drop(self._embed(tokens, positions), keys, EMBEDDING, config.dropout)  # (B, T, D)
        sentence, column = jnp.cumsum(positions == 0, axis=1), jnp.arange(length)  # (B, T), (T,)
        # (B, T, T): query, key
        visible = (sentence[:, :, None] == sentence[:, None, :]) & (column[:, None] >= column)

        def layer(
            x: jax.Array, inputs: tuple[dict, jax.Array]
        ) -> tuple[jax.Array, jax.Array | None]:
            p, number = inputs
            site = LAYER_SITES * number
            query, key, value = self._queries_keys_values(x, p)  # (B, T, heads, E)
            drop_keys = None if keys is None else _fold_in(keys, site + ATTENTION)
            y = _attention(
                query, key, value, visible, positions, drop_keys, config.dropout, self.precision
            )
            x = self._after_attention(x, y, p, keys, site)
            return x, x if with_layers else None

        x, outputs = lax.scan(layer, x, (arrays_by_name(self.h), jnp.arange(config.layers)))
        return _layer_norm(x, arrays_by_name(self.ln_f), config.layer_norm_epsilon), outputs

    def initial_state(self, slots: int, length: int | None = None) -> Cache:
        config = self.config
        length = round_up(length or config.positions, CACHE_STEP)
        positions, size = min(config.positions, length), config.width // config.heads
        shape = config.layers, slots, config.heads, positions, size
        key, value = jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32)
        return Cache(key, value, jnp.int32(0), jnp.zeros((config.width, slots), jnp.float32))

    def step(self, state: Cache, tokens: jax.Array) -> Cache:
        """Returns the cache after one more token per slot; features beyond its length are NaN."""
        config, position, length = self.config, state.position, state.key.shape[3]
        x = self._embed(tokens, position)  # (B, D)
        x = jnp.where(position < length, x, jnp.nan)[:, None]  # (B, 1, D)
        visible = jnp.arange(length) <= position

        def layer(
            x: jax.Array, inputs: tuple[dict, jax.Array, jax.Array]
        ) -> tuple[jax.Array, tuple]:
            p, *cached = inputs  # (B, heads, positions, E)
            # (B, heads, 1, E)
            query, *new = (part.swapaxes(1, 2) for part in self._queries_keys_values(x, p))
            key, value = (
                lax.dynamic_update_slice_in_dim(*each, position, 2)
                for each in zip(cached, new, strict=True)
            )
            scores = einsum("bhqe,bhke->bhqk", query, key, self.precision)
            scores = jnp.where(visible, scores / math.sqrt(query.shape[-1]), -jnp.inf)
            weights = jax.nn.softmax(scores)  # (B, heads, 1, positions)
            y = einsum("bhqk,bhke->bhqe", weights, value, self.precision)
            return self._after_attention(x, y, p), (key, value)

        x, (key, value) = lax.scan(layer, x, (arrays_by_name(self.h), state.key, state.value))
        features = _layer_norm(x, arrays_by_name(self.ln_f), config.layer_norm_epsilon)
        return Cache(key, value, position + 1, features[:, 0].T)

    def output(self, state: Cache) -> jax.Array:
        return state.features

    def stream(self, compute: ResolvedCompute, placement: Placement | None = None) -> BatchStream:
        model = self if placement is None else placement.replicate(self)
        return BatchStream(partial(_evaluate, model), compute.batch_slots, placement)

    @property
    def layer_sizes(self) -> dict[str, int]:
        layers = (f"layer{i}" for i in range(self.config.layers))
        return dict.fromkeys(("features", "embedding", *layers), self.config.width)

    def layer_stream(
        self, names: tuple[str, ...], compute: ResolvedCompute, placement: Placement | None = None
    ) -> BatchStream:
        model = self if placement is None else placement.replicate(self)
        read = partial(_evaluate_layers, model, names)
        return BatchStream(read, compute.batch_slots, placement)

    def readout_arrays(self, params: dict) -> dict:
        """Returns {"w"} (V, width), the embedding, as a full-rank readout without a bias."""
        return {"w": params["wte"]["weight"]}

    def counts(self) -> Counts:
        return self.config.expected_counts(self.wte["weight"].shape[0])

    def _embed(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        wte, wpe = self.wte["weight"][...], self.wpe["weight"][...]
        return _rows(wte, tokens) + _rows(wpe, positions)

    def _queries_keys_values(self, x: jax.Array, p: dict) -> jax.Array:
        """Returns queries, keys and values, (3, B, T, heads, E), for x (B, T, D)."""
        normed = _layer_norm(x, p["ln_1"], self.config.layer_norm_epsilon)
        y = _linear(normed, p["attn"]["c_attn"], self.precision)
        return y.reshape(*x.shape[:2], 3, self.config.heads, -1).transpose(2, 0, 1, 3, 4)

    def _after_attention(
        self,
        x: jax.Array,
        attended: jax.Array,
        p: dict,
        keys: jax.Array | None = None,
        site: int | jax.Array = 0,
    ) -> jax.Array:
        """Returns x (B, T, D) after a layer, from its attended values (B, T, heads, E)."""
        y = _linear(attended.reshape(x.shape), p["attn"]["c_proj"], self.precision)
        x = x + _drop(y, keys, site + AFTER_ATTENTION, self.config.dropout)
        normed = _layer_norm(x, p["ln_2"], self.config.layer_norm_epsilon)
        y = _linear(normed, p["mlp"]["c_fc"], self.precision)  # (B, T, 4 D)
        y = _linear(jax.nn.gelu(y, approximate=True), p["mlp"]["c_proj"], self.precision)
        return x + _drop(y, keys, site + AFTER_MLP, self.config.dropout)


@jax.jit
def _evaluate(model: GPT2, batch: PackedSteps) -> jax.Array:
    return model(batch)


@partial(jax.jit, static_argnums=1)
def _evaluate_layers(model: GPT2, names: tuple[str, ...], batch: PackedSteps) -> jax.Array:
    """Returns the states of layers side by side, (T * B, F)."""
    tokens, positions = batch.tokens.T, batch.positions.T
    features, outputs = model._run_layers(tokens, positions, with_layers=True)
    assert outputs is not None
    states = {f"layer{i}": output for i, output in enumerate(outputs)}
    states |= {"features": features, "embedding": model._embed(tokens, positions)}
    chosen = jnp.concatenate([states[name] for name in names], axis=2)  # (B, T, F)
    return chosen.swapaxes(0, 1).reshape(-1, chosen.shape[2])


# The backward pass recomputes the attention weights (B, heads, T, T): kept for all layers, they
# would take most of the memory. scan keeps the two passes apart without a barrier against CSE.
@partial(jax.checkpoint, static_argnums=(6, 7), prevent_cse=False)
def _attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    visible: jax.Array,
    positions: jax.Array,
    keys: jax.Array | None,
    rate: float,
    precision: str,
) -> jax.Array:
    """Returns softmax(query key^T / sqrt E) value, (B, T, heads, E), and drops parts of softmax."""
    scores = einsum("lqhe,lkhe->lhqk", query, key, precision) / math.sqrt(query.shape[-1])
    weights = jax.nn.softmax(jnp.where(visible[:, None], scores, -jnp.inf))  # (L, heads, T, T)
    if keys is not None:
        weights = weights * _attention_mask(keys, positions, query.shape[2], rate)
    return einsum("lhqk,lkhe->lqhe", weights, value, precision)


def _attention_mask(keys: jax.Array, positions: jax.Array, heads: int, rate: float) -> jax.Array:
    """Returns dropout's mask, (B, heads, T, T).

    It depends on the query's dropout key, the position of the token attended to, and the head.

    A threefry block per number would take about as many operations as attention itself. So threefry
    makes one key per query, and murmur3's finalizer scrambles the two words of that key with a
    counter.
    """
    words = jax.random.key_data(keys)[:, None, :, None, :]  # (B, 1, T, 1, 2)
    counter = positions[:, None, :] * heads + jnp.arange(heads)[:, None]  # (B, heads, T)
    counter = counter[:, :, None, :].astype(jnp.uint32)  # (B, heads, 1, T)
    bits = _scramble(_scramble(counter + words[..., 0]) ^ words[..., 1])
    return jnp.where(bits >= jnp.uint32(rate * 2**32), jnp.float32(1 / (1 - rate)), jnp.float32(0))


def _scramble(x: jax.Array) -> jax.Array:
    """Applies murmur3's finalizer (Appleby), a bijection of uint32 that mixes all bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _fold_in(keys: jax.Array, site: int | jax.Array) -> jax.Array:
    return jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (0, None))(keys, site)


def _drop(x: jax.Array, keys: jax.Array | None, site: int | jax.Array, rate: float) -> jax.Array:
    return x if keys is None else x * dropouts.mask(keys, site, x.shape[-1], rate)


def _rows(table: jax.Array, index: jax.Array) -> jax.Array:
    return table.at[index].get(mode="fill", fill_value=jnp.nan)


def _layer_norm(x: jax.Array, p: dict, epsilon: float) -> jax.Array:
    x = x - x.mean(axis=-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * p["weight"] + p["bias"]


def _linear(x: jax.Array, p: dict, precision: str) -> jax.Array:
    return einsum("lti,io->lto", x, p["weight"], precision) + p["bias"]


def _as_params(tree: dict) -> nnx.Dict:
    return nnx.Dict(
        {
            name: _as_params(part) if isinstance(part, dict) else nnx.Param(jax.device_put(part))
            for name, part in tree.items()
        }
    )
