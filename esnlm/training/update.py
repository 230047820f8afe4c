"""One optimizer step on packed targets, and many of them in one compiled loop.

From top to bottom: the optimizer, the loss and its gradient in the readout, what is noted where numbers stop being finite,
one step, the loop, and the interface that the training loop sees (training/precomputed.py and training/end_to_end.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from esnlm.compute import ComputeConfig
from esnlm.config import TrainingConfig
from esnlm.data.store import TokenStore
from esnlm.features import dropout
from esnlm.features.stream import SentenceFeatures
from esnlm.models.base import LanguageModel
from esnlm.ops import xla
from esnlm.parallel.placement import Placement
from esnlm.readout import linear
from esnlm.readout.scaling import readout_rates
from esnlm.training.average import averaged
from esnlm.training.batches import EpochPlan, PackedTargets, WindowTargets
from esnlm.training.learning_rate import scale_by_rates

# ---- the optimizer ----


def make_optimizer(
    config: TrainingConfig, scaling: str = "none", widths: tuple[int, int, int] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Returns AdamW as torch.optim.AdamW has it (decoupled decay on every array), after clipping where it is asked for.

    "sgd" is gradient descent with the momentum of torch.optim.SGD, and the same decoupled decay. With a scaling of the
    readout, the steps of its arrays are multiplied by their rates, but their decay is not: it stays eta wd. In
    Utsunomiya 2025, eq. 2.12, decay goes by the one learning rate of the network, and the rates of the layers are the
    squares of its g_l (eq. 2.80).

    Its `update` takes `rates` beside the usual arguments, (updates,): those of training/learning_rate.py.

    Args:
        config: the settings of the training. The learning rate and its schedule are not part of the optimizer.
        scaling: of the readout, as in ReadoutConfig.
        widths: N, r and V, which the scaling depends on; None: those of the arrays, which must then have no padding.
    """
    direction = {
        "adamw": optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        "sgd": optax.trace(config.momentum),
    }[config.optimizer]
    step = optax.chain(
        direction,
        *([] if scaling == "none" else [_scale_readout(scaling, config.optimizer, widths)]),
        optax.add_decayed_weights(config.weight_decay),
        scale_by_rates(),
    )
    if config.clip_norm is not None:
        step = optax.chain(optax.clip_by_global_norm(config.clip_norm), step)
    return step if config.ema is None else averaged(step, config.ema)


def _scale_readout(scaling: str, optimizer: str, widths: tuple[int, int, int] | None) -> optax.GradientTransformation:
    def multiply(steps: dict, params: dict) -> dict:
        (vocab_size, rank), (_, size) = params["readout"]["a"].shape, params["readout"]["b"].shape
        rates = readout_rates(scaling, optimizer, *(widths or (size, rank, vocab_size)))
        return steps | {"readout": {name: rates[name] * step for name, step in steps["readout"].items()}}

    return optax.stateless(multiply)


# ---- loss and gradient ----


def readout_loss_and_gradient(
    params: dict,
    buffer: jax.Array,
    packed: PackedTargets,
    key: jax.Array | None,
    frozen: dict | None = None,
    *,
    precision: str,
    chunk_tokens: int,
    dropout_rate: float,
    cross_entropy: str = "plain",
    trunk: Callable[[dict, jax.Array], jax.Array] | None = None,
) -> tuple[jax.Array, dict]:
    """Returns the loss of packed targets in nats, and its gradient in the readout and the trunk, which are all that is trained.

    The logits of at most `chunk_tokens` rows exist at once: larger updates add up their gradient over chunks.

    Args:
        params: {"readout": {...}}, and what the trunk reads.
        buffer: what was computed ahead, (rows, N): without a trunk, the features.
        packed: the targets, and where their features lie in the buffer.
        key: of the epoch's dropout on the features that the readout sees.
        frozen: arrays of the readout beside the trained ones; None: there are none.
        precision: of the products (ops/matmul.py).
        chunk_tokens: rows of a chunk.
        dropout_rate: of the dropout.
        cross_entropy: its kernel, plain or fused.
        trunk: from the params and rows of the buffer to the features; None: they are the same.
    """

    def loss_and_gradient(packed: PackedTargets) -> tuple[jax.Array, dict]:
        features = drop_output(xla.gathered(buffer, packed.rows), packed.corpus_positions, key, dropout_rate)  # (C, N)

        def loss(params: dict) -> jax.Array:
            seen = features if trunk is None else trunk(params, features)  # (C, F)
            return packed_nll(params["readout"] | (frozen or {}), seen, packed, precision, cross_entropy)

        return jax.value_and_grad(loss)(params)

    return in_chunks(loss_and_gradient, packed, chunk_tokens, params)


