"""GPT-2 against its definition in NumPy, whatever slots its sentences lie in, with dropout and
without."""

from functools import cache, partial
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx, traverse_util

from esnlm.features import dropout as dropouts
from esnlm.models import gpt2
from esnlm.models.gpt2 import GPT2, GPT2Config
from tests import oracle
from tests.models.running import layers_of

CONFIG = GPT2Config(layers=2, heads=4, width=24, positions=16, dropout=0.2)
V = 50
EPSILON = float(np.finfo(np.float32).eps)
# Relative to the largest feature: 6 products a layer, each of up to 4 * width terms and so off by
# about sqrt(4 * width) roundings. LayerNorm keeps what passes between them at order 1, so that
# errors add up and do not grow.
TOLERANCE = EPSILON * 6 * CONFIG.layers * np.sqrt(4 * CONFIG.width)
SENTENCES = [np.random.default_rng([7, n]).integers(0, V, n) for n in (5, 16, 1, 9, 3, 7, 12, 2)]


def random_model(config=CONFIG, vocab_size=V, seed=0):
    """Every array away from 0 and 1, so that each of them matters."""
    rng = np.random.default_rng(seed)
    arrays = {
        name: rng.normal(0, 0.2, shape) for name, shape in gpt2.shapes(config, vocab_size).items()
    }
    arrays |= {
        name: 1 + array
        for name, array in arrays.items()
        if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight"))
    }
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    return GPT2(config, traverse_util.unflatten_dict(arrays, sep="."))


MODEL = random_model()
GRAPH, STATE = nnx.split(MODEL)


@partial(jax.jit, static_argnames="precision")
def features(state, tokens, positions, keys=None, precision="float32"):
    model = nnx.merge(GRAPH, state)
    model.precision = precision
    return model.hidden_states(tokens, positions, keys)


def lay_out(sentences, slots, length):
    """Sentences in slots, each to the one that is shortest: tokens, positions and corpus_positions
    (slots, length), and slices."""
    tokens, positions, corpus_positions = np.zeros((3, slots, length), np.int32)
    filled, where, place = [0] * slots, [], 0
    for sentence in sentences:
        slot, count = int(np.argmin(filled)), len(sentence)
        span = (slot, slice(filled[slot], filled[slot] + count))
        tokens[span], positions[span], corpus_positions[span] = (
            sentence,
            range(count),
            range(place, place + count),
        )
        filled[slot] += count
        place += count
        where.append(span)
    return tokens, positions, corpus_positions, where


KEYS = jax.random.split(jax.random.key(3), sum(map(len, SENTENCES)))


def features_of(dropped):
    tokens, positions, corpus_positions, where = lay_out(SENTENCES, 8, 16)
    found = np.asarray(
        features(STATE, tokens, positions, KEYS[corpus_positions] if dropped else None)
    )
    return [found[span] for span in where]


# ---- the definition, in float64 NumPy ----


def norm(x, p):
    x = x - x.mean(-1, keepdims=True)
    return (
        x / np.sqrt((x**2).mean(-1, keepdims=True) + CONFIG.layer_norm_epsilon) * p["weight"]
        + p["bias"]
    )


def affine(x, p):
    return x @ p["weight"] + p["bias"]


def no_dropout(site, x):
    return x


def oracle_features(params, sentence, drop=no_dropout):
    """(T, width), for one sentence."""
    return oracle_layers(params, sentence, drop)["features"]


def oracle_layers(params, sentence, drop=no_dropout):
    """All layers by name, (T, width) each, for one sentence."""
    params = jax.tree.map(lambda array: np.asarray(array, np.float64), params)
    count = len(sentence)
    x = drop(0, params["wte"]["weight"][sentence] + params["wpe"]["weight"][:count])
    layers = {"embedding": x}
    for layer in range(CONFIG.layers):
        p = jax.tree.map(itemgetter(layer), params["h"])
        query, key, value = np.split(affine(norm(x, p["ln_1"]), p["attn"]["c_attn"]), 3, axis=1)
        weights = np.zeros((CONFIG.heads, count, count))
        size = CONFIG.width // CONFIG.heads
        heads = [slice(h * size, (h + 1) * size) for h in range(CONFIG.heads)]
        for h, head in enumerate(heads):
            for t in range(count):
                e = np.exp(key[: t + 1, head] @ query[t, head] / np.sqrt(size))
                weights[h, t, : t + 1] = e / e.sum()
        weights = drop(3 * layer + 1, weights)
        attended = np.concatenate(
            [weights[h] @ value[:, head] for h, head in enumerate(heads)], axis=1
        )
        x = x + drop(3 * layer + 2, affine(attended, p["attn"]["c_proj"]))
        y = affine(norm(x, p["ln_2"]), p["mlp"]["c_fc"])
        y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
        x = x + drop(3 * layer + 3, affine(y, p["mlp"]["c_proj"]))
        layers[f"layer{layer}"] = x
    return layers | {"features": norm(x, params["ln_f"])}


