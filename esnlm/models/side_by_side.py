"""Several frozen cells that read the same tokens side by side."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from esnlm.features.recurrence import State


class SideBySide(nnx.Module):
    """Several cells of features/recurrence.py as one: its state is the tuple of their states, its
    features are stacked.

    It has no dropout: no cell gets a mask.
    """

    def __init__(self, cells: list[Any]) -> None:
        self.cells = nnx.List(cells)

    @property
    def output_size(self) -> int:
        return sum(cell.output_size for cell in self.cells)

    @property
    def mask_size(self) -> int:
        return self.output_size

    def for_device(self, kernel: str, *, state_precision: str = "float32") -> "SideBySide":
        return SideBySide(
            [cell.for_device(kernel, state_precision=state_precision) for cell in self.cells]
        )

    def initial_state(self, slots: int) -> State:
        return tuple(cell.initial_state(slots) for cell in self.cells)

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> tuple:
        assert keep is None, "nothing is dropped"
        return tuple(cell.embed(tokens) for cell in self.cells)

    def advance(self, state: State, x: tuple) -> State:
        return tuple(
            cell.advance(*given) for cell, *given in zip(self.cells, state, x, strict=True)
        )

    def step(self, state: State, tokens: jax.Array) -> State:
        return tuple(cell.step(part, tokens) for cell, part in zip(self.cells, state, strict=True))

    def output(self, state: State) -> jax.Array:
        """Returns the features of all cells, the first on top, (F, B)."""
        return jnp.concatenate(
            [cell.output(part) for cell, part in zip(self.cells, state, strict=True)]
        )