def in_chunks(
    loss_and_gradient: Callable[[PackedTargets], tuple[jax.Array, dict]],
    packed: PackedTargets,
    chunk_tokens: int,
    params: dict,
) -> tuple[jax.Array, dict]:
    """Returns the loss and the gradient in `params` of packed targets, added up over equal chunks of at most `chunk_tokens` rows."""
    size = len(packed.rows)
    chunks = -(-size // chunk_tokens)
    if chunks <= 1:
        return loss_and_gradient(packed)
    # The rows of a chunk: as few as hold all, but a multiple of 16, which suits the kernels.
    rows = min(chunk_tokens, -(-size // chunks // 16) * 16)

    def cut(by_row: jax.Array) -> jax.Array:
        return jnp.pad(by_row, (0, chunks * rows - size)).reshape(chunks, rows)

    def in_first_chunk(first_targets: jax.Array) -> jax.Array:
        return jnp.pad(first_targets[None], ((0, chunks - 1), (0, 0)))

    def add_chunk(total: tuple[jax.Array, dict], chunk: PackedTargets) -> tuple[tuple[jax.Array, dict], None]:
        return jax.tree.map(jnp.add, total, loss_and_gradient(chunk)), None

    nothing = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
    return lax.scan(add_chunk, nothing, packed.apply(cut, in_first_chunk))[0]


def packed_nll(
    readout: dict, features: jax.Array, packed: PackedTargets, precision: str, cross_entropy: str = "plain"
) -> jax.Array:
    """Returns the weighted sum of -log p of packed targets in nats, from the features of their rows (C, F)."""
    targets, weights, rows = pairs(packed)
    return linear.weighted_nll(readout, features, targets, weights, precision, rows, cross_entropy)


def pairs(packed: PackedTargets) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns (targets, weights, rows) of all predictions, (C + S,): the row of the features, 0 .. C - 1, that each is made from."""
    targets = jnp.concatenate([packed.targets, packed.first_targets])
    weights = jnp.concatenate([packed.weights, packed.first_weights])
    return targets, weights, jnp.concatenate([jnp.arange(len(packed.rows)), jnp.zeros(len(packed.first_targets), int)])


def drop_output(features: jax.Array, corpus_positions: jax.Array, key: jax.Array | None, rate: float) -> jax.Array:
    """Applies dropout to the features (C, F) that the readout sees, of the tokens at these corpus positions (C,).

    Nothing is dropped at the rate 0 or without a key.
    """
    if not rate or key is None:
        return features
    return features * dropout.mask(dropout.token_keys(key, corpus_positions), dropout.OUTPUT, features.shape[1], rate)


@partial(jax.jit, donate_argnums=0)
def add_trees(total: tuple, more: tuple) -> tuple:
    """Returns the sum of two trees, in the memory of the first."""
    return jax.tree.map(jnp.add, total, more)


# ---- what is not finite ----


NOT_LOOKED_AT = 0.0  # stands for the largest |h|, where the features are gone before the gradient is there


class NonFinite(NamedTuple):
    """What was not finite at the first update, of those that were run together, at which anything was not."""

    found: jax.Array  # () bool: there was such an update
    largest_feature: jax.Array  # () float32, the largest |h| that the readout read, or NOT_LOOKED_AT
    params: jax.Array  # (arrays,) bool: not finite already before the update, in the order of jax.tree.leaves
    gradient: jax.Array  # (arrays,) bool


def nothing_nonfinite(params: dict) -> NonFinite:
    """Returns the record before any update."""
    arrays = len(jax.tree.leaves(params))
    return NonFinite(jnp.bool(False), jnp.float32(0), jnp.zeros(arrays, bool), jnp.zeros(arrays, bool))


def largest_size(h: jax.Array) -> jax.Array:
    """Returns the largest |h|, () float32, or NaN where any h is NaN: a maximum on a CPU may pass NaN over."""
    return jnp.where(jnp.isnan(h).any(), jnp.nan, jnp.abs(h).max())


def record_nonfinite(
    record: NonFinite,
    loss: jax.Array,
    params: dict,
    gradient: dict,
    largest_feature: Callable[[], jax.Array],
    on_nonfinite: str,
) -> NonFinite:
    """Returns `record`, or what this update shows if it is the first one that is not finite.

    The trained arrays are searched at such an update only, since that costs a pass over them. A gradient that is not finite
    counts too, but for "continue", where it decides nothing and is not searched either.

    Args:
        record: of the updates before.
        loss: of this update.
        params: before this update.
        gradient: of this update.
        largest_feature: computes the largest |h| of this update.
        on_nonfinite: continue, skip or stop.
    """
    bad = ~jnp.isfinite(loss)
    if on_nonfinite != "continue":
        bad |= ~_finite_arrays(gradient).all()
    return lax.cond(
        bad & ~record.found,
        lambda: NonFinite(jnp.bool(True), largest_feature(), ~_finite_arrays(params), ~_finite_arrays(gradient)),
        lambda: record,
    )


def make_nonfinite_recorder(on_nonfinite: str) -> Callable:
    """Returns `record_nonfinite`, compiled: (record, loss, params, gradient, h, rows=None) -> record.

    The largest |h| is that of the features h, or of some rows of them.
    """

    def recorder(
        record: NonFinite, loss: jax.Array, params: dict, gradient: dict, h: jax.Array, rows: jax.Array | None = None
    ) -> NonFinite:
        def largest() -> jax.Array:
            return largest_size(h if rows is None else h[rows])

        return record_nonfinite(record, loss, params, gradient, largest, on_nonfinite)

    return jax.jit(recorder)


def _finite_arrays(tree: dict) -> jax.Array:
    """Returns for each array whether all of it is finite, (arrays,) bool."""
    return jnp.stack([jnp.isfinite(array).all() for array in jax.tree.leaves(tree)])


# ---- one update ----


def make_step(optimizer: optax.GradientTransformationExtraArgs, on_nonfinite: str) -> Callable:
    """Returns one step of the optimizer: (params, optimizer_state, loss, gradient, rates) -> (params, optimizer_state, applied).

    Where the loss or the gradient is not finite, "continue" applies the step all the same, while "skip" and "stop" leave
    params and the optimizer's state as they were. `applied` is then False.
    """

    def step(
        params: dict, optimizer_state: optax.OptState, loss: jax.Array, gradient: dict, rates: jax.Array
    ) -> tuple[dict, optax.OptState, jax.Array]:
        def move() -> tuple[dict, optax.OptState]:
            changes, moved = optimizer.update(gradient, optimizer_state, params, rates=rates)
            return optax.apply_updates(params, changes), moved

        if on_nonfinite == "continue":
            return *move(), jnp.bool(True)
        finite = jnp.isfinite(loss) & _finite_arrays(gradient).all()
        return *lax.cond(finite, move, lambda: (params, optimizer_state)), finite

    return step


# ---- many updates ----


class CallResult(NamedTuple):
    """What a call of some updates of a window came to. The numbers are still on the device."""

    losses: jax.Array  # (U,) float32 in nats, each before its update; U is at least the number of updates of the window
    applied: jax.Array  # (U,) bool: False for an update that was left out, and for all after it where it stops the run
    nonfinite: NonFinite  # of this call


def make_update_loop(
    optimizer: optax.GradientTransformationExtraArgs,
    on_nonfinite: str,
    buckets: tuple[int, ...],
    loss_and_gradient: Callable,
    states: int | None = None,
) -> Callable:
    """Returns the compiled loop of updates of a readout on features that are in a buffer:

        (params, optimizer_state, buffer, targets, key, rates, first, last, *frozen) -> (params, optimizer_state, CallResult)

    `rates` are those of all updates of the run. `frozen` is passed on to loss_and_gradient: nothing, or the arrays of the readout that are not trained.
    It runs the updates first .. last - 1 of a window, one after another. Their number is traced, and the one program has
    a branch for every bucket. So neither how a run is cut into calls nor where it was resumed changes a bit of
    the outcome, and buffers of hundreds of megabytes are allocated once for a call. The params and the state of the
    optimizer are donated.

    Args:
        optimizer: from make_optimizer.
        on_nonfinite: continue, skip or stop.
        buckets: as in WindowShapes.
        loss_and_gradient: (params, buffer, packed, key, *frozen) -> (loss, gradient), from readout_loss_and_gradient.
        states: columns of the buffer, from the first, whose largest number is noted; None: all.
    """
    step = make_step(optimizer, on_nonfinite)

    def of_bucket(
        size: int, params: dict, buffer: jax.Array, targets: WindowTargets, u: int, key: jax.Array | None, *frozen: dict
    ) -> tuple[jax.Array, dict]:
        return loss_and_gradient(params, buffer, targets.of_update(u, size), key, *frozen)

    branches = [partial(of_bucket, size) for size in buckets]

    def update_loop(
        params: dict,
        optimizer_state: optax.OptState,
        buffer: jax.Array,
        targets: WindowTargets,
        key: jax.Array | None,
        rates: jax.Array,
        first: int,
        last: int,
        *frozen: dict,
    ) -> tuple[dict, optax.OptState, CallResult]:
        def update(u: int, carry: tuple) -> tuple:
            params, optimizer_state, losses, applied, going, record = carry
            loss, gradient = lax.switch(targets.bucket[u], branches, params, buffer, targets, u, key, *frozen)
            if on_nonfinite == "stop":
                loss = jnp.where(going, loss, jnp.nan)

            def largest() -> jax.Array:
                packed = targets.of_update(u, buckets[-1])
                return largest_size(jnp.where(packed.weights[:, None] == 0, 0, buffer[packed.rows][:, :states]))

            record = record_nonfinite(record, loss, params, gradient, largest, on_nonfinite)
            # The step overwrites params, so its scalars wait for the record, which may still read them.
            optimizer_state = jax.tree.map(
                lambda x: x if x.ndim else xla.after(x, record.largest_feature), optimizer_state
            )
            params, optimizer_state, done = step(params, optimizer_state, loss, gradient, rates)
            return params, optimizer_state, losses.at[u].set(loss), applied.at[u].set(done), going & done, record

        shape = targets.bucket.shape
        losses, applied = jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool)
        carry = params, optimizer_state, losses, applied, jnp.bool(True), nothing_nonfinite(params)
        params, optimizer_state, losses, applied, _, record = lax.fori_loop(first, last, update, carry)
        return params, optimizer_state, CallResult(losses, applied, record)

    return jax.jit(update_loop, donate_argnums=(0, 1))


# ---- what the training loop sees ----


class Updates(ABC):
    """The updates of a training. A window is loaded, then its updates are run in as many calls as the caller likes.

    How updates are cut into calls does not change the outcome by a bit. `run` overwrites the params and the state of the
    optimizer that it is given.

    Args:
        model: ready for the device (`LanguageModel.for_device`). Its trained arrays are overwritten where `run` is given them.
        compute: resolved settings of the device.
        seed: of the dropout.
        store: the sentences.
        epochs: the plans of all epochs: which sentences each update has, and which updates each window.
        optimizer: from make_optimizer.
        rates: the learning rate of each update of the run, (updates,).
        on_nonfinite: what to do where a loss or a gradient is not finite: continue, skip or stop.
        placement: of the model's arrays on a mesh of devices; None: there is one device. The params and the state of the
            optimizer that `run` is given are placed by it.
    """

    def __init__(
        self,
        *,
        model: LanguageModel,
        compute: ComputeConfig,
        seed: int,
        store: TokenStore,
        epochs: list[EpochPlan],
        optimizer: optax.GradientTransformationExtraArgs,
        rates: np.ndarray,
        on_nonfinite: str,
        placement: Placement | None = None,
    ) -> None:
        self.placement, self.epochs = placement, epochs
        self.compute, self.seed, self.store, self.dropout = compute, seed, store, model.config.dropout
        self.rates = jnp.asarray(rates) if placement is None else placement.everywhere(rates)
        self.record_nonfinite = make_nonfinite_recorder(on_nonfinite)
        self.step = jax.jit(make_step(optimizer, on_nonfinite), donate_argnums=(0, 1))

    @abstractmethod
    def load(self, number: int, window: range) -> None:
        """Takes up a window of an epoch.

        Args:
            number: of the epoch, from 0.
            window: one of epochs[number].windows.
        """

    @abstractmethod
    def run(
        self, params: dict, optimizer_state: optax.OptState, first: int, last: int
    ) -> tuple[dict, optax.OptState, CallResult]:
        """Runs the updates first .. last - 1 of the window, counted from its beginning."""

    def sizes(self) -> str:
        """Returns for how many padded sizes the first call compiles, as the end of "compiling the update"."""
        return ""

    @abstractmethod
    def features_with(self, params: dict) -> SentenceFeatures:
        """Returns the features, without a gradient, of the model with these trained arrays."""
