"""Ways around habits of the XLA compiler. Each function says what it avoids, and what that cost where it was measured.

None of them changes what is computed: without them the program would be slower or would need more memory. The times are
of a CPU with jax 0.10, at the shapes of a readout of rank 512 for 50,257 tokens (results/performance.md).
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

Tree = TypeVar("Tree")

PARTS = 4  # of a row, which are summed apart


def laid_out(x: jax.Array) -> jax.Array:
    """Returns the matrix x with its rows one after another in memory, before anything else uses it.

    XLA likes to leave a transposition to the operation that comes next, which then reads one strided element at a time.
    - Before a write into a larger buffer: 5.7 instead of 13.0 ms for the states (256, 4096) of one time step.
    - As the left factor of a product: 10 instead of 12.6 ms for the gradient of B, at N = 16,384 41 instead of 59.
    - As the gradient of A: a GPU would compute it transposed and copy A and its moments (jax 0.12, compiled for an H100).
    """
    return with_layout_constraint(x, Layout(major_to_minor=(0, 1)))


def after(x: jax.Array, done: jax.Array) -> jax.Array:
    """Returns x, but not before `done` has been computed.

    If nothing orders two operations, XLA's CPU backend runs them at once or in the order of its choice, and it drops an
    optimization_barrier before that. So x is made to depend on a number of `done`, by a condition that no number fulfils. Two large
    products at once share the cache: the gradient of the readout took 2 % longer. Other devices do one thing at a time.
    """

    def on_cpu(x: jax.Array, done: jax.Array) -> jax.Array:
        number = done[(0,) * done.ndim]
        return jnp.where(jnp.isnan(number) & jnp.isinf(number), jnp.zeros_like(x), x)

    return lax.platform_dependent(x, done, cpu=on_cpu, default=lambda x, done: x)


def gathered(x: jax.Array, rows: jax.Array) -> jax.Array:
    """Returns x[rows], which is gathered before anything is made of it.

    For a product in bf16, XLA would convert all of x on a TPU and gather then: a buffer of features has twelve times the rows
    of an update. Compiled for a TPU v5e, that is half of the bytes that an update moves at N = 65,536.
    """
    return lax.platform_dependent(x[rows], tpu=lax.optimization_barrier, default=lambda found: found)


def row_sums(x: jax.Array) -> jax.Array:
    """Returns the sums of the rows of x (C, V), (C,), as a product with ones.

    XLA's own sum over the last axis takes twice as long on a CPU. Each row is summed in four parts, because one float32
    sum of 50,257 terms is off by 1.3e-6 (relative, the worst of 656 rows), and the sum of four by 4e-7. On a GPU a sum is right:
    each of its threads sums a part.
    """

    def by_product(x: jax.Array) -> jax.Array:
        part = jnp.arange(x.shape[1]) * PARTS // x.shape[1]
        ones = (part[:, None] == jnp.arange(PARTS)).astype(x.dtype)  # (V, PARTS)
        return jnp.dot(x, ones, precision=lax.Precision.HIGHEST).sum(axis=1)

    return lax.platform_dependent(x, cpu=by_product, default=lambda x: x.sum(axis=1))


def rounded_to_bf16(x: jax.Array) -> jax.Array:
    """Returns x with each number rounded to the nearest one of bfloat16, still as float32. Its gradient is that of x.

    XLA may drop a conversion to bfloat16 that is followed by one back, since the result is more precise without them.
    """
    rounded = lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return x + lax.stop_gradient(rounded - x)  # exact: both differ by less than half of x


def or_else(value: Tree, good: jax.Array, fallback: Callable[[], Tree]) -> Tree:
    """Returns `value` if `good`, a () bool, else `fallback()`, which makes the same shapes and types and is hardly ever needed.

    The branches of lax.cond copy what they pass on: here, gradients of the size of the parameters. This is a loop that
    runs not at all or once, and what a loop carries stays where it is.
    """

    def again(_: tuple[Tree, jax.Array]) -> tuple[Tree, jax.Array]:
        return fallback(), jnp.bool(True)

    return lax.while_loop(lambda carry: ~carry[1], again, (value, good))[0]
