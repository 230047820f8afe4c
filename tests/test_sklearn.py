"""scikit-learn's own checks pass for both estimators, and they compute what the equations say."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from esnlm.base.errors import InputError
from esnlm.sklearn import ReservoirClassifier, ReservoirRegressor
from examples.series import mackey_glass, narma10, nrmse
from tests import oracle

ORDER = "the rows are time steps of one sequence: a prediction depends on the steps before it"
OF_STEPS = {
    "check_methods_sample_order_invariance": ORDER,
    "check_methods_subset_invariance": ORDER,
}


def expected_failures(estimator):
    """The order of rows matters where they are time steps, and nowhere else."""
    return OF_STEPS if estimator._of_steps else {}


@parametrize_with_checks(
    [ReservoirRegressor(10), ReservoirClassifier(10)], expected_failed_checks=expected_failures
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.nightly
@parametrize_with_checks(
    [ReservoirRegressor(20, predicts="sequences"), ReservoirClassifier(20, predicts="steps")],
    expected_failed_checks=expected_failures,
)
def test_the_checks_of_scikit_learn_the_other_way_round(estimator, check):
    check(estimator)


U, Y = narma10(1200, seed=0)


def by_hand(network, u):
    """What the network predicts, from its arrays, in the equations' words."""
    w_rec, w_in = (
        m if isinstance(m, np.ndarray) else m.toarray()
        for m in (network.reservoir_.w_rec, network.reservoir_.w_in)
    )
    drive = np.hstack([u, np.ones((len(u), 1))]) @ w_in.T.astype(float)
    x = oracle.driven_states(w_rec, network.reservoir_.leak, drive)
    return x, np.hstack([u, x]) @ network.coef_.T + network.intercept_


def test_narma_is_predicted_by_ridge_on_inputs_and_states():
    network = ReservoirRegressor(100, leak=0.9, washout=50, ridge=1e-6, random_state=3).fit(
        U[:900], Y[:900, 0]
    )
    x, predicted = by_hand(network, U)
    np.testing.assert_allclose(network.predict(U), predicted[:, 0], atol=1e-10)
    seen = np.hstack([U, x])[50:900]
    h, y = seen - seen.mean(axis=0), Y[50:900] - Y[50:900].mean()
    gram = h.T @ h
    # behind the first fold: of segments of 128, two make about a quarter
    variance = seen[256:].var(axis=0).mean()
    w = np.linalg.solve(gram + 1e-6 * variance * len(h) * np.eye(len(gram)), h.T @ y).T
    np.testing.assert_allclose(h @ network.coef_.T, h @ w.T, atol=1e-7)
    # a linear model of the input alone: 0.9 and more
    assert nrmse(network.predict(U)[900:], Y[900:, 0]) < 0.45


def test_a_series_goes_on_where_the_fit_ended():
    series = mackey_glass(1201)
    u, y = series[:-1], series[1:]
    whole = ReservoirRegressor(150, washout=100, random_state=0).fit(u[:1000], y[:1000])
    carried = ReservoirRegressor(150, washout=100, carry_state=True, random_state=0).fit(
        u[:1000], y[:1000]
    )
    np.testing.assert_allclose(carried.predict(u[1000:]), whole.predict(u)[1000:], atol=1e-9)
    assert nrmse(carried.predict(u[1000:]), y[1000:]) < 1e-3
    assert (
        np.abs(whole.predict(u[1000:]) - y[1000:]).max()
        > 10 * np.abs(carried.predict(u[1000:]) - y[1000:]).max()
    )


def test_several_sequences_of_several_lengths():
    cut, targets = [U[:300], U[300:700], U[700:]], [Y[:300], Y[300:700], Y[700:]]
    network = ReservoirRegressor(50, washout=30, random_state=0).fit(cut, targets)
    found = network.predict(cut)
    assert [each.shape for each in found] == [(300, 1), (400, 1), (500, 1)]
    np.testing.assert_allclose(found[2], by_hand(network, U[700:])[1], atol=1e-9)
    # without the washout, which the fit leaves out, too
    y = np.concatenate([each[30:] for each in targets])
    missed = np.concatenate([each[30:] for each in found]) - y
    assert network.score(cut, targets) == pytest.approx(
        1 - np.sum(missed**2) / np.sum((y - y.mean()) ** 2)
    )
    np.testing.assert_allclose(network.states(cut)[0], by_hand(network, cut[0])[0], atol=1e-12)


