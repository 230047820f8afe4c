"""The network of Utsunomiya 2025, section 2.1: ReLU layers without bias, squared loss, in any parametrization."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.readout.scaling import sigmas_and_rates


class Step(NamedTuple):
    """One step of gradient descent, layer by layer; every array is (B, n_l) float32."""

    h: list[jax.Array]  # h~_l before it
    gradient: list[jax.Array]  # dL/dh~_l before it
    change: list[jax.Array]  # delta h~_l, the whole change


def initialize(
    parametrization: str, widths: Sequence[int], seed: int, exponent: float = 0.5, kink: bool = True
) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns random weights W_l (n_l, n_{l-1}) float32 and learning rates lr_l, for l = 1 .. L.

    W_l ~ N(0, gamma_l^2 sigma_l^2), gamma_l = sqrt 2 before ReLU and 1 at the output (section 2.2). Networks of the
    same widths and seed differ in the scale of their weights alone, so that parametrizations are compared on the same
    random numbers.

    Args:
        parametrization: one of PARAMETRIZATIONS.
        widths: n_0 .. n_L.
        seed: decides the random numbers.
        exponent: q of "dynamic".
        kink: Spectral's sigma_1 as eq. 3.2 has it; False: 1 / sqrt(n_0).
    """
    sigma, rates = sigmas_and_rates(parametrization, widths, exponent)
    if not kink:
        sigma[0] = 1 / np.sqrt(widths[0])
    gamma = np.full(len(sigma), np.sqrt(2))
    gamma[-1] = 1
    rng = np.random.Generator(np.random.SFC64([seed, *widths]))  # NumPy's fastest: this is most of the work
    shapes = zip(widths[1:], widths[:-1], strict=True)
    weights = [rng.standard_normal(shape, np.float32) for shape in shapes]
    for w, scale in zip(weights, (gamma * sigma).astype(np.float32), strict=True):
        w *= scale
    return weights, rates


def forward(weights: Sequence[jax.Array], x: jax.Array) -> list[jax.Array]:
    """Computes h~_1 .. h~_L, each (B, n_l), of inputs x (B, n_0) (eq. 2.1 to 2.4 with g_l = 1)."""
    layers = []
    for w in weights:
        x = product(x, w.T)
        layers.append(x)
        x = jax.nn.relu(x)
    return layers


def loss(weights: Sequence[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Computes |y - f(x)|^2 / 2 of each input, (B,)."""
    return ((y - forward(weights, x)[-1]) ** 2).sum(axis=1) / 2


@jax.jit
def step(weights: Sequence[jax.Array], rates: jax.Array, x: jax.Array, y: jax.Array) -> Step:
    """Computes one step of gradient descent on the mean loss of x (B, n_0) and y (B, n_L), as these inputs see it.

    Neither the gradient of W_l nor the moved W_l is ever stored. The change of W_l is -rate_l times the outer product
    of dL/dh~_l and h_{l-1} (eq. 2.24), and the change of a layer follows from that of the layer before (eq. 2.26). So
    no two nearly equal h~_l are subtracted.

    Args:
        weights: W_l, l = 1 .. L.
        rates: eta lr_l, (L,).
        x: inputs.
        y: targets.
    """
    h = forward(weights, x)
    inputs = [x, *map(jax.nn.relu, h[:-1])]  # h_0 .. h_{L-1}
    gradient = [(h[-1] - y) / len(x)]
    for w, below in zip(weights[:0:-1], h[-2::-1], strict=True):  # eq. 2.35 with psi'
        gradient.insert(0, jnp.where(below > 0, product(gradient[0], w), 0))
    change, moved = [], jnp.zeros_like(x)  # the changes of h~_l, and that of h_{l-1}
    for w, rate, before, above, now in zip(weights, rates, inputs, gradient, h, strict=True):
        seen = product(before + moved, before.T)  # (B, B)
        change.append(product(moved, w.T) - rate * product(seen, above))
        moved = jnp.where(now > 0, jnp.maximum(change[-1], -now), jnp.maximum(now + change[-1], 0))  # through ReLU
    return Step(h, gradient, change)


def product(x: jax.Array, y: jax.Array) -> jax.Array:
    """Computes x y in true float32 on every device."""
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)
