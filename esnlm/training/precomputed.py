"""Updates with features computed ahead of them, for a prefetch window of many updates at once.

This is for models that train only a readout, or a readout and a trunk below it. While the device
works on one window, another thread reads and lays out the sentences of the next: otherwise a GPU
would wait about as long as it computes.
"""

import dataclasses
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice, pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from esnlm.features import dropout
from esnlm.features.stream import FeatureStream, LaidOut
from esnlm.features.trunk_stream import TrunkStream
from esnlm.machine.compute import backend
from esnlm.models.base import LanguageModel, RecurrentModel
from esnlm.training import batches, update
from esnlm.training.batches import DocumentPlan, EpochPlan, PackedTargets, Sentences
from esnlm.training.update import Outcome, Updates


class Window(NamedTuple):
    """A window on the host, ready for the device."""

    updates: list[Sentences]  # empty for pieces of documents
    packed: list[PackedTargets]  # the targets of each update
    laid_out: LaidOut | None  # None: the only update of the window is split into parts


class PrecomputedUpdates(Updates):
    """The updates of a readout, or a readout and trunk, on frozen features.

    An update with more predictions than compute.window_tokens is split into parts, whose gradients
    are added up. So at most this many features exist at once, unless one sentence has more. The
    epochs decide the compiled shapes and the order of windows. Other arguments are those of
    `Updates`.
    """

    def __init__(
        self,
        *,
        epochs: list[EpochPlan],
        model: LanguageModel,
        reads_ahead: bool = True,
        **others: Any,
    ) -> None:
        # 0: no documents
        lanes = len(epochs[0].lanes.sizes) if isinstance(epochs[0], DocumentPlan) else 0
        if lanes:
            others["compute"] = dataclasses.replace(others["compute"], batch_slots=lanes)
        compute, store, rate = others["compute"], others["store"], model.config.dropout
        assert isinstance(model, RecurrentModel), "only a recurrence can be computed ahead"
        self.trunk = model.trunk
        loss_and_gradient = partial(
            update.readout_loss_and_gradient,
            placement=others["placement"],
            precision=compute.precision,
            chunk_tokens=compute.chunk_tokens,
            dropout_rate=rate,
            trunk=self.trunk,
        )
        super().__init__(model=model, epochs=epochs, loss_and_gradient=loss_and_gradient, **others)
        self.window_tokens: int = compute.window_tokens
        self.stream, self.frozen = (
            model.frozen_stream(compute, self.placement),
            model.frozen_readout_arrays,
        )
        first_tokens = store.tokens[store.offsets[:-1]]  # (sentences,), BOS in a prepared store
        shares_first_row = not rate and not lanes and bool((first_tokens == first_tokens[0]).all())
        most = sys.maxsize if lanes else self.window_tokens
        self.shapes = batches.update_shapes(epochs, most, shares_first_row, backend())
        if lanes:
            self.carried = self.stream.cell.initial_state(lanes)
        places = [
            (number, window) for number, epoch in enumerate(epochs) for window in epoch.windows
        ]
        self.following = {
            (number, window.start): after for (number, window), after in pairwise(places)
        }
        self.reader = ThreadPoolExecutor(1) if reads_ahead else None
        # the window being read, and its place
        self.ahead: tuple[tuple[int, range], Future[Window]] | None = None

    def load(self, number: int, window: range) -> None:
        """Computes the features of a window."""
        self.key = dropout.epoch_key(self.seed, number)
        is_there = self.ahead is not None and self.ahead[0] == (number, window)
        self.window = (
            self.ahead[1].result()
            if self.ahead is not None and is_there
            else self._read(number, window)
        )
        self.before = self.after = self.carried
        if self.window.laid_out is not None:
            self._compute(self.window.laid_out)
        after = self.following.get((number, window.start))
        self.ahead = None
        if after is not None and self.reader is not None:
            self.ahead = after, self.reader.submit(self._read, *after)

    def run(
        self, params: dict, optimizer_state: optax.OptState, u: int
    ) -> tuple[dict, optax.OptState, Outcome]:
        self.carried = self.after if u == len(self.window.packed) - 1 else self.before
        if self.window.laid_out is not None:
            return self.whole(params, optimizer_state, self._given(self.window.packed[u]))
        return self.in_parts(params, optimizer_state, self._parts(self.window.updates[u]))

    def _parts(self, whole: Sentences) -> Iterator[tuple]:
        for part in batches.split_update(whole, self.window_tokens):
            laid_out = self._lay_out(part)
            self._compute(laid_out)
            size = batches.bucket_size(part.predictions())
            yield self._given(
                batches.pack_targets(part, laid_out.rows, size, predictions=whole.predictions())
            )

    def features_with(self, params: dict) -> FeatureStream | TrunkStream:
        """Returns the features of the model. Without a trunk they do not depend on the trained
        arrays."""
        return self.stream if self.trunk is None else TrunkStream(self.stream, self.trunk, params)

    def _given(self, packed: PackedTargets) -> tuple:
        return self.features, packed, self.key, self.frozen

    def _compute(self, laid_out: LaidOut) -> None:
        """Dispatches sentences to the device, which overwrites the previous features."""
        self.features: jax.Array | None = None
        after, features = self.stream.run_on(laid_out, self.before, self.key, reuse=True)
        self.after = None if self.before is None else after
        self.features = self.placement.by_units(features)

    def _read(self, number: int, window: range) -> Window:
        """Reads and lays out the sentences of a window. It changes no state, since it runs in
        another thread."""
        plan = self.epochs[number]
        if isinstance(plan, DocumentPlan):
            return self._read_pieces(plan, window)
        updates = [batches.read_sentences(self.store, plan.updates[u]) for u in window]
        if len(updates) == 1 and updates[0].predictions() > self.window_tokens:
            return Window(updates, [], None)
        laid_out = self._lay_out(
            Sentences(*(sum(columns, []) for columns in zip(*updates, strict=True)))
        )
        # one array per sentence of the window; each update takes the next ones
        rows = iter(laid_out.rows)
        packed = [
            batches.pack_update(some, list(islice(rows, len(some.inputs))), self.shapes)
            for some in updates
        ]
        return Window(updates, packed, laid_out)

    def _read_pieces(self, plan: DocumentPlan, window: range) -> Window:
        pieces = plan.lanes.read(window.start * plan.piece, window.stop * plan.piece)
        of_features, packed = pieces.predictions()[0], []
        for first in range(0, len(pieces.tokens), plan.piece):
            update = batches.of_pieces(pieces.cut(slice(first, first + plan.piece)))
            rows, of_features = np.split(of_features, [update.predictions()])
            packed.append(batches.pack_update(update, [rows], self.shapes))
        return Window([], packed, self.stream.lay_out_pieces(pieces, full=True, drops=True))

    def _lay_out(self, sentences: Sentences) -> LaidOut:
        return self.stream.lay_out(
            sentences.inputs, corpus_positions=sentences.corpus_positions, full=True
        )
