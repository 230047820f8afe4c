"""Which sentences make which update, and which updates share a window of states."""

from dataclasses import dataclass

import numpy as np

# A stream of its own beside the model's (reservoir/weights.py, readout/linear.py).
ORDER = 4


def epoch_order(sentences: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of the sentences, (sentences,) int64, new in every epoch."""
    return np.random.default_rng([seed, ORDER, epoch]).permutation(sentences)


def split_updates(order: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """The epoch's batches in order; the last one may be smaller and is kept (S1)."""
    return np.split(order, range(batch_size, len(order), batch_size))


def split_windows(tokens_per_update: np.ndarray, window_tokens: int) -> list[range]:
    """Consecutive updates whose states are computed together: as many as fit into window_tokens, at least one.

    Only the epoch's own order decides, never where a resumed run begins, so that a resumed run repeats the same
    products on the same shapes, bit by bit.
    """
    windows, first, filled = [], 0, 0
    for update, tokens in enumerate(tokens_per_update):
        if update > first and filled + tokens > window_tokens:
            windows.append(range(first, update))
            first, filled = update, 0
        filled += tokens
    return [*windows, range(first, len(tokens_per_update))]


@dataclass(frozen=True)
class Pack:
    """The predictions of one update without padding between them: rows of a state buffer and what comes next.

    Shaped (K, C): K chunks of C predictions, the last ones filled up with weight 0.
    """

    rows: np.ndarray  # (K, C) int32
    targets: np.ndarray  # (K, C) int32
    weights: np.ndarray  # (K, C) float32, summing to 1


def pack_size(tokens: int) -> int:
    """The next of a few fixed sizes (eight an octave): every size is one compilation."""
    step = 1 << max(5, tokens.bit_length() - 4)
    return -(-tokens // step) * step


def pack(rows: list[np.ndarray], targets: list[np.ndarray], chunk_tokens: int) -> Pack:
    """Packs the predictions of some sentences, each weighing 1 / their number.

    Args:
        rows: the state's row for each prediction, one array a sentence.
        targets: the token to predict, likewise.
        chunk_tokens: predictions whose logits may exist at once.
    """
    row, target = np.concatenate(rows), np.concatenate(targets)
    count = len(row)
    width = min(pack_size(count), chunk_tokens)
    chunks = -(-count // width)
    filled = [np.zeros(chunks * width, dtype) for dtype in (np.int32, np.int32, np.float32)]
    filled[0][:count], filled[1][:count], filled[2][:count] = row, target, np.float32(1 / count)
    return Pack(*(array.reshape(chunks, width) for array in filled))
