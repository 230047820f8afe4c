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

from esnlm.compute import ResolvedCompute
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
from esnlm.training.batches import EpochPlan, PackedTargets
from esnlm.training.learning_rate import scale_by_rates

# ---- the optimizer ----


def make_optimizer(
    config: TrainingConfig, scaling: str = "none", widths: tuple[int, int, int] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Returns AdamW as torch.optim.AdamW has it (decoupled decay on every array), after clipping if it is asked for.

    "sgd" is gradient descent with the momentum of torch.optim.SGD, and the same decoupled decay. With a scaling of the
    readout, the steps of its arrays are multiplied by their rates, but their decay is not: it stays eta wd. In
    Utsunomiya 2025, eq. 2.12, decay goes by the one learning rate of the network, and the rates of the layers are the
    squares of its g_l (eq. 2.80).

    Its `update` takes `rates` beside the usual arguments, (updates,): those of training/learning_rate.py. The scaling depends on
    the `widths` N, r and V. By default they are those of the arrays, which must then have no padding.
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
    frozen: dict,
    *,
    placement: Placement,
    precision: str,
    chunk_tokens: int,
    dropout_rate: float,
    trunk: Callable[[dict, jax.Array], jax.Array] | None = None,
) -> tuple[jax.Array, dict]:
    """Returns the loss of packed targets in nats, and its gradient with respect to the trained arrays (readout and trunk).

    Args:
        buffer: what was computed ahead, (rows, N): without a trunk, the features.
        key: of the epoch's dropout on the features that the readout sees.
        frozen: arrays of the readout beside the trained ones.
        chunk_tokens: rows whose logits exist at once: larger updates add up their gradient over chunks.
    """

    def loss_and_gradient(packed: PackedTargets) -> tuple[jax.Array, dict]:
        h = xla.gathered(buffer, packed.rows)  # (C, N)
        if "w" in params["readout"]:
            h = placement.replicated(h)  # of full rank, h meets the rows of W that each device has
        features = drop_output(h, packed.corpus_positions, key, dropout_rate)

        def loss(params: dict) -> jax.Array:
            seen = features if trunk is None else trunk(params, features)  # (C, F)
            return packed_nll(placement.masked(params["readout"]) | frozen, seen, packed, precision)

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


def packed_nll(readout: dict, features: jax.Array, packed: PackedTargets, precision: str) -> jax.Array:
    """Returns the weighted sum of -log p of packed targets in nats, from the features of their rows (C, F)."""
    targets = jnp.concatenate([packed.targets, packed.first_targets])  # (C + S,)
    weights = jnp.concatenate([packed.weights, packed.first_weights])
    rows = jnp.concatenate([jnp.arange(len(packed.rows)), jnp.zeros(len(packed.first_targets), int)])
    return linear.weighted_nll(readout, features, targets, weights, precision, rows)


def drop_output(features: jax.Array, corpus_positions: jax.Array, key: jax.Array | None, rate: float) -> jax.Array:
    """Applies dropout to the features (C, F) that the readout sees, of the tokens at these corpus positions (C,), if there is a key."""
    if not rate or key is None:
        return features
    return features * dropout.mask(dropout.token_keys(key, corpus_positions), dropout.OUTPUT, features.shape[1], rate)


@partial(jax.jit, donate_argnums=0)
def add_trees(total: tuple, more: tuple) -> tuple:
    """Returns the sum of two trees, in the memory of the first."""
    return jax.tree.map(jnp.add, total, more)


# ---- one update ----


class Outcome(NamedTuple):
    """What became of an update. The numbers are still on the device."""

    loss: jax.Array  # () float32 in nats, before the update
    applied: jax.Array  # () bool; False: the update was left out


def make_step(optimizer: optax.GradientTransformationExtraArgs, on_nonfinite: str) -> Callable:
    """Returns one step of the optimizer:

        (params, optimizer_state, going, loss, gradient, rates) -> (params, optimizer_state, going, Outcome)

    If the loss or the gradient is not finite, "continue" applies the step all the same, while "skip" and "stop" leave params
    and the optimizer's state as they were. After "stop" did so, `going` is False, and no later step moves anything.
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
        finite = jnp.stack([jnp.isfinite(array).all() for array in jax.tree.leaves((loss, gradient))]).all()
        good = finite & going
        params, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(good, new, old), after, (params, optimizer_state)
        )
        return params, optimizer_state, good if on_nonfinite == "stop" else going, Outcome(loss, good)

    return step


class Updates(ABC):
    """The updates of a training. A window is loaded, then its updates are run one after another.

    `run` hands an update to the device and returns before it is done. It overwrites the params and the state of the optimizer
    that it is given, which `placement` placed. Each new size of an update is compiled when it is first met.

    Args:
        model: of `LanguageModel.for_device`. Its trained arrays are overwritten if `run` is given them.
        epochs: the plans of all epochs: which sentences each update has, and which updates each window.
        rates: the learning rate of each update of the run, (updates,).
        loss_and_gradient: from (params, *given) to the loss and the gradient of an update, or of a part of one.
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
        self.compute, self.seed, self.store, self.dropout = compute, seed, store, model.config.dropout
        self.rates, self.going = placement.everywhere((jnp.asarray(rates), jnp.bool(True)))
        step = make_step(placement.hold(optimizer), on_nonfinite)

        def placed_step(*given: Any) -> tuple:
            params, optimizer_state, *others = step(*given)
            return placement.constrain(params), placement.constrain(optimizer_state), *others

        def gradient(params: dict, *given: Any) -> tuple[jax.Array, dict]:
            loss, found = loss_and_gradient(params, *given)
            return loss, placement.constrain(found)

        def update(params: dict, state: optax.OptState, going: jax.Array, rates: jax.Array, *given: Any) -> tuple:
            return placed_step(params, state, going, *gradient(params, *given), rates)

        self._update = jax.jit(update, donate_argnums=(0, 1))
        self._step, self._gradient = jax.jit(placed_step, donate_argnums=(0, 1)), jax.jit(gradient)

    @abstractmethod
    def load(self, number: int, window: range) -> None:
        """Takes up one of the windows of epoch `number`, from 0."""

    @abstractmethod
    def run(self, params: dict, optimizer_state: optax.OptState, u: int) -> tuple[dict, optax.OptState, Outcome]:
        """Runs update u of the window, counted from its beginning."""

    @abstractmethod
    def features_with(self, params: dict) -> SentenceFeatures:
        """Returns the features, without a gradient, of the model with these trained arrays."""

    def whole(self, params: dict, state: optax.OptState, given: tuple) -> tuple[dict, optax.OptState, Outcome]:
        """Runs an update in one program; `given` is what `loss_and_gradient` reads beside the params."""
        with self._on_mesh():
            params, state, self.going, outcome = self._update(params, state, self.going, self.rates, *given)
        return params, state, outcome

    def in_parts(
        self, params: dict, state: optax.OptState, parts: Iterable[tuple]
    ) -> tuple[dict, optax.OptState, Outcome]:
        """Runs an update whose gradient is the sum of those of its parts, each of which is what `whole` is given."""
        with self._on_mesh():
            loss, gradient = reduce(add_trees, (self._gradient(params, *given) for given in parts))
            params, state, self.going, outcome = self._step(params, state, self.going, loss, gradient, self.rates)
        return params, state, outcome

    def _on_mesh(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext() if self.placement.mesh is None else jax.set_mesh(self.placement.mesh)
