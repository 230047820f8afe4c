"""scikit-learn's own checks pass for both estimators, and they compute what the equations say."""

import numpy as np
import pytest

from examples.series import mackey_glass, narma10, nrmse
from tests import oracle

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'esnlm[sklearn]'")
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from esnlm.sklearn import ReservoirClassifier, ReservoirRegressor

ORDER = "the rows are time steps of one sequence: a prediction depends on the steps before it"
OF_STEPS = {"check_methods_sample_order_invariance": ORDER, "check_methods_subset_invariance": ORDER}


def expected_failures(estimator):
    """The order of rows matters where they are time steps, and nowhere else."""
    return OF_STEPS if estimator._of_steps else {}


@parametrize_with_checks([ReservoirRegressor(10), ReservoirClassifier(10)], expected_failed_checks=expected_failures)
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
        m if isinstance(m, np.ndarray) else m.toarray() for m in (network.reservoir_.w_rec, network.reservoir_.w_in)
    )
    drive = np.hstack([u, np.ones((len(u), 1))]) @ w_in.T.astype(float)
    x = oracle.driven_states(w_rec, network.reservoir_.leak, drive)
    return x, np.hstack([u, x]) @ network.coef_.T + network.intercept_


def test_narma_is_predicted_by_ridge_on_inputs_and_states():
    network = ReservoirRegressor(100, leak=0.9, washout=50, ridge=1e-6, random_state=3).fit(U[:900], Y[:900, 0])
    x, predicted = by_hand(network, U)
    np.testing.assert_allclose(network.predict(U), predicted[:, 0], atol=1e-10)
    seen = np.hstack([U, x])[50:900]
    h, y = seen - seen.mean(axis=0), Y[50:900] - Y[50:900].mean()
    gram = h.T @ h
    w = np.linalg.solve(gram + 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram)), h.T @ y).T
    np.testing.assert_allclose(h @ network.coef_.T, h @ w.T, atol=1e-7)
    assert nrmse(network.predict(U)[900:], Y[900:, 0]) < 0.45  # a linear model of the input alone: 0.9 and more


def test_a_series_goes_on_where_the_fit_ended():
    series = mackey_glass(1201)
    u, y = series[:-1], series[1:]
    whole = ReservoirRegressor(150, washout=100, random_state=0).fit(u[:1000], y[:1000])
    carried = ReservoirRegressor(150, washout=100, carry_state=True, random_state=0).fit(u[:1000], y[:1000])
    np.testing.assert_allclose(carried.predict(u[1000:]), whole.predict(u)[1000:], atol=1e-9)
    assert nrmse(carried.predict(u[1000:]), y[1000:]) < 1e-3
    assert np.abs(whole.predict(u[1000:]) - y[1000:]).max() > 10 * np.abs(carried.predict(u[1000:]) - y[1000:]).max()


def test_several_sequences_of_several_lengths():
    cut, targets = [U[:300], U[300:700], U[700:]], [Y[:300], Y[300:700], Y[700:]]
    network = ReservoirRegressor(50, washout=30, random_state=0).fit(cut, targets)
    found = network.predict(cut)
    assert [each.shape for each in found] == [(300, 1), (400, 1), (500, 1)]
    np.testing.assert_allclose(found[2], by_hand(network, U[700:])[1], atol=1e-9)
    y = np.concatenate([each[30:] for each in targets])  # without the washout, which the fit leaves out, too
    missed = np.concatenate([each[30:] for each in found]) - y
    assert network.score(cut, targets) == pytest.approx(1 - np.sum(missed**2) / np.sum((y - y.mean()) ** 2))
    np.testing.assert_allclose(network.states(cut)[0], by_hand(network, cut[0])[0], atol=1e-12)


def test_a_score_counts_the_steps_behind_the_washout_with_their_weights():
    cut, targets = [U[:300], U[300:700]], [Y[:300, 0], Y[300:700, 0]]
    weights = [np.linspace(1, 2, 300), np.linspace(2, 0, 400)]
    network = ReservoirRegressor(40, washout=30, random_state=0).fit(cut, targets)
    found, y, w = (
        np.concatenate([each[30:] for each in several]) for several in (network.predict(cut), targets, weights)
    )
    assert network.score(cut, targets, weights) == pytest.approx(r2_score(y, found, sample_weight=w))
    one = r2_score(y[:270], found[:270], sample_weight=w[:270])
    assert network.score(cut[0], targets[0], weights[0]) == pytest.approx(one)
    rising = [each > each.mean() for each in targets]
    classes = ReservoirClassifier(40, predicts="steps", washout=30, random_state=0).fit(cut, rising)
    right = np.concatenate([(a == b)[30:] for a, b in zip(classes.predict(cut), rising, strict=True)])
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
    """Sequences of noise about two constants: log p1 / p0 of the last and the mean state follows from their distributions."""
    rng, classes = np.random.default_rng(1), np.arange(16_000) % 4 // 3  # one in four
    X = rng.normal(size=(16_000, 3, 1)) + 1.5 * classes[:, None, None]
    network = ReservoirClassifier(
        1, mean_degree=1, spectral_radius=1e-6, input_scale=1e-3, bias_scale=0, random_state=0
    )
    found = network.fit(X, classes).predict_proba(X)
    mean = X.mean(axis=(1, 2))  # sufficient: N(0, 1 / 3) or N(1.5, 1 / 3)
    expected = 1 / (1 + 3 * np.exp(-3 * 1.5 * (mean - 0.75)))
    # Log odds are known to 0.1 or so, from means and a variance of 4,000 rows, and p to a quarter of that.
    np.testing.assert_allclose(found[:, 1], expected, atol=0.05)
    np.testing.assert_allclose(network.decision_function(X), np.log(found[:, 1] / found[:, 0]), atol=1e-8)


