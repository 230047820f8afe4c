"""One update: forward, gradient and step of the optimizer, compiled once for each padded size."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from esnlm.data.store import TokenStore
from esnlm.features import dropout
from esnlm.features.stream import SentenceFeatures
from esnlm.machine.compute import ResolvedCompute
from esnlm.machine.mesh import Placement
from esnlm.models.base import LanguageModel
from esnlm.readout import linear
from esnlm.training.batches import Batch, EpochPlan

# From the trained arrays, the frozen ones and a batch: the features of its rows (C, F), the arrays
# of the readout, and the carry after the batch.
Forward = Callable[[dict, Any, Batch], tuple[jax.Array, dict, Any]]
# ((loss in nats, carry), gradient)
LossAndGradient = tuple[tuple[jax.Array, Any], dict]


class Inputs(ABC):
    """Reads the updates of a training, and knows how features are computed from what it reads.

    A window is loaded, then its updates are read one after another.

    Args:
        model: from `LanguageModel.for_device`.
        epochs: the plans of all epochs.
        forward: how a batch becomes features, inside a compiled function.
        chunk_tokens: as in `loss_and_gradient`.
    """

    frozen: Any  # the frozen arrays that `forward` reads
    is_split: bool  # whether the loaded updates have parts, with a gradient each
    carry: Any = None  # of documents, the state of the streams before the update or window to come

    def __init__(
        self,
        *,
        model: LanguageModel,
        compute: ResolvedCompute,
        seed: int,
        store: TokenStore,
        epochs: list[EpochPlan],
        placement: Placement,
        forward: Forward,
        chunk_tokens: int | None = None,
    ) -> None:
        self.compute, self.seed, self.store, self.epochs = compute, seed, store, epochs
        self.placement, self.dropout = placement, model.config.dropout
        self.loss_and_gradient: Callable[[dict, Any, Batch], LossAndGradient] = partial(
            loss_and_gradient,
            forward=forward,
            placement=placement,
            precision=model.precision,
            dropout_rate=model.output_dropout,
            chunk_tokens=chunk_tokens,
        )

    def load(self, number: int, window: range) -> None:
        """Loads a window of epoch `number`, counted from 0."""
        self.plan, self.window = self.epochs[number], window
        self.key = dropout.epoch_key(self.seed, number) if self.dropout else None

    @abstractmethod
    def batches(self, u: int) -> Iterator[Batch]:
        """Yields the parts of update u of the window, counted from its beginning."""

    @abstractmethod
    def stream(self, params: dict) -> SentenceFeatures:
        """Returns the features of the model with these trained arrays, without a gradient."""


class Outcome(NamedTuple):
    """The outcome of an update, still on the device."""

    loss: jax.Array  # () float32 in nats, before the update
    applied: jax.Array  # () bool; False: the update was skipped


class Updates:
    """Runs the updates of a training.

    Args:
        inputs: the updates, with a window loaded.
        rates: the learning rate of each update of the run, (updates,).
        on_nonfinite: see `make_step`.
    """

    def __init__(
        self,
        inputs: Inputs,
        optimizer: optax.GradientTransformationExtraArgs,
        rates: np.ndarray,
        on_nonfinite: str,
    ) -> None:
        placement = inputs.placement
        self.inputs, self.mesh = inputs, placement.mesh
        self.rates, self.active = placement.replicate((jnp.asarray(rates), jnp.bool(True)))
        step = make_step(placement.freeze_padding(optimizer), on_nonfinite)

        def gradient(params: dict, frozen: Any, batch: Batch) -> LossAndGradient:
            outcome, gradient = inputs.loss_and_gradient(params, frozen, batch)
            return outcome, placement.constrain(gradient)

        def placed_step(params: dict, state: optax.OptState, *others: Any) -> tuple:
            params, state, active, outcome = step(params, state, *others)
            return placement.constrain(params), placement.constrain(state), active, outcome

        def update(
            params: dict,
            state: optax.OptState,
            active: jax.Array,
            rates: jax.Array,
            frozen: Any,
            batch: Batch,
        ) -> tuple:
            (loss, _), slopes = gradient(params, frozen, batch)
            return placed_step(params, state, active, loss, slopes, rates)

        self._update = jax.jit(update, donate_argnums=(0, 1))
        self._step, self._gradient = jax.jit(placed_step, donate_argnums=(0, 1)), jax.jit(gradient)

    def run(
        self, params: dict, optimizer_state: optax.OptState, u: int
    ) -> tuple[dict, optax.OptState, Outcome]:
        """Dispatches update u of the loaded window to the device, without waiting.

        It donates `params` and the optimizer's state, which must be placed by the placement. So
        nothing else may hold the trained arrays.
        """
        inputs, frozen, batches = self.inputs, self.inputs.frozen, self.inputs.batches(u)
        with contextlib.nullcontext() if self.mesh is None else jax.set_mesh(self.mesh):
            if not inputs.is_split:
                params, optimizer_state, self.active, outcome = self._update(
                    params, optimizer_state, self.active, self.rates, frozen, next(batches)
                )
                return params, optimizer_state, outcome
            parts = (self._gradient(params, frozen, batch) for batch in batches)
            (loss, carry), gradient = reduce(add_trees, parts)
            params, optimizer_state, self.active, outcome = self._step(
                params, optimizer_state, self.active, loss, gradient, self.rates
            )
        inputs.carry = carry
        return params, optimizer_state, outcome


def loss_and_gradient(
    params: dict,
    frozen: Any,
    batch: Batch,
    *,
    forward: Forward,
    placement: Placement,
    precision: str,
    dropout_rate: float,
    chunk_tokens: int | None = None,
) -> LossAndGradient:
    """Returns the loss of a batch in nats, its carry, and the gradient of all trained arrays.

    Args:
        dropout_rate: of the features that the readout reads.
        chunk_tokens: rows whose logits exist at once; larger batches add up their gradient over
            chunks. None: all rows.
    """

    def of_rows(batch: Batch) -> LossAndGradient:
        def loss(params: dict) -> tuple[jax.Array, Any]:
            features, readout, carry = forward(params, frozen, batch)
            if dropout_rate and batch.key is not None:
                keys = dropout.token_keys(batch.key, batch.corpus_positions)
                width = features.shape[1]
                features = features * dropout.mask(keys, dropout.OUTPUT, width, dropout_rate)
            targets = jnp.concatenate([batch.targets, batch.first_targets])  # (C + S,)
            weights = jnp.concatenate([batch.weights, batch.first_weights])
            row_of_first = jnp.zeros(len(batch.first_targets), int)
            rows = jnp.concatenate([jnp.arange(len(batch.rows)), row_of_first])
            readout = placement.mask_padding_logits(readout)
            return linear.weighted_nll(readout, features, targets, weights, precision, rows), carry

        return jax.value_and_grad(loss, has_aux=True)(params)

    return (
        of_rows(batch) if chunk_tokens is None else in_chunks(of_rows, batch, chunk_tokens, params)
    )


def in_chunks(
    loss_and_gradient: Callable[[Batch], LossAndGradient],
    batch: Batch,
    chunk_tokens: int,
    params: dict,
) -> LossAndGradient:
    """Returns the loss of a batch and its gradient, summed over equal chunks of its rows.

    A chunk has at most `chunk_tokens` rows.
    """
    size = len(batch.rows)
    chunks = -(-size // chunk_tokens)
    if chunks <= 1:
        return loss_and_gradient(batch)
    # The rows of a chunk: as few as possible, in multiples of 16, which suit the kernels.
    rows = min(chunk_tokens, -(-size // chunks // 16) * 16)

    def cut(by_row: jax.Array) -> jax.Array:
        return jnp.pad(by_row, (0, chunks * rows - size)).reshape(chunks, rows)

    def in_first_chunk(first_targets: jax.Array) -> jax.Array:
        return jnp.pad(first_targets[None], ((0, chunks - 1), (0, 0)))

    by_chunk = Batch(*map(cut, batch[:4]), *map(in_first_chunk, batch[4:6]))

    def add_chunk(total: LossAndGradient, chunk: Batch) -> tuple[LossAndGradient, None]:
        chunk = chunk._replace(inputs=batch.inputs, key=batch.key)
        return jax.tree.map(jnp.add, total, loss_and_gradient(chunk)), None

    nothing = jax.tree.map(jnp.zeros_like, ((jnp.float32(0), None), params))
    return lax.scan(add_chunk, nothing, by_chunk)[0]


@partial(jax.jit, donate_argnums=0)
def add_trees(total: tuple, more: tuple) -> tuple:
    """Returns the sum of two trees, reusing the memory of the first."""
    return jax.tree.map(jnp.add, total, more)


def make_step(optimizer: optax.GradientTransformationExtraArgs, on_nonfinite: str) -> Callable:
    """Returns one step of the optimizer.

        (params, optimizer_state, active, loss, gradient, rates)
            -> (params, optimizer_state, active, Outcome)

    If the loss or the gradient is not finite, "continue" applies the step all the same; "skip" and
    "stop" keep params and the optimizer's state unchanged. After "stop", `active` is False, and
    later steps have no effect.
    """

    def step(
        params: dict,
        optimizer_state: optax.OptState,
        active: jax.Array,
        loss: jax.Array,
        gradient: dict,
        rates: jax.Array,
    ) -> tuple[dict, optax.OptState, jax.Array, Outcome]:
        changes, state = optimizer.update(gradient, optimizer_state, params, rates=rates)
        after = optax.apply_updates(params, changes), state
        if on_nonfinite == "continue":
            return *after, active, Outcome(loss, jnp.bool(True))
        finite = [jnp.isfinite(array).all() for array in jax.tree.leaves((loss, gradient))]
        good = jnp.stack(finite).all() & active
        params, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(good, new, old), after, (params, optimizer_state)
        )
        active = good if on_nonfinite == "stop" else active
        return params, optimizer_state, active, Outcome(loss, good)

    return step
