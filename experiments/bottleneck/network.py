"""The network of Utsunomiya 2025, section 2.1: ReLU layers, squared loss, in any parametrization.

A layer is h~_l = g_l (W_l h_{l-1} + sqrt(n_{l-1}) b_l) (eq. 2.2). With a bias, b_l is the last
column of the matrix, and the input has one more value, sqrt(n_{l-1}). So b_l is drawn and trained
like a column of W_l. [ours] Eq. 2.13 can also be read as a step of sqrt(n_{l-1}) b_l, which would
change the bias n_{l-1} times less. The thesis's experiments have no biases.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# a rate per layer and g_l = 1 (section 2.5), or g_l and one rate (section 2.4)
FORMS = (
    "rates",
    "gains",
)


class Network(NamedTuple):
    """A network with random weights, layer by layer, l = 1 .. L."""

    weights: list[np.ndarray]  # W_l, (n_l, n_{l-1}) float32; with a bias (n_l, n_{l-1} + 1)
    rates: np.ndarray  # lr_l, which multiplies eta, (L,) float64
    gains: np.ndarray  # g_l, (L,) float32


class Step(NamedTuple):
    """One step of gradient descent, layer by layer; every array is (B, n_l) float32."""

    h: list[jax.Array]  # h~_l before it
    gradient: list[jax.Array]  # dL/dh~_l before it
    change: list[jax.Array]  # delta h~_l, the whole change


def initialize(
    parametrization: str,
    widths: Sequence[int],
    seed: int,
    exponent: float = 0.5,
    kink: bool = True,
    form: str = "rates",
    biases: bool = False,
) -> Network:
    """Returns a network with random weights.

    The entries of W_l are drawn from N(0, gamma_l^2 sigma_l^2), gamma_l = sqrt 2 before ReLU and 1
    at the output (section 2.2). Networks of the same widths and seed differ only in the scale of
    their weights, so that parametrizations are compared on the same random numbers.

    Args:
        parametrization: one of those of settings.py.
        widths: n_0 .. n_L.
        seed: decides the random numbers.
        exponent: q of "dynamic", the thesis's r.
        kink: Spectral's sigma_1 as in eq. 3.2; False: 1 / sqrt(n_0).
        form: one of FORMS. "gains" has g_l = sqrt(lr_l) of "rates" and divides sigma_l by it (eq.
            2.80, 2.81 backwards), and all layers learn at eta. This is eq. 2.73 to 2.77 for
            "dynamic" and eq. 3.3 and 3.4 for "spectral".
        biases: whether each layer has a bias, drawn after all the weights.
    """
    sigma, rates = sigmas_and_rates(parametrization, widths, exponent)
    if not kink:
        sigma[0] = 1 / np.sqrt(widths[0])
    gains = np.ones_like(rates)
    if form == "gains":
        gains, rates = np.sqrt(rates), gains
        sigma /= gains
    gamma = np.full(len(sigma), np.sqrt(2))
    gamma[-1] = 1
    # NumPy's fastest: this is most of the work
    rng = np.random.Generator(np.random.SFC64([seed, *widths]))
    shapes = zip(widths[1:], widths[:-1], strict=True)
    weights = [rng.standard_normal(shape, np.float32) for shape in shapes]
    if biases:
        weights = [np.column_stack([w, rng.standard_normal(len(w), np.float32)]) for w in weights]
    for w, scale in zip(weights, (gamma * sigma).astype(np.float32), strict=True):
        w *= scale
    return Network(weights, rates, gains.astype(np.float32))


def sigmas_and_rates(
    parametrization: str, widths: Sequence[int], exponent: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """Returns sigma_l and lr_l for l = 1 .. L, both (L,) float64, for widths n_0 .. n_L.

    W_l is drawn with the standard deviation gamma_l sigma_l and learns at eta lr_l under gradient
    descent, with all g_l = 1 (section 2.5). "mup" is the standard parametrization with rates n_l /
    n_{l-1}, and 1 / n_{L-1} for the last layer. The exponent is q of "dynamic", in [0, 1/2]; 0 is
    NTP.
    """
    n_in, n_out = np.array(widths[:-1], float), np.array(widths[1:], float)
    sigma = 1 / np.sqrt(n_in)
    if parametrization == "standard":
        return sigma, np.ones_like(sigma)  # eq. 2.86, 2.87
    if parametrization == "spectral":
        return sigma * np.minimum(1, np.sqrt(n_out / n_in)), n_out / n_in  # eq. 3.1, 3.2
    narrowest = min(widths[1:-1])
    q = exponent if parametrization == "dynamic" else 0
    rate = n_out / n_in if parametrization == "mup" else narrowest ** (2 * q) / n_in  # eq. 2.82
    rate[-1] = 1 / n_in[-1]  # eq. 2.83
    sigma[-1] /= np.sqrt(n_in[-1]) if parametrization == "mup" else narrowest**q  # eq. 2.85
    return sigma, rate


def forward(weights: Sequence[jax.Array], gains: jax.Array, x: jax.Array) -> list[jax.Array]:
    """Computes h~_1 .. h~_L, each (B, n_l), of inputs x (B, n_0) (eq. 2.1 to 2.4)."""
    layers = []
    for w, gain in zip(weights, gains, strict=True):
        layers.append(product(gain * extend(x, w), w.T))
        x = jax.nn.relu(layers[-1])
    return layers


def extend(x: jax.Array, w: jax.Array) -> jax.Array:
    """Returns the inputs x (B, n) of a layer, with a further column sqrt(n) if its matrix w has a
    bias."""
    n = x.shape[1]
    return x if w.shape[1] == n else jnp.pad(x, ((0, 0), (0, 1)), constant_values=np.sqrt(n))


def loss(weights: Sequence[jax.Array], gains: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Computes |y - f(x)|^2 / 2 of each input, (B,)."""
    return ((y - forward(weights, gains, x)[-1]) ** 2).sum(axis=1) / 2


