"""The functions of a time step, by name: activations f, and update rules. A program can add its own.

    leaky_output    h' = (1 - alpha a) * h + a * f(W_rec h + W_in u)           Ueda et al. 2025a, eq. 1, at alpha 1
    leaky_membrane  x' = (1 - alpha a) * x + a * (W_rec r + W_in u), r = f(x)  Fujimaki 2026, eq. 1 and 2, at alpha 1
    euler_state     h' = h + a * f((W_rec - gamma I) h + W_in u)               Gallicchio 2024
    residual_shift  h' = (1 - alpha a) * O h + a * f(W_rec h + W_in u)         Ceni and Gallicchio 2024, O the cyclic shift

In an Euler state network W_rec is antisymmetric (topology `antisymmetric`), and a is its step epsilon, one number there and one
a unit here [ours]. Nothing but gamma, the diffusion, fades the state. A residual echo state network weighs O h with alpha and f(.)
with beta, each one number. Here beta is the unit's leak a, and their alpha is 1 - alpha a, as in leaky_output [ours].
(O h)_i = h_(i - 1), and unit 0 has what the last unit had.

A configuration names its functions, so every program that uses a run registers the same function under the same name. A
function that nobody registered has a name in angle brackets, which no other process can know.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.errors import InputError

Activation = Callable[[jax.Array], jax.Array]  # elementwise
Function = TypeVar("Function", bound=Callable)
SEQUENCES = 4  # beside each other in the array on which functions of a program's own are tried


@dataclass(frozen=True)  # and not a tuple, which JAX would look into
class UpdateRule:
    """The equations of a time step, for all units and batch slots at once."""

    # (state (N, B), drive (N, B), leak (N, 1), f, decay) -> the new state (N, B). The drive is W_rec r + W_in u.
    step: Callable[..., jax.Array]
    # (state, f) -> r (N, B), which feeds back and which the readout sees
    output: Callable[..., jax.Array] = lambda state, f: state


def _leaky_output(state: jax.Array, drive: jax.Array, leak: jax.Array, f: Activation, decay: float) -> jax.Array:
    return (1 - decay * leak) * state + leak * f(drive)


def _leaky_membrane(state: jax.Array, drive: jax.Array, leak: jax.Array, f: Activation, decay: float) -> jax.Array:
    return (1 - decay * leak) * state + leak * drive


def _euler_state(state: jax.Array, drive: jax.Array, leak: jax.Array, f: Activation, decay: float) -> jax.Array:
    return state + leak * f(drive - decay * state)  # decay is gamma


def _residual_shift(state: jax.Array, drive: jax.Array, leak: jax.Array, f: Activation, decay: float) -> jax.Array:
    return (1 - decay * leak) * state.__array_namespace__().roll(state, 1, axis=0) + leak * f(drive)


ACTIVATIONS: dict[str, Activation] = {"tanh": jnp.tanh, "relu": jax.nn.relu}
UPDATE_RULES: dict[str, UpdateRule] = {
    "leaky_output": UpdateRule(_leaky_output),
    "leaky_membrane": UpdateRule(_leaky_membrane, lambda state, f: f(state)),
    "euler_state": UpdateRule(_euler_state),
    "residual_shift": UpdateRule(_residual_shift),
}

_BUILT_IN = frozenset([*ACTIVATIONS, *UPDATE_RULES])
_given: dict[tuple[str, str], Callable] = {}  # by kind and name, the functions that programs have added


def activation(function: Function) -> Function:
    """Registers an activation f under its own name, so that a configuration can name it. It is a decorator.

    Args:
        function: from an array of any shape to one of the same shape, elementwise, made of JAX functions.

    Raises InputError if the name is that of a function of the package.

    Example:
        @esnlm.activation
        def softsign(x):
            return x / (1 + abs(x))
    """
    return _register("activation", function)


def update_rule(function: Function) -> Function:
    """Registers the equation of a time step under its own name, so that a configuration can name it. It is a decorator.

    Args:
        function: (state, drive, leak, f) -> the new state. `state` and `drive` = W_rec h + W_in u are (N, B), `leak` is
            (N, 1), and f is the activation. What feeds back and what the readout sees is the state.

    Raises InputError if the name is that of a rule of the package.

    Example:
        @esnlm.update_rule
        def euler(state, drive, leak, f):                    # a step of 0.1, with diffusion
            return state + 0.1 * f(drive - 0.01 * state)
    """
    return _register("update_rule", function)


def name_of(kind: str, given: str | Callable) -> str:
    """Returns the name of an activation or an update rule that is given by its name or as a function.

    A function that is not registered gets a name in angle brackets, which serves this process only. `kind` is "activation" or
    "update_rule". Raises InputError if the name is unknown.
    """
    if not callable(given):
        require_registered(kind, given)
        return given
    names = [name for name, function in _known(kind).items() if given in (function, _given.get((kind, name)))]
    if names:
        return min(names, key=is_anonymous)  # a function may be registered after it was used
    plain = getattr(given, "__name__", type(given).__name__).strip("<>")
    name = f"<{plain} {len(_given) + 1}>"
    _add(kind, name, given)
    return name


def require_registered(kind: str, name: str) -> None:
    """Raises InputError if a name is that of no activation or update rule, by `kind`, of this process."""
    known = _known(kind)
    if name not in known:
        names = ", ".join(each for each in known if not is_anonymous(each))
        own = f"a function of your own is registered first, in Python, with @esnlm.{kind} above its def"
        raise InputError(f"{kind} is {name!r}: choose from {names}; {own}")


def is_built_in(name: str) -> bool:
    """Returns whether a name is that of a function of the package."""
    return name in _BUILT_IN


def is_anonymous(name: str) -> bool:
    """Returns whether a name serves this process only."""
    return name.startswith("<")


def check_own_functions(activation: str, update_rule: str, units: int) -> None:
    """Raises InputError for a function of a program's own that JAX cannot trace, or that mixes what must stay apart.

    An activation makes each entry of its result of the same entry of its argument: a mean over all units would be broadcast without
    a word. An update rule may read other units, but no other sequence: a sentence's NLL would depend on those beside it in the batch.
    """
    f, rule = ACTIVATIONS[activation], UPDATE_RULES[update_rule]
    first, last, sequence = np.zeros((3, units, SEQUENCES), bool)
    first[0, 1] = last[-1, 1] = sequence[:, 1] = True
    if not is_built_in(activation):  # a sum from above does not see the first unit, nor one from below the last
        _check(f"activation {activation}", "one entry with another", lambda x, leak: f(x), [first, last])
    if not is_built_in(update_rule):
        called, mixes = f"update_rule {update_rule}", "one sequence with another"
        _check(called, mixes, lambda x, leak: rule.step(x, x[::-1], leak, f, 1.0), [sequence])


def _check(called: str, mixes: str, function: Callable[[jax.Array, jax.Array], jax.Array], parts: list) -> None:
    """Tries a function with other values in each of `parts` (N, sequences), which may change nothing outside of it."""
    shape, leak = parts[0].shape, np.full((len(parts[0]), 1), 0.5, np.float32)
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


def _known(kind: str) -> dict[str, Any]:
    return ACTIVATIONS if kind == "activation" else UPDATE_RULES


def _add(kind: str, name: str, function: Callable) -> None:
    _given[kind, name] = function
    if kind == "activation":
        ACTIVATIONS[name] = function
    else:
        UPDATE_RULES[name] = UpdateRule(lambda state, drive, leak, f, decay: function(state, drive, leak, f))


def _register(kind: str, function: Function) -> Function:
    """Adds a function under its own name. A name can be given again: a notebook's cell runs twice."""
    name = function.__name__
    if is_built_in(name) or not name.isidentifier():
        raise InputError(f"{kind} {name}: write it with def, under a name that is not esnlm's own")
    _add(kind, name, function)
    return function
