"""A frozen GRU: random gates decide what a unit keeps (Cho et al. 2014, with the gates of a
reservoir [ours]).

    z = sigmoid(b + U_z h + W_z u),   r = sigmoid(U_r h + W_r u)
    h' = (1 - z) h + z tanh(U_c (r h) + W_c u)

All matrices are as sparse as those of Ueda et al. 2025a: d nonzeros per row of each U and per
column of each W, N(0, 1 / d) and N(0, 1). The biases b give the gates without input, z =
sigmoid(b), log-spaced time scales 1 / z, 1.5 .. `longest`.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from pydantic import Field

from esnlm.base.rng import generator
from esnlm.base.settings import Natural, NonNegative, Positive, settings
from esnlm.data.store import TokenStore
from esnlm.features.recurrence import ArrayCell
from esnlm.machine.compute import SparseMatrix
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import Frozen, FrozenMatrix, Matrix, matrix_from_arrays
from esnlm.reservoir.topology import bernoulli_positions

GRU = 28  # number of the random stream
SHORTEST = 1.5  # tokens; a gate of exactly 1 would need an infinite bias


@settings
class GruConfig:
    """Units with frozen random gates: a FrozenPart."""

    units: Natural = 0  # number of units; 0: none
    # mean nonzeros per row of each recurrent matrix U and column of each input matrix W
    mean_degree: Positive = 32.0
    recurrent_scale: NonNegative = 1.0  # factor on U; it plays the part of the spectral radius
    input_scale: NonNegative = 1.0  # standard deviation of W's nonzeros
    # time scale, in tokens, of the slowest gate without input
    longest: Annotated[float, Field(gt=SHORTEST)] = 16.0

    def __post_init__(self) -> None:
        if self.units and self.mean_degree > self.units:
            raise ValueError(
                f"mean_degree is {self.mean_degree}: it must be at most units = {self.units}"
            )

    @property
    def title(self) -> str:
        return f"GRU {self.units:,}"

    @property
    def size(self) -> int:
        return self.units

    @property
    def matrices(self) -> tuple[SparseMatrix, ...]:
        return (SparseMatrix(self.units, round(self.mean_degree * self.units), copies=3),)

    def counts(self, vocab_size: int) -> tuple[int, int]:
        nonzeros = round(3 * self.mean_degree * (self.units + vocab_size)) + self.units
        return nonzeros, 3 * self.units * (self.units + vocab_size) + self.units

    def frozen_bytes(self, vocab_size: int) -> int:
        return 12 * self.counts(vocab_size)[0]  # a value and two indices of 4 bytes

    def initialize(
        self, vocab_size: int, seed: int, text: TokenStore | None
    ) -> tuple[dict, list[dict]]:
        rng, units, density = generator(seed, GRU), self.units, self.mean_degree / self.units

        def matrix(rows: int, columns: int, scale: float) -> dict:
            row, column = bernoulli_positions(rows, columns, density, rng)
            values = np.float32(scale) * rng.standard_normal(len(row), np.float32)
            return {"values": values, "indices": np.stack([row, column], axis=1)}

        recurrent = self.recurrent_scale / np.sqrt(self.mean_degree)
        rest = 1 / np.geomspace(SHORTEST, self.longest, units)  # z without input
        arrays = {
            "gates": matrix(2 * units, units, recurrent),
            "candidate": matrix(units, units, recurrent),
            "input": matrix(3 * units, vocab_size, self.input_scale),
            "bias": np.log(rest / (1 - rest)).astype(np.float32),
        }
        return arrays, []

    def cells(self, arrays: dict, vocab_size: int) -> list["Gru"]:
        n = len(arrays["bias"])
        shapes = {"gates": (2 * n, n), "candidate": (n, n), "input": (3 * n, vocab_size)}
        matrices = [matrix_from_arrays(arrays[name], shape) for name, shape in shapes.items()]
        return [Gru(*matrices, arrays["bias"])]


class Gru(ArrayCell):
    """The cell, which runs after `for_device`. The state is h, (N, B).

    Args:
        gates: U_z above U_r, (2 N, N).
        candidate: U_c, (N, N).
        w_in: W_z, W_r and W_c, one above the other, (3 N, V).
        bias: b, (N,).
    """

    def __init__(self, gates: Matrix, candidate: Matrix, w_in: Matrix, bias: np.ndarray) -> None:
        self.gates: Frozen = FrozenMatrix(gates)
        self.candidate: Frozen = FrozenMatrix(candidate)
        self.input: Frozen = FrozenMatrix(w_in)
        self.bias = Frozen(jnp.asarray(bias))
        self.output_size = len(bias)

    @property
    def nonzeros(self) -> int:
        matrices = (self.gates, self.candidate, self.input)
        return sum(matrix.get_value().nse for matrix in matrices) + self.output_size

    def for_device(self, kernel: str, *, state_precision: str = "float32") -> "Gru":
        ready = nnx.merge(*nnx.split(self))
        ready.gates = Frozen(sparse.prepare(self.gates.get_value(), kernel))
        ready.candidate = Frozen(sparse.prepare(self.candidate.get_value(), kernel))
        ready.input = Frozen(sparse.prepare_columns(self.input.get_value()))
        return ready

    def embed(self, tokens: jax.Array, keep: jax.Array | None = None) -> jax.Array:
        """Returns W u, (3 N, B)."""
        nothing = jnp.zeros((3 * self.output_size, len(tokens)), jnp.float32)
        return sparse.add_columns(nothing, self.input.get_value(), tokens)

    def advance(self, state: jax.Array, x: jax.Array) -> jax.Array:
        x_z, x_r, x_c = jnp.split(x, 3)
        u_z, u_r = jnp.split(sparse.matmul(self.gates.get_value(), state), 2)
        z = jax.nn.sigmoid(self.bias[...][:, None] + u_z + x_z)
        r = jax.nn.sigmoid(u_r + x_r)
        return (1 - z) * state + z * jnp.tanh(
            sparse.matmul(self.candidate.get_value(), r * state) + x_c
        )
