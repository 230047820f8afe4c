"""What is asked of the functions that a program adds to those of a time step, before they run over a text.

NumPy's functions cannot be traced by JAX, and would end in many lines. A mean over all units would be broadcast without a word. A
largest value of all sequences would make a sentence's NLL depend on those that stand beside it in the batch. An activation is
elementwise by its contract, on which the cut of a reservoir by unit relies; an update rule may read other units.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.errors import InputError
from esnlm.reservoir.functions import ACTIVATIONS, UPDATE_RULES, is_built_in, own_name

SEQUENCES = 4  # beside each other in the array that is tried


def check_own_functions(activation: str, update_rule: str, units: int) -> None:
    """Raises InputError for a function of a program's own that JAX cannot trace, or that mixes what must stay apart.

    An activation makes each entry of its result of the same entry of its argument. An update rule may read other units, but no
    other sequence of the batch.

    Args:
        activation: its name.
        update_rule: its name.
        units: N.
    """
    f, rule = ACTIVATIONS[activation], UPDATE_RULES[update_rule]
    if not is_built_in(activation):
        called = f"activation {own_name('activation', activation)}"
        advice = "write it with functions of jax.numpy, elementwise; what reads other units is an update_rule"
        parts = np.zeros((2, units, SEQUENCES), bool)
        # The first unit and the last: a sum from above does not see the one, nor one from below the other.
        parts[0, 0, 1] = parts[1, -1, 1] = True
        _check(called, advice, "entry", lambda x, leak: f(x), parts)
    if not is_built_in(update_rule):
        called = f"update_rule {own_name('update_rule', update_rule)}"
        parts = np.zeros((1, units, SEQUENCES), bool)
        parts[0, :, 1] = True
        advice = "write it with functions of jax.numpy"
        _check(called, advice, "sequence", lambda x, leak: rule.step(x, x[::-1], leak, f, 1.0), parts)


def _check(
    called: str, advice: str, part: str, function: Callable[[jax.Array, jax.Array], jax.Array], parts: np.ndarray
) -> None:
    """Tries a function, and tries it again with other values in one part of its argument, which may change no other part.

    Args:
        called: what the error calls it.
        advice: ends the error.
        part: what the error calls a part of the argument.
        function: from an array (N, sequences) and leaks (N, 1) to an array (N, sequences).
        parts: which entries are changed together, (tries, N, sequences) bool.
    """
    shape, leak = parts.shape[1:], np.full((parts.shape[1], 1), 0.5, np.float32)
    try:
        given = jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct(leak.shape, jnp.float32)
        made = getattr(jax.eval_shape(lambda x, leak: function(x, leak), *given), "shape", None)
    except jax.errors.JAXTypeError as error:
        raise InputError(f"{called} cannot be traced ({type(error).__name__}): {advice}") from error
    except Exception as error:  # whatever a function of a program's own raises
        line = " ".join(str(error).split())[:200]
        raise InputError(f"{called} fails on an array of the shape {shape}: {type(error).__name__}: {line}") from error
    if made != shape:
        raise InputError(f"{called} makes {made} of an array of the shape {shape}: {advice}")
    run = jax.jit(lambda x, leak: function(x, leak))
    x = np.linspace(-1, 1, parts[0].size, dtype=np.float32).reshape(shape)
    before = np.asarray(run(x, leak))
    # A largest value sees the one change, a least value the other.
    for changed, value in itertools.product(parts, (2.0, -2.0)):
        after = np.asarray(run(np.where(changed, np.float32(value), x), leak))
        apart = np.array_equal(before[~changed], after[~changed], equal_nan=True)
        if not apart:
            raise InputError(f"{called} mixes what must stay apart, one {part} with another: {advice}")
