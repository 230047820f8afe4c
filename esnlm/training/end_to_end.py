"""Updates whose features are inside the gradient, for models that train more than a readout."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from esnlm.base.errors import InputError
from esnlm.features import dropout
from esnlm.features.layout import PackedBatch, pack_batch, packed_steps
from esnlm.features.recurrence import State
from esnlm.features.stream import ONE_DEVICE, SentenceFeatures
from esnlm.machine.compute import backend
from esnlm.machine.placement import Placement
from esnlm.models.base import LanguageModel, RecurrentModel, merge
from esnlm.training import batches, update
from esnlm.training.batches import DocumentPlan, PackedTargets, Sentences
from esnlm.training.update import Outcome, Updates

# Minimum slots of a batch, if they fit: smaller batches at the end of an epoch are padded to this
# and compiled once.
FEWEST_SLOTS = 8
# Compiling one size of a batch takes a GPU or TPU as long as hundreds of updates. So batches have
# few sizes there: the slots are a multiple of 8, since more slots cost little, and the rows for the
# readout have two sizes per power of two.
SLOTS_MULTIPLE = {"cpu": 1, "gpu": 8, "tpu": 8}
ROW_SIZES_A_DOUBLING = {"cpu": 4, "gpu": 2, "tpu": 2}


class EndToEndUpdates(Updates):
    """The updates of a model that is trained end to end; the arguments are those of `Updates`.

    An update is split into parts of at most compute.chunk_tokens predictions, whose gradients are
    added up. This limits the features and logits in memory at once. No other object may hold the
    trained arrays, since `run` donates them.
    """

    def __init__(self, *, model: LanguageModel, placement: Placement, **others: Any) -> None:
        self.graphdef, *(_, frozen) = nnx.split(model, nnx.Param, ...)

        def own(params: dict, frozen: nnx.State, *given: Any) -> tuple:
            return loss_and_gradient(self.graphdef, frozen, params, *given, placement=placement)

        super().__init__(model=model, placement=placement, loss_and_gradient=own, **others)
        if isinstance(plan := self.epochs[0], DocumentPlan):
            assert isinstance(model, RecurrentModel), (
                "`Experiment` accepts documents for models with a state only"
            )
            if placement.mesh is not None:
                raise InputError(ONE_DEVICE)
            self.carried = model.cell.initial_state(len(plan.lanes.sizes))
        self.frozen = placement.replicate(frozen)
        self.slots_multiple = SLOTS_MULTIPLE.get(backend(), 8)
        self.row_sizes = ROW_SIZES_A_DOUBLING.get(backend(), 2)

    def load(self, number: int, window: range) -> None:
        self.key = dropout.epoch_key(self.seed, number) if self.dropout else None
        self.plan, self.loaded = self.epochs[number], window
        self.window = (
            [] if isinstance(self.plan, DocumentPlan) else [self.plan.updates[u] for u in window]
        )

    def run(
        self, params: dict, optimizer_state: optax.OptState, u: int
    ) -> tuple[dict, optax.OptState, Outcome]:
        if isinstance(self.plan, DocumentPlan):
            return self._run_on(params, optimizer_state, self.plan, self.loaded.start + u)
        whole = batches.read_sentences(self.store, self.window[u])
        # Gradient and step are two programs, even for one part: in one program XLA rounds the
        # gradient differently.
        return self.in_parts(params, optimizer_state, self._parts(whole))

    def _run_on(
        self, params: dict, optimizer_state: optax.OptState, plan: DocumentPlan, u: int
    ) -> tuple[dict, optax.OptState, Outcome]:
        """Runs update u of an epoch on the next pieces of documents. The gradient ends where the
        pieces begin."""
        pieces = plan.lanes.read(u * plan.piece, (u + 1) * plan.piece)
        batch = PackedBatch(pieces.tokens, pieces.depths, pieces.corpus_positions)
        update, rows = batches.of_pieces(pieces), np.flatnonzero(pieces.left > 0)
        size = batches.bucket_size(len(rows), per_doubling=self.row_sizes)
        packed = batches.pack_targets(update, [rows], size, predictions=len(rows))
        (loss, self.carried), gradient = self._gradient(
            params, self.frozen, batch, packed, self.key, self.carried
        )
        params, state, self.going, outcome = self._step(
            params, optimizer_state, self.going, loss, gradient, self.rates
        )
        return params, state, outcome

    def _parts(self, whole: Sentences) -> Iterator[tuple]:
        for part in batches.split_update(whole, self.compute.chunk_tokens):
            batch, rows = pack_batch(
                part.inputs, part.corpus_positions, *self.slots(max(map(len, part.inputs)))
            )
            size = batches.bucket_size(part.predictions(), per_doubling=self.row_sizes)
            packed = batches.pack_targets(part, rows, size, predictions=whole.predictions())
            yield self.frozen, self.placement.by_slots(batch), packed, self.key

    def features_with(self, params: dict) -> SentenceFeatures:
        return merge(self.graphdef, params, self.frozen).stream(self.compute, self.placement)

    def slots(self, longest: int) -> tuple[int, int]:
        """Returns the minimum number of slots of a batch, and a number that divides the number of
        slots.

        For long sentences both are small, so that they take at most `compute.chunk_tokens`
        positions.
        """
        fitting = max(1, self.compute.chunk_tokens // packed_steps(longest))
        # the largest power of two that fits
        multiple = min(self.slots_multiple, 1 << fitting.bit_length() - 1)
        return min(FEWEST_SLOTS, fitting), math.lcm(self.placement.devices, multiple)


def loss_and_gradient(
    graphdef: nnx.GraphDef,
    frozen: nnx.State,
    params: dict,
    batch: PackedBatch,
    packed: PackedTargets,
    key: jax.Array | None,
    carried: State | None = None,
    *,
    placement: Placement | None = None,
) -> tuple[Any, dict]:
    """Returns the loss of packed targets in nats, and its gradient with respect to all trained
    arrays.

    With the state `carried` over from earlier pieces of documents, it returns ((loss, the state
    after these), gradient).
    """

    def loss(params: dict) -> Any:
        model = merge(graphdef, params, frozen)
        after, features = (
            (None, model(batch, key)) if carried is None else model.read_on(batch, key, carried)
        )
        features = features[packed.rows]  # (C, F)
        readout = model.readout_arrays(params)
        if placement is not None:
            # Each device computes the features of its own slots, and needs all features for its
            # rows of W.
            features, readout = (
                placement.constrain_replicated(features),
                placement.mask_padding_logits(readout),
            )
        seen = update.drop_output(features, packed.corpus_positions, key, model.output_dropout)
        found = update.packed_nll(readout, seen, packed, model.precision)
        return found if carried is None else (found, after)

    return jax.value_and_grad(loss, has_aux=carried is not None)(params)
