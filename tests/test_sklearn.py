"""scikit-learn's own checks pass for both estimators, and they compute what the equations say."""


import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'esnlm[sklearn]'")
from sklearn.utils.estimator_checks import parametrize_with_checks

from esnlm.sklearn import ReservoirClassifier, ReservoirRegressor

ORDER = "the rows are time steps of one sequence: a prediction depends on the steps before it"
OF_STEPS = {"check_methods_sample_order_invariance": ORDER, "check_methods_subset_invariance": ORDER}


def expected_failures(estimator):
    """The order of rows matters where they are time steps, and nowhere else."""
    return OF_STEPS if estimator.predicts == "steps" else {}


@parametrize_with_checks(
    [
        ReservoirRegressor(20),
        ReservoirRegressor(20, predicts="sequences"),
        ReservoirClassifier(20),
        ReservoirClassifier(20, predicts="steps"),
    ],
    expected_failed_checks=expected_failures,
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
