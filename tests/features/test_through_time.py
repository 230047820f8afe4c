"""The gradient of a recurrence in its own matrix, as one product, is that of autodiff through the scan."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.features import through_time
from esnlm.features.recurrence import scan_sentences
from esnlm.ops.matmul import matmul

UNITS, SLOTS, STEPS = 24, 5, 17
# A sum of UNITS terms, or of SLOTS * STEPS of them in the gradient in W, is off by about the root of so many roundings; a step
# passes on what it was off by, and no more, because of the slope of tanh.
FLOAT32 = STEPS * np.sqrt(UNITS + SLOTS * STEPS) * float(np.finfo(np.float32).eps)


def advance(recurrent, state, x):
    """Elman's network."""
    h = jnp.tanh(x + recurrent(state))
    return h, h


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    lengths = np.array([4, 17, 1, 9, 6])  # of the sentences in each slot, again and again
    return {
        "w": rng.standard_normal((UNITS, UNITS), np.float32) / np.float32(2 * np.sqrt(UNITS)),
        "x": rng.standard_normal((STEPS, UNITS, SLOTS), np.float32),
        "positions": (np.arange(STEPS)[:, None] % lengths).astype(np.int32),
        "dh": rng.standard_normal((STEPS, UNITS, SLOTS), np.float32),
    }


def start():
    return jnp.zeros((UNITS, SLOTS))


def fast(precision, w, x, positions):
    return through_time.outputs(advance, w, start(), x, positions, precision)


def plain(precision, w, x, positions):
    step = partial(advance, lambda h: matmul(w, h, (1, 0), precision))
    return scan_sentences(step, start(), x, positions)


def outputs_and_gradient(of, precision, w, x, positions, dh):
    h, back = jax.vjp(lambda w, x: of(precision, w, x, positions), w, x)
    return h, *back(dh)


def in_float64(w, x, positions, dh):
    """Returns the outputs and the gradient in W and x from the equations: h_t = tanh(x_t + W h_{t-1})."""
    w, x, dh = (array.astype(np.float64) for array in (w, x, dh))
    kept = positions > 0  # (T, B), whether h of the step before is read
    h, last = np.zeros_like(x), np.zeros_like(x)
    for t in range(STEPS):
        last[t] = h[t - 1] * kept[t] if t else 0
        h[t] = np.tanh(x[t] + w @ last[t])
    dw, dx, later = np.zeros_like(w), np.zeros_like(x), 0
    for t in reversed(range(STEPS)):
        dx[t] = (dh[t] + later) * (1 - h[t] ** 2)
        dw += dx[t] @ last[t].T
        later = (w.T @ dx[t]) * kept[t]
    return h, dw, dx


def test_the_gradient_is_that_of_the_equations(arrays):
    found = outputs_and_gradient(fast, "float32", **arrays)
    for own, its in zip(found, in_float64(**arrays), strict=True):
        assert np.linalg.norm(own - its) <= FLOAT32 * np.linalg.norm(its)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_gradient_is_that_of_autodiff(arrays, precision):
    """In bf16, autodiff rounds the factors of each product, too, and adds up what float32 products of them give."""
    tolerance = {"float32": FLOAT32, "bf16": STEPS * 2**-8}[precision]  # bf16 rounds by at most 2**-9, in both
    ours, autodiff = (jax.jit(partial(outputs_and_gradient, of, precision))(**arrays) for of in (fast, plain))
    assert np.array_equal(ours[0], autodiff[0])  # the way forward is the same
    for own, its in zip(ours, autodiff, strict=True):
        assert np.linalg.norm(own - its) <= tolerance * np.linalg.norm(its)


def test_no_matrix_is_added_up_or_transposed_in_a_time_step(arrays):
    """That is what makes it fast: no step of a loop makes an array of the size of W."""
    gradient = jax.jit(partial(outputs_and_gradient, fast, "float32"))
    loops = [
        e for e in jax.make_jaxpr(gradient)(**arrays).jaxpr.eqns[0].params["jaxpr"].eqns if e.primitive.name == "scan"
    ]
    assert len(loops) == 2  # forwards and back
    for loop in loops:
        made = [v.aval.shape for e in loop.params["jaxpr"].eqns for v in e.outvars]
        assert (UNITS, SLOTS) in made and (UNITS, UNITS) not in made
