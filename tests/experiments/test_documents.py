"""Windows of documents, the cache of their tokens, and how the losses of two models are
compared."""

import json
from argparse import Namespace

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.corpus import unigram_counts
from esnlm.data.store import open_store
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


def test_surprisals_are_those_of_the_library_and_shares_those_of_the_document_so_far(
    trained, stores
):
    run, store = esnlm.load(trained("esn")), open_store(stores / "dev")
    (sentences,) = documents.read(store)
    nats, shares = documents.surprisals(run, [sentences[:15], sentences[15:]])
    alone = np.concatenate(run.token_log_probs_of_ids(sentences))
    np.testing.assert_allclose(nats[0], -alone, rtol=1e-4)
    expected = []
    for part in (sentences[:15], sentences[15:]):
        document = documents.end_to_end(part).tolist()
        expected += [document[:t].count(document[t]) / t for t in range(1, len(document))]
    assert shares.tolist() == expected
    first = len(documents.end_to_end(sentences[:15])) - 1
    weights = documents.COUNT_WEIGHTS
    parts = list(run._cached_model.predict(store, by_document=False, weights=weights))
    together = np.concatenate([part.log_probs for part in parts])
    np.testing.assert_allclose(nats[:, :first].T, -together[:first], rtol=1e-5)
    later = slice(first, first + 9)  # of the second document, whose counts begin anew
    assert (nats[1:, later] + together[later, 1:].T != 0).all()


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
