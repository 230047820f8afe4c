"""Windows of documents, the cache of their tokens, and how the losses of two models are
compared."""

import json
from argparse import Namespace

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.data.corpus import unigram_counts
from experiments import documents


def test_windows_predict_every_token_once():
    document = np.arange(10, 33)
    windows = documents.cut(document, 5)
    assert np.concatenate([window[1:] for window in windows]).tolist() == document[1:].tolist()
    store = Namespace(tokens=np.concatenate(windows), offsets=np.cumsum([0, *map(len, windows)]))
    assert (
        unigram_counts(store, Namespace(vocab_size=40)) == np.bincount(document[1:], minlength=40)
    ).all()


def test_a_mixture_is_fitted_on_the_other_half():
    """Where the cache knows what the model does not, it gets the largest weight; where it knows
    nothing, none."""
    nats, half = np.full(40, np.log(100.0)), np.arange(40) % 2
    distance = np.repeat([0, 1], 20)
    found = documents.fitted(documents.mixtures(nats, 1.0 - distance), distance, half)
    np.testing.assert_allclose(found[:20], -np.log(0.7 / 100 + 0.3))
    np.testing.assert_allclose(found[20:], nats[20:])


def test_the_counts_of_a_document_are_the_cache_and_change_the_logits():
    rng = np.random.default_rng(0)
    document, unigram, logits = (
        rng.integers(0, 4, 10),
        np.array([0.1, 0.2, 0.3, 0.4]),
        rng.normal(size=(9, 4)),
    )
    expected, shares = [], []
    for t, o in enumerate(logits):
        counts = np.bincount(document[: t + 1], minlength=4)
        boosts = np.log(1 + counts / (documents.PRIOR * unigram))
        scores = np.exp(o + documents.COUNT_WEIGHTS[:, None] * boosts)  # (E, 4)
        expected.append(np.log(scores.sum(axis=1) / scores[:, document[t + 1]]))
        shares.append(counts[document[t + 1]] / (t + 1))
    p = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    unigram, none = unigram.astype(np.float32), np.zeros(4, np.float32)
    counts, *begin = documents.with_counts(p[:5], document[:5], document[1:6], none, unigram)
    _, *rest = documents.with_counts(p[5:], document[5:9], document[6:], counts, unigram)
    for found, exact in zip(
        map(np.concatenate, zip(begin, rest, strict=True)), (expected, shares), strict=True
    ):
        np.testing.assert_allclose(found, exact, rtol=0, atol=16 * np.finfo(np.float32).eps)


def test_models_are_compared_by_seed_at_the_rate_that_is_best_for_the_first_seed(tmp_path, capsys):
    # by model and rate, of each seed
    losses = {("a", 1): [5, 0, 0], ("a", 2): [3, 4, 5], ("b", 1): [2, 2, 2, 9]}
    found = [(*of, seed, nll) for of, its in losses.items() for seed, nll in enumerate(its)]
    keys = ("model", "rate", "seed", "nll", "cached", "counted")
    records = {
        str(each): dict(zip(keys, [*each[:3], [each[3]], [1], [1]], strict=True)) for each in found
    }
    (tmp_path / "table.json").write_text(json.dumps(records))
    documents.compare(Namespace(results=tmp_path / "table.json", models=["a", "b"]))
    # 2 +- 4.3027 / sqrt(3)
    assert capsys.readouterr().out.startswith("nll, all: 2.0000 (-0.4841 to 4.4841), 3 seeds\n")


def test_two_runs_of_a_model_with_one_seed_are_refused():
    record = {"model": "a", "rate": 0.5, "seed": 3, "nll": [2.0]}
    with pytest.raises(
        InputError, match="^a at a rate of 0.5: two runs have seed 3, which means would count twice"
    ):
        documents.at_best_rates({"a-seed3": record, "copy": record})
