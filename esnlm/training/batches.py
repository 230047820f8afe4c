"""The sentences of each update, and their targets as arrays of a few fixed shapes.

An epoch is an order of the sentences, cut into updates (one optimizer step each) and into prefetch
windows: consecutive updates whose features are computed together. An update has no padding between
its sentences: its predictions are packed one after another, each with the index of its row of
features. Every new shape needs a compilation, so the rows of an update are padded to one of a few
sizes, its bucket. If all sentences begin with the same token (BOS) and there is no dropout, they
share the features after it, and an update has this row once, with all first targets.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from esnlm.base.rng import Stream, generator
from esnlm.data.store import TokenStore
from esnlm.features.lanes import Lanes, Pieces, equal_lanes
from esnlm.training.config import ResolvedExperiment, TrainingConfig

Array = Any  # a NumPy array, or a traced array inside a compiled function

# ---- the plan of an epoch ----


@dataclass(frozen=True)
class EpochPlan:
    """One pass over the sentences: its updates in order, and their prefetch windows."""

    drawn_from: tuple  # arguments of `_draw`, which decide the order
    predictions: np.ndarray  # (updates,), predictions of each update
    windows: list[range]  # consecutive updates, by their number within the epoch

    @property
    def updates(self) -> list[np.ndarray]:
        """The sentence numbers of each update, (batch_size,) int64. They are drawn on demand, to
        save memory."""
        return _draw(*self.drawn_from)


def plan_epoch(
    lengths: np.ndarray,
    seed: int,
    epoch: int,
    batch_size: int,
    window_tokens: int,
    order: str = "shuffled",
) -> EpochPlan:
    """Cuts the sentences into updates: shuffled anew in each epoch [ours], or in the order of the
    corpus.

    The last update may have fewer sentences and is kept, as in Ueda et al. 2025a.
    """
    drawn_from = len(lengths), seed, epoch, batch_size, order
    predictions = np.array([(lengths[update] - 1).sum() for update in _draw(*drawn_from)])
    return EpochPlan(drawn_from, predictions, split_windows(predictions, window_tokens))


@lru_cache(maxsize=1)  # Windows are read in order, so one epoch at a time is enough.
def _draw(sentences: int, seed: int, epoch: int, batch_size: int, order: str) -> list[np.ndarray]:
    shuffled = order != "corpus"
    found = (
        generator(seed, Stream.SENTENCE_ORDER, epoch).permutation(sentences)
        if shuffled
        else np.arange(sentences)
    )
    found.flags.writeable = False  # the cache returns this array again
    return np.split(found, range(batch_size, sentences, batch_size))


@dataclass(frozen=True)
class DocumentPlan(EpochPlan):
    """One pass over documents in `batch_size` lanes. Each update takes the next piece of every
    lane."""

    piece: int  # tokens of each lane in an update

    @property
    def lanes(self) -> Lanes:
        """The lanes. They are made on demand, to save memory."""
        return _lanes(*self.drawn_from)

    @property
    def updates(self) -> list[np.ndarray]:
        """The numbers of the sentences that end in each update."""
        lanes = self.lanes
        update = lanes.last_steps() // self.piece  # (S,)
        by_update = np.argsort(update, kind="stable")
        edges = np.searchsorted(update[by_update], np.arange(1, len(self.predictions)))
        return np.split(lanes.order[by_update], edges)


def plan_documents(
    store: TokenStore,
    seed: int,
    epoch: int,
    batch_size: int,
    piece: int,
    window_tokens: int,
    order: str = "shuffled",
) -> DocumentPlan:
    """Cuts documents into lanes and updates: shuffled anew in each epoch, or in the order of the
    corpus."""
    drawn_from = store, seed, epoch, batch_size, order
    lanes = _lanes(*drawn_from)
    firsts = np.arange(0, lanes.steps, piece)[:, None]  # (updates, 1)
    tokens = np.clip(lanes.sizes - firsts, 0, piece).sum(axis=1)
    # After a sentence nothing is predicted.
    ends = np.bincount(lanes.last_steps() // piece, minlength=len(firsts))
    return DocumentPlan(drawn_from, tokens - ends, split_windows(tokens, window_tokens), piece)


@lru_cache(maxsize=1)
def _lanes(store: TokenStore, seed: int, epoch: int, count: int, order: str) -> Lanes:
    rng = None if order == "corpus" else generator(seed, Stream.SENTENCE_ORDER, epoch)
    return equal_lanes(store, count, rng)


def plan_of(experiment: ResolvedExperiment, store: TokenStore, epoch: int) -> EpochPlan:
    """Returns the plan of an epoch of a run by gradients."""
    training, piece = experiment.training, experiment.data.document_piece
    assert isinstance(training, TrainingConfig)
    given = experiment.seed, epoch, training.batch_size
    window, order = experiment.compute.window_tokens, training.order
    if piece is None:
        return plan_epoch(store.lengths, *given, window, order)
    return plan_documents(store, *given, piece, window, order)


def split_windows(predictions: np.ndarray, window_tokens: int) -> list[range]:
    """Cuts a sequence into windows of consecutive items: as many as fit into window_tokens, and at
    least one.

    The windows depend only on the order of the epoch, not on where a run resumes. So a resumed run
    repeats the same products on the same shapes, bit by bit.
    """
    windows, first, filled = [], 0, 0
    for item, count in enumerate(predictions):
        if item > first and filled + count > window_tokens:
            windows.append(range(first, item))
            first, filled = item, 0
        filled += count
    return [*windows, range(first, len(predictions))]


# ---- the sentences of an update ----


class Sentences(NamedTuple):
    """Sentences of an update as inputs and targets, with one array per sentence, (T - 1,)."""

    inputs: list[np.ndarray]
    targets: list[np.ndarray]
    corpus_positions: list[np.ndarray]  # positions of the inputs

    def predictions(self) -> int:
        """Returns the number of predicted tokens."""
        return sum(map(len, self.targets))


def read_sentences(store: TokenStore, numbers: np.ndarray) -> Sentences:
    """Reads sentences of a store by their numbers."""
    tokens = [store.sentence(s) for s in numbers]
    corpus_positions = [
        np.arange(store.offsets[s], store.offsets[s + 1] - 1).astype(np.uint32) for s in numbers
    ]
    return Sentences(
        [sentence[:-1] for sentence in tokens],
        [sentence[1:] for sentence in tokens],
        corpus_positions,
    )


def of_pieces(pieces: Pieces) -> Sentences:
    """Returns all predictions of pieces, in the order of time, as if they were one sentence."""
    is_predicted = pieces.left > 0
    return Sentences(
        *(
            [array[is_predicted]]
            for array in (pieces.tokens, pieces.targets, pieces.corpus_positions)
        )
    )


def split_update(whole: Sentences, most: int) -> list[Sentences]:
    """Splits an update into parts of at most `most` predictions and at least one sentence."""
    parts = split_windows(np.array([len(target) for target in whole.targets]), most)
    return [Sentences(*(column[part.start : part.stop] for column in whole)) for part in parts]


# ---- buckets ----

# Estimated time to compile an update for one more bucket, in updates. On a CPU it is below one
# update for GPT-2's vocabulary, a few for one of 8,192 tokens, a hundred in the quickstart. On a
# GPU or TPU an update takes a millisecond or two, and compiling takes seconds per bucket.
COMPILATION = {"cpu": 4, "gpu": 2000, "tpu": 2000}


class UpdateShapes(NamedTuple):
    """The shapes of all updates of a run. They depend on the data, the seed and the kind of device
    only."""

    buckets: tuple[int, ...]  # padded numbers of rows, ascending
    most_first_targets: (
        int  # S, maximum first targets of an update beside its rows; 0 if no row is shared
    )


def update_shapes(
    epochs: list[EpochPlan], window_tokens: int, shares_first_row: bool, backend: str
) -> UpdateShapes:
    """Returns the shapes of all updates of some epochs, except updates larger than a window, which
    are split."""
    found = Counter(
        (int(predictions), len(update))
        for epoch in epochs
        for predictions, update in zip(epoch.predictions, epoch.updates, strict=True)
    )
    rows = [
        (row_count(*update, shares_first_row), count)
        for update, count in found.items()
        if update[0] <= window_tokens
    ]
    most_first_targets = max(sentences - 1 for _, sentences in found) if shares_first_row else 0
    return UpdateShapes(
        choose_buckets(rows or [(1, 1)], COMPILATION.get(backend, COMPILATION["gpu"])),
        most_first_targets,
    )


def choose_buckets(rows: list[tuple[int, int]], compilation: float) -> tuple[int, ...]:
    """Returns the buckets with the least cost in padded rows and in time to compile, `compilation`
    updates per bucket.

    `rows` are pairs: a number of rows, and the number of updates that have it. The buckets depend
    on the data, the seed and the kind of device only, so a resumed run has the same ones.
    """
    updates = Counter[int]()  # by the finest bucket
    for count, times in rows:
        updates[bucket_size(count)] += times
    sizes = sorted(updates)
    compilation *= sum(size * updates[size] for size in sizes) / updates.total()  # in rows
    # least[j]: the least cost of all updates up to sizes[j - 1], if that is a bucket, and the
    # buckets.
    least: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for j, size in enumerate(sizes):
        padded = 0
        choices = []
        for i in range(j, -1, -1):  # sizes[i], ..., sizes[j] share the bucket sizes[j]
            padded += (size - sizes[i]) * updates[sizes[i]]
            before, chosen = least[i]
            choices.append((before + padded + compilation, (*chosen, size)))
        least.append(min(choices))
    return least[-1][1]


def row_count(predictions: int, sentences: int, shares_first_row: bool) -> int:
    """Returns the rows of features for the predictions: one each, or a common one for all first
    predictions."""
    return predictions - (sentences - 1 if shares_first_row else 0)


def bucket_size(rows: int, per_doubling: int = 32) -> int:
    """Returns `rows` padded to the next bucket. A power of two has `per_doubling` buckets, at least
    16 apart."""
    step = max(16, (1 << rows.bit_length() - 1) // per_doubling)
    return -(-rows // step) * step


# ---- packed targets ----


class PackedTargets(NamedTuple):
    """The predictions of an update, or of a part of one, without padding between sentences.

    Each is made from one row of features. A row shared by the sentences comes first, and
    `first_targets` are its further targets besides targets[0].
    """

    rows: Array  # (C,) int32, row of the features in their buffer
    targets: Array  # (C,) int32, the token to predict
    weights: Array  # (C,) float32, 1 / the predictions of the update; 0 for padding
    corpus_positions: Array  # (C,) uint32, position of the last token read, for dropout
    first_targets: Array  # (S,) int32
    first_weights: Array  # (S,) float32

    def apply(
        self, to_rows: Callable[[Array], Array], to_first: Callable[[Array], Array]
    ) -> "PackedTargets":
        """Applies one function to the arrays by row, and another to those of the shared row's
        further targets."""
        return PackedTargets(
            *[to_rows(part) for part in self[:4]], *[to_first(part) for part in self[4:]]
        )


def pack_targets(
    sentences: Sentences,
    rows: list[np.ndarray],
    size: int,
    predictions: int,
    most_first_targets: int = 0,
) -> PackedTargets:
    """Packs the targets of an update, or of a part of one, into C = `size` rows.

    `rows` are the feature rows of each sentence's inputs, `predictions` the number of predictions
    in the whole update. Unless S = `most_first_targets` is 0, all sentences share the first row of
    the first sentence.
    """
    # The first predictions of all sentences but the first use the row of the first sentence.
    shares_row = np.zeros(sentences.predictions(), bool)
    if most_first_targets:
        shares_row[np.cumsum([len(target) for target in sentences.targets])[:-1]] = True
    targets = np.concatenate(sentences.targets)
    weights = np.full(len(targets), 1 / predictions)

    def pad(values: np.ndarray, dtype: type, length: int) -> np.ndarray:
        return np.pad(values, (0, length - len(values))).astype(dtype)

    return PackedTargets(
        pad(np.concatenate(rows)[~shares_row], np.int32, size),
        pad(targets[~shares_row], np.int32, size),
        pad(weights[~shares_row], np.float32, size),
        pad(np.concatenate(sentences.corpus_positions)[~shares_row], np.uint32, size),
        pad(targets[shares_row], np.int32, most_first_targets),
        pad(weights[shares_row], np.float32, most_first_targets),
    )


def pack_update(update: Sentences, rows: list[np.ndarray], shapes: UpdateShapes) -> PackedTargets:
    """Packs the targets of an update into the smallest bucket that fits, given the rows of its
    features."""
    count = row_count(update.predictions(), len(update.targets), shapes.most_first_targets > 0)
    size = shapes.buckets[bisect_left(shapes.buckets, count)]
    return pack_targets(update, rows, size, update.predictions(), shapes.most_first_targets)
