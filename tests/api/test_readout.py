"""A readout in the hand is what each rule's equations say, for ids and for numbers."""

import numpy as np
import pytest

import esnlm
from esnlm.api import readout_fits
from esnlm.errors import InputError
from esnlm.readout import linear
from esnlm.readout.linear import ReadoutConfig
from tests import oracle

RNG = np.random.default_rng(3)
H = RNG.normal(size=(200, 6))
TRUE = RNG.normal(size=(2, 6))
Y = H @ TRUE.T + [1.0, -2.0] + 0.1 * RNG.normal(size=(200, 2))
IDS = (H @ RNG.normal(size=(6, 4)) + 0.3 * RNG.normal(size=(200, 4))).argmax(axis=1)


def test_ridge_of_numbers_is_the_solution_of_the_normal_equations():
    readout = esnlm.Readout("ridge", regularizations=(0.1,)).fit(H, Y)
    h, y = H - H.mean(axis=0), Y - Y.mean(axis=0)
    gram = h.T @ h
    w = np.linalg.solve(gram + 0.1 * np.trace(gram) / 6 * np.eye(6), h.T @ y).T
    np.testing.assert_allclose(readout.arrays["w"], w, rtol=1e-10)
    np.testing.assert_allclose(readout.predict(H), h @ w.T + Y.mean(axis=0), rtol=1e-9)


def test_rls_of_numbers_weighs_the_last_rows_most():
    readout = esnlm.Readout("rls", forgetting=0.9, delta=2.0, block=7).fit(H, Y)
    x, weight = np.hstack([H, np.ones((200, 1))]), 0.9 ** np.arange(199, -1, -1.0)
    left = x.T @ (x * weight[:, None]) + 0.9**200 * 2 * np.eye(7)
    w = np.linalg.solve(left, x.T @ (Y * weight[:, None])).T
    np.testing.assert_allclose(np.column_stack([readout.arrays["w"], readout.arrays["bias"]]), w, rtol=1e-8)


def test_gradient_of_ids_takes_the_steps_of_adamw():
    readout = esnlm.Readout("gradient", epochs=4, learning_rate=0.05, batch_size=200, rank=3, seed=5).fit(H, IDS)
    start = linear.initialize(ReadoutConfig(3), 6, 4, 5)
    params = {name: np.asarray(getattr(start, name)[...], np.float64) for name in ("a", "b", "bias")}
    optimizer = oracle.AdamW(params, lr=0.05)
    for _ in range(4):
        params = optimizer.step(params, oracle.mean_nll_and_gradient(params, H, IDS)[1])
    for name, array in params.items():
        np.testing.assert_allclose(readout.arrays[name], array, atol=1e-5)
    loss, _ = oracle.mean_nll_and_gradient(readout.arrays, H, IDS)
    assert readout.score(H, IDS) == pytest.approx(-loss, rel=1e-6)


@pytest.mark.parametrize("kind, settings", [("ridge", {}), ("rls", {}), ("lms", {"learning_rate": 0.5, "epochs": 5})])
def test_regressions_learn_ids(kind, settings):
    readout = esnlm.Readout(kind, **settings).fit(H, IDS)
    assert (readout.predict(H) == IDS).mean() > 0.75
    assert readout.score(H, IDS) > -0.75 > -np.log(4)
    np.testing.assert_allclose(np.exp(readout.log_probs(H)).sum(axis=1), 1)


def alike(sequences, targets, seed):
    """States (50, 40) of each sequence that hardly change in it, and its target at each step. One does not tell the other."""
    rng = np.random.default_rng(seed)
    states = [rng.normal(size=40) + 0.1 * rng.normal(size=(50, 40)) for _ in range(sequences)]
    return states, [np.full(50, target) for target in rng.choice(targets, sequences)]


def test_whole_sequences_are_held_out():
    """Rows of the same sequences would say that what the fit has by heart is known: it would be sure, and wrong."""
    least = esnlm.Readout("ridge", regularizations=(1e-9, 1e3)).fit(*alike(45, [-1.0, 1.0], 0))
    assert np.abs(least.arrays["w"]).max() < 1e-2  # the largest penalty
    unsure = esnlm.Readout("ridge").fit(*alike(45, [0, 1], 0))
    assert unsure.score(*alike(100, [0, 1], 10)) > -0.8  # by chance -0.69


def test_what_is_held_out_is_a_tenth_of_whole_sequences():
    lengths = [30, 5, 60, 5, 100]
    for seed in range(20):
        held = np.split(readout_fits._held_out(lengths, 4096, seed), np.cumsum(lengths)[:-1])
        assert all(each.all() or not each.any() for each in held)
        assert sum(each.sum() for each in held) in (5, 10)  # a tenth is 20
        again = readout_fits._held_out(lengths, 4096, seed)
        np.testing.assert_array_equal(again, np.concatenate(held))
    assert (
        readout_fits._held_out([60, 40], 4096, 0).tolist() == [False] * 60 + [True] * 40
    )  # the shortest, where all have more
    assert readout_fits._held_out([100], 4096, 0).sum() == readout_fits._held_out([1] * 100, 4096, 0).sum() == 10


def test_gradient_keeps_an_average_and_an_order():
    """The average of the arrays after each update, and rows in the order in which they are given."""
    settings = {"learning_rate": 0.1, "batch_size": 60, "order": "corpus", "rank": 3, "seed": 5, "epochs": 1}
    averaged = esnlm.Readout("gradient", ema=0.5, **settings).fit(H, IDS)
    start = linear.initialize(ReadoutConfig(3), 6, 4, 5)
    params = {name: np.asarray(getattr(start, name)[...], np.float64) for name in ("a", "b", "bias")}
    after, optimizer = [], oracle.AdamW(params, lr=0.1)
    for first in range(0, 200, 60):
        rows = slice(first, first + 60)
        params = optimizer.step(params, oracle.mean_nll_and_gradient(params, H[rows], IDS[rows])[1])
        after.append({name: np.array(array) for name, array in params.items()})
    weights = 0.5 ** np.arange(len(after) - 1, -1, -1.0)
    last = esnlm.Readout("gradient", **settings).fit(H, IDS)
    # In float32, 1 - beta2 of AdamW's bias correction is off by 1.3e-5 of itself, and a step by half of that.
    for name in params:
        expected = np.average([each[name] for each in after], axis=0, weights=weights)
        np.testing.assert_allclose(averaged.arrays[name], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(last.arrays[name], after[-1][name], rtol=1e-4, atol=1e-5)


def fitted(targets):
    return esnlm.Readout(regularizations=(1.0,)).fit(H, targets)


@pytest.mark.parametrize(
    "act, words",
    [
        (lambda: esnlm.Readout("svm"), "svm"),
        (lambda: esnlm.Readout("ridge", epochs=3), "epochs"),
        (lambda: esnlm.Readout("rls", rank=3), "rank is 3"),
        (lambda: esnlm.Readout().predict(H), "not fitted"),
        (lambda: esnlm.Readout().fit(H, Y[:9]), r"\(200, 6\) and targets \(9, 2\)"),
        (lambda: esnlm.Readout(classes=3).fit(H, IDS), r"ids must be \(n,\) of 0 .. 2"),
        (lambda: esnlm.Readout("lms", learning_rate=1000.0, epochs=5).fit(H, IDS), "diverged"),
        (lambda: fitted(Y).log_probs(H), "numbers"),
        (lambda: fitted(Y).predict(H[:, :2]), r"\(200, 2\)"),
    ],
)
def test_mistakes_are_named(act, words):
    with pytest.raises(InputError, match=words):
        act()
