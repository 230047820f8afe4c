"""Log-probabilities of token sequences under a frozen feature stream and its readout."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import jax
import numpy as np

from esnlm.readout import linear
from esnlm.reservoir.stream import StateStream


@partial(jax.jit, static_argnames="precision")
def _target_log_probs(params, buffer, rows, targets, precision):
    return -linear.token_nll(params, buffer[rows], targets, precision)  # (C,)


@partial(jax.jit, static_argnames="precision")
def _pair_log_probs(params, buffer, rows, sources, targets, precision):
    return linear.pair_log_probs(params, buffer[rows], sources, targets, precision)  # (P,)


def total_nll(
    stream: StateStream, params: dict, sentences: Iterable[np.ndarray], precision: str, window_tokens: int, chunk: int
) -> Iterator[tuple[float, int]]:
    """The negative log-likelihood of sentences in nats, a window at a time.

    Args:
        sentences: int arrays with BOS and EOS.
        window_tokens: states held at once.
        chunk: predictions whose logits exist at once.

    Yields:
        (nats, predictions) of each window, summed in float64.
    """
    for window in _windows(sentences, window_tokens):
        buffer, rows = stream.read([sentence[:-1] for sentence in window])
        row, target = np.concatenate(rows), np.concatenate([sentence[1:] for sentence in window])
        nats = 0.0
        for start in range(0, len(row), chunk):
            part = slice(start, start + chunk)
            log_probs = _target_log_probs(params, buffer, _fill(row[part], chunk), _fill(target[part], chunk), precision)
            nats -= float(np.sum(np.asarray(log_probs, np.float64)[: len(row[part])]))
        yield nats, len(row)


def token_log_probs(
    stream: StateStream,
    params: dict,
    sequences: list[np.ndarray],
    precision: str,
    chunk: int,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[np.ndarray]:
    """log p(w_{t+1} | w_1 .. w_t) in nats for each sequence; each distinct prefix is evaluated once.

    Args:
        sequences: int arrays; a sequence of fewer than two tokens has nothing to predict.
        chunk: states whose logits exist at once.
        report: called with the sequences done so far and their number.

    Returns:
        One (T - 1,) float32 array a sequence.
    """
    keys = [np.asarray(sequence, ">u4").tobytes() for sequence in sequences]  # big-endian: sorts as the tokens do
    distinct = sorted(key for key in set(keys) if len(key) > 4)
    found = {key: np.empty(0, np.float32) for key in keys}
    for start in range(0, len(distinct), stream.lanes):
        block = distinct[start : start + stream.lanes]
        ids = [np.frombuffer(key, ">u4").astype(np.int32) for key in block]
        buffer, rows = stream.read([sequence[:-1] for sequence in ids], shared=True)
        row, target = np.concatenate(rows), np.concatenate([sequence[1:] for sequence in ids])
        pairs, which = np.unique(np.stack([row, target], axis=1), axis=0, return_inverse=True)
        values = np.empty(len(pairs), np.float32)
        states = int(pairs[-1, 0]) + 1
        for first in range(0, states, chunk):
            here = slice(*np.searchsorted(pairs[:, 0], [first, first + chunk]))
            sources, targets = pairs[here].T
            width = max(chunk, 1 << (len(sources) - 1).bit_length())
            log_probs = _pair_log_probs(
                params,
                buffer,
                np.minimum(np.arange(first, first + chunk), states - 1).astype(np.int32),
                _fill(sources - first, width),
                _fill(targets, width),
                precision,
            )
            values[here] = np.asarray(log_probs)[: len(sources)]
        ends = np.cumsum([len(sequence) - 1 for sequence in ids])
        for key, log_probs in zip(block, np.split(values[which.ravel()], ends[:-1]), strict=True):
            found[key] = log_probs
        report(start + len(block), len(distinct))
    return [found[key] for key in keys]


def _windows(sentences, window_tokens):
    window, filled = [], 0
    for sentence in sentences:
        if window and filled + len(sentence) > window_tokens:
            yield window
            window, filled = [], 0
        window.append(sentence)
        filled += len(sentence)
    if window:
        yield window


def _fill(array, width):
    return np.pad(array, (0, width - len(array))).astype(np.int32)
