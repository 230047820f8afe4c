"""What a fit of the readout by regression is. Each is one class, which is also its section of the configuration."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from esnlm.regression.calibration import Fitted, HeldOut, LogProbs
from esnlm.settings import Count

# What a fit remembers of the text so far: arrays of NumPy or JAX, by name. A stopped run needs nothing else to go on.
Accumulators = dict[str, Any]


BLOCK = 1 << 23  # entries of features that are float64 at once


class Window(NamedTuple):
    """Some sentences with their features."""

    features: jax.Array  # (rows, F) float32, in any order
    rows: list[np.ndarray]  # of the features of each sentence, one array a sentence
    targets: np.ndarray  # (tokens,), the token that follows each, of all sentences one after another


class Fitter(ABC):
    """Fits a readout onto one-hot next tokens, window by window.

    A subclass is a frozen dataclass. Its fields are the settings that a configuration gives below `training`; the first
    one, `kind`, is its name there. All of them have the settings that are named here.
    """

    kind: str
    log_probs: LogProbs  # rule that makes log-probabilities of linear scores (regression/calibration.py)
    held_out_tokens: Count  # of training text, left out of the fit, that calibrate
    checkpoint_every: Count  # windows of text

    description: ClassVar[str]  # how the readout is made, in a few words
    makes_low_rank: ClassVar[bool] = False  # whether `solve` makes readouts of a rank
    computed_by_host: ClassVar[bool] = True  # in float64; False: by the device, like the states

    @property
    def epochs(self) -> int:
        """Passes over the text. Where all tokens weigh the same, a second pass would add the same to every sum."""
        return 1

    @abstractmethod
    def start(self, features: int, vocab_size: int) -> Accumulators:
        """Returns the accumulators of no text, for F features and V tokens."""

    @abstractmethod
    def sums_size(self, features: int, vocab_size: int) -> int:
        """Returns the bytes of what `start` returns, without making it."""

    @abstractmethod
    def accumulate(self, accumulators: Accumulators, window: Window, precision: str) -> int:
        """Takes the next sentences into the accumulators, in place, and returns how many updates this was.

        `precision` is that of matrix products on the device; products in float64 have none.
        """

    def finish(self, accumulators: Accumulators, precision: str) -> int:
        """Takes in what has waited for the next window, after the last one. Returns how many updates this was."""
        return 0

    @abstractmethod
    def solve(self, accumulators: Accumulators, rank: int | None, held_out: HeldOut, log_p: np.ndarray) -> Fitted:
        """Makes the readout of a rank, {"a" (V, r), "b" (r, F), "bias" (V,)}, or of full rank (None), {"w" (V, F), "bias" (V,)}.

        It is float32, and uses the accumulators up. `held_out` is text that the fit has not seen, to choose and calibrate by, and
        log_p (V,) are of the unigram model.
        """

    @abstractmethod
    def memory(self, features: int, vocab_size: int, rank: int | None) -> int:
        """Returns the bytes of all that is needed at once, at most."""

    def memory_on_device(self, features: int, vocab_size: int) -> int:
        """Returns the bytes of it that lie on a GPU or TPU: W, with which held-out text is scored. The host holds the sums."""
        return 4 * vocab_size * features


def add_by_target(sums: np.ndarray, h: np.ndarray, targets: np.ndarray) -> None:
    """Adds each row of h (n, F) to the row of sums (V, F) that its target (n,) names; or targets^T h for numbers (n, V)."""
    if targets.ndim == 2:
        sums += targets.T @ h
        return
    order = np.argsort(targets, kind="stable")
    present, first = np.unique(targets[order], return_index=True)
    sums[present] += np.add.reduceat(h[order], first)


def row_blocks(count: int, width: int) -> list[slice]:
    """Cuts `count` rows of `width` entries into slices of at most BLOCK entries, or of 256 rows where those are more."""
    size = max(256, BLOCK // width)
    return [slice(start, start + size) for start in range(0, count, size)]
