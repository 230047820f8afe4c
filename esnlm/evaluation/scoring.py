"""Log-probabilities of token sequences under a feature stream and its readout."""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import jax
import numpy as np

from esnlm.features.stream import FeatureStream
from esnlm.readout import linear


@partial(jax.jit, static_argnames="precision")
def _target_log_probs(params, buffer, rows, targets, precision):
    return -linear.token_nll(params, buffer[rows], targets, precision)  # (C,)


@partial(jax.jit, static_argnames="precision")
def _pair_log_probs(params, buffer, rows, sources, targets, precision):
    return linear.pair_log_probs(params, buffer[rows], sources, targets, precision)  # (P,)


def total_nll(
    stream: FeatureStream, params: dict, sentences: Iterable[np.ndarray], precision: str, window_tokens: int, chunk: int
) -> Iterator[tuple[float, int]]:
    """The negative log-likelihood of sentences in nats, a window at a time.

    Args:
        sentences: int arrays with BOS and EOS.
        window_tokens: states held at once.
        chunk: predictions whose logits exist at once.

    Yields:
        (nats, predictions) of each window, summed in float64.
    """
    for window in _groups(sentences, window_tokens):
        buffer, rows = stream.read([sentence[:-1] for sentence in window])
        row, target = np.concatenate(rows), np.concatenate([sentence[1:] for sentence in window])
        nats = 0.0
        for start in range(0, len(row), chunk):
            part = slice(start, start + chunk)
            log_probs = _target_log_probs(params, buffer, _fill(row[part], chunk), _fill(target[part], chunk), precision)
            nats -= float(np.sum(np.asarray(log_probs, np.float64)[: len(row[part])]))
        yield nats, len(row)


def token_log_probs(
    stream: FeatureStream,
    params: dict,
    sequences: list[np.ndarray],
    precision: str,
    chunk: int,
    report: Callable[[int, int], None] = lambda done, total: None,
    window_tokens: int = 1 << 16,
) -> list[np.ndarray]:
    """log p(w_{t+1} | w_1 .. w_t) in nats for each sequence; each distinct prefix is evaluated once.

    Args:
        sequences: int arrays; a sequence of fewer than two tokens has nothing to predict.
        chunk: states whose logits exist at once.
        report: called with the sequences done so far and their number.
        window_tokens: states held at once, but for those of one sequence.

    Returns:
        One (T - 1,) float32 array a sequence.
    """
    keys = [np.asarray(sequence, ">u4").tobytes() for sequence in sequences]  # big-endian: sorts as the tokens do
    distinct = sorted(key for key in set(keys) if len(key) > 4)
    found = {key: np.empty(0, np.float32) for key in keys}
    blocks = list(_groups(distinct, 4 * window_tokens, most=stream.lanes))
    begun, done = None, 0
    for block in [*blocks, None]:
        # A block is fetched when the next one is under way, so that the device never waits for the host.
        before, begun = begun, block and (block, _begin(stream, params, block, precision, chunk))
        if before is not None:
            found |= zip(before[0], _fetch(*before[1]), strict=True)
            done += len(before[0])
            report(done, len(distinct))
    return [found[key] for key in keys]


def _groups(sequences, size, most=sys.maxsize):
    """Sequences in order, at most so many in a group, and no longer in all than `size` where it is not one sequence."""
    group, filled = [], 0
    for sequence in sequences:
        if group and (len(group) == most or filled + len(sequence) > size):
            yield group
            group, filled = [], 0
        group.append(sequence)
        filled += len(sequence)
    if group:
        yield group


def _begin(stream, params, block, precision, chunk):
    """Hands a block of sequences to the device: its outcome by chunk, which part of it is real, and how to lay it out."""
    ids = [np.frombuffer(key, ">u4").astype(np.int32) for key in block]
    buffer, rows = stream.read([sequence[:-1] for sequence in ids], shared=True)
    row, target = np.concatenate(rows), np.concatenate([sequence[1:] for sequence in ids])
    pairs, place = np.unique(np.stack([row, target], axis=1), axis=0, return_inverse=True)
    states = int(pairs[-1, 0]) + 1
    chunks = []
    for first in range(0, states, chunk):
        sources, targets = pairs[slice(*np.searchsorted(pairs[:, 0], [first, first + chunk]))].T
        width = max(chunk, 1 << (len(sources) - 1).bit_length())
        here = np.minimum(np.arange(first, first + chunk), states - 1).astype(np.int32)
        padded = _fill(sources - first, width), _fill(targets, width)
        chunks.append((_pair_log_probs(params, buffer, here, *padded, precision), len(sources)))
    return chunks, place.ravel(), np.cumsum([len(sequence) - 1 for sequence in ids])[:-1]


def _fetch(chunks, place, bounds):
    values = np.concatenate([np.asarray(log_probs)[:real] for log_probs, real in chunks])
    return np.split(values[place], bounds)


def _fill(array, width):
    return np.pad(array, (0, width - len(array))).astype(np.int32)
