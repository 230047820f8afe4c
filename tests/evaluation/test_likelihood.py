"""Sums over a text and the units made of them, against float64 NumPy, one sentence at a time."""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest

from esnlm.data import grammar
from esnlm.data.encode import encode_sentences
from esnlm.data.tokenizer import word_tokenizer
from esnlm.evaluation import likelihood
from esnlm.evaluation.likelihood import Likelihood
from esnlm.machine.compute import ComputeConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.ngrams import NgramModel
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from tests import oracle

TOKENIZER = word_tokenizer(grammar.words())
SENTENCES = [*grammar.sentences(60, seed=1), "Naïve cats  sleep — 眠る."]
COMPUTE = ComputeConfig(kernel="csr", batch_slots=4, window_tokens=100, chunk_tokens=32)


@pytest.fixture(scope="module")
def text():
    return encode_sentences(SENTENCES, TOKENIZER)


def by_hand(log_probs):
    """The figures of log-probabilities, one array (T - 1,) for each of SENTENCES."""
    nats = -sum(math.fsum(each) for each in log_probs)
    without = -sum(math.fsum(each[:-1]) for each in log_probs)
    tokens = sum(len(each) for each in log_probs)
    return {
        "nll": nats / tokens,
        "nll_without_eos": without / (tokens - len(SENTENCES)),
        "bits_per_byte": nats / math.log(2) / sum(len(sentence.encode()) for sentence in SENTENCES),
        "nats_per_word": nats / sum(len(sentence.split()) for sentence in SENTENCES),
        "perplexity": math.exp(nats / tokens),
    }


def figures(found):
    return {name: getattr(found, name) for name in by_hand([np.zeros(2)])}


def test_a_model_s_figures_are_the_oracle_s(text):
    reservoir = ReservoirConfig(state_size=30, mean_degree=5)
    described = EchoStateConfig(reservoir=reservoir, readout=ReadoutConfig(rank=4))
    model = described.initialize(
        TOKENIZER.vocab_size, 0, described.initialize_frozen(TOKENIZER.vocab_size, 0)[0]
    )
    frozen, params = model.reservoir, model.params["readout"]
    # A readout as it is initialized prefers nothing. Of larger A, tokens differ in their
    # log-probabilities by several nats.
    params = params | {"a": 20 * params["a"]}
    weights = oracle.matrices(frozen)
    log_probs = [oracle.token_log_probs(*weights, params, ids) for ids in text]
    assert np.ptp(np.concatenate(log_probs)) > 3
    found = likelihood.of_model(model.for_device(COMPUTE).stream(COMPUTE), params, text, COMPUTE)
    assert figures(found) == pytest.approx(by_hand(log_probs), rel=1e-5)
    assert (found.sentences, found.tokens) == (len(SENTENCES), sum(len(ids) - 1 for ids in text))

    seen = []
    stopped = likelihood.of_model(
        model.for_device(COMPUTE).stream(COMPUTE),
        params,
        text,
        COMPUTE,
        lambda *so_far: seen.append(so_far) or True,
    )
    assert stopped is None and len(seen) == 1 and 0 < seen[0][1] < found.tokens


@pytest.mark.parametrize("block", [7, 1 << 20])
@pytest.mark.parametrize("fit", [partial(NgramModel.fit, order=order) for order in (1, 3)])
def test_the_figures_of_ngrams_do_not_depend_on_the_blocks(text, fit, block, monkeypatch):
    monkeypatch.setattr(likelihood, "BLOCK_TOKENS", block)
    train = encode_sentences(list(grammar.sentences(60, seed=2)), TOKENIZER)
    model = fit(train, TOKENIZER.vocab_size)
    found = likelihood.of_ngrams(model, text)
    assert figures(found) == pytest.approx(
        by_hand(model.token_log_probs_of_ids(list(text))), rel=1e-12
    )


def test_eos_has_nats_but_no_bytes_and_no_words():
    one = Likelihood(nats=6.0, eos_nats=2.0, sentences=1, tokens=3, bytes=4, words=2)
    assert (one.nll, one.nll_without_eos, one.nats_per_word) == (2.0, 2.0, 3.0)
    assert one.bits_per_byte == 6 / math.log(2) / 4 and one.perplexity == math.exp(2)
    surer = dataclasses.replace(one, nats=4.0, eos_nats=0.0)
    assert surer.nll == pytest.approx(4 / 3) and surer.nll_without_eos == 2.0
