"""The LSTM is torch.nn.LSTM between an embedding and a readout: features, gradient, initialisation
and size."""

import dataclasses

import numpy as np
import pytest

from esnlm.features.batching import pack_batch
from esnlm.machine.compute import ComputeConfig
from esnlm.models.lstm import LstmConfig
from esnlm.models.trunk import HashedNgramsConfig
from esnlm.training.config import flatten
from tests import deep_oracle, oracle
from tests.models.running import layers_of
from tests.models.update_gradient import features_of, loss_and_gradient, packed_update

CONFIG = LstmConfig(width=16, dropout=0.0)
V, LONGEST = 40, 24
# A gate sums 2 H + 2 terms of order 1, which is off by about the root of so many roundings. Slopes
# of at most 1 and a forget gate below 1 pass on what a step was off by, and no more.
TOLERANCE = LONGEST * np.sqrt(2 * CONFIG.width + 2) * float(np.finfo(np.float32).eps)

# Where torch keeps what we train.
IN_TORCH = {
    "embedding": "embedding.weight",
    "w_ih": "layer.weight_ih_l0",
    "w_hh": "layer.weight_hh_l0",
    "b_ih": "layer.bias_ih_l0",
    "b_hh": "layer.bias_hh_l0",
    "readout.w": "readout.weight",
    "readout.bias": "readout.bias",
}


@pytest.fixture(scope="module")
def model():
    return CONFIG.initialize(V, 0, {})


@pytest.fixture(scope="module")
def params(model):
    return model.params


def sentences():
    """Of 1 to LONGEST tokens, among which are few different ones, so that many share their
    beginning."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 3, length).astype(np.int32)
        for length in [1, LONGEST, *rng.integers(1, LONGEST, 12)]
    ]


def network(width, vocab_size):
    import torch

    parts = {
        "embedding": torch.nn.Embedding(vocab_size, width),
        "layer": torch.nn.LSTM(width, width),
    }
    return torch.nn.ModuleDict(parts | {"readout": torch.nn.Linear(width, vocab_size)}).double()


def network_of(params):
    """Returns PyTorch's modules with our weights, in float64."""
    import torch

    found = network(CONFIG.width, V)
    found.load_state_dict(
        {
            IN_TORCH[name]: torch.tensor(np.asarray(array)).double()
            for name, array in flatten(params).items()
        }
    )
    return found


def features_in_torch(network, sentence):
    import torch

    return network["layer"](network["embedding"](torch.tensor(sentence).long()))[0]


def torch_features(params, texts):
    theirs = network_of(params)
    return {
        "features": np.concatenate([features_in_torch(theirs, text).detach() for text in texts])
    }


