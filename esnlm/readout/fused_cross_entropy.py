"""The sums of readout/cross_entropy.py on a GPU, without logits in memory: a kernel in Triton, by way of Pallas.

With logits O = X Y^T + alpha + beta, of rows X (m, r) and Y (n, r) and a number for each row of both, the one kernel computes

    sums_i  = sum_j exp(O_ij) s_j             (m,)
    means_i = sum_j exp(O_ij) s_j Y_j         (m, r)

where tiles of O are made, used and forgotten. That is the inner loop of attention whose keys are its values, but it seeks
no maximum. It serves a cross-entropy twice:

    X = Z, Y = W, alpha = -base, beta = bias, s = 1        row sums of E = exp(O - base), and E W
    X = W, Y = Z, alpha = bias, beta = -base, s = w / s    the gradient of W, and that of the bias as the sums

The second use makes the logits again. So there are four large products in place of three, and none of the passes over
(C, V) between them. W is read twice.

`base` is the logit of a target, as in readout/cross_entropy.py. An online maximum would rescale (C, r) numbers for each
tile of the vocabulary, to keep exponentials below 1. Here they need not be: each row has a 1 among them, its target, so no
sum underflows, and up to LARGEST_SUM none overflows, since float32, tf32 and bfloat16 have the same exponents. Beyond, all
is made again relative to the maximum, which a third use of the kernel finds.

A program owns some rows of X and goes through a share of the rows of Y. Its products have the precision of ops/matmul.py,
but float32 is made of three products of tf32, whose error is a few times that of true float32 (2^-21 of each product).

On a CPU the same kernel runs in Pallas's interpreter, which is slow and meant for tests.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

WIDEST = 512  # columns of X: 64 rows of float32 sums then take half the registers of a processor
PROGRAMS = 132  # that run at once: the processors of an H100

# Speeds of an H100, by its data sheet, and of its second-level cache, by a round number below what others measured: bytes and
# operations of products a second. The bounds of `bound` are ratios of them, which are alike on an A100.
MEMORY, CACHE = 3.35e12, 5.5e12
PRODUCTS = {"float32": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12}

Sums = tuple[jax.Array, jax.Array | None]


class Tiles(NamedTuple):
    """How a use of the kernel is cut."""

    columns: int  # r, padded to a power of two
    own: int  # rows of X that a program owns
    rows: int  # of Y in a step
    shares: int  # of Y, each a program's of every tile of X; their results are added


def tiles(m: int, n: int, r: int, precision: str) -> Tiles:
    """Returns how m rows of X and n rows of Y of r columns are cut."""
    columns = max(16, 1 << (r - 1).bit_length())
    # Tiles of X and of Y lie in shared memory, of which there are 227 KB: at 512 columns 64 + 2 * 64 KB in bf16. Larger ones
    # would spill registers, as compiled for an H100. In float32 they do at any size.
    own, rows = {
        "bf16": (64 if columns > 256 else 128, 64),
        "tf32": (32 if columns > 128 else 64, 16),
        "float32": (16, 16),
    }[precision]
    return Tiles(columns, own, rows, max(1, min(PROGRAMS // -(-m // own), -(-n // rows))))


def choose(columns: int, precision: str) -> str:
    """Returns the cross-entropy for a GPU, plain or fused, by the bounds; they are compared at the shapes of the papers.

    In float32 the products of the kernel are not quite those that were asked for, so it is never chosen.
    """
    if columns > WIDEST or precision == "float32":
        return "plain"
    fused, plain = (bound(kernel, 656, 50_257, columns, precision) for kernel in ("fused", "plain"))
    return "fused" if fused < plain else "plain"


def bound(kernel: str, m: int, n: int, r: int, precision: str) -> float:
    """Returns the least seconds of loss and gradient from z (m, r) and W (n, r) on an H100. It is worked out, not measured.

    plain   3 products, each as long as it multiplies or reads and writes; the exponentials with the row sums, which read
            the logits and write them for the products; and the gradient of the bias, which reads the logits again
    fused   2 launches of 2 products each; all tiles of X read all of Y, from the cache, which passes on all else too

    In bf16 both convert W first. These are the kernels that XLA compiles (results/compile_for.md).
    """
    item = 2 if precision == "bf16" else 4
    own = tiles(m, n, r, precision).own
    multiply = 2.0 * m * n * r / PRODUCTS[precision]
    converted = 6.0 * n * r / MEMORY if precision == "bf16" else 0.0
    if kernel == "plain":
        of_products = 4 * m * n + item * n * r, item * (m * n + n * r), item * m * n + 4 * n * r  # O, E W and E^T Z
        return converted + sum(max(multiply, moved / MEMORY) for moved in of_products) + (8 + item) * m * n / MEMORY
    speed = PRODUCTS["tf32"] / 3 / PRODUCTS["float32"] if precision == "float32" else 1.0
    cached = item * m * n * r / own / CACHE
    of_launches = item * n * r, (item + 4) * n * r  # W, and its gradient
    return converted + sum(max(2 * multiply / speed, cached + moved / CACHE, moved / MEMORY) for moved in of_launches)


def exponential_sums(
    x: jax.Array,
    y: jax.Array,
    alpha: jax.Array,
    beta: jax.Array,
    precision: str,
    scale: jax.Array | None = None,
    with_means: bool = True,
) -> Sums:
    """Returns (sums, means): sum_j E_ij s_j (m,), and sum_j E_ij s_j y_j (m, r) or None, of E = exp(x y^T + alpha + beta).

    Args:
        x: (m, r), r at most WIDEST.
        y: (n, r).
        alpha: (m,), -inf where a row of E is 0.
        beta: (n,).
        precision: of the products (ops/matmul.py).
        scale: s, (n,); None: 1.
        with_means: whether to make the means.
    """
    return _call("means" if with_means else "sums", x, y, alpha, beta, scale, precision)


def kernel_name(kind: str, m: int, n: int) -> str:
    """Returns the name by which profiles and compiled texts know a launch: of means, sums or maxima."""
    return f"exponential_{kind}_{m}x{n}"


def row_maxima(x: jax.Array, y: jax.Array, beta: jax.Array, precision: str) -> jax.Array:
    """Returns max_j (x y^T + beta)_ij, (m,), with arguments as above."""
    return _call("maxima", x, y, jnp.zeros(len(x)), beta, None, precision)[0]


def _call(
    kind: str, x: jax.Array, y: jax.Array, alpha: jax.Array, beta: jax.Array, scale: jax.Array | None, precision: str
) -> Sums:
    (m, r), n = x.shape, len(y)
    cut = tiles(m, n, r, precision)
    if precision == "bf16":  # once, and not for each tile that reads them
        x, y = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
    x, y = (_padded(matrix, rows, cut.columns) for matrix, rows in ((x, cut.own), (y, cut.rows)))
    numbers = [_padded(alpha, cut.own, fill=-jnp.inf), _padded(beta, cut.rows, fill=-jnp.inf)]
    if scale is not None:
        numbers.append(_padded(scale, cut.rows))
    run = partial(_launch, kind, kernel_name(kind, m, n), cut, precision)
    found = lax.platform_dependent(
        x, y, *numbers, cuda=partial(run, interpret=False), default=partial(run, interpret=True)
    )
    if kind == "maxima":
        return found[0].max(axis=0)[:m], None
    return found[0].sum(axis=0)[:m], found[1].sum(axis=0)[:m, :r] if kind == "means" else None


def _launch(kind: str, name: str, cut: Tiles, precision: str, *arrays: jax.Array, interpret: bool) -> list[jax.Array]:
    """Launches the kernel on arrays that are padded to whole tiles; results have an axis of shares in front."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    m, steps = len(arrays[0]), len(arrays[1]) // cut.rows
    of_tile = pallas.BlockSpec((cut.own, cut.columns), lambda i, share: (i, 0))
    number = pallas.BlockSpec((cut.own,), lambda i, share: (i,))
    everything = [pallas.BlockSpec(array.shape, lambda i, share, dims=array.ndim: (0,) * dims) for array in arrays]
    results = [jax.ShapeDtypeStruct((cut.shares, m), jnp.float32)]
    specs = [pallas.BlockSpec((None, cut.own), lambda i, share: (share, i))]
    if kind == "means":
        results.append(jax.ShapeDtypeStruct((cut.shares, m, cut.columns), jnp.float32))
        specs.append(pallas.BlockSpec((None, cut.own, cut.columns), lambda i, share: (share, i, 0)))

    def exponential_sums_kernel(*references: Any) -> None:
        _program(kind, cut, precision, steps, interpret, pallas, *references)

    return pallas.pallas_call(
        exponential_sums_kernel,
        out_shape=results,
        # Programs of the same share, which read the same rows of Y, run side by side: the first axis is the fastest.
        grid=(m // cut.own, cut.shares),
        in_specs=[of_tile, everything[1], number, *everything[3:]],
        out_specs=specs,
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=2 if precision == "bf16" else 1),
        name=name,
    )(*arrays)


