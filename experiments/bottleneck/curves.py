"""Training curves: losses of training and test images by epoch, for pairs of classes (section
3.3)."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.base.console import Progress
from experiments.bottleneck import images, network
from experiments.bottleneck.images import PIXELS, Images
from experiments.bottleneck.record import Record
from experiments.bottleneck.settings import CurvesSettings

CLASSES = 2

Arrays = list[jax.Array]


def measure_missing(settings: CurvesSettings, record: Record, source: str) -> None:
    """Trains the networks that the record lacks, and adds their losses to it."""
    trainings = product(settings.pairs, settings.parametrizations, range(settings.seeds))
    missing = [each for each in trainings if _cell_name(*each) not in record.cells]
    if not missing:
        return
    data = {
        pair: images.load(settings.images, pair, f"{source}: images") for pair in settings.pairs
    }
    progress = Progress(total=len(missing), unit="trainings")
    for done, (pair, kind, seed) in enumerate(missing, 1):
        record.add(_cell_name(pair, kind, seed), train(kind, settings, data[pair], seed))
        progress.show(done, _cell_name(pair, kind, seed), final=done == len(missing))


def train(
    parametrization: str, settings: CurvesSettings, data: tuple[Images, Images], seed: int
) -> dict[str, list[float]]:
    """Trains one network.

    Each epoch uses a new random order of the training images. The last batch may be smaller and
    counts like the others.

    Returns:
        Mean losses before training and after each epoch: {"train": ..., "test": ...}, epochs + 1
        numbers each.
    """
    n, m = settings.n, settings.narrow
    drawn = network.initialize(
        parametrization,
        [PIXELS, n, m, n, m, n, CLASSES],
        seed,
        form=settings.form,
        biases=settings.biases,
    )
    weights, gains = [jnp.asarray(w) for w in drawn.weights], drawn.gains
    velocity = [jnp.zeros_like(w) for w in weights]
    rng, count = np.random.default_rng([seed, 1]), len(data[0].x)
    padding = -count % settings.batch_size
    rates = np.float32(settings.learning_rate * drawn.rates)
    run_epoch = partial(train_epoch, rates=rates, gains=gains, momentum=settings.momentum)
    x, y = map(jnp.asarray, data[0])
    losses = [[mean_loss(weights, gains, *part) for part in data]]
    for _ in range(settings.epochs):
        order = np.append(rng.permutation(count), np.zeros(padding, int)).reshape(
            -1, settings.batch_size
        )
        real = (np.arange(count + padding) < count).reshape(order.shape)
        weights, velocity = run_epoch(
            weights, velocity, x, y, order, np.float32(real / real.sum(axis=1, keepdims=True))
        )
        losses.append([mean_loss(weights, gains, *part) for part in data])
    return dict(zip(("train", "test"), np.array(losses, float).T.tolist(), strict=True))


@partial(jax.jit, donate_argnums=(0, 1))
def train_epoch(
    weights: Arrays,
    velocity: Arrays,
    x: jax.Array,
    y: jax.Array,
    order: jax.Array,
    shares: jax.Array,
    *,
    rates: jax.Array,
    gains: jax.Array,
    momentum: jax.Array,
) -> tuple[Arrays, Arrays]:
    """Passes once over the images: v = momentum v + dL/dW_l, W_l -= eta lr_l v, batch by batch.

    The images x (n, 3072) have the classes y (n, 2), one-hot. `order` has the images of each batch,
    (batches, batch_size), and `shares` their weights in its loss; rates are eta lr_l and gains g_l,
    (L,). Returns the new weights and velocity.
    """

    def update(
        carry: tuple[Arrays, Arrays], batch: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[Arrays, Arrays], None]:
        weights, velocity = carry
        rows, share = batch
        gradient = jax.grad(lambda weights: share @ network.loss(weights, gains, x[rows], y[rows]))(
            weights
        )
        velocity = [momentum * v + g for v, g in zip(velocity, gradient, strict=True)]
        return (
            [w - rate * v for w, rate, v in zip(weights, rates, velocity, strict=True)],
            velocity,
        ), None

    return lax.scan(update, (weights, velocity), (order, shares))[0]


@jax.jit
def mean_loss(weights: Arrays, gains: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Computes the mean loss of images x (n, 3072) with classes y (n, 2)."""
    return network.loss(weights, gains, x, y).mean()


def losses_over_seeds(
    settings: CurvesSettings, record: Record, pair: tuple[str, ...], kind: str
) -> dict[str, np.ndarray]:
    """Returns the losses of a pair under a parametrization: {"train": ..., "test": ...}, each
    (seeds, epochs + 1)."""
    found = [record.cells[_cell_name(pair, kind, seed)] for seed in range(settings.seeds)]
    return {part: np.array([each[part] for each in found], float) for part in ("train", "test")}


def _cell_name(pair: tuple[str, ...], kind: str, seed: int) -> str:
    return f"{'/'.join(pair)}, {kind}, seed {seed}"
