"""Features of many sentences under a model with a trained trunk between its frozen recurrence and
the readout."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.features.lanes import Pieces
from esnlm.features.recurrence import State
from esnlm.features.stream import FeatureStream
from esnlm.machine.placement import Placement

ROWS = 1024  # rows that go through the trunk together


class TrunkStream:
    """A SentenceFeatures (features/stream.py) that passes the features of `ahead` (C, N) through a
    trunk, (C, F).

    Streams with the same trunk share compiled programs.
    """

    def __init__(
        self, ahead: FeatureStream, trunk: Callable[[dict, jax.Array], jax.Array], params: dict
    ) -> None:
        self.ahead, self.trunk, self.params, self.slots = ahead, trunk, params, ahead.slots
        self.placement: Placement | None = ahead.placement
        self.cell = ahead.cell

    def read(
        self, sentences: list[np.ndarray], prefix_tree: bool = False
    ) -> tuple[jax.Array, list[np.ndarray]]:
        """Computes the features after each token of each sentence: (buffer, rows) as
        FeatureStream.read returns them."""
        return self._above(*self.ahead.read(sentences, prefix_tree))

    def read_on(self, pieces: Pieces, state: State) -> tuple[State, jax.Array, np.ndarray]:
        """Reads pieces of documents: (state, buffer, rows) as FeatureStream.read_on returns
        them."""
        state, buffer, rows = self.ahead.read_on(pieces, state)
        found, (rows,) = self._above(buffer, [rows])
        return state, found, rows

    def _above(
        self, buffer: jax.Array, rows: list[np.ndarray]
    ) -> tuple[jax.Array, list[np.ndarray]]:
        """Returns the features above those of a buffer, and their rows."""
        devices = self.ahead.devices
        own = len(buffer) // devices  # rows of each device
        used = 1 + max(int((each % own).max()) for each in rows)
        blocks = 1 << (-(-used // ROWS) - 1).bit_length()  # few numbers, so few compilations
        found = _apply(self.trunk, self.params, buffer, devices, blocks)
        return found, [each // own * (ROWS * blocks) + each % own for each in rows]


@partial(jax.jit, static_argnums=(0, 3, 4))
def _apply(
    trunk: Callable, params: dict, buffer: jax.Array, devices: int, blocks: int
) -> jax.Array:
    """Returns the features of the first ROWS * blocks rows of each device; the last block may be
    shorter."""
    rows = buffer.reshape(devices, -1, buffer.shape[1])[:, : ROWS * blocks]
    rows = jnp.pad(rows, ((0, 0), (0, max(0, ROWS * blocks - rows.shape[1])), (0, 0)))
    by_block = (
        rows.reshape(devices, blocks, ROWS, -1).swapaxes(0, 1).reshape(blocks, devices * ROWS, -1)
    )
    found = lax.map(partial(trunk, params), by_block)  # (blocks, devices ROWS, F)
    return (
        found.reshape(blocks, devices, ROWS, -1).swapaxes(0, 1).reshape(devices * blocks * ROWS, -1)
    )
