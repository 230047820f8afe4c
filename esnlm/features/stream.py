"""Features of many sentences at once, ahead of whoever uses them, in one reused buffer."""

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.features import layout as layouts
from esnlm.features import recurrence

# The states should stay in the cache while W_rec streams past them; measured up to N = 65,536, a slot costs least so.
CPU_CACHE = 16 << 20
CPU_SLOTS = 96  # at most: more of them stand idle for longer behind the last sentences of a window (measured too)


def default_batch_slots(state_size: int, backend: str) -> int:
    """Slots for a backend: as many as the cache holds on a CPU, enough to fill a GPU."""
    widest = CPU_CACHE // (4 * state_size) if backend == "cpu" else (1 << 28) // (4 * state_size)
    most = CPU_SLOTS if backend == "cpu" else 4096
    return int(min(most, max(8, 1 << (max(widest, 1).bit_length() - 1))))


class FeatureStream:
    """Runs a recurrent network's cell into one buffer, which the next call overwrites.

    Args:
        cell: see features/recurrence.py.
        slots: sentences run side by side (B).
        capacity: rows of the buffer to begin with; it grows where a call needs more.
        dropout: rate on the embeddings, where a call gives the corpus_positions of the tokens.
    """

    def __init__(self, cell, slots: int, capacity: int, dropout: float = 0.0):
        self.cell, self.slots, self.dropout = cell, slots, dropout
        self.buffer = jnp.zeros((capacity + slots, cell.output_size), jnp.float32)

    def read(
        self,
        sentences: list[np.ndarray],
        prefix_tree: bool = False,
        corpus_positions: list[np.ndarray] | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, list[np.ndarray]]:
        """Features after each token of each sentence. Where nothing is dropped, a first token that all share is read once.

        Args:
            sentences: int arrays of the tokens to read, each at least one long.
            prefix_tree: evaluate each distinct prefix once; then at most `slots` sentences.
            corpus_positions: of dropout: the place in the corpus of each token of each sentence; without it nothing is dropped.
            key: of dropout: the epoch's.

        Returns:
            (buffer, rows): the features of sentence s at position t are buffer[rows[s][t]], (F,) float32.
        """
        dropped = self.dropout > 0 and corpus_positions is not None
        firsts = {int(sentence[0]) for sentence in sentences}
        shares_first_token = len(firsts) == 1 and not prefix_tree and not dropped
        layout = (
            layouts.as_prefix_tree(sentences, self.slots)
            if prefix_tree
            else layouts.in_sequence(sentences, self.slots, int(shares_first_token))
        )
        if layout.total + self.slots > len(self.buffer):
            self.buffer = None  # freed before its successor is made
            rows = -(-layout.total // 1024) * 1024 + self.slots
            self.buffer = jnp.zeros((rows, self.cell.output_size), jnp.float32)
        steps = 1 << max(0, layout.steps - 1).bit_length()  # few shapes, so few compilations

        def pad(array):
            return None if array is None else np.pad(array, [(0, steps - len(array))] + [(0, 0)] * (array.ndim - 1))

        self.buffer = recurrence.run(
            self.cell,
            pad(layout.tokens),
            pad(layout.parents),
            pad(layout.first_rows),
            layout.steps,
            self.buffer,
            np.int32(firsts.pop()) if shares_first_token else None,
            pad(layout.spread(corpus_positions)) if dropped else None,
            key if dropped else None,
            self.dropout if dropped else 0.0,
        )
        return self.buffer, layout.rows
