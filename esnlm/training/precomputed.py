"""Updates whose features are computed ahead of them, for a window of many updates at once.

Where nothing that decides the features is trained, this changes no content and no order of the optimizer's batches.
"""

from functools import partial

import jax
import numpy as np

from esnlm.config import Experiment
from esnlm.data.store import TokenStore
from esnlm.features import dropout
from esnlm.features.stream import FeatureStream
from esnlm.training import batches
from esnlm.training.update import add, make_apply, make_look, make_optimizer, make_updates, no_fault, readout_gradient


class PrecomputedUpdates:
    """`load` a window, then `run` its updates in as many calls as one likes: the outcome has the same bits.

    An update with more predictions than compute.window_tokens is made in parts, whose gradients are added up: no more
    features than that exist at once (but those of one sentence).
    """

    def __init__(self, experiment: Experiment, stream: FeatureStream, text: TokenStore, epochs: list[batches.Epoch]):
        training, compute = experiment.training, experiment.compute
        self.seed, self.text, self.stream = experiment.seed, text, stream
        self.most = compute.window_tokens
        begins = text.tokens[text.offsets[:-1]]  # (sentences,), BOS in a store that was prepared
        shared = not experiment.model.dropout and bool((begins == begins[0]).all())
        self.shapes = batches.shapes(epochs, compute.window_tokens, shared)
        optimizer = make_optimizer(training, sum(len(epoch.updates) for epoch in epochs), experiment.scaling)
        options = {
            "precision": compute.precision,
            "chunk_tokens": compute.chunk_tokens,
            "rate": experiment.model.dropout,
        }
        self.run_updates = make_updates(optimizer, training.on_nonfinite, self.shapes.sizes, **options)
        self.look = make_look(training.on_nonfinite)
        self.gradient = jax.jit(partial(readout_gradient, **options))
        self.apply = jax.jit(make_apply(optimizer, training.on_nonfinite), donate_argnums=(0, 1))

    def features_with(self, params: dict) -> FeatureStream:
        """The stream that evaluates the model with these trained arrays: they do not matter to it."""
        return self.stream

    def load(self, number: int, epoch: batches.Epoch, window: range) -> None:
        """Computes the features of a window of the epoch with this number, and packs its updates."""
        self.key = dropout.epoch_key(self.seed, number)
        updates = [batches.sentences(self.text, epoch.updates[u]) for u in window]
        if len(updates) == 1 and updates[0].predictions() > self.most:
            self.too_large = updates[0]
            return
        self.too_large = None
        together = batches.Sentences(*(sum(columns, []) for columns in zip(*updates, strict=True)))
        self.buffer, rows = self._read(together)
        bounds = np.cumsum([0] + [len(some.inputs) for some in updates])
        rows = [rows[first:last] for first, last in zip(bounds[:-1], bounds[1:], strict=True)]
        self.packs = batches.stack(list(zip(updates, rows, strict=True)), self.shapes)

    def run(self, params: dict, state, first: int, last: int):
        """Updates first .. last - 1 of the window: (params, optimizer state, losses, applied), the last two (U,)."""
        if self.too_large is not None:
            return self._run_in_parts(params, state)
        *done, self.fault = self.run_updates(params, state, self.buffer, self.packs, self.key, first, last)
        return tuple(done)

    def _run_in_parts(self, params, state):
        total = None
        for part in batches.parts(self.too_large, self.most):
            buffer, rows = self._read(part)
            size = batches.bucket_size(part.predictions())
            packed = batches.pack(part, rows, size, self.too_large.predictions())
            found = self.gradient(params, buffer, packed, self.key)
            total = found if total is None else add(total, found)
        loss, gradient = total
        self.fault = self.look(no_fault(params), loss, params, gradient, buffer, packed.rows)  # of its last part
        params, state, applied = self.apply(params, state, loss, gradient)
        return params, state, loss[None], applied[None]

    def _read(self, some: batches.Sentences):
        return self.stream.read(some.inputs, corpus_positions=some.corpus_positions, key=self.key)
