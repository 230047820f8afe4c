"""What is asked of the functions that a program adds to those of a time step, before they run over a text.

NumPy's functions cannot be traced by JAX, and would end in many lines. A mean over all units would be broadcast without a word. A
largest value of all sequences would make a sentence's NLL depend on those that stand beside it in the batch.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.errors import InputError, require
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
    changed = np.zeros((units, SEQUENCES), bool)
    if not is_built_in(activation):
        changed[units // 3, 1] = True  # it is no middle, which would stay where it is if the array were turned round
        called = f"activation {own_name('activation', activation)}"
        _check(called, "write it with functions of jax.numpy, elementwise", "entry", f, changed)
    if not is_built_in(update_rule):
        changed[:, 1] = True
        leak = np.full((units, 1), 0.5, np.float32)
        called = f"update_rule {own_name('update_rule', update_rule)}"
        advice = "write it with functions of jax.numpy"
        _check(called, advice, "sequence", lambda x: rule.step(x, x[::-1], leak, f, 1.0), changed)


def _check(
    called: str, advice: str, part: str, function: Callable[[jax.Array], jax.Array], changed: np.ndarray
) -> None:
    """Tries a function, and tries it again with other values in one part of its argument, which may change no other part.

    Args:
        called: what the error calls it.
        advice: ends the error.
        part: what the error calls a part of the argument.
        function: from an array (N, sequences) to one of the same shape.
        changed: the part, (N, sequences) bool.
    """
    shape = changed.shape
    try:
        made = getattr(jax.eval_shape(lambda x: function(x), jax.ShapeDtypeStruct(shape, jnp.float32)), "shape", None)
    except jax.errors.JAXTypeError as error:
        raise InputError(f"{called} cannot be traced ({type(error).__name__}): {advice}") from error
    except Exception as error:  # whatever a function of a program's own raises
        line = " ".join(str(error).split())[:200]
        raise InputError(f"{called} fails on an array of the shape {shape}: {type(error).__name__}: {line}") from error
    require(made == shape, f"{called} makes {made} of an array of the shape {shape}: {advice}")
    run = jax.jit(lambda x: function(x))
    x = np.linspace(-1, 1, changed.size, dtype=np.float32).reshape(shape)
    before = np.asarray(run(x))[~changed]
    for value in (2.0, -2.0):  # a largest value sees the one, a least value the other
        after = np.asarray(run(np.where(changed, np.float32(value), x)))[~changed]
        apart = np.array_equal(before, after, equal_nan=True)
        require(apart, f"{called} mixes what must stay apart, one {part} with another: {advice}")
