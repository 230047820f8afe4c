"""Diagonal linear units: each a fading average of frozen random codes of the tokens, on its own
time scale.

    s' = (1 - g) s + g c(u),   g = 1 - exp(-f(u) / tau)

c(u) is the frozen code of the token u, N(0, 1), one number per unit. The time scales tau are spaced
evenly in their logarithm, from `shortest` to `longest` tokens. The factor f(u) of a token on a
unit's rate is 1, or log-normal if rates depend on the token (the selection of Gu and Dao 2023,
frozen here [ours]). The features are the averages, scaled to about the variance of a code.
"""

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.base.rng import generator
from esnlm.base.settings import Natural, NonNegative, Positive, settings
from esnlm.data.store import TokenStore
from esnlm.features.recurrence import ArrayCell
from esnlm.machine.compute import SparseMatrix
from esnlm.reservoir.arrays import Frozen

DIAGONAL = 27  # number of the random stream


@settings
class DiagonalConfig:
    """Linear units on many time scales, not connected to each other: a FrozenPart."""

    units: Natural = 0  # number of units; 0: none
    shortest: Positive = 1.0  # time scale of the fastest unit, in tokens
    longest: Positive = 64.0  # time scale of the slowest unit, in tokens
    # Standard deviation of log f(u), a factor of the token u on a unit's rate; 0: the rates do not
    # depend on the token.
    token_dependence: NonNegative = 0.0

    def __post_init__(self) -> None:
        if self.longest < self.shortest:
            raise ValueError(
                f"longest is {self.longest}: it must be at least shortest = {self.shortest}"
            )

    @property
    def title(self) -> str:
        return f"diagonal {self.units:,}"

    @property
    def size(self) -> int:
        return self.units

    @property
    def matrices(self) -> tuple[SparseMatrix, ...]:
        return ()

    def counts(self, vocab_size: int) -> tuple[int, int]:
        entries = self.units * (1 + vocab_size * (2 if self.token_dependence else 1))
        return entries, entries

    def frozen_bytes(self, vocab_size: int) -> int:
        return 4 * self.counts(vocab_size)[1]

    def initialize(
        self, vocab_size: int, seed: int, text: TokenStore | None
    ) -> tuple[dict, list[dict]]:
        rng, shape = generator(seed, DIAGONAL), (vocab_size, self.units)
        arrays = {
            "codes": rng.standard_normal(shape, np.float32),
            "time_scales": np.geomspace(self.shortest, self.longest, self.units).astype(np.float32),
        }
        if self.token_dependence:
            arrays["factors"] = np.exp(
                np.float32(self.token_dependence) * rng.standard_normal(shape, np.float32)
            )
        return arrays, []

    def cells(self, arrays: dict, vocab_size: int) -> list["Diagonal"]:
        return [Diagonal(**arrays)]


class Diagonal(ArrayCell):
    """The cell. The state is all averages, (D, B).

    Args:
        codes: c, (V, D).
        time_scales: tau, (D,), in tokens.
        factors: f, (V, D); None: 1.
    """

    def __init__(
        self, codes: np.ndarray, time_scales: np.ndarray, factors: np.ndarray | None = None
    ) -> None:
        self.codes, self.time_scales = Frozen(jnp.asarray(codes)), Frozen(jnp.asarray(time_scales))
        self.factors = None if factors is None else Frozen(jnp.asarray(factors))
        self.output_size = len(time_scales)

    def embed(
        self, tokens: jax.Array, keep: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns c(u) and g, both (D, B)."""
        exponents = 1 / self.time_scales[...][:, None]  # (D, 1)
        if self.factors is not None:
            exponents = exponents * self.factors[...][tokens].T
        rates = -jnp.expm1(-exponents)
        return self.codes[...][tokens].T, jnp.broadcast_to(rates, (self.output_size, len(tokens)))

    def advance(self, state: jax.Array, x: tuple[jax.Array, jax.Array]) -> jax.Array:
        codes, rates = x
        return state + rates * (codes - state)

    def output(self, state: jax.Array) -> jax.Array:
        rates = -jnp.expm1(-1 / self.time_scales[...])
        # For independent codes the variance of s is g / (2 - g).
        return state * jnp.sqrt((2 - rates) / rates)[:, None]
