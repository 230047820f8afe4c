"""The functions of a time step by name: activations f, and update rules.

    leaky_output    h' = (1 - alpha a) * h + a * f(W_rec h + W_in u)
                    Ueda et al. 2025a, eq. 1, at alpha = 1
    leaky_membrane  x' = (1 - alpha a) * x + a * (W_rec r + W_in u), r = f(x)
                    Fujimaki 2026, eq. 1 and 2, at alpha = 1
    euler_state     h' = h + a * f((W_rec - gamma I) h + W_in u)
                    Gallicchio 2024
    residual_shift  h' = (1 - alpha a) * O h + a * f(W_rec h + W_in u), O the cyclic shift
                    Ceni and Gallicchio 2024

In an Euler state network W_rec is antisymmetric (topology `antisymmetric`), and a is the step
epsilon: one number in the paper, one per unit here [ours]. Only the diffusion gamma makes the state
decay. A residual echo state network weighs O h with alpha and f(.) with beta, each one number. Here
beta is the unit's leak a, and their alpha is 1 - alpha a, as in leaky_output [ours]. (O h)_i = h_(i
- 1), and unit 0 gets the value of the last unit.

Programs can register more functions. A configuration names its functions, so every program that
uses a run must register the same function under the same name. An unregistered function gets a name
in angle brackets, which is valid in this process only.
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
    registered: Callable | None = None  # a user's function, which `step` calls


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


def name_of(kind: str, function: str | Callable) -> str:
    """Returns the name of an activation or update rule (`kind`) from its name or function.

    An unregistered function gets a name in angle brackets, valid in this process only. Raises
    InputError if a name is unknown.
    """
    if not callable(function):
        check_registered(kind, function)
        return function
    registry = _registry(kind)
    names = [
        name
        for name, known in registry.items()
        if function in (known, getattr(known, "registered", None))
    ]
    if names:
        return min(names, key=is_anonymous)  # A function may be registered after its first use.
    plain = getattr(function, "__name__", type(function).__name__).strip("<>")
    name = f"<{plain} {len(ACTIVATIONS) + len(UPDATE_RULES)}>"
    _add(kind, name, function)
    return name


def check_registered(kind: str, name: str) -> None:
    """Raises InputError if this process has no activation or update rule (`kind`) of this name."""
    registry = _registry(kind)
    if name not in registry:
        names = ", ".join(known for known in registry if not is_anonymous(known))
        raise InputError(
            f"{kind} is {name!r}: choose from {names}; register a function of your own first, in"
            f" Python, with @esnlm.{kind} above its def"
        )


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
    if not is_built_in(activation):  # both ends: a cumulative sum changes only later entries
        what = f"activation {activation}"
        _check_mixing(what, "one entry with another", lambda x, leak: f(x), [first, last])
    if not is_built_in(update_rule):
        what = f"update_rule {update_rule}"

        def step(x: jax.Array, leak: jax.Array) -> jax.Array:
            return rule.step(x, x[::-1], leak, f, 1.0)

        _check_mixing(what, "one sequence with another", step, [sequence])


def _check_mixing(
    what: str,
    mixes: str,
    function: Callable[[jax.Array, jax.Array], jax.Array],
    masks: list[np.ndarray],
) -> None:
    """Raises InputError if changing the entries of one mask (N, sequences) changes others."""
    shape = masks[0].shape
    leak = np.full((shape[0], 1), 0.5, np.float32)
    x = np.linspace(-1, 1, masks[0].size, dtype=np.float32).reshape(shape)
    run = jax.jit(function)
    advice = "write it with functions of jax.numpy; an activation is elementwise"
    try:
        before = np.asarray(run(x, leak))
    except Exception as error:  # A registered function may raise anything.
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{what} fails on an array of shape {shape} ({reason}): {advice}"
        ) from error
    if before.shape != shape:
        raise InputError(
            f"{what} returns shape {before.shape} for an array of shape {shape}: {advice}"
        )
    # An increase shows in a maximum, a decrease in a minimum.
    for mask, value in itertools.product(masks, (2.0, -2.0)):
        after = np.asarray(run(np.where(mask, np.float32(value), x), leak))
        if not np.array_equal(before[~mask], after[~mask], equal_nan=True):
            raise InputError(f"{what} mixes {mixes}: {advice}")


def _registry(kind: str) -> dict[str, Any]:
    return ACTIVATIONS if kind == "activation" else UPDATE_RULES


def _add(kind: str, name: str, function: Callable) -> None:
    if kind == "activation":
        ACTIVATIONS[name] = function
        return
    UPDATE_RULES[name] = UpdateRule(
        lambda state, drive, leak, f, decay: function(state, drive, leak, f), registered=function
    )


def _register(kind: str, function: Function) -> Function:
    """Registers a function under its own name, also again: a notebook's cell may run twice."""
    name = function.__name__
    if is_built_in(name) or not name.isidentifier():
        raise InputError(f"{kind} {name}: write it with def, under a name that esnlm does not use")
    _add(kind, name, function)
    return function
