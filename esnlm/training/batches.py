"""Which sentences make which update, and which updates share a window of states."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# A stream of its own beside the model's (reservoir/weights.py, readout/linear.py).
ORDER = 4


@dataclass(frozen=True)
class Epoch:
    """One pass over the sentences: the updates in order, and the windows of updates whose states are made together."""

    updates: list[np.ndarray]  # the sentences of each update, (batch_size,) int64, the last one maybe fewer
    tokens: np.ndarray  # (updates,) predictions of each
    windows: list[range]  # consecutive updates, by number within the epoch


def plan_epoch(lengths: np.ndarray, seed: int, epoch: int, batch_size: int, window_tokens: int) -> Epoch:
    """Shuffles the sentences anew and cuts them into batches; the last one may be smaller and is kept (S1).

    Args:
        lengths: tokens of each sentence with BOS and EOS, of which all but one are predicted, (sentences,).
        window_tokens: states to hold at once.
    """
    order = np.random.default_rng([seed, ORDER, epoch]).permutation(len(lengths))
    updates = np.split(order, range(batch_size, len(order), batch_size))
    tokens = np.add.reduceat(lengths[order] - 1, range(0, len(order), batch_size))
    return Epoch(updates, tokens, split_windows(tokens, window_tokens))


def split_windows(tokens: np.ndarray, window_tokens: int) -> list[range]:
    """Consecutive updates whose states are computed together: as many as fit into window_tokens, at least one.

    Only the epoch's own order decides, never where a resumed run begins, so that a resumed run repeats the same
    products on the same shapes, bit by bit.
    """
    windows, first, filled = [], 0, 0
    for update, count in enumerate(tokens):
        if update > first and filled + count > window_tokens:
            windows.append(range(first, update))
            first, filled = update, 0
        filled += count
    return [*windows, range(first, len(tokens))]


class Shapes(NamedTuple):
    """The shapes that a run's packs come in, known before it begins, so that one compilation serves all of it."""

    sizes: tuple[int, ...]  # predictions of an update, padded: ascending
    slots: int  # updates in a window, at most


def shapes(epochs: list[Epoch]) -> Shapes:
    """The shapes of all updates of some epochs."""
    sizes = {pack_size(int(tokens)) for epoch in epochs for tokens in np.unique(epoch.tokens)}
    return Shapes(tuple(sorted(sizes)), max(len(window) for epoch in epochs for window in epoch.windows))


def pack_size(tokens: int) -> int:
    """The next of a few fixed sizes (eight an octave): every size is compiled once."""
    step = 1 << max(5, tokens.bit_length() - 4)
    return -(-tokens // step) * step


class Packs(NamedTuple):
    """The predictions of a window's updates without the padding of their sentences.

    Update u has its predictions in the first sizes[size[u]] places of its row; unused ones weigh nothing. P is the
    largest size, U the number of slots.
    """

    rows: np.ndarray  # (U, P) int32, of the state buffer
    targets: np.ndarray  # (U, P) int32, the token to predict
    weights: np.ndarray  # (U, P) float32, 1 / the update's predictions
    size: np.ndarray  # (U,) int32, which of Shapes.sizes


def pack(updates: list[tuple[np.ndarray, np.ndarray]], shapes: Shapes) -> Packs:
    """Packs the (rows, targets) of each update of a window."""
    form = (shapes.slots, shapes.sizes[-1])
    packs = Packs(np.zeros(form, np.int32), np.zeros(form, np.int32), np.zeros(form, np.float32), np.zeros(form[0], np.int32))
    for u, (rows, targets) in enumerate(updates):
        count = len(rows)
        packs.rows[u, :count], packs.targets[u, :count], packs.weights[u, :count] = rows, targets, 1 / count
        packs.size[u] = shapes.sizes.index(pack_size(count))
    return packs