def torch_loss_and_gradient(params, inputs, targets):
    import torch

    theirs = network_of(params)
    features = torch.cat([features_in_torch(theirs, text) for text in inputs])
    loss = torch.nn.functional.cross_entropy(
        theirs["readout"](features), torch.tensor(np.concatenate(targets)).long()
    )
    loss.backward()
    gradient = {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    return {"loss": loss.item()} | gradient


@pytest.mark.parametrize("prefix_tree", [False, True], ids=["in_sequence", "as_prefix_tree"])
def test_features_ahead_are_torch_s(peer, model, params, prefix_tree):
    texts = sentences()
    stream = model.stream(ComputeConfig(batch_slots=16, window_tokens=64))
    buffer, rows = stream.read(texts, prefix_tree=prefix_tree)
    expected = peer("lstm-features", torch_features, params, texts)
    found = peer.sample(buffer[np.concatenate(rows)])
    np.testing.assert_allclose(found, expected["features"], atol=TOLERANCE, rtol=0)


def test_features_inside_the_gradient_are_torch_s(peer, model, params):
    texts = sentences()
    batch, rows = pack_batch(texts, texts)
    assert batch.tokens.shape[1] < len(texts)  # sentences follow each other in slots
    found = features_of(model, batch)
    expected = peer("lstm-features", torch_features, params, texts)
    found = peer.sample(found[np.concatenate(rows)])
    np.testing.assert_allclose(found, expected["features"], atol=TOLERANCE, rtol=0)


def test_loss_and_gradient_are_torch_s(peer, model, params):
    """The mean NLL over all predictions of an update, and its gradient in every array."""
    update, batch, _, packed = packed_update([np.append(0, text) for text in sentences()])
    loss, gradient = loss_and_gradient(model, batch, packed)

    expected = peer("lstm-gradient", torch_loss_and_gradient, params, update.inputs, update.targets)
    assert loss == pytest.approx(float(expected.pop("loss")), rel=TOLERANCE)
    assert {IN_TORCH[name] for name in flatten(gradient)} == set(expected)
    for name, array in flatten(gradient).items():
        found, slope = peer.sample(array), expected[IN_TORCH[name]]
        # Back through time there are twice the products, after those forwards.
        assert np.linalg.norm(found - slope) <= 3 * TOLERANCE * np.linalg.norm(slope), name


def test_initialisation_is_pytorch_s():
    """Embedding ~ N(0, 1); everything else uniform between -1/sqrt H and 1/sqrt H; five standard
    errors each."""
    width = 64
    arrays = flatten(LstmConfig(width=width).initialize(300, 0, {}).params)
    embedding = np.asarray(arrays.pop("embedding"))
    assert abs(embedding.mean()) < 5 / np.sqrt(embedding.size)
    assert embedding.std() == pytest.approx(1, abs=5 / np.sqrt(2 * embedding.size))
    assert np.abs(embedding).max() > 3
    bound = 1 / np.sqrt(width)
    for array in map(np.asarray, arrays.values()):
        assert array.dtype == np.float32 and np.abs(array).max() <= np.float32(bound)
        assert abs(array.mean()) < 5 * bound / np.sqrt(3 * array.size)
        # The square of a uniform number has mean bound**2 / 3 and variance 4 bound**4 / 45.
        assert (array**2).mean() == pytest.approx(
            bound**2 / 3, abs=5 * bound**2 * np.sqrt(4 / 45 / array.size)
        )


# ---- tied to the readout ----

TIED = dataclasses.replace(CONFIG, tied=True)


def untied_copy(tied):
    """The papers' LSTM with the same weights, whose embedding is sqrt(H) times the readout."""
    params, w = tied.params, tied.params["embedding"]
    return CONFIG.initialize(V, 0, {}).with_params(
        params | {"embedding": 4 * w, "readout": params["readout"] | {"w": w}}
    )


def test_a_tied_embedding_is_the_readout():
    tied = TIED.initialize(V, 0, {})
    assert not TIED.readout_can_be_padded, "the rows of the embedding would be too few"
    assert tied.counts() == TIED.expected_counts(V)
    assert sum(array.size for array in flatten(tied.params).values()) == tied.counts().trainable
    assert tied.counts().trainable == CONFIG.expected_counts(V).trainable - V * CONFIG.width
    compute = ComputeConfig(batch_slots=16, window_tokens=64)
    (found, rows), (same, same_rows) = (
        model.stream(compute).read(sentences()) for model in (tied, untied_copy(tied))
    )
    for own, its in zip(rows, same_rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(found)[own], np.asarray(same)[its], atol=TOLERANCE, rtol=0
        )


def test_the_gradient_of_a_tied_embedding_is_that_of_both():
    tied = TIED.initialize(V, 0, {})
    _, batch, _, packed = packed_update([np.append(0, text) for text in sentences()])
    loss, gradient = loss_and_gradient(tied, batch, packed)
    its_loss, of_both = loss_and_gradient(untied_copy(tied), batch, packed)
    assert loss == pytest.approx(its_loss, rel=TOLERANCE)
    of_both["embedding"] = of_both["readout"].pop("w") + 4 * of_both["embedding"]
    assert flatten(gradient).keys() == flatten(of_both).keys()
    for name, array in flatten(of_both).items():
        difference = np.linalg.norm(flatten(gradient)[name] - array)
        assert difference <= 3 * TOLERANCE * np.linalg.norm(array), name


# ---- with hashed n-grams ----

NGRAMS = HashedNgramsConfig(orders=(2, 3), buckets=30, width=4, multiplier=3.0)
WITH_NGRAMS = dataclasses.replace(CONFIG, ngrams=NGRAMS)
# An n-gram adds the sum of 8 products, each of numbers of order 1, times the multiplier.
TOLERANCE_OF_NGRAMS = TOLERANCE + NGRAMS.multiplier * 8 * float(np.finfo(np.float32).eps)


def features_in_float64(params, text):
    layer = {name: array for name, array in params.items() if name not in ("readout", "ngrams")}
    return oracle.lstm_states(**layer, sentence=text) + deep_oracle.ngrams(
        params["ngrams"], text, NGRAMS.orders, NGRAMS.multiplier
    )


@pytest.fixture(scope="module")
def with_ngrams():
    return WITH_NGRAMS.initialize(V, 0, {})


def test_the_gradient_with_ngrams_is_the_slope_of_the_loss_in_float64(with_ngrams):
    update, batch, _, packed = packed_update([np.append(0, text) for text in sentences()])
    loss, gradient = loss_and_gradient(with_ngrams, batch, packed)

    def loss_in_float64(params):
        nll = []
        for text, target in zip(update.inputs, update.targets, strict=True):
            logits = (
                features_in_float64(params, text) @ params["readout"]["w"].T
                + params["readout"]["bias"]
            )
            nll += list(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(target)), target])
        return np.mean(nll)

    params = deep_oracle.float64(with_ngrams.params)
    assert loss == pytest.approx(loss_in_float64(params), rel=TOLERANCE_OF_NGRAMS)
    rng, step = np.random.default_rng(0), 1e-5
    for path, slope in flatten(gradient).items():
        # Along the gradient itself the slope is the gradient's length, and a central difference is
        # off by about step**2.
        direction = np.asarray(slope, np.float64) / np.linalg.norm(
            slope
        ) + 0.1 * rng.standard_normal(slope.shape)
        ends = [deep_oracle.float64(with_ngrams.params) for _ in range(2)]
        for end, sign in zip(ends, (1, -1), strict=True):
            *sections, name = path.split(".")
            place = end
            for section in sections:
                place = place[section]
            place[name] = place[name] + sign * step * direction
        difference = (loss_in_float64(ends[0]) - loss_in_float64(ends[1])) / (2 * step)
        allowed = 3 * TOLERANCE_OF_NGRAMS * np.linalg.norm(slope) * np.linalg.norm(direction)
        assert (np.asarray(slope, np.float64) * direction).sum() == pytest.approx(
            difference, abs=allowed
        ), path


