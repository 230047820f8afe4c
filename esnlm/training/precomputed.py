"""Updates whose features are computed before them, for a prefetch window of many updates at once.

This is for models that train nothing but a readout, or a readout and a trunk below it. It changes neither what is in a batch
nor the order of the batches. Another thread reads and lays out the sentences of the next window while the device works on this one:
a GPU would wait for the host about as long as it computes.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import islice, pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from esnlm import background
from esnlm.compute import backend
from esnlm.features import dropout, sharded_stream
from esnlm.features.stream import FeatureStream
from esnlm.features.trunk_stream import TrunkStream
from esnlm.models.base import LanguageModel, RecurrentModel
from esnlm.training import batches, sharded_update, update
from esnlm.training.batches import EpochPlan, Sentences
from esnlm.training.update import CallResult, Updates


class ReadWindow(NamedTuple):
    """The sentences of a window, on the host."""

    updates: list[Sentences]
    laid_out: Any  # what the stream's `run` takes; None: the one update of the window is made in parts


class PrecomputedUpdates(Updates):
    """The updates of what is trained on features that do not change.

    An update with more predictions than compute.window_tokens is made in parts, whose gradients are added up. So no more
    features than that exist at once, unless one sentence has more.

    Args:
        epochs: as for `Updates`. They decide the compiled shapes, and which window follows which.
        reads_ahead: whether another thread reads the next window meanwhile.
        model, optimizer, on_nonfinite, others: the arguments of `Updates`.
    """

    def __init__(
        self,
        *,
        epochs: list[EpochPlan],
        model: LanguageModel,
        optimizer: optax.GradientTransformationExtraArgs,
        on_nonfinite: str,
        reads_ahead: bool = True,
        **others: Any,
    ) -> None:
        super().__init__(model=model, epochs=epochs, optimizer=optimizer, on_nonfinite=on_nonfinite, **others)
        compute, store, rate = self.compute, self.store, self.dropout
        places = [(number, window) for number, epoch in enumerate(epochs) for window in epoch.windows]
        pairs = pairwise(places) if reads_ahead else ()
        self.following = {(number, window.start): after for (number, window), after in pairs}
        self.ahead: tuple[tuple[int, range], Future[ReadWindow]] | None = None  # what is being read, and its place
        assert compute.window_tokens is not None  # chosen for the device
        self.window_tokens = compute.window_tokens
        assert isinstance(model, RecurrentModel), "only a recurrence can be computed ahead"
        self.stream, self.trunk = model.stream_ahead(compute, self.placement), model.trunk
        self.states = model.config.states_ahead
        self.too_large: Sentences | None = None  # the update of a window that is made in parts
        frozen = model.frozen_readout_arrays
        self.frozen = (frozen,) if frozen else ()  # arguments of what is compiled
        first_tokens = store.tokens[store.offsets[:-1]]  # (sentences,), BOS in a store that was prepared
        shares_first_row = not rate and bool((first_tokens == first_tokens[0]).all())
        self.shapes = batches.window_shapes(epochs, self.window_tokens, shares_first_row, backend())
        settings: dict[str, Any] = {
            "precision": compute.precision,
            "chunk_tokens": compute.chunk_tokens,
            "dropout_rate": rate,
        }
        if self.placement is None:
            settings["cross_entropy"], settings["trunk"] = compute.cross_entropy, self.trunk
            loss_and_gradient: Callable = partial(update.readout_loss_and_gradient, **settings)
        else:
            loss_and_gradient = partial(sharded_update.readout_loss_and_gradient, placement=self.placement, **settings)
        self.update_loop = update.make_update_loop(
            optimizer, on_nonfinite, self.shapes.buckets, loss_and_gradient, self.states
        )
        self.loss_and_gradient = jax.jit(loss_and_gradient)  # for an update that is made in parts

    def load(self, number: int, window: range) -> None:
        """Computes the features of a window and packs the targets of its updates."""
        self.key = dropout.epoch_key(self.seed, number)
        updates, laid_out = self._take(number, window)
        self.too_large = updates[0] if laid_out is None else None
        if laid_out is not None:
            self.buffer, rows = self._compute(laid_out)
            # `rows` has one array a sentence of the whole window. Each update takes the next ones, as many as it has sentences:
            # with updates of 2 and 1 sentences, islice gives rows[0:2] to the first and rows[2:3] to the second.
            following = iter(rows)
            self.targets = batches.pack_window(
                [(some, list(islice(following, len(some.inputs)))) for some in updates], self.shapes
            )
        self._read_ahead(number, window)

    def run(
        self, params: dict, optimizer_state: optax.OptState, first: int, last: int
    ) -> tuple[dict, optax.OptState, CallResult]:
        if self.too_large is not None:
            return self._run_in_parts(self.too_large, params, optimizer_state)
        given = self.buffer, self.targets, self.key, self.rates, first, last
        return self.update_loop(params, optimizer_state, *given, *self.frozen)

    def sizes(self) -> str:
        return f" for {len(self.shapes.buckets)} padded sizes"

    def features_with(self, params: dict) -> FeatureStream | TrunkStream:
        """Returns the features of the model. Without a trunk, the trained arrays have no influence on them."""
        return self.stream if self.trunk is None else TrunkStream(self.stream, self.trunk, params)

    def _run_in_parts(
        self, whole: Sentences, params: dict, optimizer_state: optax.OptState
    ) -> tuple[dict, optax.OptState, CallResult]:
        total: Any = None
        for part in batches.split_update(whole, self.window_tokens):
            buffer, rows = self._compute(self._lay_out(part))
            packed = batches.pack_targets(
                part, rows, batches.bucket_size(part.predictions()), predictions=whole.predictions()
            )
            found = self.loss_and_gradient(params, buffer, packed, self.key, *self.frozen)
            total = found if total is None else update.add_trees(total, found)
        loss, gradient = total
        nothing = update.nothing_nonfinite(params)
        # The features of the last part stand for all: those of the others have been overwritten.
        record = self.record_nonfinite(nothing, loss, params, gradient, buffer[:, : self.states], packed.rows)
        params, optimizer_state, applied = self.step(params, optimizer_state, loss, gradient, self.rates)
        return params, optimizer_state, CallResult(loss[None], applied[None], record)

    def _take(self, number: int, window: range) -> ReadWindow:
        """Returns the sentences of a window: those that were read ahead, or else read now."""
        if self.ahead is not None and self.ahead[0] == (number, window):
            return self.ahead[1].result()
        return self._read(number, window)

    def _read_ahead(self, number: int, window: range) -> None:
        """Lets another thread read the window that follows in the run, if there is one, and if it was not read already."""
        after = self.following.get((number, window.start))
        if after is None:
            self.ahead = None
        elif self.ahead is None or self.ahead[0] != after:  # after a validation a window is loaded again
            self.ahead = after, background.begin(partial(self._read, *after))

    def _read(self, number: int, window: range) -> ReadWindow:
        """Reads and lays out the sentences of a window. It changes nothing, since it may run beside everything else here."""
        updates = [batches.read_sentences(self.store, self.epochs[number].updates[u]) for u in window]
        if len(updates) == 1 and updates[0].predictions() > self.window_tokens:
            return ReadWindow(updates, None)
        return ReadWindow(
            updates, self._lay_out(Sentences(*(sum(columns, []) for columns in zip(*updates, strict=True))))
        )

    def _lay_out(self, sentences: Sentences) -> Any:
        return self.stream.lay_out(sentences.inputs, corpus_positions=sentences.corpus_positions)

    def _compute(self, laid_out: Any) -> tuple[jax.Array, list[np.ndarray]]:
        """Hands sentences to the device, and returns the buffer of their features and the rows of each."""
        buffer, rows = self.stream.run(laid_out, self.key)
        return buffer if self.placement is None else sharded_stream.by_unit(buffer, self.placement.mesh), rows
