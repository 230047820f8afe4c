"""Updates of what is trained: loss, gradient and AdamW or SGD."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from esnlm.config import TrainingConfig
from esnlm.features import dropout
from esnlm.readout import linear
from esnlm.readout.scaling import readout_rates
from esnlm.training.batches import PackedTargets, WindowTargets


def make_optimizer(config: TrainingConfig, updates: int, scaling: str = "none") -> optax.GradientTransformation:
    """AdamW as torch.optim.AdamW has it (decoupled decay on every array), after clipping where it is asked for.

    "sgd" is gradient descent with torch.optim.SGD's momentum, and the same decoupled decay. With a scaling of the readout
    its arrays' steps are multiplied by their rates, but not their decay, which stays eta wd: in the thesis (2.12) decay
    goes by the one learning rate of the network, where the layers' rates are the squares of its g_l (2.80).

    Args:
        updates: of the whole run, where a linear or cosine schedule ends at 0.
        scaling: of the readout, as ReadoutConfig has it.
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
    adamw = config.optimizer == "adamw"
    step = optax.chain(
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon) if adamw else optax.trace(config.momentum),
        *([] if scaling == "none" else [_scale_readout(scaling, config.optimizer)]),
        optax.add_decayed_weights(config.weight_decay),
        optax.scale_by_learning_rate(rate),
    )
    return step if config.clip_norm is None else optax.chain(optax.clip_by_global_norm(config.clip_norm), step)


def _scale_readout(scaling: str, optimizer: str) -> optax.GradientTransformation:
    def multiply(steps, params):
        (vocab_size, rank), (_, size) = params["readout"]["a"].shape, params["readout"]["b"].shape
        rates = readout_rates(scaling, optimizer, size, rank, vocab_size)
        return steps | {"readout": {name: rates[name] * step for name, step in steps["readout"].items()}}

    return optax.stateless(multiply)


