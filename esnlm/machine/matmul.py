"""Matrix products in a named precision. All precisions accumulate in float32.

float32   true float32 products (JAX's own default is less precise on recent GPUs and on TPUs)
tf32      factors rounded to 10 bits of mantissa, on GPUs that support it
bf16      factors rounded to bfloat16

Gradients have the same precision. Autodiff would multiply bf16 with float32, which is slower, and
round to bf16.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.machine import xla

Pair = tuple[jax.Array, jax.Array]


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def matmul(x: jax.Array, y: jax.Array, contract: tuple[int, int], precision: str) -> jax.Array:
    """Returns the product of matrices, summed over axis contract[0] of x and contract[1] of y.

    A CPU emulates the rounding of tf32. Do not differentiate this function inside `jax.vmap`: it
    would compute the gradient of an unmapped factor for each element, and add them up.

    Example:
        matmul(z, w, (1, 1), "float32")  # z w^T, (C, V), for z (C, r) and w (V, r)
    """
    dimensions = (((contract[0],), (contract[1],)), ((), ()))

    multiply = partial(
        lax.dot_general, dimension_numbers=dimensions, preferred_element_type=jnp.float32
    )
    float32 = partial(multiply, precision=lax.Precision.HIGHEST)
    if precision == "bf16":
        return multiply(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))
    if precision == "tf32":
        tf32 = partial(multiply, precision=lax.DotAlgorithmPreset.TF32_TF32_F32)
        return lax.platform_dependent(
            x, y, cpu=lambda x, y: float32(rounded(x, "tf32"), rounded(y, "tf32")), default=tf32
        )
    return float32(x, y)


def _matmul_backward(
    contract: tuple[int, int], precision: str, factors: Pair, cotangent: jax.Array
) -> Pair:
    x, y = factors
    free = (1 - contract[0], 1 - contract[1])  # the axes of x and y in the product
    if contract[0] == 1:
        dx = matmul(cotangent, y, (1, free[1]), precision)
    else:
        dx = matmul(y, cotangent, (free[1], 1), precision)
    if contract[1] == 1:
        dy = matmul(xla.laid_out(cotangent.T), x, (1, free[0]), precision)
    else:
        dy = matmul(x, cotangent, (free[0], 0), precision)
    return dx, dy


matmul.defvjp(
    lambda x, y, contract, precision: (matmul(x, y, contract, precision), (x, y)), _matmul_backward
)


@partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def einsum(subscripts: str, x: jax.Array, y: jax.Array, precision: str) -> jax.Array:
    """Returns jnp.einsum of two arrays, differentiable with respect to both."""

    float32 = partial(jnp.einsum, subscripts, precision=lax.Precision.HIGHEST)
    multiply = partial(jnp.einsum, subscripts, preferred_element_type=jnp.float32)
    tf32 = partial(multiply, precision=lax.DotAlgorithmPreset.TF32_TF32_F32)

    def bf16(x: jax.Array, y: jax.Array) -> jax.Array:
        return multiply(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))

    def on_cpu(x: jax.Array, y: jax.Array) -> jax.Array:
        # Same result: XLA's CPU backend lacks a bf16 product for some orders of axes.
        return float32(rounded(x, precision), rounded(y, precision))

    if precision == "float32":
        return float32(x, y)
    return lax.platform_dependent(x, y, cpu=on_cpu, default=tf32 if precision == "tf32" else bf16)


def _einsum_backward(subscripts: str, precision: str, factors: Pair, cotangent: jax.Array) -> Pair:
    x, y = factors
    of_factors, of_result = subscripts.split("->")
    of_x, of_y = of_factors.split(",")
    dx = einsum(f"{of_result},{of_y}->{of_x}", cotangent, y, precision)
    return dx, einsum(f"{of_x},{of_result}->{of_y}", x, cotangent, precision)


einsum.defvjp(
    lambda subscripts, x, y, precision: (einsum(subscripts, x, y, precision), (x, y)),
    _einsum_backward,
)


def rounded(x: jax.Array, precision: str) -> jax.Array:
    """Returns x rounded as in a product of this precision, in float32."""
    mantissa_bits = {"float32": 23, "tf32": 10, "bf16": 7}[precision]
    return (
        x
        if mantissa_bits == 23
        else lax.reduce_precision(x, exponent_bits=8, mantissa_bits=mantissa_bits)
    )
