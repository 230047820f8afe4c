"""Softmax cross-entropy of packed tokens, with its gradient computed in the same sweep over the
vocabulary.

Rows of padding have weight 0. With logits O = Z W^T + b (C, V), nearly all the time goes into
passes over the vocabulary. So the exponentials E = exp(O - O_y), relative to the logit of the
target, are computed once and used three times, without normalising them or finding a maximum. With
s the row sums of E, w the weights of the tokens and y the targets,

    loss   = sum_i w_i log s_i
    dL/dZ  = (w / s) * (E W) - w * W[y]
    dL/dW  = E^T (Z * w / s) - scatter_y(w * Z)
    dL/db  = E^T (w / s)     - scatter_y(w)

This equals the textbook's (softmax - one-hot) without writing that matrix. Since s >= 1, nothing
with weight can underflow. If a loss of dozens of nats makes s too large, everything is computed
again from exponentials relative to log s, which are probabilities. On a GPU or TPU this decision
would wait for the host, so they always compute probabilities, with log s from one pass over the
logits.

One row of Z may predict several tokens, like the state after BOS, which predicts the first token of
every sentence. Its exponentials are then relative to the first of its targets: w / s uses the sum
of the weights of its targets, and for each target i the difference O_y - O_i is added to log s.

If a target is left out of the counts of a prior (readout/linear.py), d = `held_out` is added to its
logit only. Its probability p_y becomes p_y e^d / rest, and the p of every other token p / rest,
with rest = 1 - p_y + p_y e^d.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.machine import xla
from esnlm.machine.matmul import matmul

# dL/dZ (None if Z is frozen), dL/dW and dL/db
Gradient = tuple[jax.Array | None, jax.Array, jax.Array]

LARGEST_SUM = 1e30  # maximum row sum: a loss of 69 nats, whose products are still finite
_dot = partial(jnp.dot, precision=lax.Precision.HIGHEST)


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def weighted_nll(
    z: jax.Array,
    w: jax.Array,
    bias: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    rows: jax.Array | None,
    precision: str,
    prior: jax.Array | None = None,
    held_out: jax.Array | None = None,
) -> jax.Array:
    """Returns sum_i weights_i * -log softmax(W z_{rows_i} + b)[targets_i], in nats; differentiable
    in z, w and bias.

    Args:
        z: (C, r).
        w: (V, r).
        bias: (V,).
        targets: (P,) int32, P >= C.
        weights: (P,).
        rows: (P,) int32, the row of z from which each target is predicted. The first C are 0 .. C -
            1. None if P is C.
        precision: of the products (machine/matmul.py).
        prior: added to the logits, (C, V), not differentiated.
        held_out: added to the logit of the predicted target only, (P,), not differentiated. It
            needs a prior.
    """
    loss, _ = _forward(
        z, w, bias, targets, weights, rows, precision, prior, held_out, with_dz=False
    )
    return loss


def pair_log_probs(
    z: jax.Array,
    w: jax.Array,
    bias: jax.Array,
    sources: jax.Array,
    targets: jax.Array,
    precision: str,
    prior: jax.Array | None = None,
) -> jax.Array:
    """Returns log softmax(W z_s + b)[t] in nats, (P,), for pairs of a row s of z and a target t.

    Rows may recur. `prior` is as in `weighted_nll`.
    """
    logits = _without_bias(z, w, prior, precision)  # (C, V), as below
    picked = logits[sources, targets] + bias[targets]  # (P,)

    def about_maximum() -> jax.Array:
        top, total = _row_sums(_without_bias(z, w, prior, precision), bias)  # recomputed, not kept
        return (picked - top[sources]) - jnp.log(total)[sources]

    def about_targets() -> jax.Array:
        base = likeliest_targets(picked, sources, len(z))
        _, total = _relative(logits, bias, base)
        log_probs = (picked - base[sources]) - jnp.log(total)[sources]
        return xla.or_else(log_probs, (total < LARGEST_SUM).all(), about_maximum)

    return lax.platform_dependent(cpu=about_targets, default=about_maximum)


def _forward(
    z: jax.Array,
    w: jax.Array,
    bias: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    rows: jax.Array | None,
    precision: str,
    prior: jax.Array | None,
    held_out: jax.Array | None,
    with_dz: bool,
) -> tuple[jax.Array, Gradient]:
    """Returns the loss and its gradient; dL/dZ, which takes a further product, only on request."""
    rows = jnp.arange(len(z)) if rows is None else rows

    def from_exponentials(
        e: jax.Array, total: jax.Array, excess: jax.Array
    ) -> tuple[jax.Array, *Gradient]:
        """Returns (loss, dz, dw, dbias).

        Args:
            e: E, (C, V).
            total: its row sums, (C,).
            excess: its reference logit minus O_y, (P,).
        """
        nll = excess + jnp.log(total)[rows]  # (P,)
        if held_out is not None:
            # Ratio of the sums of exponentials with and without held_out, 1 - p + p exp(held_out),
            # also for p near 1. (P,)
            rest = jnp.exp(held_out - nll) - jnp.expm1(-jnp.maximum(nll, 0))
            nll = nll - held_out + jnp.log(rest)
        loss, slopes = _dot(weights, nll), weights
        if held_out is not None:
            # The gradient of log rest adds p (1 - exp(held_out)) / rest to that of log p, 1.
            slopes = weights / rest
        scale = jnp.zeros_like(total).at[rows].add(slopes) / total  # (C,): w / s
        dz = None
        if with_dz:
            mean = matmul(e, w, (1, 0), precision)  # (C, r): E W
            dz = (scale[:, None] * mean).at[rows].add(-slopes[:, None] * w[targets])
            scale = xla.after(scale, mean)  # one large product after the other
        dw = matmul(e, scale[:, None] * z, (0, 0), precision)  # (V, r)
        dw = dw.at[targets].add(-slopes[:, None] * z[rows])
        # On a mesh a scatter would gather all rows on each device.
        if jax.sharding.get_abstract_mesh().empty:
            dw = xla.laid_out(dw)
        dbias = _dot(scale, e).at[targets].add(-slopes)  # (V,)
        return loss, dz, dw, dbias

    def from_probabilities() -> tuple[jax.Array, *Gradient]:
        logits = _without_bias(z, w, prior, precision)
        top, total = _row_sums(logits, bias)
        log_sum = top + jnp.log(total)
        e = jnp.exp(logits + bias - log_sum[:, None])
        return from_exponentials(
            e, jnp.ones_like(total), log_sum[rows] - (logits[rows, targets] + bias[targets])
        )

    def about_target() -> tuple[jax.Array, *Gradient]:
        # (C, V); the pass of the exponentials adds the bias
        logits = _without_bias(z, w, prior, precision)
        picked = logits[rows, targets] + bias[targets]  # (P,)
        base = picked[: len(z)]  # (C,), logit of the first target of each row
        e, total = _relative(logits, bias, base)
        outcome = from_exponentials(e, total, base[rows] - picked)
        return xla.or_else(outcome, (total < LARGEST_SUM).all(), from_probabilities)

    loss, *gradient = lax.platform_dependent(cpu=about_target, default=from_probabilities)
    return loss, tuple(gradient)


def _forward_of_vjp(z: Any, *others: Any) -> tuple[jax.Array, Gradient]:
    """Calls `_forward` with JAX's custom_vjp_primals; frozen features z are not perturbed."""
    values = (getattr(each, "value", each) for each in others)  # `precision` and None have none
    w, bias, targets, weights, rows, precision, prior, held_out = values
    return _forward(
        z.value, w, bias, targets, weights, rows, precision, prior, held_out, z.perturbed
    )


