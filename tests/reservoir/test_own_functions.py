import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.reservoir import functions
from esnlm.reservoir.own_functions import check_own_functions


@pytest.fixture
def add():
    """Adds a function for one test, and returns its name."""
    before = [(known, dict(known)) for known in (functions.ACTIVATIONS, functions.UPDATE_RULES)]
    yield functions.name_of
    for known, kept in before:
        known.clear(), known.update(kept)


@pytest.mark.parametrize("units", [1, 2, 7])
@pytest.mark.parametrize("f", [jnp.sin, lambda x: x / (1 + abs(x)), lambda x: jnp.where(x > 0, x, jnp.nan)])
def test_an_elementwise_activation_is_taken(add, units, f):
    check_own_functions(add("activation", f), "leaky_output", units)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jax.nn.softmax(x, axis=0),  # over units
        lambda x: jax.nn.softmax(x, axis=1),  # over sequences
        lambda x: x - x.mean(),
        lambda x: x / abs(x).max(),
        lambda x: x - x.min(axis=0),
        lambda x: jnp.cumsum(x, axis=0),
        lambda x: jnp.roll(x, 1, axis=0),
        lambda x: jnp.cumsum(x, axis=0, dtype=x.dtype)[::-1],
        lambda x: x[::-1] + x,
    ],
)
@pytest.mark.parametrize("units", [3, 7])
def test_an_activation_that_mixes_entries_is_refused(add, f, units):
    name = add("activation", f)
    with pytest.raises(InputError, match="^activation <lambda> mixes what must stay apart, one entry with another: "):
        check_own_functions(name, "leaky_output", units)


def test_a_rule_of_numpy_is_refused(add):
    """NumPy's function of the leak, too, which is an array of JAX where the rule runs."""
    name = add("update_rule", lambda state, drive, leak, f: state + np.sqrt(leak) * f(drive))
    with pytest.raises(InputError, match=r"^update_rule <lambda> cannot be traced \(TracerArrayConversionError\)"):
        check_own_functions("tanh", name, 6)


@pytest.mark.parametrize(
    "rule",
    [
        lambda state, drive, leak, f: f(drive),
        lambda state, drive, leak, f: jnp.roll(state, 1, axis=0) + leak * f(drive),  # a unit may read another one
        lambda state, drive, leak, f: f(drive) / jnp.linalg.norm(state, axis=0),
        lambda state, drive, leak, f: state + leak.at[0].set(0) * f(drive),  # the leak is an array of JAX, as in a run
    ],
)
def test_an_update_rule_that_keeps_sequences_apart_is_taken(add, rule):
    check_own_functions("tanh", add("update_rule", rule), 6)


@pytest.mark.parametrize(
    "rule",
    [
        lambda state, drive, leak, f: f(drive) / jnp.linalg.norm(state),
        lambda state, drive, leak, f: f(drive - drive.max()),
        lambda state, drive, leak, f: jnp.roll(state, 1, axis=1) + leak * f(drive),
    ],
)
def test_an_update_rule_that_mixes_sequences_is_refused(add, rule):
    name = add("update_rule", rule)
    with pytest.raises(InputError) as error:
        check_own_functions("tanh", name, 6)
    assert str(error.value) == (
        "update_rule <lambda> mixes what must stay apart, one sequence with another: write it with functions of jax.numpy"
    )
