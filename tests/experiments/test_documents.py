"""Windows of documents have every token once, and the cache is a token's share of the document so far."""

import numpy as np

from experiments import documents


def test_windows_predict_every_token_once():
    document = np.arange(10, 33)
    assert np.concatenate([window[1:] for window in documents.cut(document, 5)]).tolist() == document[1:].tolist()


def test_the_cache_counts_the_tokens_before():
    assert documents.cache(np.array([7, 3, 3, 7, 3])).tolist() == [0, 1 / 2, 1 / 3, 2 / 4]


def test_a_mixture_is_fitted_on_the_other_half():
    """Where the cache knows what the model does not, it gets the largest weight; where it knows nothing, none."""
    nats, half = np.full(40, np.log(100.0)), np.arange(40) % 2
    distance = np.repeat([0, 1], 20)
    found = documents.mixed(nats, 1.0 - distance, distance, half)
    np.testing.assert_allclose(found[:20], -np.log(0.7 / 100 + 0.3))
    np.testing.assert_allclose(found[20:], nats[20:])
