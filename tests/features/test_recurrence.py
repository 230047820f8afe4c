"""States of many sentences at once, on every kernel and in both layouts, are those of one sentence
at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.features import batching
from esnlm.features import stream as streams
from esnlm.features.stream import FeatureStream
from esnlm.machine.compute import run_at_once
from esnlm.reservoir import sparse
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir
from tests import oracle

V = 23

# Over 40 contracting steps float32 stays within a few hundred roundings of float64.
TOLERANCE = 300 * float(np.finfo(np.float32).eps)


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 3, rng.integers(1, 40)).astype(np.int32) for _ in range(count)]


def reservoir(**settings):
    return initialize_reservoir(
        ReservoirConfig(**{"state_size": 90, "mean_degree": 6.0} | settings), V, seed=1
    ).reservoir


def expected(reservoir, sentence, f=np.tanh):
    return oracle.states(*oracle.matrices(reservoir), sentence, f)


@pytest.mark.parametrize(
    "kernel, prefix_tree", [*((kernel, False) for kernel in sparse.KERNELS), ("csr", True)]
)
def test_states_agree_with_the_oracle(kernel, prefix_tree):
    frozen, texts = reservoir(), sentences(13)
    stream = FeatureStream(frozen.for_device(kernel), slots=16, capacity=8)
    buffer, rows = stream.read(texts, prefix_tree=prefix_tree)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(buffer)[row], expected(frozen, text), atol=TOLERANCE, rtol=0
        )


@pytest.mark.parametrize("kernel", ["csr", pytest.param("dense", marks=pytest.mark.nightly)])
def test_few_sentences_take_few_slots(kernel, monkeypatch):
    """On a CPU a long text alone should not wait for slots without a sentence. The bits are the
    same where W_rec is sparse."""
    frozen, texts = reservoir(), sentences(40)
    stream = FeatureStream(frozen.for_device(kernel), slots=96, capacity=8)
    taken, assign = [], batching.assign_to_slots

    def note(lengths, slots):
        taken.append(slots)
        return assign(lengths, slots)

    monkeypatch.setattr(batching, "assign_to_slots", note)

    def states(chosen):
        buffer, rows = stream.read(chosen)
        return [np.asarray(buffer)[row] for row in rows]

    for count in (96, 17, 1):
        many, alone = states((texts * 3)[:count])[0], states(texts[:1])[0]
        np.testing.assert_allclose(many, alone, rtol=0, atol=0 if kernel == "csr" else TOLERANCE)
    assert taken == [96, 16, 32, 16, 16, 16]


@pytest.mark.parametrize(
    "settings", [{"activation": "relu"}, {"connectivity": 0.5}, {"leak_min": 0.8, "leak_max": 0.8}]
)
def test_other_settings_agree_too(settings):
    frozen, texts = reservoir(**settings), sentences(9)
    f = np.tanh if settings.get("activation") is None else lambda x: np.maximum(x, 0)
    stream = FeatureStream(frozen.for_device(), slots=4, capacity=8)
    buffer, rows = stream.read(texts)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(buffer)[row], expected(frozen, text, f), rtol=TOLERANCE, atol=TOLERANCE
        )


@pytest.mark.parametrize("kernel", ["csr"])
@pytest.mark.parametrize(
    "count, longest", [(13, 40), (1, 40), (5, 1)], ids=["many", "one sentence", "nothing but BOS"]
)
def test_a_beginning_that_all_share_is_read_once(count, longest, kernel):
    frozen, rng = reservoir(), np.random.default_rng(5)
    texts = [
        np.append(V - 1, rng.integers(0, V, rng.integers(longest))).astype(np.uint16)
        for _ in range(count)
    ]
    stream = FeatureStream(frozen.for_device(kernel), slots=4, capacity=8)
    buffer, rows = stream.read(texts)
    assert sorted(set(np.concatenate(rows))) == list(
        range(1 + sum(len(text) - 1 for text in texts))
    )
    assert {row[0] for row in rows} == {0}
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(buffer)[row], expected(frozen, text), atol=TOLERANCE, rtol=0
        )


def test_a_buffer_is_used_again_without_a_trace():
    """Nothing of an earlier, longer call shows in a later one, which overwrites its buffer."""
    frozen = reservoir()
    stream = FeatureStream(frozen.for_device(), slots=4, capacity=800)
    first, texts = sentences(20, seed=1), sentences(5, seed=2)
    _, [buffer] = stream.run([stream.pack(first, capacity=800)])
    packed = stream.pack(texts, capacity=800)
    assert packed.size == len(buffer)
    _, [again] = stream.run([packed], buffers=[buffer])
    assert buffer.is_deleted()
    for text, row in zip(texts, packed.rows, strict=True):
        np.testing.assert_allclose(
            np.asarray(again)[row], expected(frozen, text), atol=TOLERANCE, rtol=0
        )


def test_threads_may_share_a_stream():
    frozen = reservoir()
    stream, groups = (
        FeatureStream(frozen.for_device(), slots=4, capacity=8),
        [sentences(12, seed) for seed in range(4)],
    )
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(stream.read, groups))
    for texts, (buffer, rows) in zip(groups, read, strict=True):
        for text, row in zip(texts, rows, strict=True):
            np.testing.assert_allclose(
                np.asarray(buffer)[row], expected(frozen, text), atol=TOLERANCE, rtol=0
            )


def test_calls_at_once_have_threads_of_their_own():
    """They wait for each other, and their results come in order, in float32 as in the caller."""
    barrier = threading.Barrier(3, timeout=30)
    calls = [lambda i=i: (barrier.wait(), jnp.arange(1.0).dtype, i) for i in range(3)]
    with jax.enable_x64(False):
        assert [each[1:] for each in run_at_once(calls)] == [(jnp.float32, i) for i in range(3)]


@pytest.mark.parametrize("prefix_tree", [False, True])
def test_windows_on_several_cores_have_the_bits_of_one(prefix_tree, monkeypatch):
    frozen, windows = reservoir().for_device("csr"), [sentences(8, seed) for seed in range(5)]

    def states():
        stream = FeatureStream(frozen, slots=64, capacity=8)
        read = stream.read_windows(windows, prefix_tree)
        return stream.parallel, [np.asarray(x)[np.concatenate(rows)] for x, rows in read]

    _, expected = states()
    monkeypatch.setattr(streams, "usable_cores", lambda: 2)
    monkeypatch.setattr(streams, "MIN_PARALLEL_ROWS", 4)
    parallel, found = states()
    assert parallel == 2 and len(found) == 5
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(each, other)


def test_dense_products_use_all_cores_by_themselves(monkeypatch):
    monkeypatch.setattr(streams, "usable_cores", lambda: 2)
    for kernel, parallel in ("csr", 2), ("dense", 1):
        stream = FeatureStream(reservoir().for_device(kernel), slots=64, capacity=4096)
        assert (stream.parallel, stream.slots) == (parallel, 64 // parallel)
