"""GPT-2 as Hugging Face's GPT2LMHeadModel defines it, the transformer of S1's comparisons.

    x = wte[token] + wpe[position]
    x = x + attn(ln_1(x)),  x = x + mlp(ln_2(x))        in every layer
    h = ln_f(x),  o = wte h                             features, and the embedding again as the readout

Arrays carry Hugging Face's names. Those of the layers are stacked, and one compiled block is scanned over them, so that
compiling takes no longer for a deeper network.
"""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx, traverse_util
from jax import lax

from esnlm.errors import InputError
from esnlm.features import dropout as dropouts
from esnlm.features.layout import PackedBatch
from esnlm.features.packed_stream import PackedStream
from esnlm.models.counts import Counts
from esnlm.ops.matmul import einsum
from esnlm.rng import Stream, generator

# Where masks fall: on the embedding, and in layer l at LAYER_SITES * l + one of the others.
EMBEDDING, ATTENTION, AFTER_ATTENTION, AFTER_MLP = range(4)
LAYER_SITES = 3


@dataclass(frozen=True)
class GPT2Config:
    """GPT-2; the defaults are the released model of 124M parameters, and Hugging Face's."""

    family: str = "gpt2"
    layers: int = 12
    heads: int = 12  # of attention, in each layer
    width: int = 768  # of the embedding and of the residual stream; four times that inside the MLP
    positions: int = 1024  # longest sentence, in tokens read
    dropout: float = 0.1  # on the embedding, on the attention weights and on what each branch adds
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation of the initial weights

    def check(self, name: str) -> None:
        """Raises InputError, naming the field below `name`, where a setting cannot be built."""

        def must(holds: bool, field: str, rule: str) -> None:
            if not holds:
                raise InputError(f"{name}.{field} is {getattr(self, field)}: {rule}")

        for field in ("layers", "heads", "width", "positions"):
            must(getattr(self, field) >= 1, field, "it must be at least 1")
        must(self.width % self.heads == 0, "heads", f"it must divide {name}.width = {self.width}")
        dropouts.check_rate(self.dropout, f"{name}.dropout")
        for field in ("layer_norm_epsilon", "initializer_range"):
            must(getattr(self, field) > 0, field, "it must be above 0")

    @property
    def title(self) -> str:
        return f"GPT-2 {self.layers} x {self.width}"

    @property
    def features_are_frozen(self) -> bool:
        return False

    def kernel(self, backend: str) -> str:
        """There is no sparse product to choose one for."""
        return "auto"

    def batch_slots(self, backend: str) -> int:
        """Sentences to read together."""
        return 256 if backend == "cpu" else 4096

    @property
    def feature_size(self) -> int:
        return self.width

    @property
    def longest(self) -> int:
        """Tokens that it can read."""
        return self.positions

    output_dropout = 0.0  # its masks are all inside


