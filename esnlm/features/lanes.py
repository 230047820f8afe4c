"""Laying sentences out for the recurrence, with no step spent on padding.

The recurrence runs B lanes at once. For training, whole sentences follow each other in a lane (`in_sequence`). For
scoring, sentences that begin alike share their beginning (`as_trees`): each distinct prefix is evaluated once.
"""

import heapq
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Layout:
    """Tokens by step and lane, and the packed row in which each position's state will lie.

    rows[s][t] is the row of the state after sentence s has been read up to and including its position t.
    """

    tokens: np.ndarray  # (T, B) int32
    parents: np.ndarray | None  # (T, B) int32, see recurrence.run
    first_rows: np.ndarray  # (T,) int32
    steps: int
    total: int  # rows in use
    rows: list[np.ndarray]  # one int32 array a sentence


def in_sequence(sentences: list[np.ndarray], lanes: int) -> Layout:
    """Sentences one after another in lanes of nearly equal length: longest first, each to the lane that is shortest.

    Args:
        sentences: int arrays of the tokens to read, each at least one long.
        lanes: B.
    """
    order = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
    queue = [(0, lane) for lane in range(lanes)]
    starts, lane_of = np.zeros(len(sentences), np.int64), np.zeros(len(sentences), np.int64)
    for s in order:
        load, lane = queue[0]
        starts[s], lane_of[s] = load, lane
        heapq.heapreplace(queue, (load + len(sentences[s]), lane))
    loads = np.zeros(lanes, np.int64)
    for load, lane in queue:
        loads[lane] = load
    # The longest lanes come first: then the running lanes of every step are the first ones.
    place = np.empty(lanes, np.int64)
    place[np.argsort(-loads, kind="stable")] = np.arange(lanes)
    steps = int(loads.max())
    running = (loads[None, :] > np.arange(steps)[:, None]).sum(1)  # (T,)
    first_rows = np.concatenate([[0], np.cumsum(running)[:-1]])
    tokens = np.zeros((steps, lanes), np.int32)
    rows = []
    for s, sentence in enumerate(sentences):
        span, lane = slice(starts[s], starts[s] + len(sentence)), place[lane_of[s]]
        tokens[span, lane] = sentence
        tokens[starts[s], lane] = -1 - tokens[starts[s], lane]
        rows.append((first_rows[span] + lane).astype(np.int32))
    return Layout(tokens, None, first_rows.astype(np.int32), steps, int(running.sum()), rows)


def as_trees(sentences: list[np.ndarray], lanes: int) -> Layout:
    """Sentences as a tree of their distinct prefixes, one lane a node of each depth.

    Args:
        sentences: at most `lanes` int arrays of the tokens to read, each at least one long.
        lanes: B.
    """
    steps = max(len(sentence) for sentence in sentences)
    tokens, parents = np.zeros((steps, lanes), np.int32), np.full((steps, lanes), -1, np.int32)
    lane = np.full(len(sentences), -1, np.int64)  # of each sentence, at the step before
    alive = np.arange(len(sentences))
    rows = [np.empty(len(sentence), np.int32) for sentence in sentences]
    first_rows, total = np.empty(steps, np.int32), 0
    for t in range(steps):
        alive = alive[[len(sentences[s]) > t for s in alive]]
        node = np.stack([lane[alive], [sentences[s][t] for s in alive]], axis=1)  # (alive, 2): parent, token
        distinct, which = np.unique(node, axis=0, return_inverse=True)
        parents[t, : len(distinct)], tokens[t, : len(distinct)] = distinct.T
        first_rows[t] = total
        lane[alive] = which.ravel()
        for s, place in zip(alive, which.ravel(), strict=True):
            rows[s][t] = total + place
        total += len(distinct)
    return Layout(tokens, parents, first_rows, steps, total, rows)