@jax.jit
def step(
    weights: Sequence[jax.Array], rates: jax.Array, gains: jax.Array, x: jax.Array, y: jax.Array
) -> Step:
    """Computes one step of gradient descent on the mean loss of x (B, n_0) and y (B, n_L), as these
    inputs see it.

    Neither the gradient of W_l nor the moved W_l is ever stored. The change of W_l is -rate_l g_l
    times the outer product of dL/dh~_l and h_{l-1} (eq. 2.24), and the change of a layer follows
    from that of the layer before (eq. 2.26). So no two nearly equal h~_l are subtracted. Rates are
    eta lr_l and gains g_l, (L,).
    """
    h = forward(weights, gains, x)
    inputs = [x, *map(jax.nn.relu, h[:-1])]  # h_0 .. h_{L-1}
    gradient = [(h[-1] - y) / len(x)]
    # eq. 2.35 with psi'
    for w, gain, below in zip(weights[:0:-1], gains[:0:-1], h[-2::-1], strict=True):
        back = gain * product(gradient[0], w)[:, : below.shape[1]]  # no unit is below a bias
        gradient.insert(0, jnp.where(below > 0, back, 0))
    change, moved = [], jnp.zeros_like(x)  # the changes of h~_l, and that of h_{l-1}
    for w, rate, gain, before, above, now in zip(
        weights, rates, gains, inputs, gradient, h, strict=True
    ):
        seen = product(extend(before + moved, w), extend(before, w).T)  # (B, B)
        change.append(
            product(gain * moved, w[:, : moved.shape[1]].T)
            - (rate * gain**2) * product(seen, above)
        )
        # through ReLU
        moved = jnp.where(now > 0, jnp.maximum(change[-1], -now), jnp.maximum(now + change[-1], 0))
    return Step(h, gradient, change)


def product(x: jax.Array, y: jax.Array) -> jax.Array:
    """Computes x y in true float32 on every device."""
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)
