"""Workarounds for the XLA compiler. Each function states what it avoids, with measured costs.

They do not change results; without them a program would be slower or need more memory. Times are
from a CPU with jax 0.10, at the shapes of a readout of rank 512 for 50,257 tokens
(results/performance.md).
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

Tree = TypeVar("Tree")

PARTS = 4  # parts of a row that are summed separately


def laid_out(x: jax.Array) -> jax.Array:
    """Returns the matrix x in row-major memory order, before any other use of it.

    XLA tends to merge a transposition into the next operation, which then reads one strided element
    at a time.
    - Before a write into a larger buffer: 5.7 instead of 13.0 ms for the states (256, 4096) of one
      time step.
    - As the left factor of a product: 10 instead of 12.6 ms for the gradient of B, at N = 16,384 41
      instead of 59.
    - As the gradient of A: a GPU would compute it transposed and copy A and its moments (jax 0.12,
      compiled for an H100).
    """
    return with_layout_constraint(x, Layout(major_to_minor=(0, 1)))


def after(x: jax.Array, done: jax.Array) -> jax.Array:
    """Returns x, but only after `done` has been computed.

    XLA's CPU backend runs independent operations concurrently or in any order, and drops an
    optimization_barrier. So x is made to depend on a number of `done`, by a condition that no
    number fulfils. Two large products at once compete for the cache: the gradient of the readout
    took 2 % longer. Other devices run one operation at a time.
    """

    def on_cpu(x: jax.Array, done: jax.Array) -> jax.Array:
        number = done[(0,) * done.ndim]
        return jnp.where(jnp.isnan(number) & jnp.isinf(number), jnp.zeros_like(x), x)

    return lax.platform_dependent(x, done, cpu=on_cpu, default=lambda x, done: x)


def gathered(x: jax.Array, rows: jax.Array) -> jax.Array:
    """Returns x[rows], gathered before any other operation on it.

    For a bf16 product on a TPU, XLA would convert all of x before the gather, and a buffer of
    features has twelve times the rows of an update. Compiled for a TPU v5e, that is half of the
    bytes that an update moves at N = 65,536.
    """
    return lax.platform_dependent(x[rows], tpu=lax.optimization_barrier, default=lambda x: x)


def row_sums(x: jax.Array) -> jax.Array:
    """Returns the sums of the rows of x (C, V), (C,), as a product with ones.

    XLA's own sum over the last axis takes twice as long on a CPU. Each row is summed in four parts,
    because one float32 sum of 50,257 terms is off by 1.3e-6 (relative, the worst of 656 rows), and
    the sum of four by 4e-7. On a GPU a plain sum is accurate, since each thread sums a part.
    """

    def by_product(x: jax.Array) -> jax.Array:
        part = jnp.arange(x.shape[1]) * PARTS // x.shape[1]
        ones = (part[:, None] == jnp.arange(PARTS)).astype(x.dtype)  # (V, PARTS)
        return jnp.dot(x, ones, precision=lax.Precision.HIGHEST).sum(axis=1)

    return lax.platform_dependent(x, cpu=by_product, default=lambda x: x.sum(axis=1))


def rounded_to_bf16(x: jax.Array) -> jax.Array:
    """Returns x rounded to bfloat16, as float32. The gradient ignores the rounding.

    XLA may drop a conversion to bfloat16 and back, since the result is more precise without it.
    """
    rounded = lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return x + lax.stop_gradient(rounded - x)  # exact: both differ by less than half of x


def or_else(value: Tree, good: jax.Array, fallback: Callable[[], Tree]) -> Tree:
    """Returns `value` if `good`, a () bool, else `fallback()`, which is rarely needed.

    The branches of lax.cond would copy their results, here gradients of the size of the parameters.
    This is a loop of zero or one iterations instead, which keeps its values in place.
    """

    def again(_: tuple[Tree, jax.Array]) -> tuple[Tree, jax.Array]:
        return fallback(), jnp.bool(True)

    return lax.while_loop(lambda carry: ~carry[1], again, (value, good))[0]
