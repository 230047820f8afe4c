"""Updates whose features are inside the gradient, for models that train more than a readout."""

import math
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax

from esnlm.compute import backend
from esnlm.features import dropout
from esnlm.features.layout import PackedBatch, pack_batch, packed_steps
from esnlm.features.packed_stream import place_batch
from esnlm.features.stream import SentenceFeatures
from esnlm.models.base import LanguageModel, merge
from esnlm.training import batches, sharded_end_to_end, update
from esnlm.training.batches import PackedTargets, Sentences
from esnlm.training.update import CallResult, Updates

# Of a batch, where so many fit: the last ones of an epoch, which are smaller, are padded to this and compiled once.
FEWEST_SLOTS = 8
# Each size of a batch is compiled, which takes a GPU or TPU as long as hundreds of updates. So batches have fewer sizes there. The slots
# are a multiple of 8, since more slots cost little there, and the rows for the readout have two sizes between a power of two and the next.
SLOTS_MULTIPLE = {"cpu": 1, "gpu": 8, "tpu": 8}
ROW_SIZES_A_DOUBLING = {"cpu": 4, "gpu": 2, "tpu": 2}


class EndToEndUpdates(Updates):
    """The updates of a model that is trained as a whole. Each update takes several compiled calls.

    An update is made in parts of at most compute.chunk_tokens predictions, whose gradients are added up. So no more
    features and logits than theirs exist at once, but for padding.

    Args:
        model: as for `Updates`. Its trained arrays are those of `run`, where they are donated: nothing else may hold on
            to them.
        on_nonfinite, settings: the other arguments of `Updates`.
    """

    def __init__(self, *, model: LanguageModel, on_nonfinite: str, **settings: Any) -> None:
        super().__init__(model=model, on_nonfinite=on_nonfinite, **settings)
        self.graphdef, *(_, self.frozen) = nnx.split(model, nnx.Param, ...)
        devices = 1 if self.placement is None else self.placement.devices
        self.devices, self.slots_multiple = devices, SLOTS_MULTIPLE.get(backend(), 8)
        self.row_sizes = ROW_SIZES_A_DOUBLING.get(backend(), 2)
        if self.placement is None:
            self.loss_and_gradient = jax.jit(partial(loss_and_gradient, self.graphdef))
        else:
            self.frozen = self.placement.everywhere(self.frozen)
            own = partial(sharded_end_to_end.loss_and_gradient, self.graphdef, self.placement)
            self.loss_and_gradient = jax.jit(own)
        self.stops = on_nonfinite == "stop"

    def load(self, number: int, window: range) -> None:
        self.key = dropout.epoch_key(self.seed, number) if self.dropout else None
        self.window = [self.epochs[number].updates[u] for u in window]

    def run(
        self, params: dict, optimizer_state: optax.OptState, first: int, last: int
    ) -> tuple[dict, optax.OptState, CallResult]:
        # Windows differ in their updates, and each size compiles: a power of two has few.
        size = 1 << (len(self.window) - 1).bit_length()
        losses, applied = [jnp.float32(0)] * size, [jnp.bool(False)] * size
        record = update.nothing_nonfinite(params)
        for u in range(first, last):
            whole = batches.read_sentences(self.store, self.window[u])
            losses[u], gradient, largest_feature = self._loss_and_gradient(params, whole)
            record = self.record_nonfinite(record, losses[u], params, gradient, largest_feature)
            stepped = self.step(params, optimizer_state, losses[u], gradient, self.rates)
            params, optimizer_state, applied[u] = stepped
            if self.stops and not applied[u]:
                break
        return params, optimizer_state, CallResult(jnp.stack(losses), jnp.stack(applied), record)

    def features_with(self, params: dict) -> SentenceFeatures:
        if self.placement is not None:
            params = self.placement.whole(params)
        return merge(self.graphdef, params, self.frozen).stream(self.compute, self.placement)

    def slots(self, longest: int) -> tuple[int, int]:
        """Returns how many slots a batch has at least, and of what their number is a multiple.

        Long sentences have few of both, so that these ask for no more than `compute.chunk_tokens` positions.
        """
        fitting = max(1, self.compute.chunk_tokens // packed_steps(longest))
        multiple = min(self.slots_multiple, 1 << fitting.bit_length() - 1)  # the largest power of two that fits
        return min(FEWEST_SLOTS, fitting), math.lcm(self.devices, multiple)

    def _loss_and_gradient(self, params: dict, whole: Sentences) -> tuple[jax.Array, dict, jax.Array]:
        def of_part(part: Sentences) -> tuple[jax.Array, dict, jax.Array]:
            batch, rows = pack_batch(part.inputs, part.corpus_positions, *self.slots(max(map(len, part.inputs))))
            if self.placement is not None:
                batch = place_batch(batch, self.placement)
            size = batches.bucket_size(part.predictions(), per_doubling=self.row_sizes)
            packed = batches.pack_targets(part, rows, size, predictions=whole.predictions())
            return self.loss_and_gradient(self.frozen, params, batch, packed, self.key)

        def together(total: tuple[jax.Array, dict, jax.Array], more: tuple[jax.Array, dict, jax.Array]) -> Any:
            return *update.add_trees(total[:2], more[:2]), jnp.maximum(total[2], more[2])

        return reduce(together, map(of_part, batches.split_update(whole, self.compute.chunk_tokens)))


def loss_and_gradient(
    graphdef: nnx.GraphDef,
    frozen: nnx.State,
    params: dict,
    batch: PackedBatch,
    packed: PackedTargets,
    key: jax.Array | None,
) -> tuple[jax.Array, dict, jax.Array]:
    """Computes the loss of packed targets, and its gradient in all that is trained.

    Args:
        graphdef, frozen: of nnx.split(model, nnx.Param, ...), for a device.
        params: what is trained, as LanguageModel.params gives it.
        batch: the tokens that are read.
        packed: the targets; packed.rows are rows of the features of the batch.
        key: of the epoch's dropout; None: nothing is dropped.

    Returns:
        (loss, gradient, largest_feature): the loss in nats, and where it is not finite the largest |h|, elsewhere
        `update.NOT_LOOKED_AT`.
    """

    def loss(params: dict) -> tuple[jax.Array, jax.Array]:
        model = merge(graphdef, params, frozen)
        features = model(batch, key)[packed.rows]  # (C, F)
        seen = update.drop_output(features, packed.corpus_positions, key, model.config.output_dropout)
        readout = model.readout_arrays(params)
        nll = update.packed_nll(readout, seen, packed, model.precision, model.cross_entropy)
        h, finite = lax.stop_gradient(features), jnp.isfinite(lax.stop_gradient(nll))
        return nll, lax.cond(finite, lambda: jnp.float32(update.NOT_LOOKED_AT), lambda: update.largest_size(h))

    (nll, largest_feature), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return nll, gradient, largest_feature