def readout_gradient(
    params: dict, buffer, packed: PackedTargets, key, *, precision: str, chunk_tokens: int, rate: float
):
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
        features = drop(buffer[packed.rows], packed.corpus_positions, key, rate)  # (C, F)

        def loss(params):
            return packed_nll(params["readout"], features, packed, precision)

        return jax.value_and_grad(loss)(params)

    size = len(packed.rows)
    if size <= chunk_tokens:
        return loss_and_gradient(params, packed)
    chunks = -(-size // chunk_tokens)

    def cut(by_row):
        return jnp.pad(by_row, (0, chunks * chunk_tokens - size)).reshape(chunks, chunk_tokens)

    def in_first_chunk(first_targets):
        return jnp.pad(first_targets[None], ((0, chunks - 1), (0, 0)))

    *by_row, first_targets, first_weights = packed
    padded = [*map(cut, by_row), in_first_chunk(first_targets), in_first_chunk(first_weights)]

    def add_chunk(total, chunk):
        return jax.tree.map(jnp.add, total, loss_and_gradient(params, chunk)), None

    nothing = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
    return lax.scan(add_chunk, nothing, PackedTargets(*padded))[0]


def packed_nll(readout: dict, features: jax.Array, packed: PackedTargets, precision: str) -> jax.Array:
    """The weighted sum of -log p of packed predictions in nats, from the features of their rows (C, F)."""
    targets = jnp.concatenate([packed.targets, packed.first_targets])  # (C + S,)
    weights = jnp.concatenate([packed.weights, packed.first_weights])
    rows = jnp.concatenate([jnp.arange(len(packed.rows)), jnp.zeros(len(packed.first_targets), int)])
    return linear.weighted_nll(readout, features, targets, weights, precision, rows)


def drop(features: jax.Array, corpus_positions: jax.Array, key, rate: float) -> jax.Array:
    """Dropout on the copy of features (C, F) that the readout sees, for the tokens at these corpus_positions (C,)."""
    if not rate:
        return features
    return features * dropout.mask(dropout.token_keys(key, corpus_positions), dropout.OUTPUT, features.shape[1], rate)


class Fault(NamedTuple):
    """What was not finite at the first update of a call at which anything was not."""

    seen: jax.Array  # bool: there was one
    largest: jax.Array  # |h| of what the readout read
    params: jax.Array  # (arrays,) bool: not finite before the update, in the order of jax.tree.leaves
    gradient: jax.Array  # (arrays,) bool


def no_fault(params) -> Fault:
    arrays = len(jax.tree.leaves(params))
    return Fault(jnp.bool(False), jnp.float32(0), jnp.zeros(arrays, bool), jnp.zeros(arrays, bool))


def look(fault: Fault, loss, params, gradient, largest: Callable[[], jax.Array], on_nonfinite: str) -> Fault:
    """`fault`, or what an update shows: it is looked at only where its loss is not finite (but for "continue", or its gradient)."""

    def broken(tree):
        return jnp.stack([~jnp.isfinite(part).all() for part in jax.tree.leaves(tree)])

    bad = ~jnp.isfinite(loss)
    if on_nonfinite != "continue":
        bad |= broken(gradient).any()
    return lax.cond(
        bad & ~fault.seen, lambda: Fault(jnp.bool(True), largest(), broken(params), broken(gradient)), lambda: fault
    )


def make_look(on_nonfinite: str) -> Callable:
    """`look`, compiled, at features h, or at some rows of them."""

    def compiled(fault, loss, params, gradient, h, rows=None):
        return look(fault, loss, params, gradient, lambda: jnp.abs(h if rows is None else h[rows]).max(), on_nonfinite)

    return jax.jit(compiled)


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


def make_updates(
    optimizer: optax.GradientTransformation, on_nonfinite: str, sizes: tuple[int, ...], **options
) -> Callable:
    """The compiled updates of a readout, (params, state, buffer, packs, key, first, last) -> (params, state, losses, applied, fault).

    Runs updates first .. last - 1 of a window's packs, one after another. How many is a traced number and every pack
    size has a branch of its own in the one program, so neither how a run is cut into calls nor where it was resumed
    changes a bit of the outcome, and the buffers of hundreds of megabytes are allocated once a call.

    Params and state are donated. Losses (U,) are in nats, each before its update; applied (U,) is False where an update
    was left out as not finite, and after it where `on_nonfinite` is "stop"; `fault` is the call's.

    Args:
        sizes: predictions of a pack, as in batches.Shapes.
        options: precision, chunk_tokens and rate of `readout_gradient`.
    """
    apply = make_apply(optimizer, on_nonfinite)

    def of_size(size, params, buffer, packs, u, key):
        return readout_gradient(params, buffer, packs.update(u, size), key, **options)

    branches = [partial(of_size, size) for size in sizes]

    def updates(params, state, buffer, packs: WindowTargets, key, first, last):
        def update(u, carry):
            params, state, losses, applied, going, fault = carry
            loss, gradient = lax.switch(packs.size[u], branches, params, buffer, packs, u, key)
            if on_nonfinite == "stop":
                loss = jnp.where(going, loss, jnp.nan)

            def largest():
                packed = packs.update(u, sizes[-1])
                return jnp.abs(jnp.where(packed.weights[:, None] == 0, 0, buffer[packed.rows])).max()

            fault = look(fault, loss, params, gradient, largest, on_nonfinite)
            # The step's scalars wait for the look, so that params are overwritten after it: else XLA would copy them for it.
            state = jax.tree.map(lambda x: x if x.ndim else jnp.where(fault.largest < 0, 0, x), state)  # |h| never is
            params, state, good = apply(params, state, loss, gradient)
            return params, state, losses.at[u].set(loss), applied.at[u].set(good), going & good, fault

        shape = packs.size.shape
        carry = params, state, jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool), jnp.bool(True), no_fault(params)
        *done, _, fault = lax.fori_loop(first, last, update, carry)
        return *done, fault

    return jax.jit(updates, donate_argnums=(0, 1))


@partial(jax.jit, donate_argnums=0)
def add(total, gradient):
    """The sum of two trees, in the memory of the first."""
    return jax.tree.map(jnp.add, total, gradient)
