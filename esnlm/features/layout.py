"""Layouts of sentences side by side in batch slots, with little or no padding.

`in_sequence` puts whole sentences one after another into slots, for features computed ahead of the
updates. `as_prefix_tree` shares common prefixes, so that scoring evaluates each distinct prefix
once. `pack_batch` makes a packed batch of one of few sizes, for features inside a gradient.
"""

import heapq
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

FEWEST_STEPS = 12  # minimum time steps of a packed batch


class Steps(NamedTuple):
    """The tokens that the slots read at each time step.

    A slot reads one token per step. With `starts` it continues from its own state or begins a
    sentence; with `parents` it continues from the state of another slot. Running slots come first,
    so that time step t fills the rows first_rows[t], first_rows[t] + 1, ... of a buffer; the next
    time step overwrites any rows written beyond these.
    """

    tokens: Any  # (T, B) int32
    starts: (
        Any  # (T, B) bool, whether a sentence starts with the token; None if there are `parents`
    )
    # (T, B) int32, the slot to continue from, -1 if a sentence starts; None if there are `starts`
    parents: Any
    first_rows: Any  # (T,) int32
    count: Any  # () int32, how many of the T time steps to run: one compilation serves all
    # (T, B) uint32, position of each token in the corpus; None: no dropout
    corpus_positions: Any = None


@dataclass(frozen=True)
class Layout:
    """Tokens by time step and slot, and the row of a packed buffer for the state after each token.

    rows[s][t] is the row of the state after the token at position t of sentence s. Exactly one of
    `starts` and `parents` is given; `Steps` describes them.
    """

    tokens: np.ndarray  # (T, B) int32
    starts: np.ndarray | None  # (T, B) bool, whether a sentence starts with the token
    parents: np.ndarray | None  # (T, B) int32, the slot to continue from
    first_rows: np.ndarray  # (T,) int32, the row of slot 0 at each time step
    steps: int  # T
    total: int  # rows in use
    rows: list[np.ndarray]  # one int32 array per sentence

    def padded(self, steps: int, corpus_positions: np.ndarray | None) -> Steps:
        """Returns the layout for the device, padded to `steps` time steps. Padding steps are not
        run."""

        def pad(array: np.ndarray | None) -> np.ndarray | None:
            if array is None:
                return None
            return np.pad(array, [(0, steps - len(array))] + [(0, 0)] * (array.ndim - 1))

        return Steps(
            tokens=pad(self.tokens),
            starts=pad(self.starts),
            parents=pad(self.parents),
            first_rows=pad(self.first_rows),
            count=np.int32(self.steps),
            corpus_positions=pad(corpus_positions),
        )

    def spread(self, values: list[np.ndarray]) -> np.ndarray:
        """Lays numbers out like the tokens, (T, B) uint32; `values` has one array per sentence.

        It does not support a layout with a shared first token.
        """
        # (total,), of each row
        step = np.repeat(np.arange(self.steps), np.diff([*self.first_rows, self.total]))
        row, laid = np.concatenate(self.rows), np.zeros(self.tokens.shape, np.uint32)
        laid[step[row], row - self.first_rows[step[row]]] = np.concatenate(values)
        return laid


def in_sequence(sentences: list[np.ndarray], slots: int, shares_first_token: int = 0) -> Layout:
    """Lays sentences one after another into slots of nearly equal length: longest first, each into
    the shortest slot.

    Args:
        sentences: int arrays of the tokens to read, each at least one long.
        slots: B.
        shares_first_token: 1 if all sentences share their first token, which is then read once and
            has row 0.
    """
    skipped = shares_first_token
    lengths = [len(sentence) - skipped for sentence in sentences]
    order = np.argsort([-length for length in lengths], kind="stable")
    queue = [(0, slot) for slot in range(slots)]
    first_steps, slot_of = np.zeros(len(sentences), np.int64), np.zeros(len(sentences), np.int64)
    for s in order:
        load, slot = queue[0]
        first_steps[s], slot_of[s] = load, slot
        heapq.heapreplace(queue, (load + lengths[s], slot))
    loads = np.zeros(slots, np.int64)
    for load, slot in queue:
        loads[slot] = load
    # The longest slots come first, so that the running slots of every time step are the first ones.
    number = np.empty(slots, np.int64)
    number[np.argsort(-loads, kind="stable")] = np.arange(slots)
    steps = int(loads.max())
    running = (loads[None, :] > np.arange(steps)[:, None]).sum(1)  # (T,)
    first_rows = skipped + np.cumsum(running) - running
    tokens, starts = np.zeros((steps, slots), np.int32), np.zeros((steps, slots), bool)
    rows = []
    for s, sentence in enumerate(sentences):
        span, slot = slice(first_steps[s], first_steps[s] + lengths[s]), number[slot_of[s]]
        tokens[span, slot] = sentence[skipped:]
        starts[span, slot] = np.arange(lengths[s]) == 0
        rows.append(
            np.concatenate([np.zeros(skipped, np.int32), first_rows[span] + slot], dtype=np.int32)
        )
    return Layout(
        tokens, starts, None, first_rows.astype(np.int32), steps, skipped + int(running.sum()), rows
    )