@cache
def words(site):
    """The two numbers that decide a token's attention mask, (tokens, 2)."""
    return np.asarray(
        jax.vmap(lambda key: jax.random.key_data(jax.random.fold_in(key, site)))(KEYS), np.int64
    )


@cache
def token_masks(site):
    return np.asarray(dropouts.mask(KEYS, site, CONFIG.width, CONFIG.dropout), np.float64)


def oracle_dropout(span):
    """The masks of the sentence whose tokens have the keys KEYS[span]."""

    def scramble(x):
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            x = (x ^ (x >> shift)) * factor % 2**32
        return x ^ (x >> 16)

    def drop(site, x):
        if x.ndim == 2:
            return x * token_masks(site)[span]
        one, two = words(site)[span].T[:, None, :, None]  # (1, T, 1) each
        head, position = np.arange(CONFIG.heads)[:, None, None], np.arange(x.shape[2])
        # (heads, T, T)
        bits = scramble(scramble((position * CONFIG.heads + head + one) % 2**32) ^ two)
        return x * (bits >= int(CONFIG.dropout * 2**32)) / (1 - CONFIG.dropout)

    return drop


def oracle_drops(dropped):
    """What a sentence's masks do, for each of SENTENCES."""
    lengths = [len(sentence) for sentence in SENTENCES]
    return [
        oracle_dropout(slice(end - length, end)) if dropped else no_dropout
        for length, end in zip(lengths, np.cumsum(lengths), strict=True)
    ]


# ---- features ----


@pytest.mark.parametrize(
    "dropped", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["evaluation", "dropout"]
)
def test_features_are_the_definition_s(dropped):
    for sentence, drop, found in zip(
        SENTENCES, oracle_drops(dropped), features_of(dropped), strict=True
    ):
        expected = oracle_features(MODEL.params, sentence, drop)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE * np.abs(expected).max())


def test_the_layers_are_the_definition_s():
    names = ("features", "embedding", "layer0", "layer1")
    assert MODEL.layer_sizes == dict.fromkeys(names, CONFIG.width)
    for sentence, found in zip(SENTENCES, layers_of(MODEL, SENTENCES), strict=True):
        for name, expected in oracle_layers(MODEL.params, sentence).items():
            tolerance = TOLERANCE * np.abs(expected).max()
            np.testing.assert_allclose(found[name], expected, atol=tolerance, err_msg=name)


def test_a_token_sees_only_what_came_before_it_in_its_sentence():
    tokens, positions, _, where = lay_out(SENTENCES, 3, 32)
    before = np.asarray(features(STATE, tokens, positions))
    slot, columns = where[3]
    column = columns.start + 4
    tokens[slot, column] = (tokens[slot, column] + 1) % V
    changed = (np.asarray(features(STATE, tokens, positions)) != before).any(axis=2)
    expected = np.zeros_like(changed)
    expected[slot, column : columns.stop] = True
    np.testing.assert_array_equal(changed, expected)


@pytest.mark.parametrize("rate", [0.1])
def test_attention_s_masks_are_independent_draws_at_the_rate(rate):
    """By query, key token, head, and the site that the keys were folded with."""
    slots, length, heads = 4, 64, 4
    keys = jax.random.split(jax.random.key(5), (slots, length))
    positions = np.tile(np.arange(length, dtype=np.int32), (slots, 1))
    masks = np.stack(
        [gpt2._attention_mask(gpt2._fold_in(keys, site), positions, heads, rate) for site in (1, 4)]
    )
    assert set(np.unique(masks)) == {0, np.float32(1 / (1 - rate))}
    dropped = (masks == 0) - rate  # (sites, slots, heads, query, key), mean 0
    deviation = np.sqrt(rate * (1 - rate))
    # Five standard errors, of the mean over any one index and of the correlation of neighbours
    # along each axis.
    for axis in range(5):
        others = tuple(other for other in range(5) if other != axis)
        means = dropped.mean(axis=others)
        assert np.abs(means).max() < 5 * deviation / np.sqrt(dropped.size / len(means))
        first, second = np.delete(dropped, 0, axis), np.delete(dropped, -1, axis)
        assert abs((first * second).mean()) < 5 * deviation**2 / np.sqrt(first.size)