def test_a_score_counts_the_steps_behind_the_washout_with_their_weights():
    cut, targets = [U[:300], U[300:700]], [Y[:300, 0], Y[300:700, 0]]
    weights = [np.linspace(1, 2, 300), np.linspace(2, 0, 400)]
    network = ReservoirRegressor(40, washout=30, random_state=0).fit(cut, targets)
    found, y, w = (
        np.concatenate([each[30:] for each in several])
        for several in (network.predict(cut), targets, weights)
    )
    assert network.score(cut, targets, weights) == pytest.approx(
        r2_score(y, found, sample_weight=w)
    )
    one = r2_score(y[:270], found[:270], sample_weight=w[:270])
    assert network.score(cut[0], targets[0], weights[0]) == pytest.approx(one)
    rising = [each > each.mean() for each in targets]
    classes = ReservoirClassifier(40, predicts="steps", washout=30, random_state=0).fit(cut, rising)
    right = np.concatenate(
        [(a == b)[30:] for a, b in zip(classes.predict(cut), rising, strict=True)]
    )
    assert classes.score(cut, rising, weights) == pytest.approx(np.average(right, weights=w))


def test_sequences_are_told_apart_by_their_states():
    """Sines of two rates, of unequal lengths."""
    rng = np.random.default_rng(0)
    rates, lengths = rng.choice([0.3, 0.5], 60), rng.integers(30, 50, 60)
    waves = [
        np.sin(rate * np.arange(length) + rng.uniform(0, 6))[:, None]
        for rate, length in zip(rates, lengths, strict=True)
    ]
    names = np.where(rates > 0.4, "fast", "slow")
    network = ReservoirClassifier(100, ridge=1e-4, random_state=0).fit(waves[:40], names[:40])
    assert network.score(waves[40:], names[40:]) > 0.9
    assert set(network.predict(waves)) == {"fast", "slow"}
    by_step = ReservoirClassifier(30, predicts="steps", random_state=0).fit(
        waves, [[name] * len(wave) for name, wave in zip(names, waves, strict=True)]
    )
    assert [len(each) for each in by_step.predict(waves)] == lengths.tolist()


def test_probabilities_are_those_of_two_normal_classes():
    """Sequences of noise about two constants: log p1 / p0 of the last and the mean state follows
    from their distributions."""
    rng, classes = np.random.default_rng(1), np.arange(16_000) % 4 // 3  # one in four
    X = rng.normal(size=(16_000, 3, 1)) + 1.5 * classes[:, None, None]
    network = ReservoirClassifier(
        1, mean_degree=1, spectral_radius=1e-6, input_scale=1e-3, bias_scale=0, random_state=0
    )
    found = network.fit(X, classes).predict_proba(X)
    mean = X.mean(axis=(1, 2))  # sufficient: N(0, 1 / 3) or N(1.5, 1 / 3)
    expected = 1 / (1 + 3 * np.exp(-3 * 1.5 * (mean - 0.75)))
    # Log odds are known to 0.1 or so, from means and a variance of 4,000 rows, and p to a quarter
    # of that.
    np.testing.assert_allclose(found[:, 1], expected, atol=0.05)
    np.testing.assert_allclose(
        network.decision_function(X), np.log(found[:, 1] / found[:, 0]), atol=1e-8
    )