def _program(kind: str, cut: Tiles, precision: str, steps: int, interpret: bool, pallas: Any, *references: Any) -> None:
    """Computes one tile of X with one share of Y."""
    x_ref, y_ref, alpha_ref, beta_ref, *others = references
    scale_ref = others.pop(0) if len(others) > (2 if kind == "means" else 1) else None
    x, alpha = x_ref[...], alpha_ref[...]  # (own, r), (own,)
    share = pallas.program_id(1)

    def step(k: jax.Array, carry: tuple) -> tuple:
        here = pallas.ds(k * cut.rows, cut.rows)
        y = y_ref[here, :]  # (rows, r)
        logits = _product(x, y, (1, 1), precision, interpret) + alpha[:, None] + beta_ref[here][None, :]
        if kind == "maxima":
            return (jnp.maximum(carry[0], logits.max(axis=1)),)
        e = jnp.exp(logits)  # (own, rows)
        if scale_ref is not None:
            e *= scale_ref[here][None, :]
        sums = carry[0] + e.sum(axis=1)
        return (sums, carry[1] + _product(e, y, (1, 0), precision, interpret)) if kind == "means" else (sums,)

    start = jnp.full(cut.own, -jnp.inf if kind == "maxima" else 0.0, jnp.float32)
    empty = (start, jnp.zeros((cut.own, cut.columns), jnp.float32)) if kind == "means" else (start,)
    found = lax.fori_loop(share * steps // cut.shares, (share + 1) * steps // cut.shares, step, empty)
    for reference, value in zip(others, found, strict=True):
        reference[...] = value


def _product(x: jax.Array, y: jax.Array, contract: tuple[int, int], precision: str, interpret: bool) -> jax.Array:
    """Returns a product inside the kernel, summed over axis contract[0] of x and contract[1] of y."""
    dimensions = (((contract[0],), (contract[1],)), ((), ()))
    multiply = partial(lax.dot_general, dimension_numbers=dimensions, preferred_element_type=jnp.float32)
    if precision == "bf16":
        return multiply(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))
    if interpret:  # a CPU has no tf32 products: their roundings are imitated
        if precision == "tf32":
            x, y = (lax.reduce_precision(factor, exponent_bits=8, mantissa_bits=10) for factor in (x, y))
        return multiply(x, y, precision=lax.Precision.HIGHEST)
    presets = {"tf32": lax.DotAlgorithmPreset.TF32_TF32_F32, "float32": lax.DotAlgorithmPreset.TF32_TF32_F32_X3}
    return multiply(x, y, precision=presets[precision])


def _padded(array: jax.Array, rows: int, columns: int | None = None, fill: float = 0.0) -> jax.Array:
    """Returns an array with its rows padded to a multiple of `rows`, and its columns to `columns`; itself if it is whole."""
    widths = [(0, -len(array) % rows)] + ([] if columns is None else [(0, columns - array.shape[1])])
    return jnp.pad(array, widths, constant_values=fill) if any(after for _, after in widths) else array
