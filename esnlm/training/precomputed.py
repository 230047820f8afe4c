"""Updates on precomputed features, for a prefetch window of many updates at once.

This is for models that train only a readout, or a readout and a trunk below it. While the device
works on one window, another thread reads and packs the sentences of the next: otherwise a GPU would
wait about as long as it computes.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from esnlm.data.store import TokenStore
from esnlm.features.stream import FeatureStream, Packed, TrunkStream
from esnlm.machine import xla
from esnlm.machine.compute import ResolvedCompute, backend
from esnlm.machine.mesh import Placement
from esnlm.models.base import LanguageModel, RecurrentModel
from esnlm.training import batches
from esnlm.training.batches import Batch, DocumentPlan, EpochPlan, Sentences
from esnlm.training.update import Inputs

Trunk = Callable[[dict, jax.Array], jax.Array]  # LanguageModel.trunk


def forward(
    params: dict, frozen: dict, batch: Batch, *, trunk: Trunk | None, placement: Placement
) -> tuple[jax.Array, dict, None]:
    """Gathers the features of the rows of a batch, and passes them through the trunk, if any."""
    features = xla.gathered(batch.inputs, batch.rows)  # (C, N)
    if "w" in params["readout"]:
        # at full rank each device multiplies all features with its rows of W
        features = placement.constrain_replicated(features)
    features = features if trunk is None else trunk(params, features)
    return features, params["readout"] | frozen, None


class Window(NamedTuple):
    """A window on the host, ready for the device."""

    batches: list[Batch]  # of each update
    packed: Packed | None  # None: the only update of the window is split into parts
    sentences: Sentences | None = None  # of an update that is split


class PrecomputedInputs(Inputs):
    """Reads updates of a readout, or a readout and trunk, on precomputed features.

    An update with more predictions than compute.window_tokens is split into parts. So at most this
    many features exist at once, unless one sentence has more.

    Args:
        reads_next: read the next window in another thread.
        others: as in `Inputs`.
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
        reads_next: bool = True,
    ) -> None:
        assert isinstance(model, RecurrentModel), "only a recurrence can be precomputed"
        self.trunk, self.frozen = model.trunk, model.frozen_readout_arrays
        most = compute.window_tokens
        if isinstance(epochs[0], DocumentPlan):
            streams = len(epochs[0].streams.sizes)
            compute, most = dataclasses.replace(compute, batch_slots=streams), sys.maxsize
            self.carry = model.cell.initial_state(streams)
        super().__init__(
            model=model,
            compute=compute,
            seed=seed,
            store=store,
            epochs=epochs,
            placement=placement,
            forward=partial(forward, trunk=self.trunk, placement=placement),
            chunk_tokens=compute.chunk_tokens,
        )
        self.features_stream = model.frozen_stream(compute, placement)
        first_tokens = store.tokens[store.offsets[:-1]]  # (sentences,), BOS in a prepared store
        has_one_start = bool((first_tokens == first_tokens[0]).all())
        shares_first_row = has_one_start and not self.dropout and self.carry is None
        self.shapes = batches.update_shapes(epochs, most, shares_first_row, backend())
        windows = [(i, window) for i, epoch in enumerate(epochs) for window in epoch.windows]
        self.next_window = dict(pairwise(windows))
        self.reader = ThreadPoolExecutor(1) if reads_next else None
        self.reading: dict[tuple[int, range], Future[Window]] = {}

    def load(self, number: int, window: range) -> None:
        """Computes the features of a window, and begins to read the next one."""
        super().load(number, window)
        future = self.reading.pop((number, window), None)
        self.loaded = self._read(number, window) if future is None else future.result()
        self.before = self.after = self.carry
        self.is_split = self.loaded.packed is None
        if self.loaded.packed is not None:
            self._compute(self.loaded.packed)
        following = self.next_window.get((number, window))
        self.reading = {}
        if following is not None and self.reader is not None:
            self.reading[following] = self.reader.submit(self._read, *following)

    def batches(self, u: int) -> Iterator[Batch]:
        self.carry = self.after if u == len(self.loaded.batches) - 1 else self.before
        sentences = self.loaded.sentences
        if sentences is None:
            yield self.loaded.batches[u]._replace(inputs=self.features, key=self.key)
            return
        for part in batches.split_update(sentences, self.compute.window_tokens):
            packed = self._pack(part)
            self._compute(packed)
            size = batches.bucket_size(part.predictions())
            batch = batches.pack_targets(part, packed.rows, size, sentences.predictions())
            yield batch._replace(inputs=self.features, key=self.key)

    def stream(self, params: dict) -> FeatureStream | TrunkStream:
        """Returns the features. Without a trunk they do not depend on the trained arrays."""
        stream, trunk = self.features_stream, self.trunk
        return stream if trunk is None else TrunkStream(stream, trunk, params)

    def _compute(self, packed: Packed) -> None:
        """Dispatches sentences to the device, which overwrites the previous features."""
        self.features: jax.Array | None = None
        after, features = self.features_stream.run(packed, self.before, self.key, reuse=True)
        self.after = None if self.before is None else after
        self.features = self.placement.by_units(features)

    def _read(self, number: int, window: range) -> Window:
        """Reads and packs a window. It changes no state, since it runs in another thread."""
        plan = self.epochs[number]
        if isinstance(plan, DocumentPlan):
            return self._read_chunks(plan, window)
        updates = plan.updates[window.start : window.stop]
        sentences = batches.read_sentences(self.store, np.concatenate(updates))
        if len(updates) == 1 and sentences.predictions() > self.compute.window_tokens:
            return Window([], None, sentences)
        packed, packed_updates = self._pack(sentences), []
        for first, last in pairwise(np.cumsum([0, *map(len, updates)])):
            update, rows = sentences.part(range(first, last)), packed.rows[first:last]
            packed_updates.append(batches.pack_update(update, rows, self.shapes))
        return Window(packed_updates, packed)

    def _read_chunks(self, plan: DocumentPlan, window: range) -> Window:
        packed_updates, first_row = [], 0
        for u in window:
            chunk = plan.chunk(range(u, u + 1))
            update, rows = batches.of_chunk(chunk), first_row + chunk.rows
            packed_updates.append(batches.pack_update(update, [rows], self.shapes))
            first_row += chunk.size
        chunk = plan.chunk(window)
        packed = self.features_stream.pack_chunk(chunk, full=True, with_dropout=True)
        return Window(packed_updates, packed)

    def _pack(self, sentences: Sentences) -> Packed:
        return self.features_stream.pack(
            sentences.inputs, corpus_positions=sentences.corpus_positions, full=True
        )
