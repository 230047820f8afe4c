"""Documents as parallel streams of tokens, for states that are carried over their sentences.

Two streams of the documents A, B and C, in chunks of four time steps. The edge between the streams
may cut a document; the state is reset at each beginning:

    stream 0   A0 A1 A2 A3 | A4 A5 A6 B0 | B1 B2
    stream 1   B3 B4 B5 C0 | C1 C2 C3 C4 | C5
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from esnlm.data.store import TokenStore
from esnlm.features.batching import PackedSteps, split_evenly


class Chunk(NamedTuple):
    """The next time steps of every stream. At each step the first streams have not ended."""

    # their positions count from the reset of the state, at the beginning of a document or stream
    steps: PackedSteps
    # (T, B) int32, tokens after this one in its sentence; 0 after the end of a stream
    left: np.ndarray
    following: np.ndarray  # (T, B) int32, the next token, predicted if `left` is above 0
    size: int  # rows of features, one for each token

    @property
    def rows(self) -> np.ndarray:
        """The row of the features before each predicted token, (P,) int32, in order of time."""
        slots = np.arange(self.left.shape[1], dtype=np.int32)
        return (self.steps.first_rows[:, None] + slots)[self.left > 0]

    @property
    def targets(self) -> np.ndarray:
        """The predicted tokens, (P,)."""
        return self.following[self.left > 0]


class TokenStreams:
    """The sentences of a store in B streams, the longest one first.

    Args:
        order: the numbers of the sentences, (S,), one after another. Those of a document are
            neighbours.
        edges: the ends of the streams among all tokens of these sentences, (B + 1,), ascending
            from 0.
    """

    def __init__(self, store: TokenStore, order: np.ndarray, edges: np.ndarray) -> None:
        self.store, self.order, self.edges = store, order, edges
        self.ends = np.cumsum(store.lengths[order])  # (S,), of each sentence among all tokens
        starts = self.ends - store.lengths[order]
        begins = np.diff(store.documents[order].astype(np.int64), prepend=-1) != 0
        self.beginnings = starts[begins][np.cumsum(begins) - 1]  # (S,), of each sentence's document
        longest_first = np.argsort(-np.diff(edges), kind="stable")
        self.firsts, self.sizes = edges[:-1][longest_first], np.diff(edges)[longest_first]

    def last_steps(self) -> np.ndarray:
        """Returns the time step at which each sentence of `order` ends, (S,)."""
        stream = np.searchsorted(self.edges, self.ends - 1, side="right") - 1
        return self.ends - 1 - self.edges[stream]

    @property
    def steps(self) -> int:
        """The time steps of the longest stream."""
        return int(self.sizes[0])

    def read(self, first: int, last: int) -> Chunk:
        """Reads the time steps first .. last - 1, or as many as there are."""
        steps = np.arange(first, min(last, self.steps))[:, None]  # (T, 1)
        is_active = steps < self.sizes  # (T, B)
        place = np.where(is_active, self.firsts + steps, self.firsts)  # among all tokens
        s = np.searchsorted(self.ends, place, side="right")
        left = self.ends[s] - place - 1
        in_corpus = self.store.offsets[1:][self.order[s]] - left - 1
        left = np.where(is_active, left, 0)
        active = is_active.sum(axis=1)
        packed = PackedSteps(
            tokens=self.store.tokens[in_corpus].astype(np.int32),
            positions=(place - np.maximum(self.beginnings[s], self.firsts)).astype(np.int32),
            corpus_positions=in_corpus.astype(np.uint32),
            first_rows=(np.cumsum(active) - active).astype(np.int32),
        )
        following = self.store.tokens[np.where(left > 0, in_corpus + 1, 0)].astype(np.int32)
        return Chunk(packed, left.astype(np.int32), following, int(active.sum()))

    def chunks(self, tokens: int) -> Iterator[Chunk]:
        """Yields all time steps, about `tokens` tokens at a time."""
        steps = max(1, tokens // len(self.sizes))
        return (self.read(first, first + steps) for first in range(0, self.steps, steps))


def equal_streams(
    store: TokenStore, count: int, rng: np.random.Generator | None = None
) -> TokenStreams:
    """Returns all documents, shuffled by `rng`, in streams of equal length."""
    documents = documents_of(store)
    order = np.arange(len(documents)) if rng is None else rng.permutation(len(documents))
    sentences = np.concatenate([documents[d] for d in order])
    edges = np.linspace(0, store.lengths[sentences].sum(), count + 1).astype(np.int64)
    return TokenStreams(store, sentences, edges)


def whole_documents(store: TokenStore, max_streams: int) -> TokenStreams:
    """Returns all documents, uncut, in at most `max_streams` streams of about equal length.

    With more streams, the longest document would be read alone.
    """
    documents = documents_of(store)
    sizes = np.array([store.lengths[sentences].sum() for sentences in documents])
    parts = split_evenly(sizes, int(min(max_streams, -(-sizes.sum() // sizes.max()))))
    order = np.concatenate([documents[d] for part in parts for d in part])
    return TokenStreams(store, order, np.cumsum([0, *(sizes[part].sum() for part in parts)]))


def documents_of(store: TokenStore) -> list[np.ndarray]:
    """Returns the numbers of each document's sentences."""
    firsts = np.flatnonzero(np.diff(store.documents.astype(np.int64))) + 1
    return np.split(np.arange(len(store)), firsts)
