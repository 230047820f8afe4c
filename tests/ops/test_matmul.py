"""Products in a named precision, and their gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.ops.matmul import einsum

EPSILON = float(np.finfo(np.float32).eps)


def einsum_at(precision, subscripts, x, y):
    return einsum(subscripts, x, y, precision)


@pytest.mark.parametrize(
    "subscripts, shapes", [("lti,io->lto", [(2, 5, 8), (8, 6)]), ("lqhe,lkhe->lhqk", [(2, 5, 3, 8), (2, 5, 3, 8)])]
)
def test_einsum_and_its_gradients_are_jax_s(subscripts, shapes):
    """They agree within the rounding of the terms that each entry sums: 2**-8 at most for a factor in bf16."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    exact = partial(jnp.einsum, subscripts, precision="highest")
    (expected, back), (terms, back_terms) = jax.vjp(exact, x, y), jax.vjp(exact, np.abs(x), np.abs(y))
    bounds = (terms, *back_terms(np.abs(expected)))
    for precision, rounding in (("float32", 10 * EPSILON), ("bf16", 2**-7 + 2**-16 + 10 * EPSILON)):
        found, ours = jax.vjp(partial(einsum_at, precision, subscripts), x, y)
        for one, two, bound in zip((expected, *back(expected)), (found, *ours(expected)), bounds, strict=True):
            assert (np.abs(one - two) <= rounding * bound).all()
            assert two.dtype == np.float32 and not np.array_equal(two, two.astype(jnp.bfloat16))


def test_tf32_is_asked_of_gpus():
    """No CPU has tf32, so this looks at the program."""
    x = jnp.ones((1, 4, 8)), jnp.ones((8, 8))
    gradient = jax.jit(jax.grad(lambda x, y: einsum("lti,io->lto", x, y, "tf32").sum()))
    assert gradient.trace(*x).lower(lowering_platforms=("cuda",)).as_text().count("tf32") > 0
