"""One update: loss, gradient and optimizer step, compiled once for each padded size."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
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
from esnlm.machine import xla
from esnlm.machine.compute import ResolvedCompute
from esnlm.machine.placement import Placement
from esnlm.models.base import LanguageModel
from esnlm.readout import linear
from esnlm.readout.scaling import readout_rates
from esnlm.training.batches import EpochPlan, PackedTargets
from esnlm.training.config import TrainingConfig
from esnlm.training.optimizer import averaged, scale_by_rates

# ---- the optimizer ----


def make_optimizer(
    config: TrainingConfig, scaling: str = "none", widths: tuple[int, int, int] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Returns AdamW as in torch.optim.AdamW (decoupled decay on every array), after optional
    clipping.

    "sgd" is gradient descent with the momentum of torch.optim.SGD, and the same decoupled decay.
    With a scaling of the readout, the steps of its arrays are multiplied by their rates, but their
    decay stays eta wd. In Utsunomiya 2025, eq. 2.12, decay uses the one learning rate of the
    network, and layers' rates are the squares of its g_l (eq. 2.80).

    Its `update` takes a further argument `rates`, (updates,), from training/learning_rate.py. The
    scaling depends on the `widths` N, r and V. By default these are taken from the arrays, which
    must then have no padding.
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


def _scale_readout(
    scaling: str, optimizer: str, widths: tuple[int, int, int] | None
) -> optax.GradientTransformation:
    def multiply(steps: dict, params: dict) -> dict:
        (vocab_size, rank), (_, size) = params["readout"]["a"].shape, params["readout"]["b"].shape
        rates = readout_rates(scaling, optimizer, *(widths or (size, rank, vocab_size)))
        return steps | {
            "readout": {name: rates[name] * step for name, step in steps["readout"].items()}
        }

    return optax.stateless(multiply)


# ---- loss and gradient ----


def readout_loss_and_gradient(
    params: dict,
    buffer: jax.Array,
    packed: PackedTargets,
    key: jax.Array | None,
    frozen: dict,
    *,
    placement: Placement,
    precision: str,
    chunk_tokens: int,
    dropout_rate: float,
    trunk: Callable[[dict, jax.Array], jax.Array] | None = None,
) -> tuple[jax.Array, dict]:
    """Returns the loss of packed targets in nats, and its gradient with respect to the trained
    arrays (readout and trunk).

    Args:
        buffer: features, or with a trunk its inputs, (rows, N).
        key: dropout key of the epoch, for the features that the readout reads.
        frozen: frozen arrays of the readout.
        chunk_tokens: rows whose logits exist at once; larger updates add up their gradient over
            chunks.
    """

    def loss_and_gradient(packed: PackedTargets) -> tuple[jax.Array, dict]:
        h = xla.gathered(buffer, packed.rows)  # (C, N)
        if "w" in params["readout"]:
            # at full rank each device multiplies all of h with its rows of W
            h = placement.constrain_replicated(h)
        features = drop_output(h, packed.corpus_positions, key, dropout_rate)

        def loss(params: dict) -> jax.Array:
            seen = features if trunk is None else trunk(params, features)  # (C, F)
            return packed_nll(
                placement.mask_padding_logits(params["readout"]) | frozen, seen, packed, precision
            )

        return jax.value_and_grad(loss)(params)

    return in_chunks(loss_and_gradient, packed, chunk_tokens, params)


def in_chunks(
    loss_and_gradient: Callable[[PackedTargets], tuple[jax.Array, dict]],
    packed: PackedTargets,
    chunk_tokens: int,
    params: dict,
) -> tuple[jax.Array, dict]:
    """Returns the loss of packed targets and its gradient, summed over equal chunks of at most
    `chunk_tokens` rows."""
    size = len(packed.rows)
    chunks = -(-size // chunk_tokens)
    if chunks <= 1:
        return loss_and_gradient(packed)
    # The rows of a chunk: as few as possible, in multiples of 16, which suit the kernels.
    rows = min(chunk_tokens, -(-size // chunks // 16) * 16)

    def cut(by_row: jax.Array) -> jax.Array:
        return jnp.pad(by_row, (0, chunks * rows - size)).reshape(chunks, rows)

    def in_first_chunk(first_targets: jax.Array) -> jax.Array:
        return jnp.pad(first_targets[None], ((0, chunks - 1), (0, 0)))

    def add_chunk(
        total: tuple[jax.Array, dict], chunk: PackedTargets
    ) -> tuple[tuple[jax.Array, dict], None]:
        return jax.tree.map(jnp.add, total, loss_and_gradient(chunk)), None

    nothing = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
    return lax.scan(add_chunk, nothing, packed.apply(cut, in_first_chunk))[0]


def packed_nll(
    readout: dict, features: jax.Array, packed: PackedTargets, precision: str
) -> jax.Array:
    """Returns the weighted sum of -log p of packed targets in nats, given the features of their
    rows (C, F)."""
    targets = jnp.concatenate([packed.targets, packed.first_targets])  # (C + S,)
    weights = jnp.concatenate([packed.weights, packed.first_weights])
    rows = jnp.concatenate(
        [jnp.arange(len(packed.rows)), jnp.zeros(len(packed.first_targets), int)]
    )
    return linear.weighted_nll(readout, features, targets, weights, precision, rows)


def drop_output(
    features: jax.Array, corpus_positions: jax.Array, key: jax.Array | None, rate: float
) -> jax.Array:
    """Applies dropout to features (C, F) of the tokens at these corpus positions (C,), if there is
    a key."""
    if not rate or key is None:
        return features
    return features * dropout.mask(
        dropout.token_keys(key, corpus_positions), dropout.OUTPUT, features.shape[1], rate
    )


@partial(jax.jit, donate_argnums=0)
def add_trees(total: tuple, more: tuple) -> tuple:
    """Returns the sum of two trees, reusing the memory of the first."""
    return jax.tree.map(jnp.add, total, more)


# ---- one update ----


class Outcome(NamedTuple):
    """The outcome of an update, still on the device."""

    loss: jax.Array  # () float32 in nats, before the update
    applied: jax.Array  # () bool; False: the update was skipped


def make_step(optimizer: optax.GradientTransformationExtraArgs, on_nonfinite: str) -> Callable:
    """Returns one step of the optimizer:

        (params, optimizer_state, going, loss, gradient, rates) -> (params, optimizer_state, going,
        Outcome)

    If the loss or the gradient is not finite, "continue" applies the step all the same; "skip" and
    "stop" keep params and the optimizer's state unchanged. After "stop", `going` is False, and
    later steps have no effect.
    """

    def step(
        params: dict,
        optimizer_state: optax.OptState,
        going: jax.Array,
        loss: jax.Array,
        gradient: dict,
        rates: jax.Array,
    ) -> tuple[dict, optax.OptState, jax.Array, Outcome]:
        changes, moved = optimizer.update(gradient, optimizer_state, params, rates=rates)
        after = optax.apply_updates(params, changes), moved
        if on_nonfinite == "continue":
            return *after, going, Outcome(loss, jnp.bool(True))
        finite = jnp.stack(
            [jnp.isfinite(array).all() for array in jax.tree.leaves((loss, gradient))]
        ).all()
        good = finite & going
        params, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(good, new, old), after, (params, optimizer_state)
        )
        return (
            params,
            optimizer_state,
            good if on_nonfinite == "stop" else going,
            Outcome(loss, good),
        )

    return step


class Updates(ABC):
    """The updates of a training. A window is loaded, then its updates are run one after another.

    `run` dispatches an update to the device and returns without waiting. It donates the params and
    the optimizer's state, which must be placed by `placement`. Each size of an update is compiled
    at its first use.

    Args:
        model: from `LanguageModel.for_device`. If `run` gets its trained arrays, they are donated.
        epochs: the plans of all epochs, with the sentences of each update and the updates of each
            window.
        rates: the learning rate of each update of the run, (updates,).
        loss_and_gradient: maps (params, *given) to the loss and the gradient of an update, or of a
            part of one.
    """

    def __init__(
        self,
        *,
        model: LanguageModel,
        compute: ResolvedCompute,
        seed: int,
        store: TokenStore,
        epochs: list[EpochPlan],
        optimizer: optax.GradientTransformationExtraArgs,
        rates: np.ndarray,
        on_nonfinite: str,
        placement: Placement,
        loss_and_gradient: Callable,
    ) -> None:
        self.placement, self.epochs = placement, epochs
        # for documents, the state of the lanes before the window or update to come
        self.carried: Any = None
        self.compute, self.seed, self.store, self.dropout = (
            compute,
            seed,
            store,
            model.config.dropout,
        )
        self.rates, self.going = placement.replicate((jnp.asarray(rates), jnp.bool(True)))
        step = make_step(placement.freeze_padding(optimizer), on_nonfinite)

        def placed_step(*given: Any) -> tuple:
            params, optimizer_state, *others = step(*given)
            return placement.constrain(params), placement.constrain(optimizer_state), *others

        def gradient(params: dict, *given: Any) -> tuple[jax.Array, dict]:
            loss, found = loss_and_gradient(params, *given)
            return loss, placement.constrain(found)

        def update(
            params: dict, state: optax.OptState, going: jax.Array, rates: jax.Array, *given: Any
        ) -> tuple:
            return placed_step(params, state, going, *gradient(params, *given), rates)

        self._update = jax.jit(update, donate_argnums=(0, 1))
        self._step, self._gradient = jax.jit(placed_step, donate_argnums=(0, 1)), jax.jit(gradient)

    @abstractmethod
    def load(self, number: int, window: range) -> None:
        """Loads a window of epoch `number`, counted from 0."""

    @abstractmethod
    def run(
        self, params: dict, optimizer_state: optax.OptState, u: int
    ) -> tuple[dict, optax.OptState, Outcome]:
        """Runs update u of the window, counted from its beginning."""

    @abstractmethod
    def features_with(self, params: dict) -> SentenceFeatures:
        """Returns the features of the model with these trained arrays, without a gradient."""

    def whole(
        self, params: dict, state: optax.OptState, given: tuple
    ) -> tuple[dict, optax.OptState, Outcome]:
        """Runs an update in one program; `given` are the further arguments of
        `loss_and_gradient`."""
        with self._on_mesh():
            params, state, self.going, outcome = self._update(
                params, state, self.going, self.rates, *given
            )
        return params, state, outcome

    def in_parts(
        self, params: dict, state: optax.OptState, parts: Iterable[tuple]
    ) -> tuple[dict, optax.OptState, Outcome]:
        """Runs an update whose gradient is the sum over its parts, each in the form of `given` in
        `whole`."""
        with self._on_mesh():
            loss, gradient = reduce(add_trees, (self._gradient(params, *given) for given in parts))
            params, state, self.going, outcome = self._step(
                params, state, self.going, loss, gradient, self.rates
            )
        return params, state, outcome

    def _on_mesh(self) -> contextlib.AbstractContextManager:
        return (
            contextlib.nullcontext()
            if self.placement.mesh is None
            else jax.set_mesh(self.placement.mesh)
        )
