"""The gradient of a recurrence in its own matrix, as one product, is that of autodiff through the
scan."""

from functools import partial

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.features.recurrence import scan_sentences
from esnlm.machine.matmul import matmul
from esnlm.models.lstm import recurrent_outputs

GATES, UNITS, SLOTS, STEPS = 2, 24, 5, 17
# A sum of UNITS terms, or of SLOTS * STEPS of them in the gradient in W, is off by about the root
# of so many roundings; a step passes on what it was off by, and no more, for its slopes are well
# below 1.
FLOAT32 = STEPS * np.sqrt(UNITS + SLOTS * STEPS) * float(np.finfo(np.float32).eps)


def advance(recurrent, state, x):
    """Elman's network with a gate: h' = sigmoid(a) tanh(b), where a and b are x + W h."""
    a, b = jnp.split(x + recurrent(state), GATES)
    h = jax.nn.sigmoid(a) * jnp.tanh(b)
    return h, h


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    lengths = np.array([4, 17, 1, 9, 6])  # of the sentences in each slot, again and again
    return {
        "w": rng.standard_normal((GATES * UNITS, UNITS), np.float32)
        / np.float32(2 * np.sqrt(UNITS)),
        "x": rng.standard_normal((STEPS, GATES * UNITS, SLOTS), np.float32),
        # Slots begin within a sentence, as the pieces of a document do.
        "positions": ((np.arange(STEPS)[:, None] + [3, 8, 0, 4, 2]) % lengths).astype(np.int32),
        "dh": rng.standard_normal((STEPS, UNITS, SLOTS), np.float32),
    }


# without rounding in bf16
START = np.random.default_rng(1).integers(-8, 9, (UNITS, SLOTS)).astype(np.float32) / 8


def fast(precision, w, x, positions):
    return recurrent_outputs(advance, w, START, x, positions, precision)[1]


def plain(precision, w, x, positions):
    step = partial(advance, lambda h: matmul(w, h, (1, 0), precision))
    return scan_sentences(step, START, x, positions)[1]


def outputs_and_gradient(of, precision, w, x, positions, dh):
    h, back = jax.vjp(lambda w, x: of(precision, w, x, positions), w, x)
    return h, *back(dh)


def in_float64(w, x, positions, dh, rounded=lambda factor: factor):
    """Returns the outputs and the gradient in W and x from the equations; `rounded` rounds the
    factors of products with W."""
    w, x, dh = (array.astype(np.float64) for array in (w, x, dh))
    kept = positions > 0  # (T, B), whether h of the step before is read
    h, last, slopes = np.zeros_like(dh), np.zeros_like(dh), np.zeros_like(x)
    for t in range(STEPS):
        last[t] = (h[t - 1] if t else START) * kept[t]
        a, b = np.split(x[t] + rounded(w) @ rounded(last[t]), GATES)
        gate, value = 1 / (1 + np.exp(-a)), np.tanh(b)
        h[t] = gate * value
        slopes[t] = np.concatenate([value * gate * (1 - gate), gate * (1 - value**2)])
    dw, dx, later = np.zeros_like(w), np.zeros_like(x), 0
    for t in reversed(range(STEPS)):
        dx[t] = np.tile(dh[t] + later, (GATES, 1)) * slopes[t]
        dw += rounded(dx[t]) @ rounded(last[t]).T
        later = (rounded(w).T @ rounded(dx[t])) * kept[t]
    return h, dw, dx


def rounded_to_bf16(x):
    return x.astype(jnp.bfloat16).astype(np.float64)


def distances(found, expected):
    """The norm of each difference, relative."""
    return [
        np.linalg.norm(own - its) / np.linalg.norm(its)
        for own, its in zip(found, expected, strict=True)
    ]


def test_the_gradient_is_that_of_the_equations(arrays):
    found = outputs_and_gradient(fast, "float32", **arrays)
    assert max(distances(found, in_float64(**arrays))) <= FLOAT32


def test_bf16_rounds_the_factors_of_each_product_on_the_way_back_too(arrays):
    """One factor may be so near to the middle of two numbers of bf16 that float64 rounds it to the
    other one."""
    one = 2**-8 / np.sqrt(STEPS * UNITS * SLOTS)
    found = outputs_and_gradient(fast, "bf16", **arrays)
    assert max(distances(found, in_float64(**arrays, rounded=rounded_to_bf16))) <= FLOAT32 + one
    assert min(distances(found, in_float64(**arrays))) > 2 * (FLOAT32 + one), (
        "bf16 can be told from float32"
    )


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_gradient_is_that_of_autodiff(arrays, precision):
    """In bf16, autodiff rounds the gradient in h and in W at each time step, and the gradient that
    comes in not at all."""
    tolerance = {"float32": FLOAT32, "bf16": STEPS * 2**-8}[precision]
    ours, autodiff = (
        jax.jit(partial(outputs_and_gradient, of, precision))(**arrays) for of in (fast, plain)
    )
    assert np.array_equal(ours[0], autodiff[0])  # the way forward is the same
    assert max(distances(ours, autodiff)) <= tolerance
