"""Features of many sentences at once, without a gradient, in one buffer that is used again and again."""

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.compute import backend
from esnlm.features import layout as layouts
from esnlm.features import recurrence
from esnlm.features.layout import Layout
from esnlm.parallel.placement import Placement

# The states should stay in the cache while W_rec streams past them. A slot cost least so, measured up to N = 65,536.
CPU_CACHE = 16 << 20  # bytes
CPU_SLOTS = 96  # at most: more of them wait for longer behind the last sentences of a window (measured too)
FEWEST_CPU_SLOTS = 16  # A vector register of AVX-512 holds 16 float32 numbers: fewer slots would save little.


def default_batch_slots(state_size: int, backend: str) -> int:
    """Returns the slots for a backend: as many as the cache holds on a CPU, enough to fill a GPU."""
    widest = CPU_CACHE // (4 * state_size) if backend == "cpu" else (1 << 28) // (4 * state_size)
    most = CPU_SLOTS if backend == "cpu" else 4096
    return int(min(most, max(8, 1 << (max(widest, 1).bit_length() - 1))))


class SentenceFeatures(Protocol):
    """What computes the features of many sentences at once: a FeatureStream, or another class of this folder."""

    placement: Placement | None  # of the model's arrays on a mesh of devices; None: there is one device
    slots: int  # sentences that a caller should give at once where it has many

    def read(self, sentences: list[np.ndarray], prefix_tree: bool = False) -> tuple[jax.Array, list[np.ndarray]]:
        """Returns (buffer, rows) as FeatureStream.read does."""


class Reading(NamedTuple):
    """Sentences to read, and how."""

    sentences: list[np.ndarray]
    prefix_tree: bool  # whether each distinct prefix is read once
    first_token: np.int32 | None  # what all sentences begin with, where that is read once
    corpus_positions: list[np.ndarray] | None  # None: nothing is dropped
    rate: float  # of dropout

    def only(self, which: Iterable[int]) -> "Reading":
        """Returns the same for some of the sentences."""
        sentences = [self.sentences[s] for s in which]
        positions = None if self.corpus_positions is None else [self.corpus_positions[s] for s in which]
        return self._replace(sentences=sentences, corpus_positions=positions)

    def lay_out(self, slots: int) -> tuple[Layout, np.ndarray | None]:
        """Returns the sentences in slots, and the corpus positions in the same places."""
        if self.prefix_tree:
            layout = layouts.as_prefix_tree(self.sentences, slots)
        else:
            layout = layouts.in_sequence(self.sentences, slots, int(self.first_token is not None))
        return layout, None if self.corpus_positions is None else layout.spread(self.corpus_positions)


class FeatureStream:
    """Runs a recurrent network's cell over sentences, into one buffer, which the next call overwrites.

    Args:
        cell: see features/recurrence.py.
        slots: sentences that run side by side (B).
        capacity: rows of the buffer to begin with; it grows where a call needs more.
        dropout: rate on the input, where a call gives the corpus positions of the tokens.
    """

    placement: Placement | None = None  # on a mesh of devices: of a features/sharded_stream.py

    def __init__(self, cell: recurrence.Cell, slots: int, capacity: int, dropout: float = 0.0) -> None:
        self.cell, self.slots, self.dropout = cell, slots, dropout
        self.buffer: Any = jnp.zeros((capacity + slots, cell.output_size), jnp.float32)

    def read(
        self,
        sentences: list[np.ndarray],
        prefix_tree: bool = False,
        corpus_positions: list[np.ndarray] | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, list[np.ndarray]]:
        """Computes the features after each token of each sentence.

        A first token that all sentences share is read once, where nothing is dropped.

        Args:
            sentences: int arrays of the tokens to read, each at least one long.
            prefix_tree: evaluate each distinct prefix once; then at most `slots` sentences.
            corpus_positions: where each token of each sentence stands in the corpus; without it nothing is dropped.
            key: the epoch's, of dropout.

        Returns:
            (buffer, rows): the features of sentence s at position t are buffer[rows[s][t]], (F,) float32. The next call
            overwrites the buffer.
        """
        return self.run(self.lay_out(sentences, prefix_tree, corpus_positions), key)

    def lay_out(
        self,
        sentences: list[np.ndarray],
        prefix_tree: bool = False,
        corpus_positions: list[np.ndarray] | None = None,
    ) -> Any:
        """Does the part of `read` that is the host's, and returns what `run` takes.

        It changes nothing here, so that another thread may lay sentences out while a device computes.
        """
        if self.dropout > 0 and corpus_positions is not None:
            return self._lay_out(Reading(sentences, prefix_tree, None, corpus_positions, self.dropout))
        firsts = {int(sentence[0]) for sentence in sentences}
        first_token = np.int32(firsts.pop()) if len(firsts) == 1 and not prefix_tree else None
        return self._lay_out(Reading(sentences, prefix_tree, first_token, None, 0.0))

    def run(self, laid_out: Any, key: jax.Array | None = None) -> tuple[jax.Array, list[np.ndarray]]:
        """Does the rest of `read`: it hands the sentences to the device, and returns before their features are there.

        Args:
            laid_out: from `lay_out`.
            key: the epoch's, of dropout.
        """
        reading, layout, corpus_positions = laid_out
        if layout.total + self.slots > len(self.buffer):
            self.buffer = None  # freed before its successor is made
            rows = -(-layout.total // 1024) * 1024 + self.slots
            self.buffer = jnp.zeros((rows, self.cell.output_size), jnp.float32)
        self.buffer = recurrence.run(
            self.cell,
            layout.tokens,
            layout.starts,
            layout.parents,
            layout.first_rows,
            layout.steps,
            self.buffer,
            reading.first_token,
            corpus_positions,
            key if reading.rate else None,
            reading.rate,
        )
        return self.buffer, layout.rows

    def _lay_out(self, reading: Reading) -> Any:
        """Does what `lay_out` promises, for the devices of the stream."""
        layout, corpus_positions = reading.lay_out(self._slots_for(len(reading.sentences)))
        steps = 1 << max(0, layout.steps - 1).bit_length()  # few sizes, so few compilations

        def pad(array: np.ndarray | None) -> Any:
            return None if array is None else np.pad(array, [(0, steps - len(array))] + [(0, 0)] * (array.ndim - 1))

        by_step = {name: pad(getattr(layout, name)) for name in ("tokens", "starts", "parents", "first_rows")}
        return reading, dataclasses.replace(layout, **by_step), pad(corpus_positions)

    def _slots_for(self, sentences: int) -> int:
        """Returns the slots for so many sentences: few on a CPU, where a time step takes longer the more slots there are, empty ones too.

        A GPU or TPU computes all of them at once. The product of a sparse W_rec has the same bits in any number of slots, and that of a
        dense matrix may be rounded otherwise (seen with AVX-512).
        """
        if backend() != "cpu":
            return self.slots
        fits = 1 << (sentences - 1).bit_length()  # few sizes, so few compilations
        return min(self.slots, max(FEWEST_CPU_SLOTS, fits))
