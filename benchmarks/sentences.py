"""Sentences to measure with: those of a token store, or random minimal pairs like BLiMP's."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esnlm.data.store import TokenStore, open_store
from esnlm.training import batches
from esnlm.training.batches import EpochPlan

SHORTEST = 6  # tokens with BOS and EOS, as in Ueda et al. 2025a


@dataclass(frozen=True)
class Text:
    """Sentences, the plans of some epochs of them, and the prefetch windows to measure."""

    store: TokenStore
    epochs: list[EpochPlan]
    windows: list[tuple[int, range]]  # the number of the epoch, and the updates of the window

    def batches(self, i: int) -> list[list[np.ndarray]]:
        """Returns the sentences of each update of the i-th window."""
        epoch, window = self.windows[i]
        return [[self.store.sentence(s) for s in self.epochs[epoch].updates[u]] for u in window]


def plan(store: Path, batch_size: int, window_tokens: int, count: int) -> Text:
    """Returns text with the prefetch windows that a training from the seed 0 would make of it.

    Args:
        store: a token store.
        batch_size: sentences of an update.
        window_tokens: rows of features that may exist at once.
        count: how many windows. A store that holds fewer is gone through again, in another order.
    """
    text = open_store(store)
    epochs: list[EpochPlan] = []
    windows: list[tuple[int, range]] = []
    while len(windows) < count:
        epoch = batches.plan_epoch(text.lengths, 0, len(epochs), batch_size, window_tokens)
        full = epoch.windows[: max(1, len(epoch.windows) - 1)]  # the last one is not
        windows += [(len(epochs), window) for window in full]
        epochs.append(epoch)
    return Text(text, epochs, windows[:count])


def draw_pairs(count: int, vocab_size: int, seed: int) -> list[np.ndarray]:
    """Returns minimal pairs, good and bad in turn, that are like BLiMP's: int32, the last id is BOS and EOS.

    They have 12 tokens with a standard deviation of 3, and differ in one token. Beginnings recur, so that about 60 % of
    the prefixes are distinct.
    """
    rng = np.random.default_rng(seed)
    ends, lexicon = vocab_size - 1, min(100, vocab_size - 1)
    frequency = 1 / np.arange(1, lexicon + 1)
    found = []
    for _ in range(count):
        length = max(SHORTEST, round(rng.normal(12, 3)))
        good = rng.choice(lexicon, size=length, p=frequency / frequency.sum()).astype(np.int32)
        good[[0, -1]] = ends
        bad = good.copy()
        bad[rng.integers(1, length - 1)] = rng.integers(lexicon)
        found += [good, bad]
    return found


def predictions(sentences: list[np.ndarray]) -> int:
    """Returns the number of predicted tokens."""
    return sum(len(sentence) - 1 for sentence in sentences)


def real_share(padded_batches: list[list[np.ndarray]]) -> float:
    """Returns the share of positions in padded batches with a real prediction."""
    padded = sum(len(batch) * (max(map(len, batch)) - 1) for batch in padded_batches)
    return sum(map(predictions, padded_batches)) / padded
