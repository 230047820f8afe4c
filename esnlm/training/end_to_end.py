"""Updates whose features are inside the gradient: models that train more than a readout."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from esnlm.config import Experiment
from esnlm.data.store import TokenStore
from esnlm.features import dropout
from esnlm.features.layout import pack_batch
from esnlm.models import families
from esnlm.training import batches
from esnlm.training.update import add, drop, make_apply, make_look, make_optimizer, no_fault, packed_nll

SLOTS = 8  # a batch is at least so wide, so that an epoch's last batches need no size of their own


class EndToEndUpdates:
    """`load` a window, then `run` its updates, each a call of its own.

    An update is made in parts of at most compute.chunk_tokens predictions, whose gradients are added up: no more
    features and logits than theirs exist at once.
    """

    def __init__(self, experiment: Experiment, frozen, text: TokenStore, epochs: list[batches.Epoch]):
        self.config, self.compute, self.seed = experiment.model, experiment.compute, experiment.seed
        self.text, self.frozen = text, frozen
        optimizer = make_optimizer(experiment.training, sum(len(epoch.updates) for epoch in epochs), experiment.scaling)
        self.gradient = jax.jit(partial(watched_gradient, self.config, precision=self.compute.precision))
        self.look = make_look(experiment.training.on_nonfinite)
        self.apply = jax.jit(make_apply(optimizer, experiment.training.on_nonfinite), donate_argnums=(0, 1))
        self.stop = experiment.training.on_nonfinite == "stop"

    def features_with(self, params: dict):
        """The stream that evaluates the model with these trained arrays."""
        return families.stream(self.config, self.frozen, params, self.compute)

    def load(self, number: int, epoch: batches.Epoch, window: range) -> None:
        """Takes up a window of the epoch with this number."""
        self.key = dropout.epoch_key(self.seed, number) if self.config.dropout else None
        self.updates = [epoch.updates[u] for u in window]

    def run(self, params: dict, state, first: int, last: int):
        """Updates first .. last - 1 of the window: (params, optimizer state, losses, applied), the last two (U,)."""
        losses, applied = [jnp.float32(0)] * len(self.updates), [jnp.bool(False)] * len(self.updates)
        self.fault = no_fault(params)
        for u in range(first, last):
            loss, gradient, largest = self._update(params, batches.sentences(self.text, self.updates[u]))
            self.fault = self.look(self.fault, loss, params, gradient, largest)
            params, state, applied[u] = self.apply(params, state, loss, gradient)
            losses[u] = loss
            if self.stop and not applied[u]:
                break
        return params, state, jnp.stack(losses), jnp.stack(applied)

    def _update(self, params, whole: batches.Sentences):
        total = None
        for part in batches.parts(whole, self.compute.chunk_tokens):
            batch, rows = pack_batch(part.inputs, part.corpus_positions, SLOTS)
            size = batches.bucket_size(part.predictions(), per_doubling=4)
            packed = batches.pack(part, rows, size, whole.predictions())
            found = self.gradient(self.frozen, params, batch, packed, self.key)
            total = found if total is None else add(total, found)
        return total


def loss_and_gradient(config, frozen, params: dict, batch, packed: batches.PackedTargets, key, *, precision: str):
    """The first two of `watched_gradient`."""
    return watched_gradient(config, frozen, params, batch, packed, key, precision=precision)[:2]


def watched_gradient(config, frozen, params: dict, batch, packed: batches.PackedTargets, key, *, precision: str):
    """The weighted sum of -log p of packed predictions in nats, its gradient in all that is trained, and, where the sum is
    not finite, the largest |h| (0 elsewhere).

    Args:
        frozen: see models/families.py.
        batch: the tokens read, see features/layout.py; packed.rows are rows of its features.
        key: the epoch's, of dropout; None: nothing is dropped.
    """

    def loss(params):
        features = families.features(config, frozen, params, batch, key, precision)[packed.rows]  # (C, F)
        rate = config.output_dropout if key is not None else 0.0
        seen = drop(features, packed.corpus_positions, key, rate)
        nll = packed_nll(families.of(config).readout(params), seen, packed, precision)
        h, finite = lax.stop_gradient(features), jnp.isfinite(lax.stop_gradient(nll))
        return nll, lax.cond(finite, lambda: jnp.float32(0), lambda: jnp.abs(h).max())

    (nll, largest), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return nll, gradient, largest