def test_the_penalty_is_chosen_on_sequences_that_the_fit_has_not_seen():
    """In sequences of noise whose targets are noise, what is learned by heart is wrong
    elsewhere."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 20, 2)), rng.normal(size=(40, 20))
    assert ReservoirRegressor(50, random_state=0).fit(X, y).ridge_ == 1
    assert ReservoirRegressor(50, random_state=0).fit(U, Y).ridge_ < 1e-4


NOISY = np.random.default_rng(5).normal(size=(60, 12, 2))
CLASSES = np.array(["falling", "level", "rising"])


def fit_in_calls(network, X, y, size):
    """Fits by partial_fit to `size` items of X and y a call."""
    options = {"classes": CLASSES} if isinstance(network, ReservoirClassifier) else {}
    for start in range(0, len(X), size):
        network.partial_fit(X[start : start + size], y[start : start + size], **options)
    return network


@pytest.mark.parametrize("size", [1, 2, 37])
@pytest.mark.parametrize("kind", [ReservoirRegressor, ReservoirClassifier])
@pytest.mark.parametrize(
    "settings",
    [
        {"predicts": "sequences"},
        {"predicts": "steps"},
        {"predicts": "steps", "washout": 4},
        {"predicts": "steps", "carry_state": True},
        {"predicts": "steps", "carry_state": True, "washout": 50},
    ],
    ids=str,
)
def test_partial_fit_is_fit_however_the_data_are_cut(kind, settings, size):
    """Penalty, folds, washout and calibration, for sequences, and for one series that calls
    continue step by step."""
    series = settings.get("carry_state", False)
    X = NOISY.reshape(-1, 2)[:150] if series else NOISY
    y = X[..., 0] + np.random.default_rng(6).normal(size=X.shape[:-1])
    if settings["predicts"] == "sequences":
        y = y.mean(axis=1)
    if kind is ReservoirClassifier:
        y = CLASSES[np.digitize(y, np.quantile(y, [0.3, 0.7]))]
    network = kind(20, random_state=0, **settings)
    expected, fitted = clone(network).fit(X, y), fit_in_calls(clone(network), X, y, size)
    assert fitted.ridge_ == expected.ridge_
    outputs = [each._outputs(X[::-1]) for each in (fitted, expected)]
    # Sums of some hundred rows are exact to 1e-14 or so; the solution is to F / penalty times that.
    tolerance = 1e-14 * fitted.coef_.shape[1] / fitted.ridge_ * np.abs(outputs[1]).max()
    np.testing.assert_allclose(*outputs, rtol=0, atol=tolerance)


def features_by_hand(network, X):
    """What a readout of sequences reads: last and mean of (u, x)."""
    h = [np.hstack(pair) for pair in zip(X, network.states(X), strict=True)]
    return np.array([np.concatenate([each[-1], each.mean(axis=0)]) for each in h])


def ridge_by_hand(h, y, folds, penalty, scale):
    """scikit-learn's ridge regressions at a penalty: of all rows, and the squared error on the
    folds that are not -1."""
    missed = 0.0
    for k in set(folds) - {-1}:
        held = folds == k
        missed += np.square(
            Ridge(penalty * scale * (~held).sum()).fit(h[~held], y[~held]).predict(h[held])
            - y[held]
        ).sum()
    return missed, Ridge(penalty * scale * len(h)).fit(h, y)


PENALTIES = 10.0 ** np.arange(-9, 1)


def test_sequences_that_come_one_by_one_are_divided_into_folds_at_random():
    """Each four of them are in four folds; the seed is the reservoir's."""
    X = np.random.default_rng(0).normal(size=(120, 20, 2))
    y = X[:, :, 0].mean(axis=1) + 0.1 * np.random.default_rng(1).normal(size=120)
    network = fit_in_calls(
        ReservoirRegressor(40, predicts="sequences", random_state=0), X[:90], y[:90], 1
    )
    h = features_by_hand(network, X)
    rng = np.random.default_rng(np.random.RandomState(0).randint(2**31 - 1))
    folds = np.concatenate([rng.permutation(4) for _ in range(23)])[:90]
    fits = [ridge_by_hand(h[:90], y[:90], folds, p, h[:90].var(axis=0).mean()) for p in PENALTIES]
    best = int(np.argmin([missed for missed, _ in fits]))
    assert network.ridge_ == pytest.approx(PENALTIES[best], rel=1e-12) and network.ridge_ > 1e-3
    np.testing.assert_allclose(network.predict(X[90:]), fits[best][1].predict(h[90:]), atol=1e-9)
    assert network.score(X[90:], y[90:]) > 0.6


