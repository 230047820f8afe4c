"""Log-probabilities of token sequences under a feature stream and its readout.

`token_log_probs` works in four steps:
 1. Sort the distinct sequences, so that sequences with a common prefix are neighbours.
 2. Split them into blocks. The feature stream computes the features of each distinct prefix of a
    block once.
 3. The readout computes log p(token | prefix) once for each distinct pair of a prefix and a next
    token.
 4. Copy the log-probabilities to all sequences that contain these pairs.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.features.batching import group_by_tokens, padded_size, read_by_tokens
from esnlm.features.documents import TokenStreams
from esnlm.features.stream import DocumentFeatures, SentenceFeatures
from esnlm.machine import xla
from esnlm.machine.compute import ResolvedCompute
from esnlm.machine.mesh import gather
from esnlm.readout import linear

# The rows of a chunk are padded to one of about this many sizes. Each size is compiled once.
SIZES = 8


class WindowNll(NamedTuple):
    """The negative log-likelihood of some sentences, in nats."""

    nats: float
    tokens: int  # predicted
    eos_nats: float  # the part of `nats` from the last token of each sentence


def total_nll(
    stream: SentenceFeatures,
    params: dict,
    sentences: Iterable[np.ndarray],
    compute: ResolvedCompute,
) -> Iterator[WindowNll]:
    """Yields the negative log-likelihood of sentences per window, summed in float64.

    At most compute.window_tokens states exist at once, unless one sentence alone has more, and
    logits of compute.chunk_tokens states.

    Args:
        stream, params: the features of a model, and the arrays of its readout.
        sentences: int arrays with BOS and EOS.
    """
    for window in read_by_tokens(sentences, compute.window_tokens):
        buffer, rows = stream.read([sentence[:-1] for sentence in window])
        targets = [sentence[1:] for sentence in window]
        collect = _launch(params, buffer, rows, targets, compute.precision, compute.chunk_tokens)
        del buffer  # before the next one is made
        yield _sum(np.concatenate(collect()), np.cumsum(list(map(len, targets))) - 1)


def document_nll(
    stream: DocumentFeatures, params: dict, streams: TokenStreams, compute: ResolvedCompute
) -> Iterator[WindowNll]:
    """Yields what `total_nll` does for documents, whose state is carried over their sentences."""
    state = stream.cell.initial_state(len(streams.sizes))
    for chunk in streams.chunks(compute.window_tokens):
        state, buffer, rows = stream.read_on(chunk, state)
        if not len(rows):
            continue
        (log_probs,) = _launch(
            params, buffer, [rows], [chunk.targets], compute.precision, compute.chunk_tokens
        )()
        del buffer
        yield _sum(log_probs, chunk.left[chunk.left > 0] == 1)


def _sum(log_probs: np.ndarray, of_eos: np.ndarray) -> WindowNll:
    """Sums log-probabilities, (P,); `of_eos` selects those of EOS."""
    nats = -float(log_probs.sum(dtype=np.float64))
    return WindowNll(nats, len(log_probs), -float(log_probs[of_eos].sum(dtype=np.float64)))


def token_log_probs(
    stream: SentenceFeatures,
    params: dict,
    sequences: list[np.ndarray],
    precision: str,
    chunk: int,
    on_progress: Callable[[int, int], None] | None = None,
    window_tokens: int = 1 << 16,
    with_likeliest: bool = False,
    group: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Computes log p(w_{t+1} | w_1 .. w_t) for each sequence, in nats.

    Args:
        stream, params: the features of a model, and the arrays of its readout.
        sequences: int arrays (T,). A sequence of fewer than two tokens has nothing to predict.
        precision: precision of the matrix products.
        chunk: number of states whose logits exist at once.
        on_progress: called with the number of distinct sequences done so far and in total.
        window_tokens: maximum number of states at once, unless one sequence alone has more.
        group: tokens, (V,) bool; log p(w_{t+1} is in the group | w_1 .. w_t) is computed instead.

    Returns:
        One float32 array (T - 1,) per sequence; with `with_likeliest` (T - 1, 2): the second column
        is 1 if the token is the most probable one (the first of several), else 0.
    """
    score = partial(_pair_log_probs, with_likeliest=with_likeliest)
    if group is not None:
        score = partial(_group_log_probs, group)
    shape = (0, 2) if with_likeliest else (0,)
    keys = [tuple(np.asarray(sequence).tolist()) for sequence in sequences]
    distinct = sorted(key for key in set(keys) if len(key) > 1)

    def launch_blocks() -> Iterator[tuple[range, Callable[[], list[np.ndarray]]]]:
        for block in group_by_tokens(map(len, distinct), window_tokens, stream.slots):
            ids = [np.array(key, np.int32) for key in distinct[block.start : block.stop]]
            buffer, rows = stream.read([sequence[:-1] for sequence in ids], prefix_tree=True)
            targets = [sequence[1:] for sequence in ids]
            yield block, _launch(params, buffer, rows, targets, precision, chunk, score)

    log_probs = {key: np.empty(shape, np.float32) for key in keys}
    # A block is collected after the next one was launched, so that the device never waits.
    for launched, _ in pairwise(chain(launch_blocks(), [None])):
        assert launched is not None
        block, collect = launched
        log_probs |= zip(distinct[block.start : block.stop], collect(), strict=True)
        if on_progress is not None:
            on_progress(block.stop, len(distinct))
    return [log_probs[key] for key in keys]


