"""The tables of reading times, from records of a few runs."""

import numpy as np
import pandas as pd

from experiments import reading_times

# Student's t with two degrees of freedom at 97.5 %, by which the standard error is multiplied
T = 4.302652729911275


def record(model: str, seed: int, by_story: list[float], surprisal: float, last: bool) -> dict:
    gain = {"gain": sum(by_story) / 3, "by_story": by_story, "surprisal": surprisal}
    beyond = None if model == "bigram" else {"by_story": [0.0, 0.0, 3.0]}
    place = {"model": model, "seed": seed, "step": 9 if last else 4, "last": last}
    return gain | place | {"beyond_ngrams": beyond}


REFERENCE = [  # the surprisal falls from checkpoint to checkpoint
    record("lstm-512", 0, [4.0, 4.0, 4.0], 12.0, False),
    record("lstm-512", 0, [0.0, 0.0, 0.0], 10.0, True),
    record("lstm-512", 1, [3.0, 6.0, 9.0], 14.0, False),
    record("lstm-512", 1, [3.0, 6.0, 9.0], 10.0, True),
]


def test_intervals_are_over_stories_after_the_mean_over_seeds():
    records = [
        record("bigram", 0, [1.0, 2.0, 3.0], 9.5, True),
        record("esn", 0, [-1.0, 3.0, 7.0], 10.0, True),
        record("esn", 1, [5.0, 5.0, 5.0], 10.5, True),
        record("esn", 0, [9.0, 9.0, 9.0], 12.0, False),  # of an earlier checkpoint
    ]
    *_, first, second = reading_times.times_table(records).splitlines()
    # the means over seeds of the three stories are 2, 4 and 6, with a standard error of 2 / sqrt 3
    half = T * 2 / 3**0.5
    assert second.split(" | ")[1:5] == [
        "2",
        "10.25",
        f"4.0 ({4 - half:.1f} to {4 + half:.1f})",
        "3.0 to 5.0",
    ]
    assert second.split(" | ")[5].startswith("1.0 (") and first.startswith("| bigram | 1 | 9.50 |")


def test_models_are_compared_with_the_reference_between_its_checkpoints():
    # at 11 bits half way between the checkpoints of seed 0: 2, 2, 2, and of seed 1: 3, 6, 9
    found = reading_times.at_surprisal(pd.DataFrame(REFERENCE), 11.0)
    np.testing.assert_allclose(found, [2.5, 4.0, 5.5])
    assert (
        reading_times.at_surprisal(pd.DataFrame(REFERENCE), 13.0) is None
    )  # seed 0 has none there

    other = record("esn", 0, [2.5, 5.0, 7.5], 11.0, True)
    cached = other | {"model": "esn" + reading_times.CACHE, "surprisal": 12.0}
    *_, reference, row, of_cache = reading_times.times_table(
        [*REFERENCE, other, cached]
    ).splitlines()
    # the differences 0, 1 and 2 have a standard error of 1 / sqrt 3
    half = T / 3**0.5
    assert row.endswith(f"| 1.0 ({1 - half:.1f} to {1 + half:.1f}) |")
    assert reference.endswith("|  |") and of_cache.endswith("|  |")


def test_the_checkpoints_of_seeds_are_averaged_in_their_order():
    records = [
        record("esn", seed, [gain] * 3, 9.0 + seed, last) | {"step": 10 * seed + last}
        for seed, gains in enumerate([(1.0, 2.0), (3.0, 6.0)])
        for last, gain in enumerate(gains)
    ]
    assert reading_times.curves(records).gain.tolist() == [2.0, 4.0]


def test_documents_are_compared_with_sentences_each_with_the_cache_or_both_without():
    cache, documents = reading_times.CACHE, reading_times.DOCUMENTS
    gains = {"esn": 1.0, f"esn{documents}": 2.0, f"esn{cache}": 4.0, f"esn{documents}{cache}": 7.0}
    records = [record(name, 0, [gain] * 3, 9.0, True) for name, gain in gains.items()]
    *_, without, with_cache = reading_times.added_table(records, documents, "what").splitlines()
    assert without.startswith("| esn | 0.00 | 1.0 (1.0 to 1.0) |")
    assert with_cache.startswith(f"| esn{cache} | 0.00 | 3.0 (3.0 to 3.0) |")


def test_what_the_cache_adds_is_the_mean_over_seeds():
    name = "esn" + reading_times.CACHE
    records = [
        record("esn", 0, [1.0, 2.0, 3.0], 9.0, True),
        record("esn", 1, [3.0, 4.0, 5.0], 9.0, True),
        record(name, 0, [0.0, 2.0, 4.0], 8.5, True),
        record(name, 1, [4.0, 6.0, 8.0], 8.0, True),
    ]
    records[3]["beyond_ngrams"] = {"by_story": [2.0, 2.0, 5.0]}
    *_, row = reading_times.added_table(records, reading_times.CACHE, "what").splitlines()
    # the differences are 0, 1 and 2 on average, and beyond n-grams 1, 1 and 1
    half = T / 3**0.5
    assert row == f"| esn | -0.75 | 1.0 ({1 - half:.1f} to {1 + half:.1f}) | 1.0 (1.0 to 1.0) |"
