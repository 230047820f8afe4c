"""Text in lanes: sentences that are read one after another, several lanes side by side, for states
carried over documents."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from esnlm.data.store import TokenStore
from esnlm.features.layout import equal_shares


class Pieces(NamedTuple):
    """The next tokens of every lane. Longer lanes come first, so that at each time step the first
    lanes are running."""

    tokens: np.ndarray  # (T, B) int32
    # (T, B) int32, tokens since the state was reset: at the beginning of a document or of the lane
    depths: np.ndarray
    corpus_positions: np.ndarray  # (T, B) uint32
    # (T, B) int32, tokens after this one in its sentence; 0 where a lane has ended
    left: np.ndarray
    targets: np.ndarray  # (T, B) int32, the next token, predicted if `left` is above 0
    running: np.ndarray  # (T,), lanes that have not ended

    def cut(self, steps: slice) -> "Pieces":
        """Returns some time steps."""
        return Pieces(*(array[steps] for array in self))

    @property
    def first_rows(self) -> np.ndarray:
        """The packed row of lane 0 at each time step, (T,) int32; those of other running lanes
        follow."""
        return (np.cumsum(self.running) - self.running).astype(np.int32)

    def predictions(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the predictions in the order of time: the packed row of the features of each,
        (n,), and its target."""
        rows = self.first_rows[:, None] + np.arange(self.tokens.shape[1], dtype=np.int32)
        return rows[self.left > 0], self.targets[self.left > 0]


class Lanes:
    """Lanes of the sentences of a store.

    Args:
        order: the numbers of the sentences, (S,), one after another. Those of a document are
            neighbours.
        edges: where lanes begin and end among all tokens of these sentences, (B + 1,), ascending.
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
        lane = np.searchsorted(self.edges, self.ends - 1, side="right") - 1
        return self.ends - 1 - self.edges[lane]

    @property
    def steps(self) -> int:
        """The time steps of the longest lane."""
        return int(self.sizes[0])

    def read(self, first: int, last: int) -> Pieces:
        """Reads the time steps first .. last - 1, or as many as there are."""
        steps = np.arange(first, min(last, self.steps))[:, None]  # (T, 1)
        is_running = steps < self.sizes  # (T, B)
        at = np.where(is_running, self.firsts + steps, self.firsts)  # among all tokens
        s = np.searchsorted(self.ends, at, side="right")
        left = self.ends[s] - at - 1
        positions = self.store.offsets[1:][self.order[s]] - left - 1
        left = np.where(is_running, left, 0)
        return Pieces(
            tokens=self.store.tokens[positions].astype(np.int32),
            depths=(at - np.maximum(self.beginnings[s], self.firsts)).astype(np.int32),
            corpus_positions=positions.astype(np.uint32),
            left=left.astype(np.int32),
            targets=self.store.tokens[np.where(left > 0, positions + 1, 0)].astype(np.int32),
            running=is_running.sum(axis=1),
        )

    def windows(self, tokens: int) -> Iterator[Pieces]:
        """Yields all time steps, about `tokens` tokens at a time."""
        steps = max(1, tokens // len(self.sizes))
        return (self.read(first, first + steps) for first in range(0, self.steps, steps))


def equal_lanes(store: TokenStore, count: int, rng: np.random.Generator | None = None) -> Lanes:
    """Returns all documents, shuffled if there is a `rng`, in lanes of equal length. Their edges
    may cut a document."""
    documents = documents_of(store)
    shuffled = documents if rng is None else [documents[d] for d in rng.permutation(len(documents))]
    order = np.concatenate(shuffled)
    return Lanes(
        store, order, np.linspace(0, store.lengths[order].sum(), count + 1).astype(np.int64)
    )


def whole_documents(store: TokenStore, most: int) -> Lanes:
    """Returns all documents, each whole in one of at most `most` lanes: with more, the longest
    would be read alone."""
    documents = documents_of(store)
    sizes = np.array([store.lengths[sentences].sum() for sentences in documents])
    shares = equal_shares(sizes, int(min(most, -(-sizes.sum() // sizes.max()))))
    order = np.concatenate([documents[d] for share in shares for d in share])
    return Lanes(store, order, np.cumsum([0, *(sizes[share].sum() for share in shares)]))


def documents_of(store: TokenStore) -> list[np.ndarray]:
    """Returns the numbers of each document's sentences."""
    return np.split(
        np.arange(len(store)), np.flatnonzero(np.diff(store.documents.astype(np.int64))) + 1
    )
