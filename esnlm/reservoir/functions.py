"""The functions of a time step by name: activations f, and update rules. Programs can register
more.

    leaky_output    h' = (1 - alpha a) * h + a * f(W_rec h + W_in u)           Ueda et al. 2025a,
    eq. 1, at alpha 1 leaky_membrane  x' = (1 - alpha a) * x + a * (W_rec r + W_in u), r = f(x)
    Fujimaki 2026, eq. 1 and 2, at alpha 1 euler_state     h' = h + a * f((W_rec - gamma I) h + W_in
    u)               Gallicchio 2024 residual_shift  h' = (1 - alpha a) * O h + a * f(W_rec h + W_in
    u)         Ceni and Gallicchio 2024, O the cyclic shift

In an Euler state network W_rec is antisymmetric (topology `antisymmetric`), and a is the step
epsilon: one number in the paper, one per unit here [ours]. Only the diffusion gamma makes the state
decay. A residual echo state network weighs O h with alpha and f(.) with beta, each one number. Here
beta is the unit's leak a, and their alpha is 1 - alpha a, as in leaky_output [ours]. (O h)_i = h_(i
- 1), and unit 0 gets the value of the last unit.

A configuration names its functions, so every program that uses a run must register the same
function under the same name. An unregistered function gets a name in angle brackets, which is valid
in this process only.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.base.errors import InputError

Activation = Callable[[jax.Array], jax.Array]  # elementwise
Function = TypeVar("Function", bound=Callable)
SEQUENCES = 4  # batch size of the arrays on which registered functions are tried


@dataclass(frozen=True)  # not a tuple, since JAX would flatten that
class UpdateRule:
    """The equations of a time step, for all units and batch slots at once."""

    # (state (N, B), drive (N, B), leak (N, 1), f, decay) -> the new state (N, B). The drive is
    # W_rec r + W_in u.
    step: Callable[..., jax.Array]
    # (state, f) -> r (N, B), which feeds back and which the readout reads
    output: Callable[..., jax.Array] = lambda state, f: state


def _shift(state: jax.Array) -> jax.Array:
    return state.__array_namespace__().roll(state, 1, axis=0)


ACTIVATIONS: dict[str, Activation] = {"tanh": jnp.tanh, "relu": jax.nn.relu}
UPDATE_RULES: dict[str, UpdateRule] = {
    "leaky_output": UpdateRule(
        lambda state, drive, leak, f, decay: (1 - decay * leak) * state + leak * f(drive)
    ),
    "leaky_membrane": UpdateRule(
        lambda state, drive, leak, f, decay: (1 - decay * leak) * state + leak * drive,
        lambda state, f: f(state),
    ),
    # decay is gamma
    "euler_state": UpdateRule(
        lambda state, drive, leak, f, decay: state + leak * f(drive - decay * state)
    ),
    "residual_shift": UpdateRule(
        lambda state, drive, leak, f, decay: (1 - decay * leak) * _shift(state) + leak * f(drive)
    ),
}

_BUILT_IN = frozenset([*ACTIVATIONS, *UPDATE_RULES])
_given: dict[tuple[str, str], Callable] = {}  # registered functions by kind and name


def activation(function: Function) -> Function:
    """Decorator that registers an activation f under its own name, for use in configurations.

    Args:
        function: maps an array elementwise to an array of the same shape, with JAX functions.

    Raises InputError if the package has a function of this name.

    Example:
        @esnlm.activation
        def softsign(x):
            return x / (1 + abs(x))
    """
    return _register("activation", function)


def update_rule(function: Function) -> Function:
    """Decorator that registers the equation of a time step under its own name, for use in
    configurations.

    Args:
        function: (state, drive, leak, f) -> the new state. `state` and `drive` = W_rec h + W_in u
            are (N, B), `leak` is (N, 1), and f is the activation. The state feeds back, and the
            readout reads it.

    Raises InputError if the package has a rule of this name.

    Example:
        @esnlm.update_rule
        def euler(state, drive, leak, f):                    # a step of 0.1, with diffusion
            return state + 0.1 * f(drive - 0.01 * state)
    """
    return _register("update_rule", function)


def name_of(kind: str, given: str | Callable) -> str:
    """Returns the name of an activation or an update rule, given as a name or a function.

    An unregistered function gets a name in angle brackets, valid in this process only. `kind` is
    "activation" or "update_rule". Raises InputError if the name is unknown.
    """
    if not callable(given):
        require_registered(kind, given)
        return given
    names = [
        name
        for name, function in _known(kind).items()
        if given in (function, _given.get((kind, name)))
    ]
    if names:
        return min(names, key=is_anonymous)  # A function may be registered after its first use.
    plain = getattr(given, "__name__", type(given).__name__).strip("<>")
    name = f"<{plain} {len(_given) + 1}>"
    _add(kind, name, given)
    return name


def require_registered(kind: str, name: str) -> None:
    """Raises InputError if this process has no activation or update rule (`kind`) of this name."""
    known = _known(kind)
    if name not in known:
        names = ", ".join(each for each in known if not is_anonymous(each))
        own = f"register a function of your own first, in Python, with @esnlm.{kind} above its def"
        raise InputError(f"{kind} is {name!r}: choose from {names}; {own}")


def is_built_in(name: str) -> bool:
    """Returns whether the package has a function of this name."""
    return name in _BUILT_IN


def is_anonymous(name: str) -> bool:
    """Returns whether a name is valid in this process only."""
    return name.startswith("<")


def check_own_functions(activation: str, update_rule: str, units: int) -> None:
    """Raises InputError for a registered function that JAX cannot trace, or that mixes entries or
    sequences.

    An activation must be elementwise; a mean over all units, for example, would be broadcast
    silently. An update rule may read other units but no other sequence: otherwise a sentence's NLL
    would depend on its batch.
    """
    f, rule = ACTIVATIONS[activation], UPDATE_RULES[update_rule]
    first, last, sequence = np.zeros((3, units, SEQUENCES), bool)
    first[0, 1] = last[-1, 1] = sequence[:, 1] = True
    if not is_built_in(activation):  # both ends, since a cumulative sum leaves one alone
        _check(
            f"activation {activation}",
            "one entry with another",
            lambda x, leak: f(x),
            [first, last],
        )
    if not is_built_in(update_rule):
        called, mixes = f"update_rule {update_rule}", "one sequence with another"
        _check(called, mixes, lambda x, leak: rule.step(x, x[::-1], leak, f, 1.0), [sequence])


def _check(
    called: str, mixes: str, function: Callable[[jax.Array, jax.Array], jax.Array], parts: list
) -> None:
    """Raises InputError if changing the input in one of `parts` (N, sequences) changes the output
    outside that part."""
    shape, leak = parts[0].shape, np.full((len(parts[0]), 1), 0.5, np.float32)
    run = jax.jit(function)
    x = np.linspace(-1, 1, parts[0].size, dtype=np.float32).reshape(shape)
    advice = "write it with functions of jax.numpy; an activation is elementwise"
    try:
        before = np.asarray(run(x, leak))
    except Exception as error:  # A registered function may raise anything.
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{called} fails on an array of shape {shape} ({reason}): {advice}"
        ) from error
    if before.shape != shape:
        raise InputError(
            f"{called} returns shape {before.shape} for an array of shape {shape}: {advice}"
        )
    # An increase shows in a maximum, a decrease in a minimum.
    for changed, value in itertools.product(parts, (2.0, -2.0)):
        after = np.asarray(run(np.where(changed, np.float32(value), x), leak))
        if not np.array_equal(before[~changed], after[~changed], equal_nan=True):
            raise InputError(f"{called} mixes {mixes}: {advice}")


def _known(kind: str) -> dict[str, Any]:
    return ACTIVATIONS if kind == "activation" else UPDATE_RULES


def _add(kind: str, name: str, function: Callable) -> None:
    _given[kind, name] = function
    if kind == "activation":
        ACTIVATIONS[name] = function
    else:
        UPDATE_RULES[name] = UpdateRule(
            lambda state, drive, leak, f, decay: function(state, drive, leak, f)
        )


def _register(kind: str, function: Function) -> Function:
    """Registers a function under its own name. A name can be reused, since a notebook's cell may
    run twice."""
    name = function.__name__
    if is_built_in(name) or not name.isidentifier():
        raise InputError(f"{kind} {name}: write it with def, under a name that esnlm does not use")
    _add(kind, name, function)
    return function
