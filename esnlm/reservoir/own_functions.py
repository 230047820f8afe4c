"""What is asked of the functions that a program adds to those of a time step, before they run over a text.

A mean over all units would be broadcast without a word. A largest value of all sequences would make a sentence's NLL depend on those
that stand beside it in the batch. An activation is elementwise by its contract; an update rule may read other units.
"""

import itertools
from collections.abc import Callable

import jax
import numpy as np

from esnlm.errors import InputError
from esnlm.reservoir.functions import ACTIVATIONS, UPDATE_RULES, is_built_in

SEQUENCES = 4  # beside each other in the array that is tried


def check_own_functions(activation: str, update_rule: str, units: int) -> None:
    """Raises InputError for a function of a program's own that JAX cannot trace, or that mixes what must stay apart.

    An activation makes each entry of its result of the same entry of its argument. An update rule may read other units, but no
    other sequence of the batch.
    """
    f, rule = ACTIVATIONS[activation], UPDATE_RULES[update_rule]
    if not is_built_in(activation):
        # The first unit and the last: a sum from above does not see the one, nor one from below the other.
        parts = np.zeros((2, units, SEQUENCES), bool)
        parts[0, 0, 1] = parts[1, -1, 1] = True
        _check(f"activation {activation}", "one entry with another", lambda x, leak: f(x), parts)
    if not is_built_in(update_rule):
        parts = np.zeros((1, units, SEQUENCES), bool)
        parts[0, :, 1] = True
        called, mixes = f"update_rule {update_rule}", "one sequence with another"
        _check(called, mixes, lambda x, leak: rule.step(x, x[::-1], leak, f, 1.0), parts)


def _check(called: str, mixes: str, function: Callable[[jax.Array, jax.Array], jax.Array], parts: np.ndarray) -> None:
    """Tries a function with other values in each of `parts` (tries, N, sequences), which may change nothing outside of it."""
    shape, leak = parts.shape[1:], np.full((parts.shape[1], 1), 0.5, np.float32)
    run = jax.jit(function)
    x = np.linspace(-1, 1, parts[0].size, dtype=np.float32).reshape(shape)
    advice = "write it with functions of jax.numpy; an activation is elementwise"
    try:
        before = np.asarray(run(x, leak))
    except Exception as error:  # whatever a function of a program's own raises
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{called} fails on an array of the shape {shape} ({reason}): {advice}") from error
    if before.shape != shape:
        raise InputError(f"{called} makes {before.shape} of an array of the shape {shape}: {advice}")
    # A largest value sees the one change, a least value the other.
    for changed, value in itertools.product(parts, (2.0, -2.0)):
        after = np.asarray(run(np.where(changed, np.float32(value), x), leak))
        if not np.array_equal(before[~changed], after[~changed], equal_nan=True):
            raise InputError(f"{called} mixes what must stay apart, {mixes}: {advice}")