def test_an_lstm_with_ngrams_has_what_is_counted_and_begins_as_without(model, with_ngrams):
    assert (
        sum(array.size for array in flatten(with_ngrams.params).values())
        == with_ngrams.counts().trainable
    )
    assert with_ngrams.counts().trainable == model.counts().trainable + NGRAMS.parameters(
        CONFIG.width
    )
    for name, array in flatten(model.params).items():
        np.testing.assert_array_equal(flatten(with_ngrams.params)[name], array)


def test_it_reads_on_token_by_token(with_ngrams):
    """As generation does: `reader` and `stream` give the same features."""
    text = sentences()[1]
    read = with_ngrams.reader(1, len(text))
    found = np.concatenate([read(text[i : i + 1]) for i in range(len(text))])
    expected = features_in_float64(deep_oracle.float64(with_ngrams.params), text)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE_OF_NGRAMS, rtol=0)


# ---- layers ----


@pytest.mark.parametrize("config", [CONFIG, TIED, WITH_NGRAMS], ids=["", "tied", "n-grams"])
def test_the_layers_are_h_and_c(config):
    """Without the n-grams, which only the features have."""
    lstm = config.initialize(V, 0, {})
    assert lstm.layer_sizes == {"features": 16, "h": 16, "c": 16}
    params = deep_oracle.float64(lstm.params)
    layer = {name: array for name, array in params.items() if name not in ("readout", "ngrams")}
    layer["embedding"] = layer["embedding"] * (4 if config.tied else 1)
    for text, found in zip(sentences(), layers_of(lstm, sentences()), strict=True):
        expected = oracle.lstm_layers(**layer, sentence=text)
        expected["features"] = expected["h"]
        if config is WITH_NGRAMS:
            expected["features"] = features_in_float64(params, text)
        for name, states in expected.items():
            np.testing.assert_allclose(
                found[name], states, atol=TOLERANCE_OF_NGRAMS, rtol=0, err_msg=name
            )
