import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.reservoir import functions
from esnlm.reservoir.functions import check_own_functions


@pytest.fixture
def add():
    """Adds a function for one test, and returns its name."""
    before = [(known, dict(known)) for known in (functions.ACTIVATIONS, functions.UPDATE_RULES)]
    yield functions.name_of
    for known, kept in before:
        known.clear(), known.update(kept)


@pytest.mark.parametrize("units", [1, 7])
@pytest.mark.parametrize(
    "f", [jnp.sin, lambda x: x / (1 + abs(x)), lambda x: jnp.where(x > 0, x, jnp.nan)]
)
def test_an_elementwise_activation_is_taken(add, units, f):
    check_own_functions(add("activation", f), "leaky_output", units)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jax.nn.softmax(x, axis=0),  # over units
        lambda x: jax.nn.softmax(x, axis=1),  # over sequences
        lambda x: x / abs(x).max(),
        lambda x: x[::-1] + x,
    ],
)
def test_an_activation_that_mixes_entries_is_refused(add, f):
    with pytest.raises(InputError, match="one entry with another"):
        check_own_functions(add("activation", f), "leaky_output", 7)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (
            lambda state, drive, leak, f: f(drive) / jnp.linalg.norm(state),
            "one sequence with another",
        ),
        (
            lambda state, drive, leak, f: jnp.roll(state, 1, axis=1) + leak * f(drive),
            "one sequence with another",
        ),
        (
            lambda state, drive, leak, f: state + np.sqrt(leak) * f(drive),
            "update_rule .* fails on an array",
        ),
        (lambda state, drive, leak, f: f(drive).sum(0), "update_rule .* returns shape"),
    ],
)
def test_an_update_rule_that_mixes_sequences_or_is_of_numpy_is_refused(add, rule, line):
    with pytest.raises(InputError, match=line):
        check_own_functions("tanh", add("update_rule", rule), 6)
