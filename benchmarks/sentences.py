"""Sentences to measure with: random ones like the corpus's, or those of a token store."""

from pathlib import Path

import numpy as np

from esnlm.data.store import open_store
from esnlm.training import batches

SHORTEST, LONGEST = 6, 512  # tokens with BOS and EOS, as in Ueda et al. 2025a
MEAN_LENGTH = 21  # tokens of a sentence of the corpus, with BOS and EOS
LENGTH_SPREAD = 0.66  # standard deviation of ln(length): the corpus has 0.64, and 29 to 33 % real in a padded batch


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
    """Returns minimal pairs, good and bad in turn, that are like BLiMP's.

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


def windows(
    store: Path | None, vocab_size: int, batch_size: int, window_tokens: int, count: int, seed: int
) -> list[list[list[np.ndarray]]]:
    """Returns prefetch windows as a training cuts them out of an epoch: each a list of batches of sentences.

    Args:
        store: a token store; None: drawn sentences.
        count: how many windows. A store that holds fewer is gone through again, in another order.
    """
    if store is None:
        text = draw(count * (window_tokens // (MEAN_LENGTH - 1) + 4 * batch_size), vocab_size, seed)
        lengths, sentence = np.array([len(s) for s in text]), text.__getitem__
    else:
        text = open_store(store)
        lengths, sentence = text.lengths, text.sentence
    found = []
    for epoch in range(count):
        plan = batches.plan_epoch(lengths, seed, epoch, batch_size, window_tokens)
        for window in plan.windows[: max(1, len(plan.windows) - 1)]:  # but the last, which is not full
            found.append([[sentence(s) for s in plan.updates[u]] for u in window])
            if len(found) == count:
                return found
    return found


def predictions(sentences: list[np.ndarray]) -> int:
    return sum(len(sentence) - 1 for sentence in sentences)


def rows(sentences: list[np.ndarray]) -> int:
    """Distinct rows of features that the predictions are made from, where those after BOS are shared."""
    return batches.row_count(predictions(sentences), len(sentences), prefix_tree=True)


def real_share(padded_batches: list[list[np.ndarray]]) -> float:
    """The share of the positions of padded batches that hold a real prediction."""
    padded = sum(len(batch) * (max(map(len, batch)) - 1) for batch in padded_batches)
    return sum(map(predictions, padded_batches)) / padded
