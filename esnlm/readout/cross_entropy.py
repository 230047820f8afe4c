"""Softmax cross-entropy of packed tokens, with its gradient made in one sweep.

Only real tokens come here. Of logits O = Z W^T + b (C, V), the passes over V are all the time there is, so the
exponentials E = exp(O - O_y), relative to the target's own, are made once and serve three times, never normalised, and
no maximum is sought: with s the row sums of E, w the tokens' weights and y the targets,

    loss   = sum_i w_i log s_i
    dL/dZ  = (w / s) * (E W) - w * W[y]
    dL/dW  = E^T (Z * w / s) - scatter_y(w * Z)
    dL/db  = E^T (w / s)     - scatter_y(w)

which equals the textbook (softmax - one-hot), without ever writing that matrix. Since s >= 1, nothing of weight can
underflow; where a loss of dozens of nats makes s too large, all is made again from exponentials relative to the maximum.

Several tokens may be predicted from one row of Z, as all sentences' first ones are. The row is there once, relative to
the first of them: w / s has the sum of their weights, log s the difference O_y - O_i for each, and the rest stays.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

PRECISIONS = ("float32", "tf32", "bf16")

PARTS = 4  # of the vocabulary, summed apart
LARGEST_SUM = 1e30  # of exponentials relative to the target's: a loss of 69 nats, and products with it are still finite


def product(x: jax.Array, y: jax.Array, contract: tuple[int, int], precision: str) -> jax.Array:
    """The matrix product of x and y over axis contract[0] of x and contract[1] of y, accumulated in float32.

    Args:
        precision: "float32" (true float32 products), "tf32" (float32 rounded to 10 mantissa bits, on GPUs that have
            it), "bf16" (inputs rounded to bfloat16).
    """
    dimensions = (((contract[0],), (contract[1],)), ((), ()))

    def multiply(x, y, chosen=lax.Precision.HIGHEST):
        return lax.dot_general(x, y, dimensions, precision=chosen, preferred_element_type=jnp.float32)

    def tf32_on_cpu(x, y):  # the same roundings, so that they can be studied there
        return multiply(*(lax.reduce_precision(factor, exponent_bits=8, mantissa_bits=10) for factor in (x, y)))

    if precision == "bf16":
        return multiply(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), None)
    if precision == "tf32":
        return lax.platform_dependent(
            x, y, cpu=tf32_on_cpu, default=partial(multiply, chosen=lax.DotAlgorithmPreset.TF32_TF32_F32)
        )
    return multiply(x, y)


def pair_log_probs(z, w, bias, sources, targets, precision: str) -> jax.Array:
    """log softmax(W z_s + b)[t] in nats, (P,), for the pairs of a row s of z (C, r) and a target t: rows may recur."""
    logits = product(z, w, (1, 1), precision)  # (C, V), without the bias, as below
    picked = logits[sources, targets] + bias[targets]  # (P,)
    base = jnp.full(len(z), -jnp.inf).at[sources].max(picked)  # (C,), the logit of the likeliest of each row's targets
    base = jnp.where(jnp.zeros(len(z), bool).at[sources].set(True), base, jnp.inf)  # a row that has none: all of E is 0
    _, total = _relative(logits, bias, base)

    def about_maximum(_):
        _, total, top = _about_maximum(product(z, w, (1, 1), precision) + bias)
        return (picked - top[sources]) - jnp.log(total)[sources], jnp.bool(True)

    first = (picked - base[sources]) - jnp.log(total)[sources], (total < LARGEST_SUM).all()
    return lax.while_loop(lambda carry: ~carry[-1], about_maximum, first)[0]


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def weighted_nll(z, w, bias, targets, weights, rows, precision: str) -> jax.Array:
    """sum_i weights_i * -log softmax(W z_{rows_i} + b)[targets_i], a scalar in nats; differentiable in z, w and bias.

    Args:
        z, w, bias: (C, r), (V, r), (V,).
        targets, weights: (P,), P >= C.
        rows: (P,) int32, of z for each prediction, of which the first C are 0 .. C - 1; None where P is C.
    """
    return _forward(z, w, bias, targets, weights, rows, precision)[0]


def _forward(z, w, bias, targets, weights, rows, precision):
    rows = jnp.arange(len(z)) if rows is None else rows
    given = z, w, targets, weights, rows, precision
    logits = product(
        z, w, (1, 1), precision
    )  # (C, V), without the bias: added below, in the pass that takes the exponentials
    picked = logits[rows, targets] + bias[targets]  # (P,)
    base = picked[: len(z)]  # (C,), the logit of the first of each row's targets
    e, total = _relative(logits, bias, base)

    def about_maximum(_):
        logits = product(z, w, (1, 1), precision) + bias
        e, total, top = _about_maximum(logits)
        return *_loss_and_gradient(e, total, top[rows] - logits[rows, targets], *given), jnp.bool(True)

    # A loop that hardly ever runs: its carry stays where it is, which the branches of a cond would copy.
    first = *_loss_and_gradient(e, total, base[rows] - picked, *given), (total < LARGEST_SUM).all()
    loss, *gradient, _ = lax.while_loop(lambda carry: ~carry[-1], about_maximum, first)
    return loss, tuple(gradient)


def _loss_and_gradient(e, total, excess, z, w, targets, weights, rows, precision):
    """(loss, dz, dw, dbias) from E = exp(O - base) (C, V), its row sums (C,) and base - O_y (P,)."""
    loss = _dot(weights, excess + jnp.log(total)[rows])
    scale = jnp.zeros_like(total).at[rows].add(weights) / total  # (C,): w / s
    mean = product(e, w, (1, 0), precision)  # (C, r): E W
    dz = (scale[:, None] * mean).at[rows].add(-weights[:, None] * w[targets])
    scale = _after(scale, mean)  # the two products at once would share the cache
    dw = product(e, scale[:, None] * z, (0, 0), precision).at[targets].add(-weights[:, None] * z[rows])  # (V, r)
    dbias = _dot(scale, e).at[targets].add(-weights)  # (V,)
    return loss, dz, dw, dbias


def _backward(precision, gradients, cotangent):
    return *(cotangent * gradient for gradient in gradients), None, None, None


weighted_nll.defvjp(_forward, _backward)


def _after(x, done):
    """x, but not before `done` is there. (XLA drops an optimization_barrier before it orders a CPU's operations.)"""
    first = done[0, 0]
    return jnp.where(jnp.isnan(first) & jnp.isinf(first), first, x)  # no number is both


def _relative(logits, bias, base):
    """E = exp(logits + bias - base) (C, V) and its row sums (C,)."""
    e = jnp.exp(logits + bias - base[:, None])
    return e, _row_sums(e)


def _about_maximum(logits):
    """E = exp(logits - row maximum) (C, V), its row sums (C,) and the maxima (C,), of logits that have the bias."""
    top = logits.max(axis=1)
    return *_relative(logits, 0, top), top


def _row_sums(e):
    """(C,) sums of e (C, V)."""
    # A product with ones, as XLA's own sum over the last axis is half as fast on a CPU; in parts of the vocabulary, as one
    # float32 sum of 50,257 terms is off by 1.3e-6 (relative, the worst of 656), the sum of four by 4e-7.
    part = jnp.arange(e.shape[1]) * PARTS // e.shape[1]
    ones = (part[:, None] == jnp.arange(PARTS)).astype(e.dtype)  # (V, PARTS)
    return _dot(e, ones).sum(axis=1)


def _dot(x, y):
    return jnp.dot(x, y, precision=lax.Precision.HIGHEST)