def test_the_penalty_is_chosen_on_sequences_that_the_fit_has_not_seen():
    """In sequences of noise whose targets are noise, what is learned by heart is wrong elsewhere."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 20, 2)), rng.normal(size=(40, 20))
    assert ReservoirRegressor(50, random_state=0).fit(X, y).ridge_ == 1
    assert ReservoirRegressor(50, random_state=0).fit(U, Y).ridge_ < 1e-4


@pytest.mark.parametrize("carry_state", [False, True])
def test_parts_of_a_fit_are_the_whole(carry_state, monkeypatch):
    """Of several sequences, or of one that is cut; and in pieces of some steps of it."""
    network = ReservoirRegressor(30, ridge=1e-6, washout=20, carry_state=carry_state, random_state=0)
    cut, targets = [U[:500], U[500:]], [Y[:500], Y[500:]]
    whole = clone(network).fit(U, Y) if carry_state else clone(network).fit(np.array(cut, object), targets)
    monkeypatch.setattr("esnlm.sklearn.BLOCK", 2 * 30 * 70)  # 70 steps
    for u, y in zip(cut, targets, strict=True):
        network.partial_fit(u, y)
    np.testing.assert_allclose(network.coef_, whole.coef_, rtol=1e-6, atol=1e-8)  # sums about another row
    np.testing.assert_allclose(network.predict(U[:200]), whole.predict(U[:200]), atol=1e-9)
    names = ReservoirClassifier(10, random_state=0).partial_fit(cut, ["a", "b"], classes=["a", "b", "c"])
    assert names.predict_proba(cut).shape == (2, 3)
    with pytest.raises(ValueError, match="the class d"):
        names.partial_fit(cut, ["a", "d"])


def test_sequences_of_one_number_may_be_rows_or_columns():
    """(n, T) is n sequences of T steps, and so is a list of n arrays (T, 1)."""
    rows, classes = np.random.default_rng(0).normal(size=(20, 30)), np.arange(20) % 2
    columns = [row[:, None] for row in rows]
    of_rows, of_columns = (ReservoirClassifier(20, random_state=0).fit(X, classes) for X in (rows, columns))
    np.testing.assert_array_equal(of_rows.predict(rows), of_columns.predict(columns))
    assert len(of_columns.predict([column[:9] for column in columns])) == 20


def test_a_topology_with_a_density_of_its_own_does_not_read_mean_degree():
    """It has a default, 10, so that it is always given."""
    of_four = {"kind": "fixed_in_degree", "degree": 4}
    for topology, entries in ((of_four, 160), ("ring", 40), (lambda n, rng: np.roll(np.eye(n), 1, axis=0), 40)):
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
    assert nonzeros(plain) == pytest.approx(1000, rel=0.15)  # a number drawn at random, to within 32 or so
    # Of 100 weights the standard deviation is that to within a tenth or so; the same random_state draws the same ones.
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
    """A table of targets has as many columns as there are sequences, so that their names would pass for targets."""
    pd = pytest.importorskip("pandas")
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
    np.testing.assert_array_equal(classes.fit(cut[:, :6], pd.DataFrame(rising)).predict(cut[:, :6]), expected)


def test_columns_of_tables_in_a_list_have_names():
    """The last value of column a tells the classes apart, and b is noise; scikit-learn finds a table in another order."""
    pd = pytest.importorskip("pandas")
    rng, classes = np.random.default_rng(0), np.arange(40) % 2
    tables = [pd.DataFrame({"a": rng.normal(size=9) + 5 * c, "b": rng.normal(size=9)}) for c in classes]
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
    pd = pytest.importorskip("pandas")
    index = pd.MultiIndex.from_product([range(10), range(30)], names=["id", "time"])
    table = pd.DataFrame(U[:300], index, ["u"])
    network = ReservoirRegressor(10, random_state=0)
    with pytest.raises(ValueError, match=r"MultiIndex \(id, time\).*groupby\(level=0\).*reset_index"):
        network.fit(table, Y[:300])
    parts = [part for _, part in table.groupby(level=0)]
    targets = list(Y[:300].reshape(10, 30))
    of_parts = network.fit(parts, targets).predict(parts)
    of_arrays = clone(network).fit(U[:300].reshape(10, 30, 1), targets).predict(U[:300].reshape(10, 30, 1))
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
    network = ReservoirRegressor(10, washout=10, carry_state=True, random_state=0).fit(U[:100], Y[:100])
    for call in (network.predict, network.states, lambda u: network.score(u, Y[:100])):
        with pytest.warns(UserWarning, match="X has the inputs of the fit") as caught:
            call(U[:100])
        assert caught[0].filename == __file__
    network.predict(U[100:200])


def test_further_data_are_checked_as_the_first():
    X, y = np.random.default_rng(0).normal(size=(6, 9, 2)), np.arange(6) % 2
    network = ReservoirClassifier(10, random_state=0).partial_fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        network.partial_fit(X[:5], y)
    for call in (network.predict, lambda wide: network.partial_fit(wide, y)):
        with pytest.raises(ValueError, match="X has 3 features, but ReservoirClassifier is expecting 2"):
            call(np.zeros((6, 9, 3)))
    of_rows = ReservoirClassifier(10, random_state=0).partial_fit(X[:, :, 0], y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        of_rows.partial_fit(X[:5, :, 0], y)
