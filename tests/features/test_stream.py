"""A stream of packed batches gives the features that each sentence has alone."""

import jax
import numpy as np

from esnlm.features import stream as streams
from esnlm.machine.compute import ComputeConfig
from esnlm.models.gpt2 import GPT2Config
from tests.features.test_batching import V, sentences


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
