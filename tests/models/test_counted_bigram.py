"""Logits that are a residual over a counted bigram model: what it adds, where training begins, and
how it is kept."""

import shutil
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import esnlm
from esnlm.data import grammar
from esnlm.models.ngrams import CountedBigram, NgramModel, count_bigrams
from esnlm.readout import linear

V = 12
EPSILON = float(np.finfo(np.float32).eps)
# V - 1 and V - 2 never occur
TEXT = [np.array([0, *np.random.default_rng(i).integers(2, V - 2, 9), 1]) for i in range(8)]


def witten_bell(text, vocab_size):
    """log p_WB(w | v) in float64, (V, V), pair by pair as Witten and Bell (1991) have it."""
    pairs = Counter((int(v), int(w)) for ids in text for v, w in zip(ids, ids[1:], strict=False))
    predicted = Counter(int(w) for ids in text for w in ids[1:])
    found = np.empty((vocab_size, vocab_size))
    for v in range(vocab_size):
        followers = [c for (first, _), c in pairs.items() if first == v]
        for w in range(vocab_size):
            p = (predicted[w] + 1) / (sum(predicted.values()) + vocab_size)
            if followers:
                p = (pairs[v, w] + len(followers) * p) / (sum(followers) + len(followers))
            found[v, w] = np.log(p)
    return found


def test_the_table_is_the_counted_model_s():
    counted = CountedBigram(V, **count_bigrams(TEXT, V))
    table = np.asarray(counted.log_probs())
    expected = witten_bell(TEXT, V)
    # It is computed in float64 and rounded once.
    np.testing.assert_allclose(table, expected, rtol=EPSILON)
    model = NgramModel.fit(TEXT, V, order=2)
    every = [np.array(pair) for pair in np.ndindex(V, V)]
    np.testing.assert_allclose(
        table.ravel(), np.concatenate(model.token_log_probs_of_ids(every)), rtol=EPSILON
    )
    assert np.array_equal(counted.for_device().log_probs(), table)


def with_one_left_out(text, vocab_size, v, w):
    """log p_WB( . | v) where one count of the pair v, w is left out, and t and p_1 are as they
    were, in float64, (V,)."""
    pairs = Counter((int(a), int(b)) for ids in text for a, b in zip(ids, ids[1:], strict=False))
    predicted = Counter(int(b) for ids in text for b in ids[1:])
    followers = [c for (first, _), c in pairs.items() if first == v]
    pairs[v, w] -= pairs[v, w] > 0
    p_1 = np.array(
        [(predicted[x] + 1) / (sum(predicted.values()) + vocab_size) for x in range(vocab_size)]
    )
    p = np.array([pairs[v, x] for x in range(vocab_size)]) + len(followers) * p_1
    return np.log(p / p.sum() if followers else p_1)


# logits of a usual size, and such that the largest one must be subtracted
@pytest.mark.parametrize("scale", [1, 200])
def test_the_loss_and_its_gradient_are_those_of_the_sum_with_each_target_left_out(scale):
    rng = np.random.default_rng(0)
    w, bias, z = (scale * rng.normal(size=shape) for shape in [(V, 5), (V,), (7, 5)])
    last, targets, weights = rng.integers(0, V, 7), rng.integers(0, V, 9), rng.random(9)
    last[:4], targets[:4] = TEXT[0][:4], TEXT[0][1:5]  # Some of the pairs do occur.
    rows = np.array([*range(7), 0, 0])
    w, bias, z = (np.float64(np.float32(array)) for array in (w, bias, z))
    of_pairs = zip(last[rows], targets, strict=True)
    left_out = np.stack([with_one_left_out(TEXT, V, v, w) for v, w in of_pairs])  # (P, V)

    def log_softmax(logits):
        log_p = logits - logits.max(1, keepdims=True)
        return log_p - np.log(np.exp(log_p).sum(1, keepdims=True))

    logits = (z @ w.T + bias)[rows] + left_out  # (P, V)
    log_p = log_softmax(logits)
    # (P, V): the gradient in the logits
    residual = weights[:, None] * (np.exp(log_p) - np.eye(V)[targets])
    dz = np.zeros_like(z)
    np.add.at(dz, rows, residual @ w)

    features = jnp.concatenate([z, last[:, None]], axis=1, dtype=jnp.float32)
    trained = {"w": jnp.float32(w), "bias": jnp.float32(bias)}
    frozen = {"prior": CountedBigram(V, **count_bigrams(TEXT, V)).prior()}

    def loss(trained, features):
        return linear.weighted_nll(
            trained | frozen, features, targets, jnp.float32(weights), "float32", rows
        )

    found, (gradient, dfeatures) = jax.jit(jax.value_and_grad(loss, (0, 1)))(trained, features)
    # of the error of a logit, and so, relatively, of a probability
    size = np.abs(logits).max() * 100 * EPSILON
    np.testing.assert_allclose(
        found, -(weights * log_p[range(9), targets]).sum(), rtol=1e-6, atol=size
    )
    np.testing.assert_allclose(gradient["w"], residual.T @ z[rows], atol=size * np.abs(z).max())
    np.testing.assert_allclose(gradient["bias"], residual.sum(0), atol=size)
    np.testing.assert_allclose(np.asarray(dfeatures)[:, :-1], dz, atol=size * np.abs(w).max())
    assert not np.asarray(dfeatures)[:, -1].any(), "an id has no gradient"

    whole = z @ w.T + bias + witten_bell(TEXT, V)[last]  # Scores leave out nothing.
    pair_log_probs, logits_of = (
        jax.jit(linear.pair_log_probs, static_argnums=4),
        jax.jit(linear.logits, static_argnums=2),
    )
    pairs = pair_log_probs(trained | frozen, features, rows, targets, "float32")
    np.testing.assert_allclose(pairs, log_softmax(whole)[rows, targets], rtol=1e-6, atol=size)
    np.testing.assert_allclose(
        logits_of(trained | frozen, features, "float32"), whole, rtol=1e-6, atol=size
    )


