"""What proposition 3 decides, against dense float64 NumPy and on networks whose answer is known."""

import numpy as np
import pytest
import scipy.sparse

from esnlm.diagnosis.theory import decide, sigma_max
from esnlm.reservoir.cell import ReservoirLayer, Stack
from esnlm.reservoir.topology import Orthogonal
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir
from tests import oracle

V = 23


def reservoir(**settings):
    return initialize_reservoir(
        ReservoirConfig(**{"state_size": 90, "mean_degree": 6.0} | settings), V, seed=1
    ).reservoir


def by_hand(w_rec, w_in=((1.0,), (1.0,)), leak=1.0):
    w_rec = np.array(w_rec, np.float32)
    return ReservoirLayer(
        w_rec, np.array(w_in, np.float32), np.broadcast_to(np.float32(leak), len(w_rec))
    )


@pytest.mark.parametrize("size", [200, 900])
def test_sigma_max_is_the_largest_singular_value(size):
    w = scipy.sparse.random_array(
        (size, size), density=8 / size, rng=np.random.default_rng(0), format="csr"
    )
    found = sigma_max(w, seed=0)
    assert found == pytest.approx(np.linalg.svd(w.toarray(), compute_uv=False)[0], rel=1e-6)
    assert found == sigma_max(w, seed=0)


def test_sigma_max_where_lanczos_has_little_to_go_by():
    row, column, value = Orthogonal(degree=4).connect(700, 0.0, np.random.default_rng(0))
    orthogonal = scipy.sparse.csr_array((value.astype(float), (row, column)), shape=(700, 700))
    assert sigma_max(orthogonal, seed=0) == pytest.approx(1, rel=1e-6)
    assert sigma_max(0 * orthogonal, seed=0) == 0
    assert sigma_max(orthogonal.toarray(), seed=0) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("settings", [{}, {"connectivity": 0.5}, {"leak_min": 1.0}])
def test_theory_reports_the_figures_of_the_matrices(settings):
    frozen = reservoir(**settings)
    w, a = oracle.dense(frozen.w_rec), np.asarray(frozen.leak, np.float64)
    found = decide(frozen)
    assert found.sigma_max == pytest.approx(np.linalg.norm(w, 2), rel=1e-6)
    assert found.radius == pytest.approx(np.abs(np.linalg.eigvals(w)).max(), rel=1e-6)
    linearised = np.eye(90) - np.diag(a) + np.diag(a) @ w
    assert found.linear_radius == pytest.approx(
        np.abs(np.linalg.eigvals(linearised)).max(), rel=1e-6
    )
    assert found.empty_tokens == (np.abs(oracle.dense(frozen.w_in)).sum(0) == 0).sum()
    assert found.verdict == "undecided"  # as at the paper's settings: rho 0.99, sigma_max about 2


HALF = np.eye(2) / 2
SHEAR = [[0.5, 3.0], [0.0, 0.5]]  # eigenvalues 0.5, singular value above 3
DOUBLE = 2 * np.eye(2)
EMPTY = [[1.0, 0.0], [1.0, 0.0]]  # the second token reaches no unit


@pytest.mark.parametrize(
    "frozen, activation, verdict, reason",
    [
        (by_hand(HALF), "tanh", "holds", "sigma_max(W) = 0.5"),
        (by_hand(HALF, EMPTY, 0.3), "tanh", "holds", "sigma_max(W) = 0.5"),
        (by_hand(SHEAR, EMPTY), "tanh", "undecided", "3.081"),
        (by_hand(DOUBLE, EMPTY, 0.5), "tanh", "fails", "modulus 1.5"),
        (by_hand(DOUBLE), "tanh", "undecided", "modulus 2"),
        # With leak it is the linearisation that counts: rho(W) = 1.2, yet 0 is stable.
        (by_hand(-1.2 * np.eye(2), EMPTY, 0.5), "tanh", "undecided", "1.2 is not below 1"),
        (by_hand(np.eye(2), EMPTY), "tanh", "undecided", "(1.000)"),
        (by_hand(HALF, leak=[0.0, 1.0]), "tanh", "fails", "1 of 2 units"),
        (by_hand(HALF), "relu", "undefined", "relu"),
    ],
)
def test_what_proposition_3_decides(frozen, activation, verdict, reason):
    found = decide(frozen, activation)
    assert found.verdict == verdict and reason in found.reason


