"""Features of many sentences at once, ahead of whoever uses them, in one reused buffer."""

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.features import layout as layouts
from esnlm.features import recurrence

# The states should stay in the cache while W_rec streams past them; measured up to N = 65,536, a lane costs least so.
CPU_CACHE = 16 << 20
CPU_LANES = 96  # at most: more of them stand idle for longer behind the last sentences of a window (measured too)


def default_lanes(state_size: int, backend: str) -> int:
    """Lanes for a backend: as many as the cache holds on a CPU, enough to fill a GPU."""
    widest = CPU_CACHE // (4 * state_size) if backend == "cpu" else (1 << 28) // (4 * state_size)
    most = CPU_LANES if backend == "cpu" else 4096
    return int(min(most, max(8, 1 << (max(widest, 1).bit_length() - 1))))


class FeatureStream:
    """Runs a recurrent network's cell into one buffer, which the next call overwrites.

    Args:
        cell: see features/recurrence.py.
        lanes: sentences run side by side (B).
        capacity: rows of the buffer to begin with; it grows where a call needs more.
        dropout: rate on the embeddings, where a call gives the places of the tokens.
    """

    def __init__(self, cell, lanes: int, capacity: int, dropout: float = 0.0):
        self.cell, self.lanes, self.dropout = cell, lanes, dropout
        self.buffer = jnp.zeros((capacity + lanes, cell.output_size), jnp.float32)

    def read(
        self,
        sentences: list[np.ndarray],
        shared: bool = False,
        places: list[np.ndarray] | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, list[np.ndarray]]:
        """Features after each token of each sentence. Where nothing is dropped, a first token that all share is read once.

        Args:
            sentences: int arrays of the tokens to read, each at least one long.
            shared: evaluate each distinct prefix once; then at most `lanes` sentences.
            places: of dropout: the place in the corpus of each token of each sentence; without it nothing is dropped.
            key: of dropout: the epoch's.

        Returns:
            (buffer, rows): the features of sentence s at position t are buffer[rows[s][t]], (F,) float32.
        """
        dropped = self.dropout > 0 and places is not None
        firsts = {int(sentence[0]) for sentence in sentences}
        begun = len(firsts) == 1 and not shared and not dropped
        layout = (
            layouts.as_trees(sentences, self.lanes)
            if shared
            else layouts.in_sequence(sentences, self.lanes, int(begun))
        )
        if layout.total + self.lanes > len(self.buffer):
            self.buffer = None  # freed before its successor is made
            rows = -(-layout.total // 1024) * 1024 + self.lanes
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
            np.int32(firsts.pop()) if begun else None,
            pad(layout.spread(places)) if dropped else None,
            key if dropped else None,
            self.dropout if dropped else 0.0,
        )
        return self.buffer, layout.rows
