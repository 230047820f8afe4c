"""Log-probabilities of sequences, in both ways of laying them out, against one sentence at a time
in float64."""

import numpy as np
import pytest

from esnlm.evaluation import scoring
from esnlm.features.stream import FeatureStream
from esnlm.machine.compute import ComputeConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from tests import oracle

V = 60
TOLERANCE = 300 * float(np.finfo(np.float32).eps)


@pytest.fixture(scope="module")
def model():
    config = EchoStateConfig(
        reservoir=ReservoirConfig(state_size=80, mean_degree=8), readout=ReadoutConfig(rank=12)
    )
    return config.initialize(V, 0, config.initialize_frozen(V, 0)[0])


@pytest.fixture(scope="module")
def sequences():
    """Many share beginnings, some are whole beginnings of others, some are equal, one is empty and
    one is one id."""
    rng = np.random.default_rng(0)
    found = [
        np.append(rng.integers(0, 3, rng.integers(2, 20)), V - 1).astype(np.int32)
        for _ in range(60)
    ]
    return [*found, found[3][:-4], found[5], np.array([], np.int32), np.array([7], np.int32)]


def expected(model, sequence):
    if len(sequence) < 2:
        return np.empty(0)
    return oracle.token_log_probs(
        *oracle.matrices(model.reservoir), model.params["readout"], sequence
    )


@pytest.mark.parametrize(
    "kernel, chunk",
    [
        ("csr", 32),
        ("csr", 300),
        *(pytest.param(kernel, 32, marks=pytest.mark.nightly) for kernel in ("bcoo", "fused")),
    ],
)
def test_token_log_probs_agree_with_the_oracle(model, sequences, kernel, chunk):
    stream = FeatureStream(model.reservoir.for_device(kernel), slots=16, capacity=32)
    found = scoring.token_log_probs(stream, model.params["readout"], sequences, "float32", chunk)
    for log_probs, sequence in zip(found, sequences, strict=True):
        np.testing.assert_allclose(log_probs, expected(model, sequence), rtol=TOLERANCE)


@pytest.mark.parametrize("chunk, window_tokens", [(300, 1 << 16), (32, 200)])
def test_group_log_probs_agree_with_the_oracle(model, sequences, chunk, window_tokens):
    """The probability of a group is the sum over its tokens, whichever chunk of a window a text
    lies in."""
    group, frozen = np.arange(V) % 3 == 0, model.reservoir
    stream = FeatureStream(frozen.for_device("csr"), slots=16, capacity=32)
    params = model.params["readout"]
    found = scoring.token_log_probs(
        stream, params, sequences, "float32", chunk, window_tokens=window_tokens, group=group
    )
    assert sum(map(len, found)) > 300, (
        "even the largest of these chunks does not hold all predictions"
    )
    for log_probs, sequence in zip(found, sequences, strict=True):
        assert len(log_probs) == max(0, len(sequence) - 1)
        if len(sequence) > 1:
            h = oracle.states(*oracle.matrices(frozen), sequence[:-1])
            in_group = np.exp(oracle.log_softmax(oracle.logits(params, h)))[:, group].sum(axis=1)
            np.testing.assert_allclose(log_probs, np.log(in_group), rtol=TOLERANCE)


@pytest.mark.parametrize("begins_alike", [True, False])
def test_window_log_probs_agree_with_the_oracle(model, sequences, begins_alike):
    bos = np.array([V - 1] * begins_alike, np.int32)
    sentences = [
        np.append(bos, sequence).astype(np.int32) for sequence in sequences if len(sequence) > 1
    ]
    stream = FeatureStream(model.reservoir.for_device("csr"), slots=8, capacity=32)
    compute = ComputeConfig(window_tokens=100, chunk_tokens=64)
    params, log_probs, of_last, numbers = model.params["readout"], [], [], []
    for window in scoring.sentence_windows(stream, sentences, compute.window_tokens):
        log_probs.append(scoring.window_log_probs(window, params, compute))
        of_last.append(log_probs[-1][window.is_last])
        numbers.append(window.numbers)
    assert len(log_probs) > 1 and np.concatenate(numbers).tolist() == list(
        range(sum(len(sentence) - 1 for sentence in sentences))
    )
    exact = [expected(model, sentence) for sentence in sentences]
    np.testing.assert_allclose(np.concatenate(log_probs), np.concatenate(exact), rtol=TOLERANCE)
    last = [each[-1] for each in exact]
    np.testing.assert_allclose(np.concatenate(of_last), last, rtol=TOLERANCE)


def test_the_likeliest_token_is_marked_beside_the_same_log_probabilities(model, sequences):
    stream = FeatureStream(model.reservoir.for_device("csr"), slots=16, capacity=32)
    params, dense = (
        model.params["readout"],
        (oracle.dense(model.reservoir.w_rec), oracle.dense(model.reservoir.w_in)),
    )
    likeliest = [  # what the equations choose after all of a sequence but its last id
        int(
            oracle.logits(params, oracle.states(*dense, model.reservoir.leak, ids[:-1]))[
                -1
            ].argmax()
        )
        for ids in sequences[:20]
    ]
    greedy = [
        np.append(ids[:-1], token) for ids, token in zip(sequences[:20], likeliest, strict=True)
    ]
    found = scoring.token_log_probs(
        stream, params, [*greedy, *sequences], "float32", 32, with_likeliest=True
    )
    assert all(each[-1, 1] == 1 for each in found[:20])
    alone = scoring.token_log_probs(stream, params, sequences, "float32", 32)
    for both, log_probs, ids in zip(found[20:], alone, sequences, strict=True):
        np.testing.assert_allclose(both[:, 0], log_probs, rtol=TOLERANCE)
        assert both.shape == (max(0, len(ids) - 1), 2) and set(both[:, 1]) <= {0.0, 1.0}
    assert sum(len(both) - both[:, 1].sum() for both in found) > 0, (
        "most tokens are not the likeliest"
    )
