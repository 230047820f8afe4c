"""How many parameters a model has, by the rules of two papers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """Parameters. `total` counts nonzero entries only, as S1's paper does; `entries` counts zeros too, as S2's does."""

    trainable: int
    total: int
    entries: int
