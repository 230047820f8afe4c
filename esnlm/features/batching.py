"""Batches of sentences: cut into groups, assigned to batch slots, and packed with little padding.

`pack` puts the sentences A, B and C of 6, 3 and 2 tokens into two slots. At each time step the
slots with a token come first, and their features fill adjacent rows of a buffer:

    time step         0    1    2    3    4    5
    slot 0            A0   A1   A2   A3   A4   A5
    slot 1            B0   B1   B2   C0   C1
    rows              0 1  2 3  4 5  6 7  8 9  10        (so C0 has row 7)
"""

import heapq
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, tee
from typing import Any, NamedTuple

import numpy as np

MIN_BATCH_STEPS = 12  # minimum time steps of a batch of `pack_batch`


def group_by_tokens(
    lengths: Iterable[int], max_tokens: int, max_sequences: int = sys.maxsize
) -> Iterator[range]:
    """Yields groups of neighbours with at most `max_tokens` tokens and `max_sequences` sequences.

    A sequence with more than `max_tokens` tokens is a group of its own. The groups depend on the
    lengths alone, so a resumed run repeats the same products on the same shapes, bit by bit.
    """
    first, tokens, i = 0, 0, -1
    for i, length in enumerate(lengths):
        if i > first and (tokens + length > max_tokens or i - first == max_sequences):
            yield range(first, i)
            first, tokens = i, 0
        tokens += length
    if i >= 0:
        yield range(first, i + 1)


def read_by_tokens(sequences: Iterable[np.ndarray], max_tokens: int) -> Iterator[list[np.ndarray]]:
    """Yields the sequences of each group of `group_by_tokens`, and reads them once."""
    read, sequences = tee(sequences)
    for group in group_by_tokens(map(len, read), max_tokens):
        yield list(islice(sequences, len(group)))