def shapes(config: GPT2Config, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The shape of every array by its name; matrices are (in, out), and those of `h` have a leading axis of layers."""
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


def expected_counts(config: GPT2Config, vocab_size: int) -> Counts:
    """Parameters, the tied embedding once: nothing is frozen, and no entry is zero by design."""
    entries = sum(math.prod(shape) for shape in shapes(config, vocab_size).values())
    return Counts(entries, entries, entries)


def actual_counts(model: "GPT2") -> Counts:
    return expected_counts(model.config, len(model.wte["weight"][...]))


def flops_per_token(config: GPT2Config, vocab_size: int) -> int:
    """Of training: each product costs 2 flops an entry forward, 4 more backward; attention's own are left out."""
    return 6 * (12 * config.layers * config.width**2 + vocab_size * config.width)


def frozen_bytes(config: GPT2Config, vocab_size: int) -> int:
    return 0


def draw_frozen(config: GPT2Config, vocab_size: int, seed: int) -> tuple[dict, dict]:
    """Nothing is frozen."""
    return {}, {}


def untrained(config: GPT2Config, vocab_size: int, seed: int, frozen: dict) -> "GPT2":
    """The model as Hugging Face initialises it, the same from the same seed.

    Embeddings and matrices ~ N(0, initializer_range**2), those that end a residual branch (c_proj) divided by
    sqrt(2 * layers); biases 0; LayerNorm 1 and 0.
    """
    rng = generator(seed, Stream.WEIGHTS)

    def initial(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name.endswith("bias"):
            return np.zeros(shape, np.float32)
        if name.split(".")[-2].startswith("ln_"):
            return np.ones(shape, np.float32)
        values = rng.standard_normal(shape, dtype=np.float32)
        values *= config.initializer_range / (math.sqrt(2 * config.layers) if "c_proj" in name else 1)
        return values

    arrays = {name: initial(name, shape) for name, shape in shapes(config, vocab_size).items()}
    return GPT2(config, traverse_util.unflatten_dict(arrays, sep="."))


class GPT2(nnx.Module):
    """The arrays of `shapes`, float32 and nested as their names are: model.h["attn"]["c_attn"]["weight"], for example."""

    def __init__(self, config: GPT2Config, params: dict):
        self.config = config
        self.wte, self.wpe, self.h, self.ln_f = (_as_params(params[name]) for name in ("wte", "wpe", "h", "ln_f"))

    @property
    def params(self) -> dict:
        """All arrays, as nested dicts. All are trained."""
        return nnx.to_pure_dict(nnx.state(self, nnx.Param))

    def with_params(self, params: dict) -> "GPT2":
        """The model with other arrays."""
        return GPT2(self.config, params)

    def arrays(self) -> dict:
        """Every weight, as nested dicts."""
        return self.params

    def prepare(self, kernel: str) -> None:
        """Nothing is frozen."""

    def features(
        self, tokens: jax.Array, positions: jax.Array, dropout: jax.Array | None = None, precision: str = "float32"
    ) -> jax.Array:
        """`transformer` with this model's arrays."""
        return transformer(self.config, self.params, tokens, positions, dropout, precision)


def readout(params: dict) -> dict:
    """{"w"} (V, width), the embedding itself: a readout of full rank without a bias."""
    return {"w": params["wte"]["weight"]}


def features(config: GPT2Config, params: dict, batch: PackedBatch, keys: jax.Array | None, precision: str) -> jax.Array:
    """`transformer` on a batch's tokens, (T * L, width); keys (T, L) of dropout or None."""
    keys = None if keys is None else keys.T
    found = transformer(config, params, batch.tokens.T, batch.positions.T, keys, precision)  # (L, T, width)
    return found.transpose(1, 0, 2).reshape(-1, config.width)


def stream(config: GPT2Config, params: dict, compute) -> PackedStream:
    """Features without a gradient, see features/packed_stream.py."""
    return PackedStream(lambda batch: _evaluate(config, params, batch, compute.precision), compute.batch_slots)


@partial(jax.jit, static_argnums=(0, 3))
def _evaluate(config, params, batch, precision):
    return features(config, params, batch, None, precision)


def transformer(
    config: GPT2Config, params: dict, tokens: jax.Array, positions: jax.Array, dropout: jax.Array | None, precision: str
) -> jax.Array:
    """What the readout sees after each token, (L, T, width) float32.

    A slot holds several sentences one after another. A token sees itself and what came before it in its own sentence, so
    the features are the same, up to rounding, however sentences are laid out; with dropout too.

    Args:
        params: GPT2.params.
        tokens: (L, T) int32.
        positions: (L, T) int32, each token's place in its sentence: every 0 starts one. What follows the last sentence
            of a slot is any token at position 0.
        dropout: one key a token (L, T), which decides its masks; None in evaluation.
        precision: of the products: float32, tf32 or bf16 (ops/matmul.py). All else is float32.

    A token or position outside its table gives NaN.
    """
    dropout = dropout if config.dropout else None
    epsilon, slots, length = config.layer_norm_epsilon, *tokens.shape

    x = _rows(params["wte"]["weight"], tokens) + _rows(params["wpe"]["weight"], positions)  # (L, T, D)
    x = _drop(x, dropout, EMBEDDING, config.dropout)
    sentence, column = jnp.cumsum(positions == 0, axis=1), jnp.arange(length)  # (L, T), (T,)
    visible = (sentence[:, :, None] == sentence[:, None, :]) & (column[:, None] >= column)  # (L, T, T): query, key

    def layer(x, inputs):
        p, number = inputs
        site = LAYER_SITES * number
        y = _linear(_layer_norm(x, p["ln_1"], epsilon), p["attn"]["c_attn"], precision)  # (L, T, 3 D)
        query, key, value = y.reshape(slots, length, 3, config.heads, -1).transpose(2, 0, 1, 3, 4)  # (L, T, heads, E)
        keys = None if dropout is None else _fold_in(dropout, site + ATTENTION)
        y = _attention(query, key, value, visible, positions, keys, config.dropout, precision)
        y = _linear(y.reshape(x.shape), p["attn"]["c_proj"], precision)
        x = x + _drop(y, dropout, site + AFTER_ATTENTION, config.dropout)
        y = _linear(_layer_norm(x, p["ln_2"], epsilon), p["mlp"]["c_fc"], precision)  # (L, T, 4 D)
        y = _linear(jax.nn.gelu(y, approximate=True), p["mlp"]["c_proj"], precision)
        return x + _drop(y, dropout, site + AFTER_MLP, config.dropout), None

    x, _ = lax.scan(layer, x, (params["h"], jnp.arange(config.layers)))
    return _layer_norm(x, params["ln_f"], epsilon)


# Kept for the backward pass, the attention weights (L, heads, T, T) of all layers would be most of its memory.
@partial(jax.checkpoint, static_argnums=(6, 7), prevent_cse=False)  # scan keeps the two passes apart
def _attention(query, key, value, visible, positions, keys, rate, precision):
    """softmax(query key^T / sqrt E) value, (L, T, heads, E), over the visible keys, after dropout on the softmax."""
    scores = einsum("lqhe,lkhe->lhqk", query, key, precision) / math.sqrt(query.shape[-1])
    weights = jax.nn.softmax(jnp.where(visible[:, None], scores, -jnp.inf))  # (L, heads, T, T)
    if keys is not None:
        weights = weights * _attention_mask(keys, positions, query.shape[2], rate)
    return einsum("lhqk,lkhe->lqhe", weights, value, precision)


def _attention_mask(keys, positions, heads, rate):
    """0 with probability `rate`, else 1 / (1 - rate), (L, heads, T, T), each from the query's key, the position of the key
    token in its sentence, and the head.

    A threefry block for every number takes about as many operations as attention itself. So only a query's key comes
    from one; its two words are scrambled with a counter by murmur3's finalizer.
    """
    words = jax.random.key_data(keys)[:, None, :, None, :]  # (L, 1, T, 1, 2)
    counter = positions[:, None, :] * heads + jnp.arange(heads)[:, None]  # (L, heads, T)
    counter = counter[:, :, None, :].astype(jnp.uint32)  # (L, heads, 1, T)
    bits = _scramble(_scramble(counter + words[..., 0]) ^ words[..., 1])
    return jnp.where(bits >= jnp.uint32(rate * 2**32), jnp.float32(1 / (1 - rate)), jnp.float32(0))


def _scramble(x):
    """The finalizer of murmur3 (Appleby), a bijection of uint32 in which every bit of x moves every bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _fold_in(keys, site):
    return jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (0, None))(keys, site)


def _drop(x, keys, site, rate):
    return x if keys is None else x * dropouts.mask(keys, site, x.shape[-1], rate)


def _rows(table, index):
    return table.at[index].get(mode="fill", fill_value=jnp.nan)


def _layer_norm(x, p, epsilon):
    x = x - x.mean(axis=-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * p["weight"] + p["bias"]


def _linear(x, p, precision):
    return einsum("lti,io->lto", x, p["weight"], precision) + p["bias"]


def _as_params(tree):
    return nnx.Dict(
        {
            name: _as_params(part) if isinstance(part, dict) else nnx.Param(jnp.asarray(part))
            for name, part in tree.items()
        }
    )
