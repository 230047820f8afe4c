"""One update of the readout: loss, gradient and AdamW in one compiled call."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

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


def make_update(optimizer: optax.GradientTransformation, precision: str) -> Callable:
    """The compiled update: (params, optimizer state, buffer, rows, targets, weights) -> (params, state, loss).

    Params and state are donated. Rows, targets and weights are (K, C), see batches.Pack: the K chunks' gradients are
    added up, so that the logits of C predictions are all that exist at once. The loss, in nats, is the one before the
    update.
    """

    def loss_and_gradient(params, buffer, rows, targets, weights):
        features = buffer[rows]  # (C, N)
        return jax.value_and_grad(linear.weighted_nll)(params, features, targets, weights, precision)

    def update(params, state, buffer, rows, targets, weights):
        total = loss_and_gradient(params, buffer, rows[0], targets[0], weights[0])
        if len(rows) > 1:

            def add_chunk(total, chunk):
                return jax.tree.map(jnp.add, total, loss_and_gradient(params, buffer, *chunk)), None

            total, _ = jax.lax.scan(add_chunk, total, (rows[1:], targets[1:], weights[1:]))
        loss, gradient = total
        changes, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, changes), state, loss

    return jax.jit(update, donate_argnums=(0, 1))
