"""Which sentences make which update, and which updates share a window of states."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from esnlm.data.store import TokenStore
from esnlm.rng import Stream, generator


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
    order = generator(seed, Stream.SENTENCE_ORDER, epoch).permutation(len(lengths))
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

    sizes: tuple[int, ...]  # rows of an update, padded: ascending
    updates_in_window: int  # updates in a window, at most
    first_targets: int  # updates_in_window for the first tokens of sentences that share a row; 0: every prediction has a row of its own


def shapes(epochs: list[Epoch], window_tokens: int, shared: bool) -> Shapes:
    """The shapes of all updates of some epochs, but of those that are made in parts: they outgrow a window.

    Args:
        shared: the features after BOS are the same in all sentences, as they are without dropout: a pack has them once.
    """
    found = {
        (int(tokens), len(update))
        for epoch in epochs
        for tokens, update in zip(epoch.tokens, epoch.updates, strict=True)
    }
    sizes = {bucket_size(row_count(*update, shared)) for update in found if update[0] <= window_tokens}
    updates_in_window = max(len(window) for epoch in epochs for window in epoch.windows)
    first_targets = max(count - 1 for _, count in found) * shared
    return Shapes(tuple(sorted(sizes or {bucket_size(1)})), updates_in_window, first_targets)


def row_count(predictions: int, sentences: int, shared: bool) -> int:
    """Rows of features that predictions are made from: one each, or the first one of all sentences once."""
    return predictions - (sentences - 1 if shared else 0)


def bucket_size(tokens: int, per_doubling: int = 32) -> int:
    """The next of a few fixed sizes: every size is compiled once."""
    step = max(16, (1 << tokens.bit_length() - 1) // per_doubling)
    return -(-tokens // step) * step


class PackedTargets(NamedTuple):
    """The predictions of an update, or of a part of one, without the padding of their sentences.

    Each is made from a row of features. Where sentences share the row after BOS it is the first, and `first_targets` are what
    is predicted from it besides targets[0].
    """

    rows: np.ndarray  # (C,) int32, of the features
    targets: np.ndarray  # (C,) int32, the token to predict
    weights: np.ndarray  # (C,) float32, 1 / the update's predictions; 0 where nothing is predicted
    corpus_positions: np.ndarray  # (C,) uint32, in the corpus, of the token read last: for dropout
    first_targets: np.ndarray  # (S,) int32
    first_weights: np.ndarray  # (S,) float32


class WindowTargets(NamedTuple):
    """`PackedTargets` for each update of a window, (U, C) and (U, S) for U updates.

    Update u has its rows in the first sizes[size[u]] corpus_positions; unused ones weigh nothing. C is the largest size.
    """

    packed: PackedTargets
    size: np.ndarray  # (U,) int32, which of Shapes.sizes

    def update(self, u, size: int) -> PackedTargets:
        """Update u, in a pack of `size` rows."""
        *by_row, first_targets, first_weights = (part[u] for part in self.packed)
        return PackedTargets(*(part[:size] for part in by_row), first_targets, first_weights)


class Sentences(NamedTuple):
    """Sentences of an update, apart in what is read and what is predicted: one array a sentence, (T - 1,)."""

    inputs: list[np.ndarray]
    targets: list[np.ndarray]
    corpus_positions: list[np.ndarray]  # of the inputs in the corpus

    def predictions(self) -> int:
        return sum(map(len, self.targets))


def sentences(text: TokenStore, numbers: np.ndarray) -> Sentences:
    """Sentences of a store by number."""
    ids = [text.sentence(s) for s in numbers]
    corpus_positions = [np.arange(text.offsets[s], text.offsets[s + 1] - 1).astype(np.uint32) for s in numbers]
    return Sentences([tokens[:-1] for tokens in ids], [tokens[1:] for tokens in ids], corpus_positions)


def pack(some: Sentences, rows: list[np.ndarray], size: int, predictions: int, first_targets: int = 0) -> PackedTargets:
    """WindowTargets sentences whose features lie in `rows`.

    Args:
        size: C, at least as many as there are rows.
        predictions: of the whole update, of which these may be a part.
        first_targets: S; unless 0, the sentences share the row of the first one's first prediction.
    """

    is_first = np.zeros(
        some.predictions(), bool
    )  # the first predictions of all sentences but the first, where these share its row
    if first_targets:
        is_first[np.cumsum([len(target) for target in some.targets])[:-1]] = True
    rows, targets, corpus_positions = (np.concatenate(column) for column in (rows, some.targets, some.corpus_positions))
    weights = np.full(len(targets), 1 / predictions)

    def fill(values, dtype, length):
        return np.pad(values, (0, length - len(values))).astype(dtype)

    dtypes = (np.int32, np.int32, np.float32, np.uint32)
    by_row = [
        fill(values[~is_first], dtype, size)
        for values, dtype in zip((rows, targets, weights, corpus_positions), dtypes, strict=True)
    ]
    return PackedTargets(
        *by_row, fill(targets[is_first], np.int32, first_targets), fill(weights[is_first], np.float32, first_targets)
    )


def stack(updates: list[tuple[Sentences, list[np.ndarray]]], shapes: Shapes) -> WindowTargets:
    """The packs of a window, from the sentences of each update and the rows of their features."""
    most = shapes.sizes[-1]
    packed = [pack(some, rows, most, some.predictions(), shapes.first_targets) for some, rows in updates]
    packed += [PackedTargets(*map(np.zeros_like, packed[0]))] * (shapes.updates_in_window - len(packed))
    counts = [row_count(some.predictions(), len(some.targets), shapes.first_targets > 0) for some, _ in updates]
    size = [shapes.sizes.index(bucket_size(count)) for count in counts]
    size += [0] * (shapes.updates_in_window - len(size))
    return WindowTargets(
        PackedTargets(*(np.stack(parts) for parts in zip(*packed, strict=True))), np.array(size, np.int32)
    )


def parts(some: Sentences, most: int) -> list[Sentences]:
    """An update's sentences in groups of at most `most` predictions, at least one sentence each."""
    groups = split_windows(np.array([len(target) for target in some.targets]), most)
    return [Sentences(*(column[group.start : group.stop] for column in some)) for group in groups]
