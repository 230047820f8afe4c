"""Updates of the readout: loss, gradient and AdamW, many of them in one compiled call."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax

from esnlm.config import TrainingConfig
from esnlm.readout import linear


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


def make_updates(
    optimizer: optax.GradientTransformation, precision: str, sizes: tuple[int, ...], chunk_tokens: int
) -> Callable:
    """The compiled updates: (params, optimizer state, buffer, packs, first, last) -> (params, state, losses).

    Runs updates first .. last - 1 of a window's packs, one after another. How many is a traced number and every pack
    size has a branch of its own in the one program, so neither how a run is cut into calls nor where it was resumed
    changes a bit of the outcome, and the buffers of hundreds of megabytes are allocated once a call.

    Params and state are donated. Losses are (U,), nats, each before its update. An update of more than `chunk_tokens`
    predictions adds up its gradient over chunks: the logits of so many are all that exist at once.
    """

    def loss_and_gradient(params, buffer, rows, targets, weights):
        features = buffer[rows]  # (C, N)
        return jax.value_and_grad(linear.weighted_nll)(params, features, targets, weights, precision)

    def of_size(size, params, buffer, *packed):
        packed = [part[:size] for part in packed]
        if size <= chunk_tokens:
            return loss_and_gradient(params, buffer, *packed)
        chunks = -(-size // chunk_tokens)
        packed = [jnp.pad(part, (0, chunks * chunk_tokens - size)).reshape(chunks, chunk_tokens) for part in packed]

        def add_chunk(total, chunk):
            return jax.tree.map(jnp.add, total, loss_and_gradient(params, buffer, *chunk)), None

        nothing = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
        return lax.scan(add_chunk, nothing, tuple(packed))[0]

    branches = [partial(of_size, size) for size in sizes]

    def updates(params, state, buffer, packs, first, last):
        def update(u, carry):
            params, state, losses = carry
            packed = packs.rows[u], packs.targets[u], packs.weights[u]
            loss, gradient = lax.switch(packs.size[u], branches, params, buffer, *packed)
            changes, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, changes), state, losses.at[u].set(loss)

        return lax.fori_loop(first, last, update, (params, state, jnp.zeros(packs.size.shape, jnp.float32)))

    return jax.jit(updates, donate_argnums=(0, 1))
