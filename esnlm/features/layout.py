"""Laying sentences out side by side, with little or no padding.

The recurrence runs B slots at once. Ahead of the optimizer, whole sentences follow each other in a slot (`in_sequence`).
For scoring, sentences that begin alike share their beginning (`as_prefix_tree`): each distinct prefix is evaluated once. Inside
a gradient the tokens lie on a batch of few sizes (`pack_batch`).
"""

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Layout:
    """Tokens by step and slot, and the packed row in which each position's state will lie.

    rows[s][t] is the row of the state after sentence s has been read up to and including its position t.
    """

    tokens: np.ndarray  # (T, B) int32
    parents: np.ndarray | None  # (T, B) int32, see recurrence.run
    first_rows: np.ndarray  # (T,) int32
    steps: int
    total: int  # rows in use
    rows: list[np.ndarray]  # one int32 array a sentence

    def spread(self, values: list[np.ndarray]) -> np.ndarray:
        """A number for each position of each sentence, laid out as the tokens are, (T, B) uint32; not where row 0 is read apart."""
        step = np.repeat(np.arange(self.steps), np.diff([*self.first_rows, self.total]))  # (total,), of each row
        row, laid = np.concatenate(self.rows), np.zeros(self.tokens.shape, np.uint32)
        laid[step[row], row - self.first_rows[step[row]]] = np.concatenate(values)
        return laid


def in_sequence(sentences: list[np.ndarray], slots: int, shares_first_token: int = 0) -> Layout:
    """Sentences one after another in slots of nearly equal length: longest first, each to the slot that is shortest.

    Args:
        sentences: int arrays of the tokens to read, each at least one long.
        slots: B.
        shares_first_token: 1 where they share their first token, which is read apart from the slots and has row 0; else 0.
    """
    lengths = [len(sentence) - shares_first_token for sentence in sentences]
    order = np.argsort([-length for length in lengths], kind="stable")
    queue = [(0, slot) for slot in range(slots)]
    starts, slot_of = np.zeros(len(sentences), np.int64), np.zeros(len(sentences), np.int64)
    for s in order:
        load, slot = queue[0]
        starts[s], slot_of[s] = load, slot
        heapq.heapreplace(queue, (load + lengths[s], slot))
    loads = np.zeros(slots, np.int64)
    for load, slot in queue:
        loads[slot] = load
    # The longest slots come first: then the running slots of every step are the first ones.
    place = np.empty(slots, np.int64)
    place[np.argsort(-loads, kind="stable")] = np.arange(slots)
    steps = int(loads.max())
    running = (loads[None, :] > np.arange(steps)[:, None]).sum(1)  # (T,)
    first_rows = shares_first_token + np.cumsum(running) - running
    tokens = np.zeros((steps, slots), np.int32)
    rows = []
    for s, sentence in enumerate(sentences):
        own, span, slot = (
            sentence[shares_first_token:].astype(np.int32),
            slice(starts[s], starts[s] + lengths[s]),
            place[slot_of[s]],
        )
        tokens[span, slot] = np.where(np.arange(lengths[s]) > 0, own, -1 - own)
        rows.append(np.concatenate([np.zeros(shares_first_token, np.int32), first_rows[span] + slot], dtype=np.int32))
    return Layout(tokens, None, first_rows.astype(np.int32), steps, shares_first_token + int(running.sum()), rows)


def as_prefix_tree(sentences: list[np.ndarray], slots: int) -> Layout:
    """Sentences as a tree of their distinct prefixes, one slot a node of each depth.

    Args:
        sentences: at most `slots` int arrays of the tokens to read, each at least one long.
        slots: B.
    """
    steps = max(len(sentence) for sentence in sentences)
    tokens, parents = np.zeros((steps, slots), np.int32), np.full((steps, slots), -1, np.int32)
    slot = np.full(len(sentences), -1, np.int64)  # of each sentence, at the step before
    alive = np.arange(len(sentences))
    rows = [np.empty(len(sentence), np.int32) for sentence in sentences]
    first_rows, total = np.empty(steps, np.int32), 0
    for t in range(steps):
        alive = alive[[len(sentences[s]) > t for s in alive]]
        node = np.stack([slot[alive], [sentences[s][t] for s in alive]], axis=1)  # (alive, 2): parent, token
        distinct, which = np.unique(node, axis=0, return_inverse=True)
        parents[t, : len(distinct)], tokens[t, : len(distinct)] = distinct.T
        first_rows[t] = total
        slot[alive] = which.ravel()
        for s, place in zip(alive, which.ravel(), strict=True):
            rows[s][t] = total + place
        total += len(distinct)
    return Layout(tokens, parents, first_rows, steps, total, rows)


class PackedBatch(NamedTuple):
    """Tokens by step and slot, for features inside a gradient. Row t * L + l of their features is that of (t, l)."""

    tokens: np.ndarray  # (T, L) int32
    positions: np.ndarray  # (T, L) int32, of each token in its sentence; 0 begins one
    corpus_positions: np.ndarray  # (T, L) uint32, of each token in the corpus, for dropout


def pack_batch(
    sentences: list[np.ndarray], corpus_positions: list[np.ndarray], slots: int = 1
) -> tuple[PackedBatch, list[np.ndarray]]:
    """A batch of sentences, several in a slot where they fit, and the rows of each.

    Args:
        sentences: int arrays of the tokens to read, each at least one long.
        corpus_positions: of each token in the corpus.
        slots: at least so many slots.
    """
    longest = max(len(sentence) for sentence in sentences)
    # A new size is a new compilation: twice as long each time, or half as much again.
    octave = 1 << (max(longest, 16) - 1).bit_length()
    steps = octave if longest > 3 * octave // 4 else 3 * octave // 4
    filled, slot_of, starts = [], {}, {}
    for s in np.argsort([-len(sentence) for sentence in sentences], kind="stable"):  # first fit, longest first
        room = steps - len(sentences[s])
        slot = next((slot for slot, length in enumerate(filled) if length <= room), len(filled))
        filled += [0] * (slot == len(filled))
        slot_of[s], starts[s] = slot, filled[slot]
        filled[slot] += len(sentences[s])
    width = max(slots, len(filled) + len(filled) % 2)
    batch = PackedBatch(*(np.zeros((steps, width), dtype) for dtype in (np.int32, np.int32, np.uint32)))
    rows = []
    for s, sentence in enumerate(sentences):
        here = slice(starts[s], starts[s] + len(sentence)), slot_of[s]
        batch.tokens[here], batch.positions[here], batch.corpus_positions[here] = (
            sentence,
            np.arange(len(sentence)),
            corpus_positions[s],
        )
        rows.append((np.arange(here[0].start, here[0].stop) * width + slot_of[s]).astype(np.int32))
    return batch, rows
