"""Sentences for measurements: random ones similar to the corpus, or those of a token store."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esnlm.data.store import TokenStore, open_store
from esnlm.training import batches
from esnlm.training.batches import EpochPlan

SHORTEST, LONGEST = 6, 512  # tokens with BOS and EOS, as in Ueda et al. 2025a
MEAN_LENGTH = 21  # mean tokens of a sentence in the corpus, with BOS and EOS
LENGTH_SPREAD = 0.66  # standard deviation of ln(length): the corpus has 0.64, and 29 to 33 % real in a padded batch


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


def plan(store: Path | None, vocab_size: int, batch_size: int, window_tokens: int, count: int, seed: int) -> Text:
    """Returns text with its prefetch windows, as in training.

    Args:
        store: a token store; None: random sentences.
        vocab_size: vocabulary size of random sentences.
        batch_size: sentences per update.
        window_tokens: maximum rows of features at once.
        count: number of windows. A store with fewer is read again, in another order.
        seed: seed of the random sentences and of the order.
    """
    if store is None:
        text = as_store(draw(count * (window_tokens // (MEAN_LENGTH - 1) + 4 * batch_size), vocab_size, seed))
    else:
        text = open_store(store)
    epochs: list[EpochPlan] = []
    windows: list[tuple[int, range]] = []
    while len(windows) < count:
        epoch = batches.plan_epoch(text.lengths, seed, len(epochs), batch_size, window_tokens)
        full = epoch.windows[: max(1, len(epoch.windows) - 1)]  # the last one is not
        windows += [(len(epochs), window) for window in full]
        epochs.append(epoch)
    return Text(text, epochs, windows[:count])


def draw(count: int, vocab_size: int, seed: int) -> list[np.ndarray]:
    """Returns int32 sentences of log-normal lengths and Zipf's frequencies; the last id is BOS and EOS."""
    rng = np.random.default_rng(seed)
    location = np.log(MEAN_LENGTH) - LENGTH_SPREAD**2 / 2
    lengths = np.clip(np.rint(rng.lognormal(location, LENGTH_SPREAD, count)), SHORTEST, LONGEST).astype(int)
    ends = vocab_size - 1
    frequency = 1 / np.arange(2, ends + 2)
    words = rng.choice(ends, size=lengths.sum(), p=frequency / frequency.sum()).astype(np.int32)
    sentences = np.split(words, np.cumsum(lengths)[:-1])
    for sentence in sentences:
        sentence[[0, -1]] = ends
    return sentences


def draw_pairs(count: int, vocab_size: int, seed: int) -> list[np.ndarray]:
    """Returns minimal pairs similar to BLiMP's, good and bad in turn.

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


def as_store(sentences: list[np.ndarray]) -> TokenStore:
    """Returns a token store in memory, with arbitrary counts of words and bytes."""
    lengths = np.array([len(sentence) for sentence in sentences])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return TokenStore(Path(), {}, np.concatenate(sentences), offsets, words=lengths, bytes=lengths)


def predictions(sentences: list[np.ndarray]) -> int:
    """Returns the number of predicted tokens."""
    return sum(len(sentence) - 1 for sentence in sentences)


def real_share(padded_batches: list[list[np.ndarray]]) -> float:
    """Returns the share of positions in padded batches with a real prediction."""
    padded = sum(len(batch) * (max(map(len, batch)) - 1) for batch in padded_batches)
    return sum(map(predictions, padded_batches)) / padded
