"""Updates whose features are inside the gradient, for models that train more than a readout."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from esnlm.base.errors import InputError
from esnlm.data.store import TokenStore
from esnlm.features.batching import batch_steps, pack_batch
from esnlm.features.stream import ONE_DEVICE, SentenceFeatures
from esnlm.machine.compute import ResolvedCompute, backend
from esnlm.machine.mesh import Placement
from esnlm.models.base import LanguageModel, RecurrentModel, merge
from esnlm.training import batches
from esnlm.training.batches import Batch, DocumentPlan, EpochPlan
from esnlm.training.update import Inputs

# Minimum slots of a batch, if they fit: smaller batches at the end of an epoch are padded to this
# and compiled once.
FEWEST_SLOTS = 8
# Compiling one size of a batch takes a GPU or TPU as long as hundreds of updates. So batches have
# few sizes there: the slots are a multiple of 8, since more slots cost little, and the rows for the
# readout have two sizes per power of two.
SLOTS_MULTIPLE = {"cpu": 1, "gpu": 8, "tpu": 8}
ROW_SIZES_A_DOUBLING = {"cpu": 4, "gpu": 2, "tpu": 2}


def forward(
    params: dict, frozen: nnx.State, batch: Batch, *, graphdef: nnx.GraphDef, placement: Placement
) -> tuple[jax.Array, dict, Any]:
    """Runs a model over the tokens of a batch, from its carry if there is one."""
    model, carry = merge(graphdef, params, frozen), None
    if batch.carry is None:
        features = model(batch.inputs, batch.key)
    else:
        carry, features = model.unroll(batch.inputs, batch.key, batch.carry)
    # Each device computes the features of its own slots, and needs all features for its rows of W.
    features = placement.constrain_replicated(features[batch.rows])  # (C, F)
    return features, model.readout_arrays(params), carry


class TokenInputs(Inputs):
    """Reads updates of a model that is trained end to end.

    An update is split into parts of at most compute.chunk_tokens predictions, whose gradients are
    added up. This limits the features and logits in memory at once. Gradient and step are two
    programs, even for one part: in one program XLA rounds the gradient differently.
    """

    is_split = True

    def __init__(
        self,
        *,
        model: LanguageModel,
        compute: ResolvedCompute,
        seed: int,
        store: TokenStore,
        epochs: list[EpochPlan],
        placement: Placement,
    ) -> None:
        self.graphdef, *(_, frozen) = nnx.split(model, nnx.Param, ...)
        super().__init__(
            model=model,
            compute=compute,
            seed=seed,
            store=store,
            epochs=epochs,
            placement=placement,
            forward=partial(forward, graphdef=self.graphdef, placement=placement),
        )
        if isinstance(epochs[0], DocumentPlan):
            assert isinstance(model, RecurrentModel), (
                "`Experiment` accepts documents for models with a state only"
            )
            if placement.mesh is not None:
                raise InputError(ONE_DEVICE)
            self.carry = model.cell.initial_state(len(epochs[0].streams.sizes))
        self.frozen = placement.replicate(frozen)
        self.slots_multiple = SLOTS_MULTIPLE.get(backend(), 8)
        self.row_sizes = ROW_SIZES_A_DOUBLING.get(backend(), 2)

    def batches(self, u: int) -> Iterator[Batch]:
        u += self.window.start
        if isinstance(self.plan, DocumentPlan):
            # The gradient ends where the chunk begins.
            chunk = self.plan.chunk(range(u, u + 1))
            cells = np.flatnonzero(chunk.left > 0)
            size = batches.bucket_size(len(cells), self.row_sizes)
            batch = batches.pack_targets(batches.of_chunk(chunk), [cells], size, len(cells))
            steps = chunk.steps._replace(first_rows=None)
            yield batch._replace(inputs=steps, key=self.key, carry=self.carry)
            return
        sentences = batches.read_sentences(self.store, self.plan.updates[u])
        for part in batches.split_update(sentences, self.compute.chunk_tokens):
            slots, multiple = self.slots(max(map(len, part.inputs)))
            steps, rows = pack_batch(part.inputs, part.corpus_positions, slots, multiple)
            size = batches.bucket_size(part.predictions(), self.row_sizes)
            batch = batches.pack_targets(part, rows, size, sentences.predictions())
            yield batch._replace(inputs=self.placement.by_slots(steps), key=self.key)

    def stream(self, params: dict) -> SentenceFeatures:
        return merge(self.graphdef, params, self.frozen).stream(self.compute, self.placement)

    def slots(self, longest: int) -> tuple[int, int]:
        """Returns the minimum number of slots of a batch, and a number that divides the slots.

        For long sentences both are small, so that they take at most `compute.chunk_tokens`
        positions.
        """
        fitting = max(1, self.compute.chunk_tokens // batch_steps(longest))
        # the largest power of two that fits
        multiple = min(self.slots_multiple, 1 << fitting.bit_length() - 1)
        return min(FEWEST_SLOTS, fitting), math.lcm(self.placement.devices, multiple)
