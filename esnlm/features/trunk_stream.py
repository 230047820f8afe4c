"""Features of many sentences where something trained lies between what a frozen recurrence computes and the readout."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from esnlm.features.stream import FeatureStream
from esnlm.parallel.placement import Placement

ROWS = 1024  # that go through the trunk together


class TrunkStream:
    """What features/stream.py is to a frozen recurrence: its features, after they went through a trunk.

    Args:
        ahead: the stream of the recurrence.
        trunk: from trained arrays and what the recurrence computed (C, N) to the features (C, F). Streams with the same function
            share its compiled programs.
        params: the trained arrays.
    """

    placement: Placement | None = None  # there is one device

    def __init__(self, ahead: FeatureStream, trunk: Callable[[dict, jax.Array], jax.Array], params: dict) -> None:
        self.ahead, self.trunk, self.params, self.slots = ahead, trunk, params, ahead.slots

    def read(self, sentences: list[np.ndarray], prefix_tree: bool = False) -> tuple[jax.Array, list[np.ndarray]]:
        """Computes the features after each token of each sentence: (buffer, rows) as FeatureStream.read returns them."""
        buffer, rows = self.ahead.read(sentences, prefix_tree)
        used = 1 + max(int(own.max()) for own in rows)
        blocks = 1 << (-(-used // ROWS) - 1).bit_length()  # few numbers, so few compilations
        return _apply(self.trunk, self.params, buffer, blocks), rows


@partial(jax.jit, static_argnums=(0, 3))
def _apply(trunk: Callable, params: dict, buffer: jax.Array, blocks: int) -> jax.Array:
    """Returns the features of the first ROWS * blocks rows of a buffer, of which the last block may be cut short."""
    rows = jnp.pad(buffer[: ROWS * blocks], ((0, max(0, ROWS * blocks - len(buffer))), (0, 0)))
    found = lax.map(partial(trunk, params), rows.reshape(blocks, ROWS, -1))  # (blocks, ROWS, F)
    return found.reshape(ROWS * blocks, -1)
