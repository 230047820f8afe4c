"""The names of checkpoints at word counts."""

import json

import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.interchange.revisions import passed_over, revision_name, revision_names, words_of_checkpoints
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory

MILLION = 1_000_000


def test_each_milestone_names_the_first_checkpoint_that_has_read_so_many_words():
    words = {step: step * MILLION + 300 for step in range(1, 1001)}
    expected = [*range(1, 11), *range(20, 101, 10), *range(200, 1001, 100)]  # 28 branches of the strict track
    assert revision_names(words) == {step: f"chck_{step}M" for step in expected}


def test_a_checkpoint_far_beyond_a_milestone_has_no_name_of_the_pipeline():
    assert revision_names({5: 999_999, 9: 1_400_000}) == {}
    assert revision_name(9, {5: 999_999, 9: 1_400_000}) == "step_9"
    assert revision_name(9, {9: 1_000_400, 12: 1_000_900}) == "chck_1M"


def test_a_milestone_that_was_asked_for_and_stepped_over_is_told():
    words = {10: 1_012_000, 20: 2_003_000, 30: 2_500_000}
    (line,) = passed_over(words, [1_000_000, 2_000_000, 3_000_000, 1_500_000])
    assert line == (
        "chck_1M: no checkpoint; the first one behind it, of step 10, has read 1,012,000 words, more than 1% too many: smaller updates"
        " (training.batch_size) come nearer"
    )
    assert passed_over(words, []) == []  # nobody asked for it


def test_one_checkpoint_has_one_name():
    assert revision_names({1: 10_050_000, 2: 20_000_000}) == {1: "chck_10M", 2: "chck_20M"}


def test_words_are_read_from_the_saved_checkpoints(tmp_path):
    directory = RunDirectory(tmp_path)
    for step, metadata in ((3, {"words": 40}), (7, {"words": 90}), (8, {})):
        checkpoint.save(directory.checkpoints / str(step), {"a": np.zeros(1)}, metadata)
    assert words_of_checkpoints(directory) == {3: 40, 7: 90}
    file = directory.checkpoints / "7" / "metadata.json"
    file.write_text(json.dumps([]))
    with pytest.raises(InputError, match="7/metadata.json: missing or damaged"):
        words_of_checkpoints(directory)
