"""The exponential moving average (EMA) of the trained arrays, for validation and evaluation.

After update t with arrays p_t, the average of decay d is a weighted mean of the arrays after the
updates so far, as an Adam moment with its bias corrected (Kingma and Ba 2015, section 3):

    m_t = sum_{i <= t} d^(t - i) p_i / sum_{i <= t} d^(t - i) = m_{t-1} + w_t (p_t - m_{t-1}),
    w_t = (1 - d) / (1 - d^t)

It takes one more copy of the trained arrays, on the device and in each checkpoint. Training does
not read it, so the trained arrays are bit-identical with and without it.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class Averaged(NamedTuple):
    """The state of an optimizer, and the average of the arrays that it trains."""

    inner: optax.OptState
    updates: jax.Array  # () int32, number of averaged updates
    average: Any  # a tree like that of the trained arrays


def averaged(
    optimizer: optax.GradientTransformationExtraArgs, decay: float
) -> optax.GradientTransformationExtraArgs:
    """Returns the same optimizer, which also keeps the average of the arrays after each of its
    steps."""

    def init(params: Any) -> Averaged:
        # A copy, since the arrays and the state are donated separately.
        return Averaged(optimizer.init(params), jnp.int32(0), jax.tree.map(jnp.copy, params))

    def update(gradient: Any, state: Averaged, params: Any, **others: Any) -> tuple[Any, Averaged]:
        changes, inner = optimizer.update(gradient, state.inner, params, **others)
        moved = optax.apply_updates(params, changes)
        updates = state.updates + 1
        weight = (1 - decay) / -jnp.expm1(updates * math.log(decay))
        average = jax.tree.map(
            lambda mean, array: mean + weight * (array - mean), state.average, moved
        )
        return changes, Averaged(inner, updates, average)

    return optax.GradientTransformationExtraArgs(init, update)


def evaluated(params: Any, optimizer_state: Any) -> Any:
    """Returns the arrays for evaluation: their average if there is one."""
    return optimizer_state.average if isinstance(optimizer_state, Averaged) else params
