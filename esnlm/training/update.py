"""Updates of what is trained: loss, gradient and AdamW."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax

from esnlm.config import TrainingConfig
from esnlm.features import dropout
from esnlm.readout import linear
from esnlm.training.batches import Packed


def make_optimizer(config: TrainingConfig, updates: int) -> optax.GradientTransformation:
    """AdamW as torch.optim.AdamW has it (decoupled decay on every array), after clipping where it is asked for.

    Args:
        updates: of the whole run, where a linear or cosine schedule ends at 0.
    """
    decaying = max(1, updates - config.warmup_updates)
    after_warmup = {
        "constant": optax.constant_schedule(config.learning_rate),
        "linear": optax.linear_schedule(config.learning_rate, 0.0, decaying),
        "cosine": optax.cosine_decay_schedule(config.learning_rate, decaying),
    }[config.schedule]
    # The first update already moves: warm-up climbs from 1 / warmup_updates of the rate, not from 0.
    first = config.learning_rate / max(1, config.warmup_updates)
    warmup = optax.linear_schedule(first, config.learning_rate, max(1, config.warmup_updates - 1))
    rate = optax.join_schedules([warmup, after_warmup], [config.warmup_updates])
    adamw = optax.adamw(rate, config.beta1, config.beta2, config.epsilon, weight_decay=config.weight_decay)
    return adamw if config.clip_norm is None else optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)


def readout_gradient(params: dict, buffer, packed: Packed, key, *, precision: str, chunk_tokens: int, rate: float):
    """The loss of packed predictions and its gradient in the readout, which is all that is trained.

    More than `chunk_tokens` predictions add up their gradient over chunks: the logits of so many are all that exist at
    once.

    Args:
        params: {"readout": {...}}.
        buffer: features, (rows, F).
        key: the epoch's, of dropout on the features that the readout sees, at `rate`.

    Returns:
        (loss, gradient): the weighted sum of -log p in nats, and the tree of params.
    """

    def loss_and_gradient(params, packed):
        features = drop(buffer[packed.rows], packed.places, key, rate)  # (C, F)

        def loss(params):
            return linear.weighted_nll(params["readout"], features, packed.targets, packed.weights, precision)

        return jax.value_and_grad(loss)(params)

    size = len(packed.rows)
    if size <= chunk_tokens:
        return loss_and_gradient(params, packed)
    chunks = -(-size // chunk_tokens)
    padded = [jnp.pad(part, (0, chunks * chunk_tokens - size)).reshape(chunks, chunk_tokens) for part in packed]

    def add_chunk(total, chunk):
        return jax.tree.map(jnp.add, total, loss_and_gradient(params, chunk)), None

    nothing = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
    return lax.scan(add_chunk, nothing, Packed(*padded))[0]


def drop(features: jax.Array, places: jax.Array, key, rate: float) -> jax.Array:
    """Dropout on the copy of features (C, F) that the readout sees, for the tokens at these places (C,)."""
    if not rate:
        return features
    return features * dropout.mask(dropout.token_keys(key, places), dropout.OUTPUT, features.shape[1], rate)


def make_apply(optimizer: optax.GradientTransformation, on_nonfinite: str) -> Callable:
    """One step of the optimizer: (params, state, loss, gradient) -> (params, state, applied).

    Where loss or gradient are not finite, "continue" applies them all the same, "skip" and "stop" leave params and state
    as they were; `applied` is then False.
    """

    def apply(params, state, loss, gradient):
        def move():
            changes, moved = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, changes), moved

        if on_nonfinite == "continue":
            return *move(), jnp.bool(True)
        finite = jnp.isfinite(loss) & jnp.stack([jnp.isfinite(part).all() for part in jax.tree.leaves(gradient)]).all()
        return *lax.cond(finite, move, lambda: (params, state)), finite

    return apply


def make_updates(optimizer: optax.GradientTransformation, on_nonfinite: str, sizes: tuple[int, ...], **options) -> Callable:
    """The compiled updates of a readout: (params, state, buffer, packs, key, first, last) -> (params, state, losses, applied).

    Runs updates first .. last - 1 of a window's packs, one after another. How many is a traced number and every pack
    size has a branch of its own in the one program, so neither how a run is cut into calls nor where it was resumed
    changes a bit of the outcome, and the buffers of hundreds of megabytes are allocated once a call.

    Params and state are donated. Losses (U,) are in nats, each before its update; applied (U,) is False where an update
    was left out as not finite, and after it where `on_nonfinite` is "stop".

    Args:
        sizes: predictions of a pack, as in batches.Shapes.
        options: precision, chunk_tokens and rate of `readout_gradient`.
    """
    apply = make_apply(optimizer, on_nonfinite)

    def of_size(size, params, buffer, packed, key):
        return readout_gradient(params, buffer, Packed(*(part[:size] for part in packed)), key, **options)

    branches = [partial(of_size, size) for size in sizes]

    def updates(params, state, buffer, packs, key, first, last):
        def update(u, carry):
            params, state, losses, applied, going = carry
            packed = Packed(packs.rows[u], packs.targets[u], packs.weights[u], packs.places[u])
            loss, gradient = lax.switch(packs.size[u], branches, params, buffer, packed, key)
            if on_nonfinite == "stop":
                loss = jnp.where(going, loss, jnp.nan)
            params, state, good = apply(params, state, loss, gradient)
            return params, state, losses.at[u].set(loss), applied.at[u].set(good), going & good

        slots = packs.size.shape
        carry = params, state, jnp.zeros(slots, jnp.float32), jnp.zeros(slots, bool), jnp.bool(True)
        return lax.fori_loop(first, last, update, carry)[:4]

    return jax.jit(updates, donate_argnums=(0, 1))


@partial(jax.jit, donate_argnums=0)
def add(total, gradient):
    """The sum of two trees, in the memory of the first."""
    return jax.tree.map(jnp.add, total, gradient)
