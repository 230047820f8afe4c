"""The readout on a mesh of eight simulated devices, against float64 NumPy: losses, gradients and log-probabilities."""

import numpy as np
import pytest

from esnlm.features import dropout
from tests import oracle
from tests.parallel.test_many_devices import on_eight_devices
from tests.readout.sharded_readout import CASES, GROUP, KEY, ROWS, C, pairs, problem

EPSILON = float(np.finfo(np.float32).eps)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("sharded") / "found.npz"
    on_eight_devices("tests.readout.sharded_readout", file)
    return np.load(file)


def tolerance(readout, features):
    """A logit is a sum of as many products as the oracle's; a log-probability is the difference of two of them."""
    return 50 * EPSILON * max(1.0, np.abs(oracle.logits(readout, features)).max())


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_the_whole_readout(case, found):
    rank, scale, rate = CASES[case]
    readout, features, packed = problem(rank, scale)
    h = features[packed.rows].astype(np.float64)
    if rate:
        h *= dropout.mask(dropout.token_keys(KEY, packed.corpus_positions), dropout.OUTPUT, h.shape[1], rate)
    real = np.append(np.arange(C - 1), np.zeros(5, int))  # the last row weighs nothing
    loss, gradient = oracle.mean_nll_and_gradient(
        readout, h[real], np.append(packed.targets[:-1], packed.first_targets)
    )
    assert scale == 1 or loss > 40
    assert found[f"{case}.loss"] == pytest.approx(loss, rel=tolerance(readout, features))
    for name, expected in gradient.items():
        here = found[f"{case}.{name}"]
        assert here.shape == expected.shape, "what is fetched has no padding"
        assert np.linalg.norm(here - expected) < tolerance(readout, features) * np.linalg.norm(expected)


@pytest.mark.parametrize("case", CASES)
def test_pairs_and_groups_get_the_log_softmax_of_the_whole_vocabulary(case, found):
    readout, features, _ = problem(*CASES[case][:2])
    logits = oracle.logits(readout, features[ROWS].astype(np.float64))
    sources, targets = pairs(logits.argmax(axis=1))
    log_p, allowed = oracle.log_softmax(logits), tolerance(readout, features)
    np.testing.assert_allclose(found[f"{case}.pairs"][:, 0], log_p[sources, targets], rtol=0, atol=allowed)
    is_likeliest = logits.argmax(axis=1)[sources] == targets
    assert 20 <= is_likeliest.sum() < 40
    np.testing.assert_array_equal(found[f"{case}.pairs"][:, 1], is_likeliest)
    of_group = np.logaddexp.reduce(log_p[:, GROUP], axis=1)
    np.testing.assert_allclose(found[f"{case}.group"], of_group, rtol=0, atol=allowed)