@pytest.mark.parametrize("washout", [0, 30])
def test_the_folds_of_a_series_are_its_quarters_behind_the_transient(washout):
    """300 steps have four segments of 64 and one of 44; 330 without the first 30, too. Quarters:
    one, one, two, the last."""
    u = np.random.default_rng(0).normal(size=(300 + washout, 1))
    y = np.convolve(u[:, 0], [0, 1, 0.5])[: len(u)] + 0.3 * np.random.default_rng(1).normal(
        size=len(u)
    )
    network = ReservoirRegressor(40, washout=washout, random_state=0).fit(u, y)
    h = np.hstack([u, network.states(u)])[washout:]
    folds = np.repeat([-1, 1, 2, 3], [64, 64, 128, 44])  # -1: the transient is not held out
    scale = h[folds >= 0].var(axis=0).mean()
    fits = [ridge_by_hand(h, y[washout:], folds, p, scale) for p in PENALTIES]
    best = int(np.argmin([missed for missed, _ in fits]))
    assert network.ridge_ == pytest.approx(PENALTIES[best], rel=1e-12)
    np.testing.assert_allclose(network.predict(u)[washout:], fits[best][1].predict(h), atol=1e-9)


def test_the_order_of_calls_does_not_matter_to_a_given_penalty():
    network = ReservoirRegressor(20, predicts="sequences", ridge=0.1, random_state=0)
    X, y = NOISY, NOISY[:, :, 0].mean(axis=1)
    backwards = fit_in_calls(clone(network), X[::-1], y[::-1], 7)
    np.testing.assert_allclose(
        backwards.predict(X), network.fit(X, y).predict(X), rtol=0, atol=1e-12
    )


def test_the_first_sequence_of_a_call_continues_the_last_series():
    cuts = [U[:300], U[300:500], U[500:503], U[503:900], U[900:]]
    targets = [Y[:300], Y[300:500], Y[500:503], Y[503:900], Y[900:]]
    carried = ReservoirRegressor(30, washout=40, carry_state=True, random_state=0)
    for part in (slice(0, 2), slice(2, 3), slice(3, 5)):
        carried.partial_fit(cuts[part], targets[part])
    series = [U[:300], U[300:900], U[900:]], [Y[:300], Y[300:900], Y[900:]]
    expected = ReservoirRegressor(30, washout=40, random_state=0).fit(*series)
    assert carried.ridge_ == expected.ridge_
    np.testing.assert_allclose(carried.coef_, expected.coef_, rtol=1e-5, atol=1e-6)
    # Predictions continue from the end of the last series.
    np.testing.assert_allclose(
        carried.predict(U[:9]), expected.predict(np.vstack([U[900:], U[:9]]))[-9:], atol=1e-7
    )


def test_a_series_as_short_as_the_washout_has_no_fit_yet():
    network = ReservoirRegressor(10, washout=5, carry_state=True, random_state=0)
    with pytest.raises(InputError, match="washout is 5, but the sequence has only 4 steps"):
        network.fit(U[:4], Y[:4])
    network = clone(network).partial_fit(U[:4], Y[:4])
    with pytest.raises(NotFittedError):
        network.predict(U[:4])
    assert len(network.partial_fit(U[4:6], Y[4:6]).predict(U[6:9])) == 3
    with pytest.raises(ValueError, match="washout is 5"):
        ReservoirRegressor(10, washout=5).partial_fit(U[:4], Y[:4])
    with pytest.raises(ValueError, match="washout is 5, but the sequence has only 3 steps"):
        network.fit(U[:3], Y[:3])  # forgets the earlier fit
    with pytest.raises(ValueError, match="washout is 5, but the sequence has only 2 steps"):
        network.fit([U[:9], U[9:11]], [Y[:9], Y[9:11]])
    # 6 and 14 steps
    network.partial_fit(U[:4], Y[:4]).partial_fit([U[4:6], U[6:20]], [Y[4:6], Y[6:20]])


def test_a_fit_in_pieces_of_some_steps_is_that_of_the_whole(monkeypatch):
    expected = ReservoirRegressor(30, washout=20, random_state=0).fit(U, Y)
    monkeypatch.setattr("esnlm.sklearn.BLOCK", 2 * 30 * 70)  # 70 steps
    network = clone(expected).fit(U, Y)
    assert network.ridge_ == expected.ridge_
    np.testing.assert_allclose(network.predict(U), expected.predict(U), atol=1e-8)


