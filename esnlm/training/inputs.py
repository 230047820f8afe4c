"""The inputs of updates: the batches, and how they become features.

`PrecomputedInputs` is for models that train only a readout, or a readout and a trunk below it: the
frozen features of many updates, a prefetch window, are computed at once. `TokenInputs` is for
models that train more: their features are computed inside the gradient.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from esnlm.base.errors import InputError
from esnlm.data.store import TokenStore
from esnlm.features import dropout
from esnlm.features.batching import batch_steps, pack_batch
from esnlm.features.stream import (
    ONE_DEVICE,
    FeatureStream,
    Packed,
    SentenceFeatures,
    TrunkStream,
)
from esnlm.machine import xla
from esnlm.machine.compute import ResolvedCompute, backend
from esnlm.machine.mesh import Placement
from esnlm.models.base import LanguageModel, RecurrentModel, merge
from esnlm.training import batches
from esnlm.training.batches import Batch, DocumentPlan, EpochPlan, Sentences

# From the trained arrays, the frozen ones and a batch: the features of its rows (C, F), the arrays
# of the readout, and the carry after the batch.
Forward = Callable[[dict, Any, Batch], tuple[jax.Array, dict, Any]]

# Minimum slots of a batch of TokenInputs, if they fit: smaller batches at the end of an epoch are
# padded to this and compiled once.
FEWEST_SLOTS = 8
# Compiling one size of a batch takes a GPU or TPU as long as hundreds of updates. So batches have
# few sizes there: the slots are a multiple of 8, since more slots cost little, and the rows for the
# readout have two sizes per power of two.
SLOTS_MULTIPLE = {"cpu": 1, "gpu": 8, "tpu": 8}
ROW_SIZES_A_DOUBLING = {"cpu": 4, "gpu": 2, "tpu": 2}


class Inputs(ABC):
    """Loads the batches of updates and defines how they become features.

    A window of updates is loaded, then its updates are read one after another.

    Args:
        model: from `LanguageModel.for_device`.
        compute: limits the tokens and features that exist at once.
        seed: the seed of the run, for dropout.
        store: the training text.
        epochs: the plans of all epochs.
        placement: the placement of the trained arrays.
        forward: how a batch becomes features, inside a compiled function.
        chunk_tokens: rows whose logits exist at once; None: all rows of a batch.
    """

    frozen: Any  # the frozen arrays that `forward` reads
    # Whether gradient and step are two programs, so that an update may have several parts.
    is_split: bool
    # Document streams: the state to resume from, written by `end_update`; None: independent
    # sentences.
    carry: Any = None

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
        self.placement, self.forward, self.chunk_tokens = placement, forward, chunk_tokens
        self.precision, self.output_dropout = model.precision, model.output_dropout
        self.dropout = model.config.dropout

    def load_window(self, epoch: int, window: range) -> None:
        """Loads a window, the numbers of some updates in an epoch; epochs are counted from 0."""
        self.plan, self.window = self.epochs[epoch], window
        self.key = dropout.epoch_key(self.seed, epoch) if self.dropout else None

    @abstractmethod
    def batches(self, u: int) -> Iterator[Batch]:
        """Yields the parts of update u of the window, counted from its beginning."""

    @abstractmethod
    def end_update(self, u: int, carry: Any) -> None:
        """Sets `self.carry` after update u, whose loss returned `carry`."""

    @abstractmethod
    def stream(self, params: dict) -> SentenceFeatures:
        """Returns the features of the model with these trained arrays, without a gradient."""


# ---- frozen features, precomputed for a window ----


def gather_features(
    params: dict,
    frozen: dict,
    batch: Batch,
    *,
    trunk: Callable[[dict, jax.Array], jax.Array] | None,
    placement: Placement,
) -> tuple[jax.Array, dict, None]:
    """Gathers the features of the rows of a batch, and passes them through the trunk, if any."""
    features = xla.gathered(batch.inputs, batch.rows)  # (C, N)
    if "w" in params["readout"]:
        # At full rank each device multiplies all features with its rows of W.
        features = placement.constrain_replicated(features)
    features = features if trunk is None else trunk(params, features)
    return features, params["readout"] | frozen, None


class PackedWindow(NamedTuple):
    """A window on the host, ready for the device, in parts of whole updates.

    The parts are computed at the same time; see FeatureStream.
    """

    batches: list[tuple[int, Batch]]  # of each update, with the index of its part
    parts: list[Packed]


class PrecomputedInputs(Inputs):
    """Reads updates of a readout, or a readout and trunk, on precomputed features.

    While the device works on one window, another thread reads and packs the next: otherwise a GPU
    would wait about as long as it computes. An update with more predictions than
    compute.window_tokens is a window of its own and is split into parts. So at most this many
    features exist at once, unless one sentence has more.
    """

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
        assert isinstance(model, RecurrentModel), "only a recurrence can be precomputed"
        self.trunk, self.frozen = model.trunk, model.frozen_readout_arrays
        super().__init__(
            model=model,
            compute=compute,
            seed=seed,
            store=store,
            epochs=epochs,
            placement=placement,
            forward=partial(gather_features, trunk=self.trunk, placement=placement),
            chunk_tokens=compute.chunk_tokens,
        )
        max_predictions = compute.window_tokens
        if isinstance(epochs[0], DocumentPlan):
            self.carry = model.cell.initial_state(len(epochs[0].streams.sizes))
            max_predictions = sys.maxsize  # Updates of documents are never split.
        self.frozen_stream = model.frozen_stream(compute, placement)
        first_tokens = store.tokens[store.offsets[:-1]]  # (sentences,), BOS in a prepared store
        # The stream shares the row of a first token that all sentences of a window have. Updates
        # have one shape only if all sentences of the store have it.
        has_one_start = bool((first_tokens == first_tokens[0]).all())
        shared_first = has_one_start and not self.dropout and self.carry is None
        trainable = sum(array.size for array in jax.tree.leaves(model.params))
        compilation = batches.compilation_rows(trainable, backend())
        self.shapes = batches.update_shapes(epochs, max_predictions, shared_first, compilation)
        windows = [(i, window) for i, epoch in enumerate(epochs) for window in epoch.windows]
        self.following = dict(pairwise(windows))  # the window after each
        self.reader = ThreadPoolExecutor(1)
        # the next window; at most one
        self.reading: dict[tuple[int, range], Future[PackedWindow | Sentences]] = {}
        self.buffers: list[jax.Array] = []  # of each part
        self.features: list[jax.Array] = []  # the same, sharded for the updates
        self.carry_after_window: Any = None
        # A part may have up to one update more than an equal share of the window.
        self.rows_per_part = compute.window_tokens
        if (parallel := self.frozen_stream.parallel) > 1:
            largest = max(int(epoch.predictions.max()) for epoch in epochs)
            self.rows_per_part = compute.window_tokens // parallel
            self.rows_per_part += min(largest, compute.window_tokens)

    def load_window(self, epoch: int, window: range) -> None:
        """Computes the features of a window, and begins to read the next one."""
        super().load_window(epoch, window)
        future = self.reading.pop((epoch, window), None)
        self.loaded = self._read(epoch, window) if future is None else future.result()
        self.is_split = isinstance(self.loaded, Sentences)
        if isinstance(self.loaded, PackedWindow):
            self._compute(self.loaded.parts)
        following = self.following.get((epoch, window))
        self.reading = {}
        if following is not None:
            self.reading[following] = self.reader.submit(self._read, *following)

    def batches(self, u: int) -> Iterator[Batch]:
        if isinstance(self.loaded, PackedWindow):
            part, batch = self.loaded.batches[u]
            yield batch._replace(inputs=self.features[part], key=self.key)
            return
        for sentences in batches.split_update(self.loaded, self.compute.window_tokens):
            packed = self._pack(sentences, self.compute.window_tokens)
            self._compute([packed])
            size = batches.bucket_size(sentences.predictions())
            batch = batches.pack_targets(sentences, packed.rows, size, self.loaded.predictions())
            yield batch._replace(inputs=self.features[0], key=self.key)

    def end_update(self, u: int, carry: None) -> None:
        # A checkpoint within a window has the state before the window, which is computed again.
        if self.carry is not None and u == len(self.window) - 1:
            self.carry = self.carry_after_window

    def stream(self, params: dict) -> FeatureStream | TrunkStream:
        """Returns the features. Without a trunk they do not depend on the trained arrays."""
        stream, trunk = self.frozen_stream, self.trunk
        return stream if trunk is None else TrunkStream(stream, trunk, params)

    def _compute(self, parts: list[Packed]) -> None:
        """Dispatches parts to the device, which overwrites the previous features."""
        self.features = []  # On a mesh they have memory of their own, which is needed now.
        self.carry_after_window, self.buffers = self.frozen_stream.run(
            parts, self.carry, self.key, self.buffers
        )
        self.features = [self.placement.by_units(buffer) for buffer in self.buffers]

    def _read(self, epoch: int, window: range) -> PackedWindow | Sentences:
        """Reads and packs a window, or reads the sentences of an update to be split.

        It changes no attributes, since it runs in another thread.
        """
        plan = self.epochs[epoch]
        if isinstance(plan, DocumentPlan):
            return self._read_chunks(plan, window)
        if plan.predictions[window.start] > self.compute.window_tokens:
            return batches.read_sentences(self.store, plan.updates[window.start])
        packed_updates: list[tuple[int, Batch]] = []
        parts: list[Packed] = []
        for part in plan.split_window(window, self.frozen_stream.parallel):
            updates = plan.updates[part.start : part.stop]
            sentences = batches.read_sentences(self.store, np.concatenate(updates))
            packed = self._pack(sentences, self.rows_per_part)
            for first, last in pairwise(np.cumsum([0, *map(len, updates)])):
                update, rows = sentences.part(range(first, last)), packed.rows[first:last]
                batch = batches.pack_update(update, rows, self.shapes)
                packed_updates.append((len(parts), batch))
            parts.append(packed)
        return PackedWindow(packed_updates, parts)

    def _read_chunks(self, plan: DocumentPlan, window: range) -> PackedWindow:
        packed_updates, first_row = [], 0
        for u in window:
            chunk = plan.chunk(range(u, u + 1))
            update, rows = batches.of_chunk(chunk), first_row + chunk.rows
            packed_updates.append((0, batches.pack_update(update, [rows], self.shapes)))
            first_row += chunk.size
        chunk = plan.chunk(window)
        packed = self.frozen_stream.pack_chunk(chunk, self.compute.window_tokens, with_dropout=True)
        return PackedWindow(packed_updates, [packed])

    def _pack(self, sentences: Sentences, capacity: int) -> Packed:
        return self.frozen_stream.pack(
            sentences.inputs, corpus_positions=sentences.corpus_positions, capacity=capacity
        )


# ---- features inside the gradient ----


def run_model(
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
            forward=partial(run_model, graphdef=self.graphdef, placement=placement),
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

    def end_update(self, u: int, carry: Any) -> None:
        self.carry = carry

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
