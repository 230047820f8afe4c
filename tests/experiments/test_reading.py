"""The tables of reading times and probes, from records of a few runs."""

import json

import numpy as np
import pandas as pd
import pytest

from esnlm.base.errors import InputError
from experiments import reading
from experiments.finished_runs import finished_runs

# Student's t with two degrees of freedom at 97.5 %, by which the standard error is multiplied
T = 4.302652729911275


def record(model: str, seed: int, by_story: list[float], surprisal: float, last: bool) -> dict:
    gain = {"gain": sum(by_story) / 3, "by_story": by_story, "surprisal": surprisal}
    beyond = None if model == "bigram" else {"by_story": [0.0, 0.0, 3.0]}
    place = {"model": model, "seed": seed, "step": 9 if last else 4, "last": last}
    return gain | place | {"beyond_ngrams": beyond}


REFERENCE = [
    record("lstm-512", 0, [0.0, 0.0, 0.0], 10.0, True),
    record("lstm-512", 0, [4.0, 4.0, 4.0], 12.0, False),
    record("lstm-512", 1, [3.0, 6.0, 9.0], 10.0, True),
    record("lstm-512", 1, [3.0, 6.0, 9.0], 14.0, False),
]


def test_intervals_are_over_stories_after_the_mean_over_seeds():
    records = [
        record("bigram", 0, [1.0, 2.0, 3.0], 9.5, True),
        record("esn", 0, [0.0, 4.0, 8.0], 10.0, True),
        record("esn", 1, [4.0, 4.0, 4.0], 10.5, True),
        record("esn", 0, [9.0, 9.0, 9.0], 12.0, False),  # of an earlier checkpoint
    ]
    *_, first, second = reading.times_table(records).splitlines()
    # the means over seeds of the three stories are 2, 4 and 6, with a standard error of 2 / sqrt 3
    half = T * 2 / 3**0.5
    assert second.split(" | ")[1:5] == [
        "2",
        "10.25",
        f"4.0 ({4 - half:.1f} to {4 + half:.1f})",
        "4.0 to 4.0",
    ]
    assert second.split(" | ")[5].startswith("1.0 (") and first.startswith("| bigram | 1 | 9.50 |")


def test_models_are_compared_with_the_reference_between_its_checkpoints():
    # at 11 bits half way between the checkpoints of seed 0: 2, 2, 2, and of seed 1: 3, 6, 9
    found = reading.at_surprisal(pd.DataFrame(REFERENCE), 11.0)
    np.testing.assert_allclose(found, [2.5, 4.0, 5.5])
    assert reading.at_surprisal(pd.DataFrame(REFERENCE), 13.0) is None  # seed 0 has none there

    other = record("esn", 0, [2.5, 5.0, 7.5], 11.0, True)
    *_, reference, row = reading.times_table([*REFERENCE, other]).splitlines()
    # the differences 0, 1 and 2 have a standard error of 1 / sqrt 3
    half = T / 3**0.5
    assert row.endswith(f"| 1.0 ({1 - half:.1f} to {1 + half:.1f}) |")
    assert reference.endswith("|  |")


def test_the_checkpoints_of_seeds_are_averaged_in_their_order():
    records = [
        record("esn", seed, [gain] * 3, 9.0 + seed, last) | {"step": 10 * seed + last}
        for seed, gains in enumerate([(1.0, 2.0), (3.0, 6.0)])
        for last, gain in enumerate(gains)
    ]
    assert reading.curves(records).gain.tolist() == [2.0, 4.0]


def test_what_the_cache_adds_is_the_mean_over_seeds():
    records = [record("esn", seed, [1.0, 2.0, 3.0], 9.0, True) for seed in (0, 1)]
    name = "esn" + reading.CACHE
    records += [
        record(name, 0, [1.0, 3.0, 5.0], 8.5, True),
        record(name, 1, [1.0, 3.0, 5.0], 8, True),
    ]
    *_, row = reading.cache_table(records).splitlines()
    half = T / 3**0.5  # of the differences 0, 1 and 2
    assert row == f"| esn | -0.75 | 1.0 ({1 - half:.1f} to {1 + half:.1f}) | 0.0 (0.0 to 0.0) |"


def test_a_row_has_the_accuracies_of_a_model():
    records = [
        {"model": model, "task": task, "seeds": 3, "accuracy": value, "interval": [value - 1, 99]}
        for value, (model, task) in enumerate(
            [("esn", "upos"), ("esn", "head"), ("lstm", "upos"), ("lstm", "head")], start=50
        )
    ]
    head, _, *rows = reading.probes_table(records).splitlines()
    assert head == "| model | seeds | upos | head |"
    assert rows[1] == "| lstm | 3 | 52.0 (51.0 to 99.0) | 53.0 (52.0 to 99.0) |"


def test_an_interrupted_run_is_left_out(tmp_path):
    for status in ("finished", "interrupted"):
        (tmp_path / status).mkdir()
        (tmp_path / status / "summary.json").write_text(json.dumps({"status": status}))
    (tmp_path / "training").mkdir()
    assert finished_runs(tmp_path) == {tmp_path / "finished": {"status": "finished"}}
    with pytest.raises(InputError, match="no finished run; name the folder `runs`"):
        finished_runs(tmp_path / "finished")


def test_the_name_of_a_run_has_its_model_and_seed():
    assert reading.split_name("esn-1024-documents-seed2") == ("esn-1024-documents", 2)