def round_up(n: int, multiple: int) -> int:
    """Returns the smallest multiple that is at least n."""
    return -(-n // multiple) * multiple


def padded_size(n: int, per_doubling: int = 1, multiple: int = 1) -> int:
    """Returns n rounded up to one of few sizes, since each size is compiled.

    Between two powers of two there are `per_doubling` sizes, at least `multiple` apart.
    """
    return round_up(n, max(multiple, (1 << n.bit_length() - 1) // per_doubling))


def assign_to_slots(
    lengths: Sequence[int] | np.ndarray, slots: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the slot and the first time step of each sequence, in slots of nearly equal length.

    The longest sequence comes first, each goes to the shortest slot, and slot 0 is the longest.
    """
    slot_of, first_steps = np.zeros((2, len(lengths)), np.int64)
    queue = [(0, slot) for slot in range(slots)]
    for i in np.argsort([-length for length in lengths], kind="stable"):
        first_steps[i], slot_of[i] = queue[0]
        heapq.heapreplace(queue, (queue[0][0] + lengths[i], queue[0][1]))
    longest_first = sorted(queue, key=lambda item: (-item[0], item[1]))
    number = np.argsort([slot for _, slot in longest_first])
    return number[slot_of], first_steps


def split_evenly(lengths: Sequence[int] | np.ndarray, parts: int) -> list[np.ndarray]:
    """Returns the indices of the sequences of each of `parts` parts of nearly equal length."""
    part_of, first_steps = assign_to_slots(lengths, parts)
    order = np.lexsort((first_steps, part_of))
    return np.split(order, np.searchsorted(part_of[order], np.arange(1, parts)))


class PackedSteps(NamedTuple):
    """The tokens that B batch slots read in T time steps; NumPy's arrays, or JAX's when compiled.

    A slot continues from its own state, or with `parents` from that of another slot.
    """

    tokens: Any  # token ids, (T, B) int32
    positions: Any = None  # position in the sentence, (T, B) int32; 0 begins a sentence
    corpus_positions: Any = None  # position in the corpus, (T, B) uint32; None: no dropout
    parents: Any = None  # slot to continue from, (T, B) int32; -1 begins a sentence
    # row of slot 0 in a buffer of features, (T,) int32: slot b of step t writes row
    # first_rows[t] + b, if it is active. None: row t B + b
    first_rows: Any = None
    count: Any = None  # time steps to run, () int32: one compilation serves many; None: all
    # first token of all sentences, () int32, left out of `tokens` and read once into row 0; None:
    # they share none
    first_token: Any = None

    def padded(self, steps: int) -> "PackedSteps":
        """Returns `steps` time steps, of which only those of `self` are run."""
        count = len(self.tokens)
        arrays = {
            name: np.pad(array, [(0, steps - count)] + [(0, 0)] * (array.ndim - 1))
            for name, array in self._asdict().items()
            if np.ndim(array)  # those with a time axis
        }
        return self._replace(**arrays, count=np.int32(count))


Rows = list[np.ndarray]  # the row of the features after each token, by sentence, int32


def pack(
    sentences: list[np.ndarray],
    slots: int,
    corpus_positions: list[np.ndarray] | None = None,
    shared_first: bool = False,
) -> tuple[PackedSteps, Rows]:
    """Packs sentences one after another into slots of nearly equal length.

    Args:
        sentences: int arrays of the tokens to read, each at least one long.
        slots: B.
        corpus_positions: positions of the tokens of each sentence; None: no dropout.
        shared_first: read the first token, which all sentences share, once. There is no dropout.
    """
    texts = [sentence[1:] for sentence in sentences] if shared_first else sentences
    lengths = list(map(len, texts))
    slot_of, first_steps = assign_to_slots(lengths, slots)
    ends = np.bincount(slot_of, lengths, slots)
    active = (ends > np.arange(ends.max())[:, None]).sum(axis=1)  # (T,), slots with a token
    first_rows = (shared_first + np.cumsum(active) - active).astype(np.int32)
    steps, rows = _fill(texts, corpus_positions, slot_of, first_steps, first_rows, slots)
    if not shared_first:
        return steps, rows
    steps = steps._replace(first_token=np.int32(sentences[0][0]))
    first_row = np.zeros(1, np.int32)
    return steps, [np.concatenate([first_row, row]) for row in rows]


def pack_batch(
    sentences: list[np.ndarray],
    corpus_positions: list[np.ndarray] | None = None,
    min_slots: int = 1,
    divisor: int = 1,
) -> tuple[PackedSteps, Rows]:
    """Packs sentences into a batch of one of few sizes, with a row for each step and slot.

    Args:
        sentences, corpus_positions: as in `pack`.
        min_slots: minimum number of slots.
        divisor: a number that divides the number of slots.
    """
    steps = batch_steps(max(map(len, sentences)))
    filled: list[int] = []  # tokens of each slot
    slot_of, first_steps = np.zeros((2, len(sentences)), np.int64)
    # first fit, longest first
    for s in np.argsort([-len(sentence) for sentence in sentences], kind="stable"):
        room = steps - len(sentences[s])
        slot = next((slot for slot, length in enumerate(filled) if length <= room), len(filled))
        if slot == len(filled):
            filled.append(0)
        slot_of[s], first_steps[s] = slot, filled[slot]
        filled[slot] += len(sentences[s])
    # An even number, so that half as many sizes are compiled.
    slots = round_up(max(min_slots, round_up(len(filled), 2)), divisor)
    first_rows = slots * np.arange(steps, dtype=np.int32)
    packed, rows = _fill(sentences, corpus_positions, slot_of, first_steps, first_rows, slots)
    return packed._replace(first_rows=None), rows


def batch_steps(longest: int) -> int:
    """Returns the time steps of a batch of `pack_batch`, for its longest sentence."""
    return padded_size(max(longest, MIN_BATCH_STEPS), per_doubling=2)


def _fill(
    sentences: list[np.ndarray],
    corpus_positions: list[np.ndarray] | None,
    slot_of: np.ndarray,
    first_steps: np.ndarray,
    first_rows: np.ndarray,
    slots: int,
) -> tuple[PackedSteps, Rows]:
    """Writes each sentence into its slot, from its first step on."""
    shape, rows = (len(first_rows), slots), []
    tokens, positions = np.zeros((2, *shape), np.int32)
    in_corpus = None if corpus_positions is None else np.zeros(shape, np.uint32)
    for s, sentence in enumerate(sentences):
        slot, steps = slot_of[s], slice(first_steps[s], first_steps[s] + len(sentence))
        tokens[steps, slot], positions[steps, slot] = sentence, np.arange(len(sentence))
        if in_corpus is not None and corpus_positions is not None:
            in_corpus[steps, slot] = corpus_positions[s]
        rows.append((first_rows[steps] + slot).astype(np.int32))
    return PackedSteps(tokens, positions, in_corpus, first_rows=first_rows), rows


def pack_prefix_tree(sentences: list[np.ndarray], slots: int) -> tuple[PackedSteps, Rows]:
    """Packs up to `slots` sentences as a tree of distinct prefixes, with a slot per node."""
    steps = max(len(sentence) for sentence in sentences)
    tokens, parents = np.zeros((steps, slots), np.int32), np.full((steps, slots), -1, np.int32)
    slot = np.full(len(sentences), -1, np.int64)  # slot of each sentence, one time step ago
    active = np.arange(len(sentences))
    rows = [np.empty(len(sentence), np.int32) for sentence in sentences]
    first_rows, total = np.empty(steps, np.int32), 0
    for t in range(steps):
        active = active[[len(sentences[s]) > t for s in active]]
        # (active, 2): parent, token
        nodes = np.stack([slot[active], [sentences[s][t] for s in active]], axis=1)
        distinct, node_of = np.unique(nodes, axis=0, return_inverse=True)
        parents[t, : len(distinct)], tokens[t, : len(distinct)] = distinct.T
        first_rows[t] = total
        slot[active] = node_of.ravel()
        for s in active:
            rows[s][t] = total + slot[s]
        total += len(distinct)
    return PackedSteps(tokens, parents=parents, first_rows=first_rows), rows
