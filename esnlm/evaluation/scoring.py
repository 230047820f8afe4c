"""Log-probabilities of token sequences under a feature stream and its readout."""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import jax
import numpy as np

from esnlm.features.stream import FeatureStream
from esnlm.readout import linear

# A chunk has one of at most about so many numbers of rows: each is a compilation.
SIZES = 8


@partial(jax.jit, static_argnames="precision")
def _pair_log_probs(params, buffer, rows, sources, targets, precision):
    return linear.pair_log_probs(params, buffer[rows], sources, targets, precision)  # (P,)


def total_nll(
    stream: FeatureStream, params: dict, sentences: Iterable[np.ndarray], precision: str, window_tokens: int, chunk: int
) -> Iterator[tuple[float, int]]:
    """The negative log-likelihood of sentences in nats, a window at a time.

    Args:
        sentences: int arrays with BOS and EOS.
        window_tokens: states held at once, but for those of one sentence.
        chunk: states whose logits exist at once.

    Yields:
        (nats, predictions) of each window, summed in float64.
    """
    for window in _groups(sentences, window_tokens):
        buffer, rows = stream.read([sentence[:-1] for sentence in window])
        log_probs = np.concatenate(_fetch(*_hand_over(params, buffer, rows, window, precision, chunk)))
        yield -float(log_probs.sum(dtype=np.float64)), len(log_probs)


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

    def begin(block):
        ids = [np.frombuffer(key, ">u4").astype(np.int32) for key in block]
        buffer, rows = stream.read([sequence[:-1] for sequence in ids], prefix_tree=True)
        return _hand_over(params, buffer, rows, ids, precision, chunk)

    keys = [np.asarray(sequence, ">u4").tobytes() for sequence in sequences]  # big-endian: sorts as the tokens do
    distinct = sorted(key for key in set(keys) if len(key) > 4)
    found = {key: np.empty(0, np.float32) for key in keys}
    blocks = list(_groups(distinct, 4 * window_tokens, most=stream.slots))
    begun, done = None, 0
    for block in [*blocks, None]:
        # A block is fetched when the next one is under way, so that the device never waits for the host.
        before, begun = begun, block and (block, begin(block))
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


def _hand_over(params, buffer, rows, sequences, precision, chunk):
    """Hands to the device what sequences predict from their rows: log-probabilities by chunk, and whose they are.

    A row is read once, and so is each token that is predicted from it, however many sequences share them.
    """
    pair = np.concatenate(rows).astype(np.int64) << 32 | np.concatenate([sequence[1:] for sequence in sequences])
    pairs, place = np.unique(pair, return_inverse=True)
    (rows, sources), targets = np.unique(pairs >> 32, return_inverse=True), pairs & 0xFFFFFFFF
    even = -(-len(rows) // -(-len(rows) // chunk))  # rows of a chunk, where all are alike
    step = max(1, chunk // SIZES)
    size = min(chunk, -(-even // step) * step)
    chunks = []
    for first in range(0, len(rows), size):
        here = slice(*np.searchsorted(sources, [first, first + size]))
        real, width = here.stop - here.start, 2 * size
        while width < real:
            width *= 2
        padded = (
            _fill(rows[first : first + size], size),
            _fill(sources[here] - first, width),
            _fill(targets[here], width),
        )
        chunks.append((_pair_log_probs(params, buffer, *padded, precision), real))
    return chunks, place, np.cumsum([len(sequence) - 1 for sequence in sequences])[:-1]


def _fetch(chunks, place, bounds):
    values = np.concatenate([np.asarray(log_probs)[:real] for log_probs, real in chunks])
    return np.split(values[place], bounds)


def _fill(array, width):
    return np.pad(array, (0, width - len(array))).astype(np.int32)
