"""States of many sentences at once, ahead of whoever uses them, in one reused buffer."""

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.reservoir import lanes as layouts
from esnlm.reservoir import recurrence
from esnlm.reservoir.recurrence import Dynamics

# A lane's states should stay in the cache while W_rec streams past them: 8 MB of states at most on a CPU.
CPU_CACHE = 8 << 20


def default_lanes(state_size: int, backend: str) -> int:
    """Lanes for a backend: as many as the cache holds on a CPU, enough to fill a GPU."""
    widest = CPU_CACHE // (4 * state_size) if backend == "cpu" else (1 << 28) // (4 * state_size)
    most = 256 if backend == "cpu" else 4096
    return int(min(most, max(8, 1 << (max(widest, 1).bit_length() - 1))))


class StateStream:
    """Computes states into one buffer, which the next call overwrites.

    Args:
        dynamics: of the reservoir.
        activation: "tanh" or "relu".
        lanes: sentences run side by side (B).
        capacity: rows of the buffer to begin with; it grows where a call needs more.
    """

    def __init__(self, dynamics: Dynamics, activation: str, lanes: int, capacity: int):
        self.dynamics, self.activation, self.lanes = dynamics, activation, lanes
        self.buffer = jnp.zeros((capacity + lanes, dynamics.state_size), jnp.float32)

    def read(self, sentences: list[np.ndarray], shared: bool = False) -> tuple[jax.Array, list[np.ndarray]]:
        """States after each token of each sentence.

        Args:
            sentences: int arrays of the tokens to read, each at least one long.
            shared: evaluate each distinct prefix once; then at most `lanes` sentences.

        Returns:
            (buffer, rows): the state of sentence s at position t is buffer[rows[s][t]], (N,) float32.
        """
        layout = (layouts.as_trees if shared else layouts.in_sequence)(sentences, self.lanes)
        if layout.total + self.lanes > len(self.buffer):
            self.buffer = None  # freed before its successor is made
            rows = -(-layout.total // 1024) * 1024 + self.lanes
            self.buffer = jnp.zeros((rows, self.dynamics.state_size), jnp.float32)
        steps = 1 << (layout.steps - 1).bit_length()  # few shapes, so few compilations

        def pad(array):
            return None if array is None else np.pad(array, [(0, steps - len(array))] + [(0, 0)] * (array.ndim - 1))

        self.buffer = recurrence.run(
            self.dynamics,
            self.activation,
            pad(layout.tokens),
            pad(layout.parents),
            pad(layout.first_rows),
            layout.steps,
            self.buffer,
        )
        return self.buffer, layout.rows
