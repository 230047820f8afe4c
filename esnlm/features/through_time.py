"""The gradient of a recurrence with a trained recurrent matrix, for a few sentences side by side.

A step adds W h to its input x, where h is the last output. So the gradient with respect to x_t
equals that with respect to W h, and the gradient with respect to W is

    dW = sum over t of dx_t h_{t-1}^T

Autodiff of a scan adds one product to dW at each time step; this module computes one product over
all steps and slots. XLA's CPU backend transposes W for each product W^T dx; this module does it
once. Without both, an update of an LSTM of 512 units took about 1.6 times as long on two cores of
an EPYC (results/families.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from esnlm.features.recurrence import State, scan_sentences
from esnlm.machine.matmul import matmul

Product = Callable[[jax.Array], jax.Array]  # from h (H, B) to W h (G, B)
Advance = Callable[[Product, State, jax.Array], tuple[State, jax.Array]]


@partial(jax.custom_vjp, nondiff_argnums=(0, 5))
def outputs(
    advance: Advance, w: jax.Array, start: State, x: jax.Array, positions: jax.Array, precision: str
) -> tuple[State, jax.Array]:
    """Returns the last state of sentences in slots, and all outputs, (T, H, B).

    It can be differentiated once, in w and x; the last state has no gradient.

    Args:
        advance: (product with W, state, input (G, B)) -> (next state, its output h' (H, B)). It
            must use the input only as x + W h, h being the last output, or zeros at the start of a
            sentence, and read no other trained array.
        w: (G, H), the matrix W.
        start: the state before the first token. Its first array is the last output.
        x: (T, G, B).
        positions: (T, B) int32, position of each token in its sentence; 0 resets the state.
        precision: of the products (machine/matmul.py).
    """
    return _scan(advance, w, start, x, positions, precision)


def _scan(
    advance: Advance, w: jax.Array, start: State, x: jax.Array, positions: jax.Array, precision: str
) -> tuple[State, jax.Array]:
    return scan_sentences(partial(advance, partial(_times, precision, w, w.T)), start, x, positions)


def _forward(
    advance: Advance, w: jax.Array, start: State, x: jax.Array, positions: jax.Array, precision: str
) -> tuple[tuple[State, jax.Array], Any]:
    def scan(x: jax.Array) -> tuple[jax.Array, State]:
        end, h = _scan(advance, w, start, x, positions, precision)
        return h, end

    h, back, end = jax.vjp(scan, x, has_aux=True)
    return (end, h), (back, jax.tree.leaves(start)[0], h, positions)


def _backward(
    advance: Advance, precision: str, residuals: Any, cotangents: tuple[State, jax.Array]
) -> tuple[Any, ...]:
    back, before, h, positions = residuals
    (dx,) = back(cotangents[1])
    last = jnp.concatenate([before[None], h[:-1]])
    last = jnp.where(positions[:, None] == 0, 0.0, last)  # (T, H, B)
    dw = matmul(_by_unit(dx), _by_unit(last), (1, 1), precision)
    return dw, None, dx, None


outputs.defvjp(_forward, _backward)


def _by_unit(x: jax.Array) -> jax.Array:
    """Returns x (T, H, B) as (H, T B)."""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _times(precision: str, w: jax.Array, transposed: jax.Array, h: jax.Array) -> jax.Array:
    """Returns W h, (G, B), with a gradient in h by `transposed` and none in W."""
    return matmul(w, h, (1, 0), precision)


def _times_forward(
    precision: str, w: jax.Array, transposed: jax.Array, h: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return _times(precision, w, transposed, h), transposed


def _times_backward(
    precision: str, transposed: jax.Array, dx: jax.Array
) -> tuple[None, None, jax.Array]:
    return None, None, matmul(transposed, dx, (1, 0), precision)


_times.defvjp(_times_forward, _times_backward)