def test_partial_fit_knows_the_classes_of_its_first_call():
    names = ReservoirClassifier(10, random_state=0).partial_fit(
        [U[:50], U[50:]], ["a", "b"], classes=["a", "b", "c"]
    )
    assert names.predict_proba([U[:50], U[50:]]).shape == (2, 3)
    with pytest.raises(ValueError, match="the class d"):
        names.partial_fit([U[:50], U[50:]], ["a", "d"])


@pytest.mark.parametrize("washout", [0, 200])
@pytest.mark.parametrize("level", [0.0, 3.0])
def test_constant_inputs_predict_the_mean(level, washout):
    """All states are equal, but for the transient from the state 0."""
    X, noise = np.full((599, 1), level), np.random.default_rng(0).normal(size=599)
    constant = ReservoirRegressor(washout=washout, random_state=0).fit(X, np.full(599, level))
    np.testing.assert_allclose(constant.predict(X), level, rtol=1e-9)
    varied = ReservoirRegressor(washout=washout, random_state=0).fit(X, noise)
    assert varied.predict(X)[200:] == pytest.approx(
        noise[200:].mean(), abs=1e-9 if washout else 0.1
    )
    classes = ReservoirClassifier(30, predicts="steps", washout=washout, random_state=0).fit(
        X, noise > 0.5
    )
    assert classes.predict_proba(X)[-1, 1] == pytest.approx(
        (noise[washout:] > 0.5).mean(), abs=0.02
    )
    of_rows = ReservoirClassifier(30, random_state=0).fit(
        X[:400].reshape(40, 10), np.arange(40) % 4 > 2
    )
    assert of_rows.predict_proba(X[:10].T)[0, 1] == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    "washout, sizes", [(0, (1e-3, 1e-5, 1e-6)), (10, (1e-3, 1e-6)), (150, (1e-3, 1e-6, 1e-9))]
)
def test_small_inputs_are_predicted_as_well_as_large_ones(washout, sizes):
    """Their states are small deviations from those without input, which are far from the state
    0."""
    wave = np.sin(0.3 * np.arange(601))
    network = ReservoirRegressor(washout=washout, random_state=0)
    for size in sizes:
        predicted = network.fit(size * wave[:-1, None], size * wave[1:]).predict(
            size * wave[:-1, None]
        )
        np.testing.assert_allclose(predicted[150:] / size, wave[151:], atol=1e-3)


def test_small_targets_are_predicted_as_well_as_large_ones():
    network = ReservoirRegressor(100, random_state=0)
    expected = clone(network).fit(U, Y)
    small = clone(network).fit(U, 2.0**-20 * Y)  # exact in float64
    assert small.ridge_ == expected.ridge_
    np.testing.assert_allclose(small.predict(U), 2.0**-20 * expected.predict(U), rtol=1e-12)


