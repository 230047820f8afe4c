"""Updates whose features are inside the gradient: models that train more than a readout."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from esnlm.config import Experiment
from esnlm.data.store import TokenStore
from esnlm.features import dropout
from esnlm.features.layout import pack_batch
from esnlm.models.base import LanguageModel, merge
from esnlm.training import batches
from esnlm.training.update import add, drop, make_apply, make_look, make_optimizer, no_fault, packed_nll

SLOTS = 8  # a batch is at least so wide, so that an epoch's last batches need no size of their own


class EndToEndUpdates:
    """`load` a window, then `run` its updates, each a call of its own.

    An update is made in parts of at most compute.chunk_tokens predictions, whose gradients are added up: no more
    features and logits than theirs exist at once.
    """

    def __init__(self, experiment: Experiment, model: LanguageModel, text: TokenStore, epochs: list[batches.Epoch]):
        self.config, self.compute, self.seed = experiment.model, experiment.compute, experiment.seed
        self.text = text
        # Its trained arrays are those of `run`, where they are donated: nothing else may hold on to them.
        self.graphdef, _, self.frozen = nnx.split(model, nnx.Param, ...)
        optimizer = make_optimizer(experiment.training, sum(len(epoch.updates) for epoch in epochs), experiment.scaling)
        self.gradient = jax.jit(partial(watched_gradient, self.graphdef))
        self.look = make_look(experiment.training.on_nonfinite)
        self.apply = jax.jit(make_apply(optimizer, experiment.training.on_nonfinite), donate_argnums=(0, 1))
        self.stop = experiment.training.on_nonfinite == "stop"

    def features_with(self, params: dict):
        """The stream that evaluates the model with these trained arrays."""
        return merge(self.graphdef, params, self.frozen).stream(self.compute)

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


def loss_and_gradient(graphdef, frozen, params: dict, batch, packed: batches.PackedTargets, key):
    """The first two of `watched_gradient`."""
    return watched_gradient(graphdef, frozen, params, batch, packed, key)[:2]


def watched_gradient(graphdef, frozen, params: dict, batch, packed: batches.PackedTargets, key):
    """The weighted sum of -log p of packed predictions in nats, its gradient in all that is trained, and, where the sum is
    not finite, the largest |h| (0 elsewhere).

    Args:
        graphdef, frozen: of nnx.split(model, nnx.Param, ...), for a device.
        batch: the tokens read, see features/layout.py; packed.rows are rows of its features.
        key: the epoch's, of dropout; None: nothing is dropped.
    """

    def loss(params):
        model = merge(graphdef, params, frozen)
        features = model(batch, key)[packed.rows]  # (C, F)
        rate = model.config.output_dropout if key is not None else 0.0
        seen = drop(features, packed.corpus_positions, key, rate)
        nll = packed_nll(model.config.readout_arrays(params), seen, packed, model.precision)
        h, finite = lax.stop_gradient(features), jnp.isfinite(lax.stop_gradient(nll))
        return nll, lax.cond(finite, lambda: jnp.float32(0), lambda: jnp.abs(h).max())

    (nll, largest), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return nll, gradient, largest