def test_a_target_that_was_sure_is_left_out_too():
    """One token followed another each time, and the readout is as sure of it: nothing becomes 0 or
    infinite."""
    text, size = [np.array([0, 1, 2])], 400  # 1 after 0, once: what is left is p_1, 2 in 402
    frozen = {"prior": CountedBigram(size, **count_bigrams(text, size)).prior()}
    trained = {"w": jnp.zeros((size, 1)), "bias": jnp.zeros(size).at[1].set(30.0)}

    def loss(trained):
        features, targets = jnp.zeros((1, 2)), jnp.array([1])
        return linear.weighted_nll(trained | frozen, features, targets, jnp.ones(1), "float32")

    found, gradient = jax.jit(jax.value_and_grad(loss))(trained)
    p_1 = np.full(size, 1.0)
    p_1[[1, 2]] = 2
    # of the token, that of its only count left out
    odds = (np.exp(30.0) * p_1[1]) / (p_1.sum() - p_1[1])
    np.testing.assert_allclose(found, np.log1p(1 / odds), rtol=1e-2, atol=EPSILON)
    # the probabilities of all other tokens
    others = np.delete(p_1 / (p_1.sum() - p_1[1]) / (1 + odds), 1)
    np.testing.assert_allclose(np.delete(gradient["bias"], 1), others, rtol=1e-4)
    np.testing.assert_allclose(gradient["bias"][1], -1 / (1 + odds), atol=EPSILON)
    assert not gradient["w"].any(), "the features are 0"


# ---- a run ----

SENTENCES, OTHERS = list(grammar.sentences(24, seed=0)), list(grammar.sentences(10, seed=1))
MODEL = {
    "family": "deep_readout",
    "reservoir": {"state_size": 16, "mean_degree": 4},
    "readout": {"rank": 4, "counted": "bigram", "recent_tokens": {"count": 2, "width": 3}},
}
SETTINGS = {
    "epochs": 2,
    "batch_size": 24,
    "log_every": 1,
    "learning_rate": 0.05,
}  # one update an epoch


def train(folder, compute):
    losses = []
    experiment = {"run": str(folder), "model": MODEL, "training": SETTINGS, "compute": compute}
    run = esnlm.train(
        experiment,
        [lambda _, line: losses.append(line.get("train_nll"))],
        sentences=SENTENCES,
        validation=OTHERS,
    )
    return run, [loss for loss in losses if loss is not None]  # A line of a validation has none.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    # An update has several chunks.
    return train(tmp_path_factory.mktemp("counted") / "run", {"chunk_tokens": 64})


def oracle(run, ids):
    """log p( . | w_1 .. w_t), (T, V), of the model's own z in float64."""
    ready = run.model.for_device(run.config.compute)
    read, params = ready.reader(1, len(ids)), run.model.params["readout"]
    z = np.float64(np.concatenate([read(np.array([i])) for i in ids]))
    np.testing.assert_array_equal(z[:, -1], ids)
    prior = witten_bell(list(run.training_store()), run.tokenizer.vocab_size)
    logits = z[:, :-1] @ np.float64(params["w"]).T + np.float64(params["bias"]) + prior[ids]
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_training_begins_with_the_counted_model(trained):
    run, losses = trained
    bigram, text = run.bigram(), list(run.training_store())
    size = run.tokenizer.vocab_size
    pairs = [pair for ids in text for pair in zip(ids, ids[1:], strict=False)]
    each = [with_one_left_out(text, size, v, w)[w] for v, w in pairs]
    assert losses[0] == pytest.approx(-np.mean(each), rel=1e-5)
    assert losses[1] < losses[0]
    begun = esnlm.load(run.directory, untrained=True)
    encoded = [
        np.array([run.tokenizer.bos, *run.tokenizer.encode(text), run.tokenizer.eos])
        for text in OTHERS
    ]
    expected = -np.concatenate(bigram.token_log_probs_of_ids(encoded)).mean()
    assert begun.likelihood(OTHERS).nll == pytest.approx(expected, rel=1e-5)
    assert run.model.params["readout"]["w"].any()
    assert (
        run.model.counts().entries
        == run.config.model.expected_counts(run.tokenizer.vocab_size).entries
    )


def test_scores_and_generated_text_are_those_of_the_sum(trained):
    run, _ = trained
    texts = [*OTHERS[:3], OTHERS[0]]  # Two have all prefixes in common.
    for text, found in zip(texts, run.log_probs(texts), strict=True):
        ids = np.array([run.tokenizer.bos, *run.tokenizer.encode(text), run.tokenizer.eos])
        log_p = oracle(run, ids[:-1])
        assert found == pytest.approx(log_p[np.arange(len(ids) - 1), ids[1:]].sum(), rel=1e-5)
    first = oracle(run, np.array([run.tokenizer.bos]))[-1]
    assert run.generate(temperature=0, length=1) == [run.tokenizer.decode([int(first.argmax())])]


def test_a_run_needs_no_text_to_be_restored(trained, tmp_path):
    run, again_at = trained[0], tmp_path / "run"
    shutil.copytree(run.directory, again_at)
    shutil.rmtree(again_at / "stores")
    again = esnlm.load(again_at)
    assert all(np.array_equal(array, again.arrays()[name]) for name, array in run.arrays().items())
    assert np.array_equal(run.log_probs(OTHERS), again.log_probs(OTHERS))
    assert {name for name in run.arrays() if name.startswith("counted")} == {
        f"counted.{name}" for name in ("rows", "columns", "counts")
    }