def test_the_transient_does_not_choose_the_penalty():
    """A square wave of period 20 is known from the last ten steps, up to a small penalty."""
    wave = np.where(np.arange(601) // 10 % 2 == 0, 1.0, -1.0)
    assert (
        ReservoirRegressor(ridge=1e-8, random_state=0)
        .fit(wave[:-1, None], wave[1:])
        .score(wave[:-1, None], wave[1:])
        > 0.999
    )
    assert (
        ReservoirRegressor(random_state=0)
        .fit(wave[:-1, None], wave[1:])
        .score(wave[:-1, None], wave[1:])
        > 0.999
    )


def test_sequences_of_one_number_may_be_rows_or_columns():
    """(n, T) is n sequences of T steps, and so is a list of n arrays (T, 1)."""
    rows, classes = np.random.default_rng(0).normal(size=(20, 30)), np.arange(20) % 2
    columns = [row[:, None] for row in rows]
    of_rows, of_columns = (
        ReservoirClassifier(20, random_state=0).fit(X, classes) for X in (rows, columns)
    )
    np.testing.assert_array_equal(of_rows.predict(rows), of_columns.predict(columns))
    assert len(of_columns.predict([column[:9] for column in columns])) == 20


def test_a_topology_with_a_density_of_its_own_does_not_read_mean_degree():
    """It has a default, 10, so that it is always given."""
    of_four = {"kind": "fixed_in_degree", "degree": 4}
    for topology, entries in (
        (of_four, 160),
        ("ring", 40),
        (lambda n, rng: np.roll(np.eye(n), 1, axis=0), 40),
    ):
        network = ReservoirRegressor(40, topology=topology, random_state=0).fit(U[:100], Y[:100])
        assert network.reservoir_.w_rec.nnz == entries


def test_every_setting_of_the_reservoir_reaches_it():
    def reservoir(**settings):
        return ReservoirRegressor(100, random_state=0, **settings).fit(U[:60], Y[:60]).reservoir_

    def nonzeros(drawn):
        return drawn.w_rec.nnz

    plain = reservoir()
    assert (plain.settings.activation, plain.settings.update_rule) == ("tanh", "leaky_output")
    assert plain.measured_radius() == pytest.approx(0.9, rel=1e-5)
    # a number drawn at random, to within 32 or so
    assert nonzeros(plain) == pytest.approx(1000, rel=0.15)
    # Of 100 weights the standard deviation is that to within a tenth or so; the same random_state
    # draws the same ones.
    assert plain.w_in.std(axis=0) == pytest.approx([0.5, 0.2], rel=0.3)

    for of_one_input in (1.5, [1.5]):
        scaled = reservoir(input_scale=of_one_input, bias_scale=0.1).w_in
        np.testing.assert_allclose(scaled, plain.w_in * [3, 0.5], rtol=1e-6)
    with pytest.raises(ValueError, match="one for each of the 1 inputs"):
        reservoir(input_scale=[1.5, 1.0])
    assert reservoir(spectral_radius=0.4).measured_radius() == pytest.approx(0.4, rel=1e-5)
    assert nonzeros(reservoir(mean_degree=5)) == pytest.approx(500, rel=0.2)
    assert reservoir(activation="relu").settings.activation == "relu"
    assert reservoir(update_rule="leaky_membrane").settings.update_rule == "leaky_membrane"


def test_targets_and_sequences_may_be_tables():
    """A table of targets has as many columns as there are sequences, so that their names would pass
    for targets."""
    cut, targets = U.reshape(6, 200, 1)[:, :30], np.random.default_rng(0).normal(size=(6, 6))
    network = ReservoirRegressor(20, predicts="sequences", random_state=0)
    expected = network.fit(cut, targets).predict(cut)
    np.testing.assert_array_equal(network.fit(cut, pd.DataFrame(targets)).predict(cut), expected)
    network.feature_names_in_ = np.array(["load"])  # as of an earlier fit to one table
    for given in ([pd.DataFrame(each) for each in cut], cut.tolist()):
        np.testing.assert_array_equal(network.fit(given, targets).predict(given), expected)
    assert not hasattr(network, "feature_names_in_")
    rising = targets > 0
    classes = ReservoirClassifier(20, predicts="steps", random_state=0)
    expected = classes.fit(cut[:, :6], rising).predict(cut[:, :6])
    np.testing.assert_array_equal(
        classes.fit(cut[:, :6], pd.DataFrame(rising)).predict(cut[:, :6]), expected
    )


def test_columns_of_tables_in_a_list_have_names():
    """The last value of column a tells the classes apart, and b is noise; scikit-learn finds a
    table in another order."""
    rng, classes = np.random.default_rng(0), np.arange(40) % 2
    tables = [
        pd.DataFrame({"a": rng.normal(size=9) + 5 * c, "b": rng.normal(size=9)}) for c in classes
    ]
    swapped = [table[["b", "a"]] for table in tables]
    network = ReservoirClassifier(20, random_state=0).fit(tables, classes)
    assert network.score(tables, classes) == 1 and network.feature_names_in_.tolist() == ["a", "b"]
    calls = (
        lambda: network.predict(swapped),
        lambda: network.predict(tables[:3] + swapped[3:]),
        lambda: network.partial_fit(swapped, classes),
        lambda: clone(network).fit(tables[:3] + swapped[3:], classes),
    )
    for call in calls:
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            call()
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        network.predict([table.to_numpy() for table in tables])


def test_a_table_of_several_series_is_not_one_series():
    index = pd.MultiIndex.from_product([range(10), range(30)], names=["id", "time"])
    table = pd.DataFrame(U[:300], index, ["u"])
    network = ReservoirRegressor(10, random_state=0)
    # in a pipeline, only y has an index
    for X, y in ((table, Y[:300]), (U[:300], pd.Series(Y[:300, 0], index))):
        with pytest.raises(
            ValueError, match=r"MultiIndex \(id, time\).*groupby\(level=0\).*reset_index"
        ):
            network.fit(X, y)
    parts = [part for _, part in table.groupby(level=0)]
    targets = list(Y[:300].reshape(10, 30))
    of_parts = network.fit(parts, targets).predict(parts)
    of_arrays = (
        clone(network).fit(U[:300].reshape(10, 30, 1), targets).predict(U[:300].reshape(10, 30, 1))
    )
    np.testing.assert_array_equal(of_parts, of_arrays)
    assert len(network.predict(parts[0])) == 30


def test_a_sequence_shorter_than_the_washout_is_named():
    cut, targets = [U[:100], U[100:130]], [Y[:100, 0], Y[100:130, 0]]
    network = ReservoirRegressor(10, washout=30, random_state=0)
    with pytest.raises(ValueError, match="washout is 30, but sequence 1 has only 30 steps"):
        network.fit(cut, targets)
    network.fit(cut[0], targets[0])
    for X, y, name in ((cut, targets, "sequence 1"), (cut[1], targets[1], "the sequence")):
        with pytest.raises(ValueError, match=f"washout is 30, but {name} has only 30 steps"):
            network.score(X, y)
    with pytest.raises(ValueError, match="washout is 30, but sequence 1"):
        network.partial_fit(cut, targets)


def test_reading_the_fit_again_with_carry_state_warns():
    """These predictions continue after the fit, which is not where its steps were."""
    network = ReservoirRegressor(10, washout=10, carry_state=True, random_state=0).fit(
        U[:100], Y[:100]
    )
    for call in (network.predict, network.states, lambda u: network.score(u, Y[:100])):
        with pytest.warns(UserWarning, match="X has the inputs of the fit") as caught:
            call(U[:100])
        assert caught[0].filename == __file__
    network.predict(U[100:200])


def test_a_class_that_only_one_fold_has_is_not_taken_for_another():
    """A fit without this fold knows nothing of the class, so the fold cannot tell how the scores
    are to be read."""
    up, down = np.linspace(0, 1, 30)[:, None], -np.linspace(0, 1, 30)[:, None]
    network = ReservoirClassifier(random_state=0)
    assert network.fit([up, down], ["rising", "falling"]).predict([up, down]).tolist() == [
        "rising",
        "falling",
    ]
    rng = np.random.default_rng(0)
    recordings = [mean + rng.normal(size=(300, 2)) for mean in np.eye(2)]  # one per class
    labels = [np.full(300, i) for i in range(2)]
    for X, y in ((recordings, labels), (np.concatenate(recordings), np.concatenate(labels))):
        network = ReservoirClassifier(50, predicts="steps", random_state=0).fit(X, y)
        h = np.vstack(
            [np.hstack(pair) for pair in zip(recordings, network.states(recordings), strict=True)]
        )
        y = np.concatenate(labels)
        expected = (
            RidgeClassifier(network.ridge_ * h.var(axis=0).mean() * len(h)).fit(h, y).score(h, y)
        )
        assert network.score(recordings, labels) > expected - 0.05 > 0.7


def test_further_data_are_checked_as_the_first():
    X, y = np.random.default_rng(0).normal(size=(6, 9, 2)), np.arange(6) % 2
    network = ReservoirClassifier(10, random_state=0).partial_fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        network.partial_fit(X[:5], y)
    for call in (network.predict, lambda wide: network.partial_fit(wide, y)):
        with pytest.raises(
            ValueError, match="X has 3 features, but ReservoirClassifier is expecting 2"
        ):
            call(np.zeros((6, 9, 3)))
    numbers = ReservoirRegressor(10, predicts="sequences", random_state=0).partial_fit(X, y)
    expected = clone(numbers).partial_fit(X, y).partial_fit(X, y).predict(X)
    with pytest.raises(ValueError, match="y has 2 numbers per row, but the first has 1"):
        numbers.partial_fit(X, np.stack([y, y], axis=1))
    np.testing.assert_array_equal(numbers.partial_fit(X, y).predict(X), expected)
    of_rows = ReservoirClassifier(10, random_state=0).partial_fit(X[:, :, 0], y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        of_rows.partial_fit(X[:5, :, 0], y)
