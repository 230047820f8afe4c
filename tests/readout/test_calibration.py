"""From linear scores to log-probabilities: the stated rule, its fit, and that it stays a
readout."""

import numpy as np
import pytest
from scipy import optimize, stats

from esnlm.readout import calibration
from esnlm.readout.calibration import HeldOut, Rule, Scores, linear_scores
from tests import oracle
from tests.readout.regression_problem import TOKENS, N, V, least_squares, problem

FEATURES, TARGETS = problem()
COUNTS = np.bincount(TARGETS, minlength=V)
LOG_P = np.log((COUNTS + 1) / (TOKENS + V))
HELD_OUT = HeldOut(*problem(seed=1))


def scores():
    w, intercept = least_squares(FEATURES, TARGETS, [1.0] * N + [0])
    sums = np.eye(V)[TARGETS].T @ FEATURES.astype(np.float64)
    return linear_scores(w, intercept, sums, COUNTS)


def nll(beta, gamma, held_out=HELD_OUT):
    """The rule as its docstring has it, token by token."""
    found, p, f = scores(), np.exp(LOG_P), COUNTS / TOKENS
    y = held_out.features.astype(np.float64) @ found.w.T.astype(np.float64) + found.intercept
    o = LOG_P + beta * (y - f - (found.at_target - f) / 2) / p**gamma
    return -oracle.log_softmax(o)[np.arange(len(o)), held_out.targets].mean()


def test_own_scores_are_means_over_a_token_s_own_places():
    w, intercept = least_squares(FEATURES, TARGETS, [1.0] * N + [0])
    y = FEATURES.astype(np.float64) @ w.T + intercept
    means = [y[v == TARGETS, v].mean() if COUNTS[v] else intercept[v] for v in range(V)]
    np.testing.assert_allclose(scores().at_target, means, rtol=1e-9)
    assert COUNTS[V - 1] == 0


def test_the_saved_readout_gives_the_rule_s_probabilities():
    readout, record = calibration.calibrate("calibrated", scores(), HELD_OUT, LOG_P)
    found = -oracle.log_softmax(oracle.logits(readout, HELD_OUT.features.astype(np.float64)))[
        np.arange(TOKENS), HELD_OUT.targets
    ].mean()
    assert found == pytest.approx(nll(record["beta"], record["gamma"]), rel=1e-6)
    assert found == pytest.approx(record["held_out"], rel=1e-6)


def test_beta_and_gamma_are_the_best_for_held_out_text():
    """As good as a simplex search finds, to a hundredth of what the rule gains over the unigram."""
    record = calibration.fit_rule(scores(), HELD_OUT, LOG_P, Rule("calibrated"))
    best = optimize.minimize(
        lambda x: nll(np.exp(x[0]), x[1]), [0.0, 0.7], method="Nelder-Mead"
    ).fun
    assert record.nll <= best + 1e-4
    assert record.nll < nll(0.0, 0.0) - 0.3


def test_held_out_text_that_is_all_right_makes_no_log_probability_absurd():
    """Two classes of which the scores name the right one for each held-out row: the NLL falls as
    long as beta grows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 4)).astype(np.float32)
    y = (x[:, 0] + 0.1 * rng.standard_normal(len(x)) > 0).astype(int)
    right = np.flatnonzero((x[:200, 0] > 0) == y[:200])[:20]
    solved = np.linalg.lstsq(np.c_[x[:200], np.ones(200)], np.eye(2)[y[:200]])[0].T  # (2, 5)
    w, intercept = solved[:, :-1], solved[:, -1]
    counts = np.bincount(y[:200])
    found = linear_scores(w, intercept, np.eye(2)[y[:200]].T @ x[:200].astype(np.float64), counts)
    log_p = np.log(counts / counts.sum())
    readout, record = calibration.calibrate("calibrated", found, HeldOut(x[right], y[right]), log_p)
    o = oracle.logits(readout, x[200:].astype(np.float64))
    fresh = -oracle.log_softmax(o)[np.arange(len(o)), y[200:]].mean()
    assert fresh < 0.25 < -log_p.mean() and record["beta"] < 100
    held = oracle.logits(readout, x[right].astype(np.float64))
    nll = -oracle.log_softmax(held)[np.arange(len(held)), y[right]].mean()
    assert record["held_out"] == pytest.approx(nll, abs=1e-6), "without the prior"


def test_at_one_and_one_it_is_linear_discriminant_analysis():
    """With the total covariance: the difference of two tokens' logits is that of two Gaussian
    densities and their priors."""
    w, intercept = least_squares(FEATURES, TARGETS, np.zeros(N + 1))
    h = FEATURES.astype(np.float64)
    p = COUNTS[: V - 1] / TOKENS  # the token that never occurs has no density
    exact = Scores(
        *(part[:-1] for part in linear_scores(w, intercept, np.eye(V)[TARGETS].T @ h, COUNTS))
    )
    readout = Rule("calibrated", beta=1.0, gamma=1.0).readout(exact, np.log(p))
    covariance = np.cov(h.T, bias=True)
    joint = np.stack(
        [
            stats.multivariate_normal(h[v == TARGETS].mean(0), covariance).logpdf(h[:5])
            + np.log(p[v])
            for v in range(V - 1)
        ],
        1,
    )
    found = oracle.logits(readout, h[:5])
    np.testing.assert_allclose(found - found[:, :1], joint - joint[:, :1], atol=1e-4)


def test_scores_that_are_not_finite_go_through():
    """A diverged delta rule ends with a loss that is not a number, not with an error."""
    broken = scores()._replace(w=np.full((V, N), np.nan, np.float32))
    readout, record = calibration.calibrate("calibrated", broken, HELD_OUT, LOG_P)
    assert np.isnan(readout["w"]).all() and np.isnan(record["held_out"])
    assert np.isnan(
        calibration.fit_rule(broken, HELD_OUT, LOG_P, Rule("calibrated", nll=5.0)).nll
    ), "not that of what was fitted before"