def _backward(
    precision: str, gradient: Gradient, cotangent: jax.Array
) -> tuple[jax.Array | None, ...]:
    of_arrays = (None if part is None else cotangent * part for part in gradient)
    return (*of_arrays, None, None, None, None, None)  # the other arguments have none


weighted_nll.defvjp(_forward_of_vjp, _backward, symbolic_zeros=True)


def _without_bias(z: jax.Array, w: jax.Array, prior: jax.Array | None, precision: str) -> jax.Array:
    """Returns the logits without the bias, (C, V)."""
    logits = matmul(z, w, (1, 1), precision)
    return logits if prior is None else logits + prior


def _relative(logits: jax.Array, bias: jax.Array, base: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns E = exp(logits + bias - base) (C, V) and its row sums (C,)."""
    e = jnp.exp(logits + bias - base[:, None])
    return e, xla.row_sums(e)


def _row_sums(logits: jax.Array, bias: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the maxima of logits + bias, and the row sums relative to them, in one pass."""

    def join(
        one: tuple[jax.Array, jax.Array], other: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        top = jnp.maximum(one[0], other[0])
        return top, one[1] * jnp.exp(one[0] - top) + other[1] * jnp.exp(other[0] - top)

    x = logits + bias
    lowest = jnp.finfo(x.dtype).min  # finite, since -inf minus -inf is NaN
    return lax.reduce((x, jnp.ones_like(x)), (lowest, jnp.zeros((), x.dtype)), join, (1,))


def likeliest_targets(picked: jax.Array, sources: jax.Array, rows: int) -> jax.Array:
    """Returns the logit of each row's likeliest target, (C,); inf for a row without targets."""
    base = jnp.full(rows, -jnp.inf).at[sources].max(picked)
    return jnp.where(jnp.zeros(rows, bool).at[sources].set(True), base, jnp.inf)
