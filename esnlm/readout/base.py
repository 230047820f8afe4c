"""The base class for fits of the readout by regression, each also a section of a configuration."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from esnlm.base.settings import Count, settings
from esnlm.readout.calibration import Fitted, HeldOut, LogProbs

# The state of a fit after the text so far: arrays of NumPy or JAX, by name. A run resumes from
# these alone.
Accumulators = dict[str, Any]


BLOCK = 1 << 23  # entries of features in float64 at once


class Window(NamedTuple):
    """Some sentences with their features."""

    features: jax.Array | np.ndarray  # (rows, F), in any order; float32 for tokens
    rows: list[np.ndarray]  # feature rows of each sentence, one array per sentence
    targets: np.ndarray  # (tokens,), the next token at each position, concatenated over sentences


@settings
class Fitter(ABC):
    """Fits a readout onto one-hot next tokens, window by window.

    The fields of a subclass, and those below, are the settings of the section `training` of a
    configuration; `kind` is its name there.
    """

    kind: str
    log_probs: LogProbs = "calibrated"  # rule that turns linear scores into log-probabilities
    # tokens of training text kept out of the fit, to calibrate and to choose ridge's lambda
    held_out_tokens: Count = 4096
    checkpoint_every: Count = 50  # windows of text from one checkpoint to the next

    description: ClassVar[str]  # the method in a few words
    makes_low_rank: ClassVar[bool] = False  # whether `solve` makes low-rank readouts
    computed_by_host: ClassVar[bool] = True  # in float64; False: by the device, like the states

    @property
    def epochs(self) -> int:
        """Passes over the text; a second pass would add the same to every sum."""
        return 1

    @abstractmethod
    def start(self, features: int, vocab_size: int) -> Accumulators:
        """Returns the initial accumulators for F features and V tokens."""

    @abstractmethod
    def sums_size(self, features: int, vocab_size: int) -> int:
        """Returns the bytes of the result of `start`, without computing it."""

    @abstractmethod
    def accumulate(self, accumulators: Accumulators, window: Window, precision: str) -> int:
        """Adds the next sentences to the accumulators, in place, and returns the number of updates.

        `precision` applies to matrix products on the device; float64 products ignore it.
        """

    def finish(self, accumulators: Accumulators, precision: str) -> int:
        """Adds features that wait for a next window, and returns the number of updates."""
        return 0

    @abstractmethod
    def solve(
        self, accumulators: Accumulators, rank: int | None, held_out: HeldOut, log_p: np.ndarray
    ) -> Fitted:
        """Returns the readout and its record, and overwrites the accumulators.

        The readout is float32: {"a" (V, r), "b" (r, F), "bias" (V,)}, or at full rank (None)
        {"w" (V, F), "bias" (V,)}. `held_out` is text that the fit has not seen, to choose and
        calibrate; `log_p` (V,) is the unigram model.
        """

    @abstractmethod
    def memory(self, features: int, vocab_size: int, rank: int | None) -> int:
        """Returns the peak memory in bytes."""

    def memory_on_device(self, features: int, vocab_size: int) -> int:
        """Returns the part of `memory` on a GPU or TPU: W, which scores held-out text."""
        return 4 * vocab_size * features


def add_by_target(sums: np.ndarray, h: np.ndarray, targets: np.ndarray) -> None:
    """Adds targets^T h to sums (V, F), for rows h (n, F) and targets (n, V), or ids (n,)."""
    if targets.ndim == 2:
        sums += targets.T @ h
        return
    order = np.argsort(targets, kind="stable")
    present, first = np.unique(targets[order], return_index=True)
    sums[present] += np.add.reduceat(h[order], first)


def row_blocks(count: int, width: int) -> list[slice]:
    """Cuts `count` rows of `width` entries into slices of BLOCK entries, or at least 256 rows."""
    size = max(256, BLOCK // width)
    return [slice(start, start + size) for start in range(0, count, size)]
