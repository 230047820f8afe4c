"""Jaeger's network is its equations, step by step, and its gradient that of the readout alone."""

import jax
import numpy as np
import pytest

import esnlm
from esnlm.features.batching import pack_batch
from esnlm.machine.compute import ComputeConfig
from esnlm.models.jaeger import JaegerConfig
from esnlm.reservoir.weights import ContinuousTime, ReservoirConfig
from tests import oracle
from tests.models.running import layers_of
from tests.models.update_gradient import features_of, loss_and_gradient, packed_update
from tests.training.small import DATA, TRAINING, train

V, N, R, LONGEST = 23, 40, 7, 20


def settings(**reservoir):
    return JaegerConfig(
        reservoir=ReservoirConfig(**{"state_size": N, "mean_degree": 6.0} | reservoir),
        rank=R,
        feedback_scale=3.0,
    )


# A step sums at most N + V terms of order 1; feedback passes an error on at most about twice, over
# the steps it lives.
TOLERANCE = 2 * LONGEST * np.sqrt(N + V) * float(np.finfo(np.float32).eps)
COMPUTE = ComputeConfig(batch_slots=16, window_tokens=64)


def initialized(model_config):
    """A model whose weights are large enough for its predictions to matter."""
    frozen, _ = model_config.initialize_frozen(V, seed=1)
    model = model_config.initialize(V, 1, frozen)
    params = jax.tree.map(lambda array: 3 * array, model.params)
    return model.with_params(params)