def equal_shares(lengths: np.ndarray | list[int], count: int) -> list[np.ndarray]:
    """Divides items into shares of nearly equal length: longest first, each to the shortest share.
    Returns indices."""
    queue = [(0, share) for share in range(count)]
    shares: list[list[int]] = [[] for _ in range(count)]
    for item in np.argsort([-length for length in lengths], kind="stable"):
        load, share = queue[0]
        shares[share].append(int(item))
        heapq.heapreplace(queue, (load + lengths[item], share))
    return [np.array(share, np.int64) for share in shares]


def as_prefix_tree(sentences: list[np.ndarray], slots: int) -> Layout:
    """Lays up to `slots` sentences out as a tree of their distinct prefixes, with one slot per node
    at each depth."""
    steps = max(len(sentence) for sentence in sentences)
    tokens, parents = np.zeros((steps, slots), np.int32), np.full((steps, slots), -1, np.int32)
    slot = np.full(len(sentences), -1, np.int64)  # slot of each sentence, one time step ago
    alive = np.arange(len(sentences))
    rows = [np.empty(len(sentence), np.int32) for sentence in sentences]
    first_rows, total = np.empty(steps, np.int32), 0
    for t in range(steps):
        alive = alive[[len(sentences[s]) > t for s in alive]]
        # (alive, 2): parent, token
        node = np.stack([slot[alive], [sentences[s][t] for s in alive]], axis=1)
        distinct, which = np.unique(node, axis=0, return_inverse=True)
        parents[t, : len(distinct)], tokens[t, : len(distinct)] = distinct.T
        first_rows[t] = total
        slot[alive] = which.ravel()
        for s, new_slot in zip(alive, which.ravel(), strict=True):
            rows[s][t] = total + new_slot
        total += len(distinct)
    return Layout(tokens, None, parents, first_rows, steps, total, rows)


class PackedBatch(NamedTuple):
    """Tokens by time step and slot, for features inside a gradient: row t * B + b of the features
    is that of (t, b)."""

    tokens: Any  # (T, B) int32; all arrays are NumPy's, or JAX's inside a compiled function
    positions: Any  # (T, B) int32, position of each token in its sentence, from 0
    corpus_positions: Any  # (T, B) uint32, position of each token in the corpus, for dropout


def packed_steps(longest: int) -> int:
    """Returns the time steps of a packed batch. There are two sizes per power of two, to limit
    compilations."""
    power = 1 << (max(longest, FEWEST_STEPS) - 1).bit_length()
    return power if longest > 3 * power // 4 else 3 * power // 4


def pack_batch(
    sentences: list[np.ndarray],
    corpus_positions: list[np.ndarray],
    slots: int = 1,
    multiple: int = 1,
) -> tuple[PackedBatch, list[np.ndarray]]:
    """Packs sentences into one batch, several per slot if they fit. Returns the batch and the rows
    of each sentence."""
    steps = packed_steps(max(len(sentence) for sentence in sentences))
    filled: list[int] = []  # tokens of each slot
    slot_of, first_steps = {}, {}
    # first fit, longest first
    for s in np.argsort([-len(sentence) for sentence in sentences], kind="stable"):
        room = steps - len(sentences[s])
        slot = next((slot for slot, length in enumerate(filled) if length <= room), len(filled))
        filled += [0] * (slot == len(filled))
        slot_of[s], first_steps[s] = slot, filled[slot]
        filled[slot] += len(sentences[s])
    width = max(slots, len(filled) + len(filled) % 2)
    width += -width % multiple
    batch = PackedBatch(
        *(np.zeros((steps, width), dtype) for dtype in (np.int32, np.int32, np.uint32))
    )
    rows = []
    for s, sentence in enumerate(sentences):
        span, slot = slice(first_steps[s], first_steps[s] + len(sentence)), slot_of[s]
        batch.tokens[span, slot], batch.positions[span, slot] = sentence, np.arange(len(sentence))
        batch.corpus_positions[span, slot] = corpus_positions[s]
        rows.append((np.arange(span.start, span.stop) * width + slot).astype(np.int32))
    return batch, rows