@partial(jax.jit, static_argnames=("precision", "with_likeliest"))
def _pair_log_probs(
    params: dict,
    buffer: jax.Array,
    rows: jax.Array,
    sources: jax.Array,
    targets: jax.Array,
    precision: str,
    with_likeliest: bool = False,
) -> jax.Array:
    """Returns the log-probabilities (P,); with `with_likeliest` (P, 2), as in `token_log_probs`."""
    features = xla.gathered(buffer, rows)
    log_probs = linear.pair_log_probs(params, features, sources, targets, precision)
    if not with_likeliest:
        return log_probs
    likeliest = linear.logits(params, features, precision).argmax(axis=1)  # (C,)
    return jnp.stack([log_probs, likeliest[sources] == targets], axis=1)


@partial(jax.jit, static_argnames="precision")
def _group_log_probs(
    group: jax.Array,
    params: dict,
    buffer: jax.Array,
    rows: jax.Array,
    sources: jax.Array,
    _: jax.Array,
    precision: str,
) -> jax.Array:
    # (P,)
    return linear.group_log_probs(params, xla.gathered(buffer, rows), group, precision)[sources]


def _launch(
    params: dict,
    buffer: jax.Array,
    rows: list[np.ndarray],
    targets: list[np.ndarray],
    precision: str,
    chunk: int,
    score: Callable[..., jax.Array] = _pair_log_probs,
) -> Callable[[], list[np.ndarray]]:
    """Starts the readout of the predictions of sequences, with features in their `rows`.

    Returns a function that waits for the log-probabilities, an array (T - 1,) or (T - 1, 2) per
    sequence.
    """
    # A pair of a row and a token is one 64-bit integer with the row in the upper 32 bits: row 3 and
    # token 7 become 3 * 2**32 + 7; `>> 32` gives 3, `& 0xFFFFFFFF` gives 7. np.unique is fast on
    # integers and sorts pairs by row.
    packed = np.concatenate(rows).astype(np.int64) << 32 | np.concatenate(targets)
    pairs, pair_of = np.unique(packed, return_inverse=True)
    predicted = pairs & 0xFFFFFFFF
    # (R,) rows; (P,) the row of each pair
    distinct, sources = np.unique(pairs >> 32, return_inverse=True)
    # The rows per chunk: equal for all chunks, with little padding, and one of about SIZES sizes.
    even, step = -(-len(distinct) // -(-len(distinct) // chunk)), max(1, chunk // SIZES)
    size = min(chunk, -(-even // step) * step)

    def pad(array: np.ndarray, width: int) -> np.ndarray:
        return np.pad(array, (0, width - len(array))).astype(np.int32)

    chunks = []  # each with its number of values without padding
    for first in range(0, len(distinct), size):
        # the pairs that read these rows
        first_pair, last_pair = np.searchsorted(sources, [first, first + size]).tolist()
        count = last_pair - first_pair
        width = 2 * size * padded_size(-(-count // (2 * size)))
        log_probs = score(
            params,
            buffer,
            pad(distinct[first : first + size], size),
            pad(sources[first_pair:last_pair] - first, width),
            pad(predicted[first_pair:last_pair], width),
            precision,
        )
        chunks.append((log_probs, count))

    def collect() -> list[np.ndarray]:
        values = np.concatenate([gather(log_probs)[:count] for log_probs, count in chunks])
        return np.split(values[pair_of], np.cumsum([len(each) for each in targets])[:-1])

    return collect
