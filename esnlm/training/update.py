"""One update: forward, gradient and step of the optimizer, compiled once for each padded size."""

import contextlib
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from esnlm.features import dropout
from esnlm.machine.mesh import Placement
from esnlm.readout import linear
from esnlm.training.batches import Batch
from esnlm.training.inputs import Forward, Inputs

# ((loss in nats, carry after the batch), gradient)
LossAndGradient = tuple[tuple[jax.Array, Any], dict]


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
        differentiate = partial(
            loss_and_gradient,
            forward=inputs.forward,
            placement=placement,
            precision=inputs.precision,
            dropout_rate=inputs.output_dropout,
            chunk_tokens=inputs.chunk_tokens,
        )

        def placed_gradient(params: dict, frozen: Any, batch: Batch) -> LossAndGradient:
            outcome, gradient = differentiate(params, frozen, batch)
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
            (loss, carry), gradient = placed_gradient(params, frozen, batch)
            params, state, active, outcome = placed_step(
                params, state, active, loss, gradient, rates
            )
            return params, state, active, outcome, carry

        self._update = jax.jit(update, donate_argnums=(0, 1))
        self._step = jax.jit(placed_step, donate_argnums=(0, 1))
        self._gradient = jax.jit(placed_gradient)

    def run(
        self, params: dict, optimizer_state: optax.OptState, u: int
    ) -> tuple[dict, optax.OptState, Outcome]:
        """Dispatches update u of the loaded window to the device, without waiting.

        It donates `params` and the optimizer's state, which must be placed by the placement. So
        nothing else may hold the trained arrays.
        """
        inputs, frozen, batches = self.inputs, self.inputs.frozen, self.inputs.batches(u)
        with contextlib.nullcontext() if self.mesh is None else jax.set_mesh(self.mesh):
            if inputs.is_split:
                parts = (self._gradient(params, frozen, batch) for batch in batches)
                (loss, carry), gradient = reduce(add_trees, parts)
                params, optimizer_state, self.active, outcome = self._step(
                    params, optimizer_state, self.active, loss, gradient, self.rates
                )
            else:
                params, optimizer_state, self.active, outcome, carry = self._update(
                    params, optimizer_state, self.active, self.rates, frozen, next(batches)
                )
        inputs.end_update(u, carry)
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
    """Returns the loss of a batch in nats, its carry, and the gradient of the trained arrays.

    Args:
        dropout_rate: of the features that the readout reads.
        chunk_tokens: rows whose logits exist at once; larger batches add up their gradient over
            chunks. None: all rows.
    """

    def unchunked(batch: Batch) -> LossAndGradient:
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

    if chunk_tokens is None:
        return unchunked(batch)
    return in_chunks(unchunked, batch, chunk_tokens, params)


def in_chunks(
    differentiate: Callable[[Batch], LossAndGradient],
    batch: Batch,
    chunk_tokens: int,
    params: dict,
) -> LossAndGradient:
    """Returns the loss of a batch and its gradient, summed over equal chunks of its rows.

    A chunk has at most `chunk_tokens` rows. Only precomputed features are chunked, and they have no
    carry.
    """
    size = len(batch.rows)
    chunks = -(-size // chunk_tokens)
    if chunks <= 1:
        return differentiate(batch)
    # The rows of a chunk: as few as possible, in multiples of 16, which suit the kernels.
    rows = min(chunk_tokens, -(-size // chunks // 16) * 16)

    def cut(by_row: jax.Array) -> jax.Array:
        return jnp.pad(by_row, (0, chunks * rows - size)).reshape(chunks, rows)

    def in_first_chunk(first_targets: jax.Array) -> jax.Array:
        return jnp.pad(first_targets[None], ((0, chunks - 1), (0, 0)))

    by_chunk = Batch(
        rows=cut(batch.rows),
        targets=cut(batch.targets),
        weights=cut(batch.weights),
        corpus_positions=cut(batch.corpus_positions),
        first_targets=in_first_chunk(batch.first_targets),
        first_weights=in_first_chunk(batch.first_weights),
    )

    def add_chunk(total: LossAndGradient, chunk: Batch) -> tuple[LossAndGradient, None]:
        chunk = chunk._replace(inputs=batch.inputs, key=batch.key)
        return jax.tree.map(jnp.add, total, differentiate(chunk)), None

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
        is_applied = jnp.stack(finite).all() & active
        params, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(is_applied, new, old), after, (params, optimizer_state)
        )
        active = is_applied if on_nonfinite == "stop" else active
        return params, optimizer_state, active, Outcome(loss, is_applied)

    return step
