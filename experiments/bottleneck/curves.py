"""Training curves: loss of training and test images by epoch, for pairs of classes (section 3.3)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.runs.console import Progress
from experiments.bottleneck import images, network
from experiments.bottleneck.images import PIXELS, Images
from experiments.bottleneck.record import Record
from experiments.bottleneck.settings import Curves

CLASSES = 2


def train(parametrization: str, settings: Curves, data: tuple[Images, Images], seed: int) -> dict[str, list[float]]:
    """Mean losses before training and after each epoch, {"train", "test"}: epochs + 1 each.

    Each epoch takes the training images in an order of its own; the last batch may be smaller and counts as any other.
    """
    n, m = settings.n, settings.narrow
    weights, rates = network.draw(parametrization, [PIXELS, n, m, n, m, n, CLASSES], seed)
    weights = [jnp.asarray(w) for w in weights]
    velocity = [jnp.zeros_like(w) for w in weights]
    rng, count = np.random.default_rng([seed, 1]), len(data[0].x)
    padding = -count % settings.batch_size
    one = partial(epoch, rates=np.float32(settings.learning_rate * rates), momentum=settings.momentum)
    x, y = map(jnp.asarray, data[0])
    losses = [[mean_loss(weights, *part) for part in data]]
    for _ in range(settings.epochs):
        order = np.append(rng.permutation(count), np.zeros(padding, int)).reshape(-1, settings.batch_size)
        kept = (np.arange(count + padding) < count).reshape(order.shape)
        weights, velocity = one(weights, velocity, x, y, order, np.float32(kept / kept.sum(axis=1, keepdims=True)))
        losses.append([mean_loss(weights, *part) for part in data])
    return dict(zip(("train", "test"), np.array(losses, float).T.tolist(), strict=True))


@partial(jax.jit, donate_argnums=(0, 1))
def epoch(weights, velocity, x, y, order, shares, *, rates, momentum):
    """One pass of gradient descent with momentum, v = momentum v + dL/dW_l, W_l -= eta lr_l v: (weights, velocity).

    Args:
        order: the images of each batch, (batches, batch_size).
        shares: of each image in its batch's loss, of the same shape.
    """

    def update(carry, batch):
        weights, velocity = carry
        rows, share = batch
        gradient = jax.grad(lambda weights: share @ network.loss(weights, x[rows], y[rows]))(weights)
        velocity = [momentum * v + g for v, g in zip(velocity, gradient, strict=True)]
        return ([w - rate * v for w, rate, v in zip(weights, rates, velocity, strict=True)], velocity), None

    return lax.scan(update, (weights, velocity), (order, shares))[0]


@jax.jit
def mean_loss(weights, x, y):
    return network.loss(weights, x, y).mean()


def run(settings: Curves, record: Record, source: str) -> None:
    """Trains what the record lacks."""
    data = {_pair(pair): images.load(settings.images, pair, f"{source}: images") for pair in settings.pairs}
    everything = [
        (pair, kind, seed) for pair in data for kind in settings.parametrizations for seed in range(settings.seeds)
    ]
    missing = [each for each in everything if _cell(*each) not in record.cells]
    progress = Progress(total=len(missing), unit="trainings")
    for done, (pair, kind, seed) in enumerate(missing, 1):
        record.add(_cell(pair, kind, seed), train(kind, settings, data[pair], seed))
        progress.show(done, f"{_cell(pair, kind, seed)}", final=done == len(missing))


def losses(settings: Curves, record: Record, pair: list[str], kind: str) -> dict[str, np.ndarray]:
    """{"train", "test"}: (seeds, epochs + 1)."""
    found = [record.cells[_cell(_pair(pair), kind, seed)] for seed in range(settings.seeds)]
    return {part: np.array([each[part] for each in found], float) for part in ("train", "test")}


def _pair(pair: list[str]) -> str:
    return "/".join(pair)


def _cell(pair: str, kind: str, seed: int) -> str:
    return f"{pair}, {kind}, seed {seed}"
