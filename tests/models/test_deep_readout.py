"""A deep readout computes what its equations say, learns by their gradient, and is an ESN where it
has nothing more."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from esnlm.features.batching import pack_batch
from esnlm.machine.compute import ComputeConfig
from esnlm.machine.mesh import Placement
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.models.devices import choose_compute
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.trunk import GatedMlpConfig, HashedNgramsConfig, RecentTokensConfig, TrunkConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir import cell
from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.weights import ContinuousTime, ReservoirConfig
from esnlm.training import batches, inputs, update
from tests import deep_oracle, oracle
from tests.models.running import layers_of
from tests.models.update_gradient import features_of

V = 30
EPS = float(np.finfo(np.float32).eps)
RESERVOIR = ReservoirConfig(state_size=24, mean_degree=5.0)
ALL = DeepReadoutConfig(
    reservoir=RESERVOIR,
    reservoirs=2,
    readout=TrunkConfig(
        rank=14,
        normalize=True,
        recent_tokens=RecentTokensConfig(count=2, width=5, decays=(0.7,), window=4),
        ngrams=HashedNgramsConfig(orders=(2, 3), buckets=40, width=4, multiplier=3.0),
        gated_mlp=GatedMlpConfig(blocks=2, width=16),
    ),
)
TIED = dataclasses.replace(
    ALL,
    readout=dataclasses.replace(
        ALL.readout,
        recent_tokens=dataclasses.replace(ALL.readout.recent_tokens, width=14, tied=True),
    ),
)
# Nothing that decides a reservoir's time step, beside its weights, is as in ALL.
MEMBRANE = dataclasses.replace(
    ALL,
    reservoir=dataclasses.replace(
        RESERVOIR,
        activation="relu",
        update_rule="leaky_membrane",
        spectral_radius=0.7,
        continuous=ContinuousTime(decay=0.5, step=0.6),
    ),
)
# Some tens of sums of at most a hundred numbers of order 1 lie between a token and its logit.
TOLERANCE = 30 * 100 * EPS


def model_of(config, seed=0):
    frozen, _ = config.initialize_frozen(V, seed)
    return config.initialize(V, seed, frozen), frozen


def sentences():
    rng = np.random.default_rng(0)
    return [np.array([0, *rng.integers(1, 6, length)], np.int32) for length in (1, 4, 11, 7, 4)]


def expected_h(frozen, sentence, settings=RESERVOIR):
    """Features h of ALL, TIED or MEMBRANE, (T, N), in float64."""
    found, f = [], np.tanh if settings.activation == "tanh" else lambda x: np.maximum(x, 0)
    for member in ("0", "1"):
        own = cell.from_arrays(frozen["reservoirs"][member], V)
        w_rec, w_in = (as_scipy(matrix).toarray() for matrix in (own.stored_w_rec, own.stored_w_in))
        leak, drive = np.asarray(own.leak[...], np.float64), w_in.astype(np.float64).T[sentence]
        # In continuous time (1 - alpha a) x + a d: an oracle of leak alpha a, whose drive d is
        # weaker by alpha.
        alpha = 1.0 if settings.continuous is None else settings.continuous.decay
        found.append(
            oracle.driven_states(
                w_rec / alpha, alpha * leak, drive / alpha, settings.update_rule, f
            )
        )
    return np.concatenate(found, axis=1)


def expected_z(params, frozen, sentence, config):
    """What the readout of ALL, TIED or MEMBRANE sees, (T, r), in float64."""
    return z_of(params, expected_h(frozen, sentence, config.reservoir), sentence, config.readout)


def z_of(params, h, sentence, config, weights=None):
    """z (T, r) of h (T, N), and of the weights of attention if there are any."""
    layers, tokens = params["layers"], config.recent_tokens
    z = deep_oracle.standardized(h) @ layers["b"].T
    z = z + deep_oracle.recent_tokens(
        *(layers["recent_tokens"], sentence, tokens.count, tokens.decays, tokens.window, weights),
        a=params["readout"]["w"] if tokens.tied else None,
    )
    z = z + deep_oracle.ngrams(
        layers["ngrams"], sentence, config.ngrams.orders, config.ngrams.multiplier
    )
    return deep_oracle.gated_mlp(layers["gated_mlp"], z)


def ready(model):
    compute = choose_compute(ComputeConfig(), model.config, "cpu")
    return model.for_device(compute), compute


@pytest.fixture(
    scope="module", params=[ALL, pytest.param(TIED, marks=pytest.mark.nightly)], ids=["", "tied"]
)
def whole(request):
    return model_of(request.param)


@pytest.fixture(scope="module")
def untied():
    return model_of(ALL)


def assert_the_stream_gives_what_the_equations_say(
    model, frozen, prefix_tree, expected_z=expected_z
):
    params = deep_oracle.float64(model.params)
    device, compute = ready(model)
    buffer, rows = device.stream(compute).read(sentences(), prefix_tree)
    for sentence, own in zip(sentences(), rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(buffer)[own],
            expected_z(params, frozen, sentence, model.config),
            rtol=0,
            atol=TOLERANCE,
        )


@pytest.mark.parametrize("prefix_tree", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_stream_gives_what_the_equations_say(untied, prefix_tree):
    assert_the_stream_gives_what_the_equations_say(*untied, prefix_tree)


def test_the_reservoirs_have_the_activation_the_rule_and_the_decay_that_are_set():
    assert_the_stream_gives_what_the_equations_say(*model_of(MEMBRANE), prefix_tree=True)


def test_a_text_read_token_by_token_gives_the_same(untied):
    assert_a_text_read_token_by_token_gives_the_same(*untied)


def assert_a_text_read_token_by_token_gives_the_same(model, frozen, expected_z=expected_z):
    read, sentence = ready(model)[0].reader(2, 12), sentences()[2]
    found = np.array([read(np.full(2, token, np.int32))[1] for token in sentence])
    np.testing.assert_allclose(
        found,
        expected_z(deep_oracle.float64(model.params), frozen, sentence, model.config),
        rtol=0,
        atol=TOLERANCE,
    )


def directions(params, seed):
    """A random direction in all that is trained, with entries of order 1."""
    rng, flat = np.random.default_rng(seed), jax.tree.leaves(params)
    return jax.tree.unflatten(
        jax.tree.structure(params), [rng.standard_normal(array.shape) for array in flat]
    )


def test_the_gradient_is_that_of_the_equations(whole):
    assert_the_gradient_is_that_of_the_equations(*whole)


def assert_the_gradient_is_that_of_the_equations(model, frozen, expected_z=expected_z):
    device, compute = ready(model)
    text = batches.Sentences(
        [sentence[:-1] for sentence in sentences()],
        [sentence[1:] for sentence in sentences()],
        [np.arange(len(sentence) - 1, dtype=np.uint32) for sentence in sentences()],
    )
    buffer, rows = device.frozen_stream(compute).read(text.inputs)
    # Some rows of padding, which weigh nothing, and two chunks.
    batch = batches.pack_targets(text, rows, 32, predictions=text.predictions())
    placement = Placement(None, V, V)
    loss_and_gradient = partial(
        update.loss_and_gradient,
        forward=partial(inputs.gather_features, trunk=device.trunk, placement=placement),
        placement=placement,
        precision="float32",
        dropout_rate=0.0,
        chunk_tokens=20,
    )
    batch = batch._replace(inputs=buffer)
    (loss, _), gradient = jax.jit(loss_and_gradient)(model.params, {}, batch)
    params = deep_oracle.float64(model.params)

    def expected(params):
        z = np.concatenate(
            [expected_z(params, frozen, sentence[:-1], model.config) for sentence in sentences()]
        )
        return deep_oracle.nll(params["readout"], z, np.concatenate(text.targets))

    assert abs(float(loss) - expected(params)) < TOLERANCE
    for array in range(len(jax.tree.leaves(params))):  # each array by itself, in a random direction
        step = jax.tree.map(np.zeros_like, directions(params, array))
        jax.tree.leaves(step)[array][...] = jax.tree.leaves(directions(params, array))[array]
        ahead, behind = (
            expected(jax.tree.map(lambda x, d, sign=sign: x + sign * 1e-5 * d, params, step))
            for sign in (1, -1)
        )
        slope = sum(
            float((np.asarray(g, np.float64) * d).sum())
            for g, d in zip(*map(jax.tree.leaves, (gradient, step)), strict=True)
        )
        # A difference of float64 numbers over 2e-5 is good to 1e-9 at best; the rest is what
        # float32 sums of a gradient lose.
        assert abs(slope - (ahead - behind) / 2e-5) < 1e-8 + 100 * TOLERANCE * max(abs(slope), 0.1)


def test_inside_a_gradient_the_features_are_the_same(untied):
    assert_inside_a_gradient_the_features_are_the_same(*untied)


def assert_inside_a_gradient_the_features_are_the_same(model, frozen, expected_z=expected_z):
    params, device = deep_oracle.float64(model.params), ready(model)[0]
    batch, rows = pack_batch(
        sentences(), [np.zeros(len(sentence), np.uint32) for sentence in sentences()]
    )
    features = features_of(device, batch)
    for sentence, own in zip(sentences(), rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(features)[own],
            expected_z(params, frozen, sentence, model.config),
            rtol=0,
            atol=TOLERANCE,
        )


def test_without_sections_it_is_the_sparse_esn():
    model, _ = model_of(DeepReadoutConfig(reservoir=RESERVOIR, readout=TrunkConfig(rank=8)))
    esn_config = EchoStateConfig(reservoir=RESERVOIR, readout=ReadoutConfig(rank=8))
    esn = esn_config.initialize(V, 0, esn_config.initialize_frozen(V, 0)[0])
    assert model.counts() == esn.counts()
    assert model.config.expected_counts(V) == esn_config.expected_counts(V)
    device, compute = ready(model)
    esn_device, esn_compute = ready(esn)
    found, rows = device.frozen_stream(compute).read(sentences())
    same, same_rows = esn_device.stream(esn_compute).read(sentences())
    for own, its in zip(rows, same_rows, strict=True):
        np.testing.assert_array_equal(np.asarray(found)[own], np.asarray(same)[its])
    h, z = (
        np.asarray(found, np.float64)[rows[2]],
        device.trunk(model.params, np.asarray(found)[rows[2]]),
    )
    np.testing.assert_allclose(
        z, h @ np.asarray(model.params["layers"]["b"], np.float64).T, rtol=0, atol=24 * EPS
    )


def test_the_counts_are_those_of_the_arrays(whole):
    assert_the_counts_are_those_of_the_arrays(*whole)


def assert_the_counts_are_those_of_the_arrays(model, frozen):
    trained = sum(array.size for array in jax.tree.leaves(model.params))
    assert model.counts().trainable == trained == model.config.expected_counts(V).trainable
    of_frozen = [
        np.count_nonzero(array)
        for path, array in jax.tree.leaves_with_path(frozen)
        if "indices" not in str(path)
    ]
    assert model.counts().total - trained == sum(of_frozen)


def test_the_layers_are_z_and_the_frozen_states():
    model, frozen = model_of(ALL)
    params = deep_oracle.float64(model.params)
    assert model.layer_sizes == {"features": 14, "z": 14, "frozen": 48}
    for sentence, found in zip(sentences(), layers_of(model, sentences()), strict=True):
        z = expected_z(params, frozen, sentence, ALL)
        np.testing.assert_allclose(found["features"], z, atol=TOLERANCE)
        np.testing.assert_array_equal(found["z"], found["features"])
        np.testing.assert_allclose(found["frozen"], expected_h(frozen, sentence), atol=TOLERANCE)
