"""Packed batches hold every token once, and what is read from them is what each sentence gives
alone."""

import jax
import numpy as np

from esnlm.features import stream as streams
from esnlm.features.batching import pack_batch
from esnlm.machine.compute import ComputeConfig
from esnlm.models.gpt2 import GPT2Config

V = 30


def sentences(count, longest=40, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, V, rng.integers(1, longest)).astype(np.int32) for _ in range(count)]


def test_a_packed_batch_holds_every_token_once():
    texts = sentences(20)
    corpus_positions = [1000 * s + np.arange(len(text)) for s, text in enumerate(texts)]
    batch, rows = pack_batch(texts, corpus_positions)
    for text, place, row in zip(texts, corpus_positions, rows, strict=True):
        assert np.array_equal(batch.tokens.ravel()[row], text)
        assert np.array_equal(batch.positions.ravel()[row], np.arange(len(text)))
        assert np.array_equal(batch.corpus_positions.ravel()[row], place)
        assert len(set(row % batch.tokens.shape[1])) == 1  # one slot
    everything = np.concatenate(rows)
    assert len(set(everything)) == len(everything)


def test_slots_are_shared_so_that_little_is_padding():
    texts = sentences(64)
    assert pack_batch(texts, texts)[0].tokens.size <= 1.25 * sum(map(len, texts))


def test_a_stream_gives_what_each_sentence_gives_alone(monkeypatch):
    monkeypatch.setattr(streams, "BATCH_TOKENS", 128)  # so that the sentences take several batches
    config = GPT2Config(layers=2, heads=2, width=8, positions=64, initializer_range=0.3)
    model = config.initialize(V, 0, {})
    stream = model.stream(ComputeConfig(batch_slots=16))
    texts = [text[: 10 * (s % 3 + 1)] for s, text in enumerate(sentences(12, longest=60))]
    buffer, rows = stream.read(texts)
    alone_in = jax.jit(model.hidden_states)
    for text, row in zip(texts, rows, strict=True):
        padded = np.zeros((1, 32), np.int32)
        padded[0, : len(text)] = text
        alone = np.asarray(alone_in(padded, np.arange(32)[None]))[0, : len(text)]
        # two blocks' float32 roundings of features of order 1
        np.testing.assert_allclose(np.asarray(buffer)[row], alone, atol=2e-5, rtol=0)


def test_a_sentence_longer_than_a_batch_has_one_of_its_own(monkeypatch):
    monkeypatch.setattr(streams, "BATCH_TOKENS", 32)
    config = GPT2Config(layers=1, heads=2, width=8, positions=64)
    stream = config.initialize(V, 0, {}).stream(ComputeConfig(batch_slots=16))
    texts = [
        np.arange(25, dtype=np.int32),
        np.arange(3, dtype=np.int32),
        np.arange(29, dtype=np.int32),
    ]
    _, rows = stream.read(texts)
    assert sorted(np.concatenate(rows)) == list(range(57))
