"""Products in a named precision, and their gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.machine.matmul import einsum, matmul, rounded

EPSILON = float(np.finfo(np.float32).eps)


def einsum_at(precision, subscripts, x, y):
    return einsum(subscripts, x, y, precision)


@pytest.mark.parametrize(
    "subscripts, shapes",
    [("lti,io->lto", [(2, 5, 8), (8, 6)]), ("lqhe,lkhe->lhqk", [(2, 5, 3, 8), (2, 5, 3, 8)])],
)
def test_einsum_and_its_gradients_are_jax_s(subscripts, shapes):
    """They agree within the rounding of the terms that each entry sums: 2**-8 at most for a factor
    in bf16, 2**-11 in TF32."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    exact = partial(jnp.einsum, subscripts, precision="highest")
    (expected, back), (terms, back_terms) = (
        jax.vjp(exact, x, y),
        jax.vjp(exact, np.abs(x), np.abs(y)),
    )
    bounds = (terms, *back_terms(np.abs(expected)))
    # of two factors and their product
    roundings = {"float32": 0.0, "tf32": 2**-10 + 2**-22, "bf16": 2**-7 + 2**-16}
    for precision, rounding in roundings.items():
        found, ours = jax.vjp(partial(einsum_at, precision, subscripts), x, y)
        for one, two, bound in zip(
            (expected, *back(expected)), (found, *ours(expected)), bounds, strict=True
        ):
            assert (np.abs(one - two) <= (rounding + 10 * EPSILON) * bound).all()
            assert two.dtype == np.float32 and not np.array_equal(two, two.astype(jnp.bfloat16))


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("contract", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_matmul_and_its_gradients_round_their_factors_and_nothing_else(contract, precision):
    """Against float64, from factors that are rounded: each sum has at most 40 terms, which are
    exact in float32 but with that precision."""
    rng = np.random.default_rng(0)
    x, y, g = (
        rng.normal(size=shape).astype(np.float32) for shape in ((30, 40), (40, 20), (30, 20))
    )
    x, y = x.T if contract[0] == 0 else x, y.T if contract[1] == 1 else y
    found, back = jax.vjp(lambda x, y: matmul(x, y, contract, precision), x, y)
    a, b, c = (np.asarray(rounded(array, precision), np.float64) for array in (x, y, g))
    a, b = a.T if contract[0] == 0 else a, b.T if contract[1] == 1 else b
    da, db = c @ b.T, a.T @ c
    expected = a @ b, da.T if contract[0] == 0 else da, db.T if contract[1] == 1 else db
    for ours, true in zip((found, *back(jnp.asarray(g))), expected, strict=True):
        assert (
            ours.dtype == np.float32
            and np.abs(ours - true).max() < 40 * EPSILON * np.abs(true).max()
        )


@pytest.mark.parametrize(
    "product, y",
    [
        (lambda x, y: einsum("ti,io->to", x, y, "tf32"), (8, 6)),
        (lambda x, y: matmul(x, y, (1, 1), "tf32"), (6, 8)),
    ],
)
def test_tf32_is_asked_of_gpus_for_gradients_too(product, y):
    """No CPU has tf32, so this looks at the program: the product and the two of its gradient."""
    gradient = jax.jit(jax.grad(lambda x, y: (product(x, y) ** 2).sum(), (0, 1)))
    program = (
        gradient.trace(jnp.ones((4, 8)), jnp.ones(y)).lower(lowering_platforms=("cuda",)).as_text()
    )
    assert program.count("tf32") == 6, "each of the three products says it of both factors"