ONE = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    "layers, verdict, reason",
    [
        (
            [by_hand(HALF), by_hand(0.8 * np.eye(2), ONE)],
            "holds",
            "the largest sigma_max(W) of 2 layers = 0.8",
        ),
        ([by_hand(HALF), by_hand(DOUBLE, ONE)], "undecided", "every token has a column in W_in"),
        (
            [by_hand(HALF, EMPTY), by_hand(DOUBLE, ONE)],
            "fails",
            "modulus 2.000, above 1, and input 0 occurs",
        ),
        ([by_hand(HALF), by_hand(HALF, ONE, [0.0, 1.0])], "fails", "1 of 4 units have leak 0"),
    ],
)
def test_every_layer_of_a_stack_must_contract(layers, verdict, reason):
    found = decide(Stack(layers))
    assert found.verdict == verdict and reason in found.reason


def test_the_linearisation_of_a_stack_is_that_of_all_layers_together():
    """Of either update rule, by finite differences at 0 without input."""
    stack = initialize_reservoir(
        ReservoirConfig(state_size=40, mean_degree=6.0, layers=2), V, seed=1
    ).reservoir
    (w, _, a), (w2, w_in2, a2) = (oracle.matrices(layer) for layer in stack.layers)

    def step(state, membrane):
        x, y = np.split(state, 2)
        if membrane:
            x = (1 - a) * x + a * (w @ np.tanh(x))
            y = (1 - a2) * y + a2 * (w2 @ np.tanh(y) + w_in2 @ np.tanh(x))
        else:
            x = (1 - a) * x + a * np.tanh(w @ x)
            y = (1 - a2) * y + a2 * np.tanh(w2 @ y + w_in2 @ x)
        return np.concatenate([x, y])

    for membrane in (False, True):
        jacobian = np.stack([step(1e-6 * unit, membrane) / 1e-6 for unit in np.eye(80)], axis=1)
        assert decide(stack).linear_radius == pytest.approx(
            np.abs(np.linalg.eigvals(jacobian)).max(), rel=1e-6
        )


@pytest.mark.parametrize("rule", ["euler_state", "residual_shift"])
def test_the_linearisation_of_the_rules_without_a_theorem(rule):
    """By finite differences at 0 without input; the theory does not cover the echo state
    property."""
    config = ReservoirConfig(
        state_size=40,
        connectivity=0.15,
        update_rule=rule,
        **({"diffusion": 0.2} if rule == "euler_state" else {}),
    )
    layer = initialize_reservoir(config, V, seed=1).reservoir
    w, a = oracle.dense(layer.w_rec), np.asarray(layer.leak, np.float64)
    steps = [
        oracle.driven_states(w, a, np.zeros((1, 40)), rule, diffusion=0.2, start=1e-6 * unit)[0]
        for unit in np.eye(40)
    ]
    found = decide(layer, decay=config.decay)
    eigenvalues = np.linalg.eigvals(np.stack(steps, axis=1) / 1e-6)
    assert found.linear_radius == pytest.approx(np.abs(eigenvalues).max(), rel=1e-6)
    assert (found.verdict, found.reason) == ("undecided", f"the theory does not cover {rule}")


def test_a_decay_moves_both_bounds():
    """h' = (1 - alpha a) h + a tanh(W h): at alpha 0.4 the matrix I / 2 no longer contracts, and 0
    is unstable."""
    assert decide(by_hand(HALF, EMPTY, 0.5), decay=0.6).verdict == "holds"
    found = decide(by_hand(HALF, EMPTY, 0.5), decay=0.4)
    assert found.verdict == "fails" and found.linear_radius == pytest.approx(1 - 0.2 + 0.25)