def sentences():
    """Of 1 to LONGEST tokens, among which are few different ones, so that many share their
    beginning."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 3, length).astype(np.int32)
        for length in [1, LONGEST, *rng.integers(1, LONGEST, 9)]
    ]


def steps(model, sentence):
    """x (T, N), p (T, V) as fed back at each step, and z (T, r): eq. 1 and 2 with dense matrices,
    in float64.

    Under leaky_membrane f(x) stands for x wherever it is read, as in Fujimaki 2026. Behind an
    embedding W_in reads its column of u.
    """
    reservoir, params = (
        model.reservoir,
        jax.tree.map(lambda array: np.asarray(array, np.float64), model.params),
    )
    w_rec, w_in, leak = oracle.matrices(reservoir)
    w_back, decay = oracle.dense(model.w_back), model.config.reservoir.decay
    f = (
        np.tanh
        if model.config.reservoir.activation == "tanh"
        else lambda drive: np.maximum(drive, 0)
    )
    is_membrane, vocab_size = (
        model.config.reservoir.update_rule == "leaky_membrane",
        w_back.shape[1],
    )
    if reservoir.embedding is not None:
        w_in = w_in @ np.asarray(reservoir.embedding[...], np.float64)  # (N, V)
    x, p, xs, ps, zs = np.zeros(len(leak)), np.zeros(vocab_size), [], [], []
    potential = np.zeros(len(leak))  # the membrane's
    for token in sentence:
        u = np.eye(vocab_size)[token]
        drive = w_in @ u + w_rec @ x + w_back @ p
        if is_membrane:
            potential = (1 - decay * leak) * potential + leak * drive
            x = f(potential)
        else:
            x = (1 - decay * leak) * x + leak * f(drive)
        z = params["readout"]["b"] @ x + params["b_u"].T @ u + params["b_y"] @ p
        xs.append(x), ps.append(p), zs.append(z)
        o = params["readout"]["a"] @ z + params["readout"]["bias"]
        p = np.exp(o - o.max()) / np.exp(o - o.max()).sum()
    return np.array(xs), np.array(ps), np.array(zs)


@pytest.mark.parametrize(
    "prefix_tree",
    [pytest.param(False, marks=pytest.mark.nightly), True],
    ids=["in_sequence", "as_prefix_tree"],
)
@pytest.mark.parametrize(
    "reservoir",
    [
        {},
        {"connectivity": 0.5, "continuous": ContinuousTime(decay=0.9, step=0.44)},
        {"update_rule": "leaky_membrane", "embedding": 9, "input_connectivity": 1.0},
    ],
    ids=["sparse", "dense in continuous time", "membrane with an embedding"],
)
def test_features_are_the_equations(reservoir, prefix_tree):
    """As they are made for scoring and validation, also where prefixes are shared."""
    model = initialized(settings(**reservoir))
    stream = model.for_device(COMPUTE).stream(COMPUTE)
    buffer, rows = stream.read(sentences(), prefix_tree=prefix_tree)
    for sentence, row in zip(sentences(), rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(buffer)[row], steps(model, sentence)[2], atol=TOLERANCE, rtol=TOLERANCE
        )


def test_features_inside_the_gradient_and_token_by_token_are_the_same():
    model, texts = initialized(settings()), sentences()
    ready = model.for_device(COMPUTE)
    batch, rows = pack_batch(texts, texts)
    assert batch.tokens.shape[1] < len(texts)  # sentences follow each other in slots
    found = features_of(ready, batch)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(found)[row], steps(model, text)[2], atol=TOLERANCE, rtol=TOLERANCE
        )
    read = ready.reader(2, LONGEST)
    for t, expected in enumerate(steps(model, texts[1])[2]):
        np.testing.assert_allclose(
            read(texts[1][[t, t]])[1], expected, atol=TOLERANCE, rtol=TOLERANCE
        )


def test_the_gradient_is_the_readout_s_with_states_and_predictions_held():
    """Finite differences of the mean NLL in float64, x and p staying what they were; five
    directions an array."""
    model = initialized(settings())
    update, batch, _, packed = packed_update([np.append(0, text) for text in sentences()])
    loss, found = loss_and_gradient(model.for_device(COMPUTE), batch, packed)

    x, p, _ = map(np.concatenate, zip(*(steps(model, text) for text in update.inputs), strict=True))
    tokens, targets = np.concatenate(update.inputs), np.concatenate(update.targets)

    def held(a, b, bias, b_u, b_y):
        o = (x @ b.T + b_u[tokens] + p @ b_y.T) @ a.T + bias
        return -oracle.log_softmax(o)[np.arange(len(o)), targets].mean()

    flat = {
        name: np.asarray(array, np.float64)
        for name, array in (model.params["readout"] | _tables(model.params)).items()
    }
    assert loss == pytest.approx(held(**flat), rel=TOLERANCE)
    rng, step = np.random.default_rng(0), 1e-6
    for name, slope in (found["readout"] | _tables(found)).items():
        for _ in range(5):
            direction = rng.standard_normal(flat[name].shape)
            change = [
                held(**flat | {name: flat[name] + sign * step * direction}) for sign in (1, -1)
            ]
            # The loss is rounded to about 1e-16, so the difference quotient to 1e-10; the slope's
            # rounding adds up as a norm does.
            bound = (
                TOLERANCE
                * np.linalg.norm(slope)
                * np.linalg.norm(direction)
                / np.sqrt(direction.size)
                + 1e-8
            )
            assert np.vdot(slope, direction) == pytest.approx(
                (change[0] - change[1]) / (2 * step), abs=10 * bound
            ), name


def _tables(params):
    return {name: params[name] for name in ("b_u", "b_y")}


def test_expected_counts_are_those_of_a_draw():
    """Exactly what is trained and all entries; nonzeros within five standard deviations of their
    binomials."""
    model_config = settings(state_size=300)
    model = model_config.initialize(500, 0, model_config.initialize_frozen(500, 0)[0])
    expected, found = model_config.expected_counts(500), model.counts()
    trainable = (300 + 500) * R + 500 + 2 * 500 * R
    assert (
        expected.trainable
        == found.trainable
        == trainable
        == sum(array.size for array in jax.tree.leaves(model.params))
    )
    assert expected.entries == found.entries == trainable + 300 * 300 + 2 * 300 * 500 + 300
    assert abs(expected.total - found.total) < 5 * np.sqrt(6 * (300 + 2 * 500))


def test_a_run_trains_loads_scores_and_generates(tmp_path):
    family = "model: {family: jaeger, reservoir: {state_size: 16, mean_degree: 4}, rank: 4}\n"
    run = esnlm.load(
        train(tmp_path, "run", "--training.batch_size", "96", text=DATA + TRAINING + family)
    )
    before = esnlm.load(tmp_path / "run", untrained=True)
    text = "The cats sleep."
    ids = np.array([run.tokenizer.bos, *run.tokenizer.encode(text), run.tokenizer.eos])
    readout = jax.tree.map(
        lambda array: np.asarray(array, np.float64), run.model.readout_arrays(run.model.params)
    )
    z = steps(run.model, ids[:-1])[2]
    expected = oracle.log_softmax(z @ readout["w"].T + readout["bias"])[
        np.arange(len(ids) - 1), ids[1:]
    ].sum()
    assert run.log_probs([text])[0] == pytest.approx(expected, abs=len(ids) * TOLERANCE)
    assert run.log_probs([text])[0] > before.log_probs([text])[0]
    for name, array in run.arrays().items():  # all that is trained has moved, nothing frozen has
        moved = not np.array_equal(array, before.arrays()[name])
        assert moved == name.startswith(("readout", "b_")), name
    assert len(run.generate("The", count=2, length=5)) == 2


def test_the_layers_are_z_and_those_of_the_reservoir():
    model = initialized(settings())
    assert model.layer_sizes == {"features": R, "z": R, "reservoir": N, "layer0": N}
    for sentence, found in zip(sentences(), layers_of(model, sentences()), strict=True):
        x, _, z = steps(model, sentence)
        for name, expected in {"features": z, "z": z, "reservoir": x, "layer0": x}.items():
            np.testing.assert_allclose(found[name], expected, atol=TOLERANCE, rtol=TOLERANCE)