def test_token_by_token_the_features_are_the_same():
    """From the cache, slot by slot, up to the last position and not beyond it: as text is
    generated."""
    slots = [SENTENCES[1], SENTENCES[6], SENTENCES[3]]
    steps = max(map(len, slots))
    read = MODEL.reader(len(slots), steps)
    tokens = np.zeros((len(slots), steps), np.int32)
    for row, sentence in zip(tokens, slots, strict=True):
        row[: len(sentence)] = sentence[:steps]
    found = np.stack([read(tokens[:, t]) for t in range(steps)], axis=1)  # (B, T, width)
    expected = features(STATE, tokens, np.tile(np.arange(steps, dtype=np.int32), (len(slots), 1)))
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * np.abs(expected).max())
    assert np.isnan(read(tokens[:, 0])).all()


# ---- loss and gradient ----


def mean_nll(state, tokens, positions, targets, scored, keys):
    model = nnx.merge(GRAPH, state)
    logits = (
        model.hidden_states(tokens, positions, keys) @ model.readout_arrays(model.params)["w"].T
    )
    nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=2)[..., 0]
    return (nll * scored).sum() / scored.sum()


def oracle_mean_nll(params):
    nll = []
    for sentence, drop in zip(SENTENCES, oracle_drops(True), strict=True):
        log_probs = oracle.log_softmax(
            oracle_features(params, sentence, drop) @ params["wte"]["weight"].T
        )
        nll.extend(-log_probs[np.arange(len(sentence)), (sentence + 1) % V])
    return np.mean(nll)


def test_the_gradient_is_the_slope_of_the_definition_s_loss():
    """In each array, both uses of the embedding included, with the masks held."""
    tokens, positions, corpus_positions, where = lay_out(SENTENCES, 3, 32)
    scored = np.zeros(tokens.shape, np.float32)
    for span in where:
        scored[span] = 1
    loss, gradient = jax.jit(jax.value_and_grad(mean_nll))(
        STATE, tokens, positions, (tokens + 1) % V, scored, KEYS[corpus_positions]
    )
    params = jax.tree.map(lambda array: np.asarray(array, np.float64), MODEL.params)
    assert loss == pytest.approx(oracle_mean_nll(params), rel=TOLERANCE)

    gradient, flat = (
        traverse_util.flatten_dict(tree, sep=".") for tree in (nnx.to_pure_dict(gradient), params)
    )
    rng, step = np.random.default_rng(1), 1e-5
    for name, array in flat.items():
        # Near the gradient's own direction, where the slope is its norm and not a small difference
        # of large terms.
        g = np.asarray(gradient[name], np.float64)
        direction = g / np.linalg.norm(g) + rng.normal(0, 0.5 / np.sqrt(g.size), g.shape)
        up, down = (
            traverse_util.unflatten_dict(flat | {name: array + sign * step * direction}, sep=".")
            for sign in (1, -1)
        )
        slope = (oracle_mean_nll(up) - oracle_mean_nll(down)) / (2 * step)
        # Back through the network there are twice the products, after those forwards.
        assert np.vdot(g, direction) == pytest.approx(slope, rel=3 * TOLERANCE), name


# ---- initialisation and size ----


def test_initialisation_is_hugging_face_s():
    """N(0, 0.02**2), by 1/sqrt(2 * layers) less where a branch ends; no bias; LayerNorm the
    identity."""
    config = GPT2Config(layers=8, heads=2, width=24, positions=100)
    arrays = traverse_util.flatten_dict(config.initialize(300, 0, {}).params, sep=".")
    assert {name: array.shape for name, array in arrays.items()} == gpt2.shapes(config, 300)
    for name, array in arrays.items():
        assert array.dtype == np.float32
        if name.endswith("bias"):
            assert not array.any()
        elif "ln_" in name:
            assert (array == 1).all()
        else:
            deviation = 0.02 / np.sqrt(16) if "c_proj" in name else 0.02
            assert array.std() == pytest.approx(deviation, rel=5 / np.sqrt(2 * array.size))
            assert abs(array.mean()) < 5 * deviation / np.sqrt(array.size)
