"""The sentences of each update, and their predictions as arrays of a few fixed shapes.

An epoch is an order of the sentences, cut into updates (one optimizer step each) and into prefetch
windows: consecutive updates whose features are computed together. A `Batch` has the predictions of
an update without padding between the sentences. For A0 A1 A2 A3 and A0 B1 B2:

    row            r0   r1   r2   r3 | 0    0        features that the prediction is made from:
    read           A0   A1   A2   B1 |                row r0 of both sentences is the same
    targets        A1   A2   A3   B2 | -    -        padded to one of few sizes, the bucket
    first_targets  B1                                further targets of the shared first row

Sentences share their first row if they begin with the same token (BOS) and there is no dropout.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np

from esnlm.base.rng import Stream, generator
from esnlm.data.store import TokenStore
from esnlm.features.batching import group_by_tokens, padded_size
from esnlm.features.documents import Chunk, TokenStreams, equal_streams
from esnlm.training.config import ResolvedExperiment, TrainingConfig

# ---- the plan of an epoch ----


@dataclass(frozen=True)
class EpochPlan:
    """One pass over the sentences: its updates in order, and their prefetch windows."""

    draw: Callable[[], list[np.ndarray]]  # draws `updates` again, to save memory
    predictions: np.ndarray  # (updates,), predictions of each update
    windows: list[range]  # consecutive updates, by their number within the epoch

    @property
    def updates(self) -> list[np.ndarray]:
        """The numbers of the sentences of each update, or of those that end in it."""
        return self.draw()

    def split_window(self, window: range, parts: int) -> list[range]:
        """Splits a window into up to `parts` parts with about equal numbers of predictions."""
        sizes = self.predictions[window.start : window.stop]
        ends = np.cumsum(sizes)
        part_of = (ends - sizes / 2) * parts // ends[-1]  # where the middle of each update lies
        edges = window.start + np.searchsorted(part_of, np.arange(parts + 1))
        return [range(first, last) for first, last in pairwise(edges.tolist()) if first < last]


def plan_epoch(
    lengths: np.ndarray,
    seed: int,
    epoch: int,
    batch_size: int,
    window_tokens: int,
    order: str = "shuffled",
) -> EpochPlan:
    """Cuts sentences into updates, shuffled in each epoch [ours] or in the order of the corpus.

    The last update may have fewer sentences and is kept, as in Ueda et al. 2025a.
    """
    draw = partial(_draw, len(lengths), seed, epoch, batch_size, order)
    predictions = np.array([(lengths[update] - 1).sum() for update in draw()])
    return EpochPlan(draw, predictions, list(group_by_tokens(predictions, window_tokens)))


@lru_cache(maxsize=1)  # Windows are read in order, so one epoch at a time is enough.
def _draw(sentences: int, seed: int, epoch: int, batch_size: int, order: str) -> list[np.ndarray]:
    numbers = np.arange(sentences)
    if order != "corpus":
        numbers = generator(seed, Stream.SENTENCE_ORDER, epoch).permutation(sentences)
    numbers.flags.writeable = False  # the cache returns this array again
    return np.split(numbers, range(batch_size, sentences, batch_size))


@dataclass(frozen=True)
class DocumentPlan(EpochPlan):
    """One pass over documents in parallel streams. An update has a chunk of each stream."""

    draw_streams: Callable[[], TokenStreams]
    bptt_length: int  # time steps of a chunk, over which gradients go back

    @property
    def streams(self) -> TokenStreams:
        """The streams. They are made on demand, to save memory."""
        return self.draw_streams()

    def chunk(self, updates: range) -> Chunk:
        """Reads the chunk of some consecutive updates."""
        length = self.bptt_length
        return self.streams.read(updates.start * length, updates.stop * length)


def plan_documents(
    store: TokenStore,
    seed: int,
    epoch: int,
    batch_size: int,
    bptt_length: int,
    window_tokens: int,
    order: str = "shuffled",
) -> DocumentPlan:
    """Cuts documents into `batch_size` streams and these into updates.

    The documents are shuffled in each epoch, or in the order of the corpus.
    """
    draw_streams = partial(_streams, store, seed, epoch, batch_size, order)
    streams = draw_streams()
    firsts = np.arange(0, streams.steps, bptt_length)[:, None]  # (updates, 1)
    tokens = np.clip(streams.sizes - firsts, 0, bptt_length).sum(axis=1)
    # After a sentence nothing is predicted.
    ends = np.bincount(streams.last_steps() // bptt_length, minlength=len(firsts))
    return DocumentPlan(
        partial(_ending_sentences, draw_streams, bptt_length, len(firsts)),
        tokens - ends,
        list(group_by_tokens(tokens, window_tokens)),
        draw_streams,
        bptt_length,
    )


@lru_cache(maxsize=1)
def _streams(store: TokenStore, seed: int, epoch: int, count: int, order: str) -> TokenStreams:
    rng = None if order == "corpus" else generator(seed, Stream.SENTENCE_ORDER, epoch)
    return equal_streams(store, count, rng)


def _ending_sentences(
    draw_streams: Callable[[], TokenStreams], bptt_length: int, updates: int
) -> list[np.ndarray]:
    """Returns the numbers of the sentences that end in each update."""
    streams = draw_streams()
    update_of = streams.last_steps() // bptt_length  # (S,)
    by_update = np.argsort(update_of, kind="stable")
    edges = np.searchsorted(update_of[by_update], np.arange(1, updates))
    return np.split(streams.order[by_update], edges)


def plan_of(experiment: ResolvedExperiment, store: TokenStore, epoch: int) -> EpochPlan:
    """Returns the plan of an epoch of a run by gradients."""
    training, compute = cast(TrainingConfig, experiment.training), experiment.compute
    bptt_length, seed = experiment.data.document_chunk, experiment.seed
    size, window_tokens, order = training.batch_size, compute.window_tokens, training.order
    if bptt_length is None:
        return plan_epoch(store.lengths, seed, epoch, size, window_tokens, order)
    return plan_documents(store, seed, epoch, size, bptt_length, window_tokens, order)


# ---- the sentences of an update ----


class Sentences(NamedTuple):
    """Sentences of an update as inputs and targets, with one array per sentence, (T - 1,)."""

    inputs: list[np.ndarray]
    targets: list[np.ndarray]
    corpus_positions: list[np.ndarray]  # positions of the inputs

    def predictions(self) -> int:
        """Returns the number of predicted tokens."""
        return sum(map(len, self.targets))

    def part(self, numbers: range) -> "Sentences":
        """Returns consecutive sentences."""
        return Sentences(*(column[numbers.start : numbers.stop] for column in self))


def read_sentences(store: TokenStore, numbers: np.ndarray) -> Sentences:
    """Reads sentences of a store by their numbers."""
    tokens = [store.sentence(s) for s in numbers]
    corpus_positions = [
        np.arange(store.offsets[s], store.offsets[s + 1] - 1).astype(np.uint32) for s in numbers
    ]
    inputs, targets = [each[:-1] for each in tokens], [each[1:] for each in tokens]
    return Sentences(inputs, targets, corpus_positions)


def of_chunk(chunk: Chunk) -> Sentences:
    """Returns the predictions of a chunk of documents, in order of time, as if of one sentence."""
    is_predicted = chunk.left > 0
    inputs, corpus_positions = chunk.steps.tokens, chunk.steps.corpus_positions
    return Sentences([inputs[is_predicted]], [chunk.targets], [corpus_positions[is_predicted]])


def split_update(sentences: Sentences, most: int) -> list[Sentences]:
    """Splits an update into parts of at most `most` predictions and at least one sentence."""
    return [sentences.part(each) for each in group_by_tokens(map(len, sentences.targets), most)]


# ---- buckets ----

# Floating-point operations of updates that take as long as compiling one, for one more bucket: a
# second or two on a CPU, and a few on a GPU or TPU, which computes updates much faster.
COMPILATION = {"cpu": 3e11, "gpu": 2e14, "tpu": 2e14}


def compilation_rows(trainable: int, backend: str) -> float:
    """Returns the estimated time to compile an update, in rows of updates.

    A row takes 6 operations per trained parameter: forward, and twice as many for the gradient.
    """
    return COMPILATION.get(backend, COMPILATION["gpu"]) / (6 * trainable)


class UpdateShapes(NamedTuple):
    """The shapes of all updates of a run, by the data, the seed and the kind of device."""

    buckets: tuple[int, ...]  # padded numbers of rows, ascending
    most_first_targets: int  # S, maximum first targets of an update; 0: no row is shared


def update_shapes(
    epochs: list[EpochPlan], window_tokens: int, shared_first: bool, compilation: float
) -> UpdateShapes:
    """Returns the shapes of all updates of some epochs, without those that are split.

    An update is split if it has more than `window_tokens` predictions. `compilation` is as in
    `choose_buckets`.
    """
    sizes = Counter(
        (int(predictions), len(update))
        for epoch in epochs
        for predictions, update in zip(epoch.predictions, epoch.updates, strict=True)
    )
    rows = [
        (row_count(predictions, sentences, shared_first), count)
        for (predictions, sentences), count in sizes.items()
        if predictions <= window_tokens
    ]
    most_first_targets = max(sentences - 1 for _, sentences in sizes) if shared_first else 0
    return UpdateShapes(choose_buckets(rows or [(1, 1)], compilation), most_first_targets)


def choose_buckets(rows: list[tuple[int, int]], compilation: float) -> tuple[int, ...]:
    """Returns the buckets with the least cost in padded rows and in time to compile.

    Args:
        rows: pairs of a number of rows, and the number of updates that have it.
        compilation: the time to compile a bucket, in rows.
    """
    updates = Counter[int]()  # by the finest bucket
    for count, times in rows:
        updates[bucket_size(count)] += times
    sizes = sorted(updates)
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


def row_count(predictions: int, sentences: int, shared_first: bool) -> int:
    """Returns the rows of features for the predictions: one each, or one for all first ones."""
    return predictions - (sentences - 1 if shared_first else 0)


def bucket_size(rows: int, per_doubling: int = 32) -> int:
    """Returns `rows` padded to the next bucket, of `per_doubling` for each power of two."""
    return padded_size(rows, per_doubling, multiple=16)


# ---- packed predictions ----


class Batch(NamedTuple):
    """The predictions of an update, or of a part of one, without padding between sentences.

    Each is made from one row of features. A row shared by the sentences comes first, and
    `first_targets` are its further targets besides targets[0].
    """

    rows: Any  # (C,) int32, row of the features
    targets: Any  # (C,) int32, the token to predict
    weights: Any  # (C,) float32, 1 / the predictions of the update; 0 for padding
    corpus_positions: Any  # (C,) uint32, position of the last token read, for dropout
    first_targets: Any  # (S,) int32
    first_weights: Any  # (S,) float32
    inputs: Any = None  # a buffer of precomputed features (rows, N), or the PackedSteps to read
    key: Any = None  # dropout key of the epoch; None: no dropout
    carry: Any = None  # of documents, the state of the streams before `inputs`


def pack_targets(
    sentences: Sentences,
    rows: list[np.ndarray],
    size: int,
    predictions: int,
    most_first_targets: int = 0,
) -> Batch:
    """Packs the targets of an update, or of a part of one, into C = `size` rows.

    Args:
        rows: the feature rows of each sentence's inputs.
        size: C.
        predictions: number of predictions in the entire update.
        most_first_targets: S. Unless it is 0, all sentences share the first row of the first one.
    """
    # The first predictions of all sentences but the first use the row of the first sentence.
    uses_first_row = np.zeros(sentences.predictions(), bool)
    if most_first_targets:
        uses_first_row[np.cumsum([len(target) for target in sentences.targets])[:-1]] = True
    targets = np.concatenate(sentences.targets)
    weights = np.full(len(targets), 1 / predictions)

    def pad(values: np.ndarray, dtype: type, length: int) -> np.ndarray:
        return np.pad(values, (0, length - len(values))).astype(dtype)

    return Batch(
        pad(np.concatenate(rows)[~uses_first_row], np.int32, size),
        pad(targets[~uses_first_row], np.int32, size),
        pad(weights[~uses_first_row], np.float32, size),
        pad(np.concatenate(sentences.corpus_positions)[~uses_first_row], np.uint32, size),
        pad(targets[uses_first_row], np.int32, most_first_targets),
        pad(weights[uses_first_row], np.float32, most_first_targets),
    )


def pack_update(update: Sentences, rows: list[np.ndarray], shapes: UpdateShapes) -> Batch:
    """Packs the targets of an update into the smallest bucket that fits, given its rows."""
    count = row_count(update.predictions(), len(update.targets), shapes.most_first_targets > 0)
    size = shapes.buckets[bisect_left(shapes.buckets, count)]
    return pack_targets(update, rows, size, update.predictions(), shapes.most_first_targets)
