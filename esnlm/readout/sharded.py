"""The readout on a mesh of devices: its logits, its cross-entropy and their gradients, with every exchange in sight.

These functions run on one device of a mesh, inside jax.shard_map. There a device has

    w (V/M, r), bias (V/M,)      the tokens of its place along `vocabulary`
    b (r, F/n), h (C, F/n)       the units of its place among all n devices

and z = B h is a sum over the units of all devices. What travels in an update of C rows, in float32: z (C, r) once and dL/dz
(C, r) once, summed over devices, and three numbers a row. B has its gradient where it lies, without an exchange, since both
of its factors are there. Of full rank, z is h, and h travels in place of the two.

Along `data` each device takes a part of the rows, and the gradients of w and bias are summed over it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.ops import xla
from esnlm.ops.matmul import matmul
from esnlm.parallel.mesh import ALL, DATA, UNITS, VOCABULARY
from esnlm.parallel.placement import deal
from esnlm.readout import cross_entropy
from esnlm.readout.cross_entropy import LARGEST_SUM, likeliest_targets


class Targets(NamedTuple):
    """What is predicted: token `targets` from row `rows` of z, with `weights`; all (P,)."""

    targets: jax.Array
    weights: jax.Array
    rows: jax.Array


def project(readout: dict, h: jax.Array, feature_size: int, precision: str) -> jax.Array:
    """Returns z (C, r) on every device, from the device's own units of the features, (C, F/n)."""
    if "b" in readout:
        return lax.psum(matmul(h, readout["b"], (1, 1), precision), ALL)
    whole = lax.all_gather(h, ALL, axis=1, tiled=True)
    return deal(whole, whole.shape[1] // lax.axis_size(UNITS))[:, :feature_size]


def last_layer(readout: dict) -> tuple[jax.Array, jax.Array]:
    """Returns the device's rows of w (V/M, r) and of the bias (V/M,), which is 0 where there is none."""
    w = readout["w"] if "w" in readout else readout["a"]
    return w, readout["bias"] if "bias" in readout else jnp.zeros(len(w), jnp.float32)


def loss_and_gradient(
    readout: dict, h: jax.Array, found: Targets, vocab_size: int, feature_size: int, precision: str
) -> tuple[jax.Array, dict]:
    """Returns the weighted sum of -log p in nats and its gradient in the readout, for features that are cut by unit.

    Args:
        readout: the device's parts of {"a", "b", "bias"} or {"w", "bias"}.
        h: the device's units of the features, (C, F/n).
        found: what is predicted from the rows of h.
        vocab_size: V without padding.
        feature_size: F without padding.
        precision: of the products.
    """
    z = project(readout, h, feature_size, precision)
    loss, dz, gradient = of_last_layer(readout, z, found, vocab_size, precision)
    if "b" in readout:
        gradient["b"] = matmul(xla.laid_out(dz.T), h, (1, 0), precision)  # (r, F/n)
    return loss, {name: gradient[name] for name in readout}


def of_last_layer(
    readout: dict, z: jax.Array, found: Targets, vocab_size: int, precision: str
) -> tuple[jax.Array, jax.Array, dict]:
    """Returns (loss, dL/dz, gradient in w or a and in the bias), for z (C, r) that is the same on every device.

    The rows are divided along `data`, and loss, dL/dz and gradients are whole again on return.
    """
    w, bias = last_layer(readout)
    parts, part, rows = lax.axis_size(DATA), lax.axis_index(DATA), len(z)
    size = -(-rows // parts)  # rows of a part

    def own(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, [(0, parts * size - rows)] + [(0, 0)] * (x.ndim - 1))
        return lax.dynamic_slice_in_dim(padded, part * size, size)

    # The first C pairs are those of the rows in their order; what follows is predicted from row 0, which the first part has.
    more = found.weights[rows:] * (part == 0)
    here = Targets(
        jnp.concatenate([own(found.targets[:rows]), found.targets[rows:]]),
        jnp.concatenate([own(found.weights[:rows]), more]),
        jnp.concatenate([jnp.arange(size), jnp.zeros(len(more), found.rows.dtype)]),
    )
    loss, dz, dw, dbias = _cross_entropy(own(z), w, bias, here, vocab_size, precision)
    dz = lax.all_gather(dz, DATA, tiled=True)[:rows]
    names = ("w", "bias") if "w" in readout else ("a", "bias")
    gradient = dict(zip(names, lax.psum((dw, dbias), DATA), strict=True))
    return lax.psum(loss, DATA), dz, gradient


def pair_log_probs(
    readout: dict, z: jax.Array, sources: jax.Array, targets: jax.Array, vocab_size: int, precision: str
) -> jax.Array:
    """Returns log p(target) in nats, (P,), for pairs of a row of z (C, r) and a target, as cross_entropy.py does."""
    w, bias = last_layer(readout)
    logits = matmul(z, w, (1, 1), precision)  # (C, V/M)
    mine, own = own_targets(targets, len(w))
    picked = lax.psum(jnp.where(mine, logits[sources, own] + bias[own], 0), VOCABULARY)  # (P,)
    base = likeliest_targets(picked, sources, len(z))
    valid = _valid(len(w), vocab_size)
    _, total = _relative(logits, bias, base, valid)

    def about_maximum() -> jax.Array:
        _, total, top = _about_maximum(matmul(z, w, (1, 1), precision), bias, valid)
        return (picked - top[sources]) - jnp.log(total)[sources]

    log_probs = (picked - base[sources]) - jnp.log(total)[sources]
    return xla.or_else(log_probs, (total < LARGEST_SUM).all(), about_maximum)


def likeliest(readout: dict, z: jax.Array, vocab_size: int, precision: str) -> jax.Array:
    """Returns the first of the likeliest tokens for each row of z, (C,)."""
    w, bias = last_layer(readout)
    logits = jnp.where(_valid(len(w), vocab_size), matmul(z, w, (1, 1), precision) + bias, -jnp.inf)
    first, top = logits.argmax(axis=1), logits.max(axis=1)
    is_top = top == lax.pmax(top, VOCABULARY)
    token = jnp.where(is_top, first + lax.axis_index(VOCABULARY) * len(w), jnp.iinfo(jnp.int32).max)
    return lax.pmin(token, VOCABULARY)


def group_log_probs(readout: dict, z: jax.Array, group: jax.Array, vocab_size: int, precision: str) -> jax.Array:
    """Returns log p(the next token is one of a group) in nats, (C,), for a group (V,) bool."""
    w, bias = last_layer(readout)
    logits, size = matmul(z, w, (1, 1), precision) + bias, len(w)
    padded = jnp.pad(group, (0, size * lax.axis_size(VOCABULARY) - vocab_size))
    own = lax.dynamic_slice_in_dim(padded, lax.axis_index(VOCABULARY) * size, size)
    valid = _valid(size, vocab_size)
    return _log_sum_exp(logits, valid & own) - _log_sum_exp(logits, valid)


def own_targets(targets: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Returns which targets are among the device's `size` tokens, and the row of each there; 0 for another device's."""
    own = targets - lax.axis_index(VOCABULARY) * size
    mine = (own >= 0) & (own < size)
    return mine, jnp.where(mine, own, 0)


def _cross_entropy(
    z: jax.Array, w: jax.Array, bias: jax.Array, found: Targets, vocab_size: int, precision: str
) -> tuple[jax.Array, ...]:
    """Returns (loss, dL/dz, dL/dw, dL/dbias) of rows z (C, r), with w and bias cut by token.

    The equations are those of readout/cross_entropy.py. Of E a device has the columns of its own tokens. The logits of the
    targets, the row sums of E and dL/dz are sums over the devices.
    """
    targets, weights, rows = found
    mine, own = own_targets(targets, len(w))
    valid = _valid(len(w), vocab_size)
    logits = matmul(z, w, (1, 1), precision)  # (C, V/M); the bias is added below, in the pass of the exponentials
    picked = lax.psum(jnp.where(mine, logits[rows, own] + bias[own], 0), VOCABULARY)  # (P,)
    base = picked[: len(z)]  # (C,), the logit of the first target of each row
    own_weights = jnp.where(mine, weights, 0)

    def finish(*exponentials: jax.Array) -> tuple[jax.Array, ...]:
        loss, dz, dw, dbias = cross_entropy.loss_and_gradient(
            *exponentials,
            z=z,
            w=w,
            targets=own,
            weights=weights,
            rows=rows,
            precision=precision,
            own_weights=own_weights,
        )
        assert dz is not None  # it is asked for
        return loss, lax.psum(dz, VOCABULARY), dw, dbias

    def about_maximum() -> tuple[jax.Array, ...]:
        e, total, top = _about_maximum(matmul(z, w, (1, 1), precision), bias, valid)
        return finish(e, total, top[rows] - picked)

    e, total = _relative(logits, bias, base, valid)
    value = finish(e, total, base[rows] - picked)
    # All devices take the fallback or none does, since they exchange numbers in it.
    good = lax.pmin((total < LARGEST_SUM).all().astype(jnp.int32), DATA) > 0
    return xla.or_else(value, good, about_maximum)


def _valid(size: int, vocab_size: int) -> jax.Array:
    """Returns which of the device's `size` tokens are tokens and no padding, (V/M,) bool."""
    return lax.axis_index(VOCABULARY) * size + jnp.arange(size) < vocab_size


def _log_sum_exp(logits: jax.Array, wanted: jax.Array) -> jax.Array:
    """Returns the logarithm of the sum of the exponentials of all wanted tokens, (C,), of which a device has `wanted` (V/M,)."""
    # Relative to their own maximum, or all of them might be 0 beside a token that is not wanted.
    top = lax.pmax(jnp.where(wanted, logits, -jnp.inf).max(axis=1), VOCABULARY)
    base = jnp.where(jnp.isfinite(top), top, 0)
    e = jnp.where(wanted, jnp.exp(logits - base[:, None]), 0)
    return base + jnp.log(lax.psum(e.sum(axis=1), VOCABULARY))


def _relative(logits: jax.Array, bias: jax.Array, base: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns E = exp(logits + bias - base) of the device's tokens (C, V/M), and its row sums over all tokens (C,)."""
    e = jnp.where(valid, jnp.exp(logits + bias - base[:, None]), 0)
    return e, lax.psum(xla.row_sums(e), VOCABULARY)


def _about_maximum(logits: jax.Array, bias: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns E relative to the maximum of each row, its row sums over all tokens and the maxima."""
    top = lax.pmax(jnp.where(valid, logits + bias, -jnp.inf).max(axis=1), VOCABULARY)
    return *_relative(logits, bias, top, valid), top
