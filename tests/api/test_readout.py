"""A readout in the hand is what each rule's equations say, for ids and for numbers."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

import esnlm
from esnlm.api.readout import choose_held_out

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


# of deviations, which float64 does not hold about 0.1
@pytest.mark.parametrize("size", [0.0, 1e-17])
def test_ridge_of_numbers_predicts_the_mean_from_equal_states(size):
    states = 0.1 + size * H
    for rows, targets in ((states, Y), (np.split(states, 4), np.split(Y, 4)), (states[:1], Y[:1])):
        readout = esnlm.Readout("ridge").fit(rows, targets)
        np.testing.assert_allclose(
            readout.predict(H), np.tile(np.vstack(targets).mean(axis=0), (200, 1)), rtol=1e-12
        )


def test_rls_of_numbers_weighs_the_last_rows_most():
    readout = esnlm.Readout("rls", forgetting=0.9, delta=2.0, block=7).fit(H, Y)
    x, weight = np.hstack([H, np.ones((200, 1))]), 0.9 ** np.arange(199, -1, -1.0)
    left = x.T @ (x * weight[:, None]) + 0.9**200 * 2 * np.eye(7)
    w = np.linalg.solve(left, x.T @ (Y * weight[:, None])).T
    np.testing.assert_allclose(
        np.column_stack([readout.arrays["w"], readout.arrays["bias"]]), w, rtol=1e-8
    )


@pytest.mark.parametrize("kind", ["ridge", "rls"])
@pytest.mark.parametrize("listed", [False, True])
def test_partial_fit_of_numbers_is_fit_on_all_rows(kind, listed):
    cuts = [0, 1, 50, 120, 200]
    states, targets = (
        [rows[i:j] for i, j in zip(cuts[:-1], cuts[1:], strict=True)] for rows in (H, Y)
    )
    expected = esnlm.Readout(kind).fit(*((states, targets) if listed else (H, Y)))
    readout = esnlm.Readout(kind)
    for h, y in zip(states, targets, strict=True):
        readout.partial_fit(*(([h], [y]) if listed else (h, y)))
    np.testing.assert_allclose(readout.predict(H), expected.predict(H), rtol=1e-9, atol=1e-9)
    with pytest.raises(esnlm.InputError, match=r"\(6,\), \(1,\)\): give \(\(6,\), \(2,\)\)"):
        readout.partial_fit(H, Y[:, :1])
    with pytest.raises(esnlm.InputError, match="^partial_fit is for numbers"):
        esnlm.Readout(kind, classes=4).partial_fit(H, IDS)


@pytest.mark.parametrize(
    "kind, settings", [("ridge", {}), ("rls", {}), ("lms", {"learning_rate": 0.5, "epochs": 5})]
)
def test_regressions_learn_ids(kind, settings):
    readout = esnlm.Readout(kind, classes=4, **settings).fit(H, IDS)
    assert (readout.predict(H) == IDS).mean() > 0.75
    assert readout.score(H, IDS) > -0.75 > -np.log(4)
    np.testing.assert_allclose(np.exp(readout.log_probs(H)).sum(axis=1), 1)


def test_the_score_is_that_of_scikit_learn():
    """The mean over the outputs: not that of the output that varies most, and a constant one
    counts."""
    y = H @ np.random.default_rng(2).normal(size=(H.shape[1], 3)) * [100, 1, 0]
    y[:, 1] += np.random.default_rng(3).normal(size=len(y))
    readout = esnlm.Readout("ridge").fit(H, y)
    assert readout.score(H, y) == pytest.approx(r2_score(y, readout.predict(H)), rel=1e-9)
    assert readout.score(H, y + [0, 0, 1]) == pytest.approx(
        r2_score(y + [0, 0, 1], readout.predict(H)), rel=1e-9
    )


def alike(sequences, targets, seed):
    """States (50, 40) of each sequence that hardly change in it, and its target at each step. One
    does not tell the other."""
    rng = np.random.default_rng(seed)
    states = [rng.normal(size=40) + 0.1 * rng.normal(size=(50, 40)) for _ in range(sequences)]
    return states, [np.full(50, target) for target in rng.choice(targets, sequences)]


def test_whole_sequences_are_held_out():
    """Rows of the same sequences would say that what the fit has by heart is known: it would be
    sure, and wrong."""
    least = esnlm.Readout("ridge", regularizations=(1e-9, 1e3)).fit(*alike(45, [-1.0, 1.0], 0))
    assert np.abs(least.arrays["w"]).max() < 1e-2  # the largest penalty
    unsure = esnlm.Readout("ridge", classes=2).fit(*alike(45, [0, 1], 0))
    assert unsure.score(*alike(100, [0, 1], 10)) > -0.8  # by chance -0.69


def test_what_is_held_out_is_a_tenth_of_whole_sequences():
    lengths = [30, 5, 60, 5, 100]
    for seed in range(20):
        held = np.split(choose_held_out(lengths, 4096, seed), np.cumsum(lengths)[:-1])
        assert all(each.all() or not each.any() for each in held)
        assert sum(each.sum() for each in held) in (5, 10)  # a tenth is 20
        again = choose_held_out(lengths, 4096, seed)
        np.testing.assert_array_equal(again, np.concatenate(held))
    # the shortest, where all have more
    assert choose_held_out([60, 40], 4096, 0).tolist() == [False] * 60 + [True] * 40
    assert choose_held_out([100], 4096, 0).sum() == choose_held_out([1] * 100, 4096, 0).sum() == 10


def test_integers_are_ids_only_if_classes_says_so():
    """Counts are integers, too: as classes they would be wrong, however many there are."""
    counts = np.random.default_rng(0).poisson(np.exp(H @ TRUE[0] / 4 + 4))
    with pytest.raises(
        esnlm.InputError,
        match=rf"to {counts.max()}: give .*astype.* or set classes={counts.max() + 1} if",
    ):
        esnlm.Readout().fit(H, counts)
    numbers = esnlm.Readout(regularizations=(1e-9,)).fit(H, counts.astype(float))
    by_least_squares = np.linalg.lstsq(np.hstack([H, np.ones((200, 1))]), counts, rcond=None)[0]
    np.testing.assert_allclose(numbers.arrays["w"][0], by_least_squares[:-1], rtol=1e-6)
    assert esnlm.Readout(classes=9).fit(H, IDS).log_probs(H).shape == (200, 9)
