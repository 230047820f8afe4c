"""The names of checkpoints at word counts."""

import numpy as np

from esnlm.interchange.babylm import revision_names
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory

MILLION = 1_000_000


def test_each_milestone_names_the_first_checkpoint_that_has_read_so_many_words():
    names = revision_names({step: step * MILLION + 300 for step in range(1, 1001)})
    # 28 branches of the strict track
    expected = [*range(1, 11), *range(20, 101, 10), *range(200, 1001, 100)]
    assert {step: name for step, name in names.items() if name.startswith("chck_")} == {
        step: f"chck_{step}M" for step in expected
    }
    assert names[11] == "step_11"


def test_a_checkpoint_far_beyond_a_milestone_is_not_called_after_it():
    assert revision_names({0: 0, 5: 999_999, 9: 1_400_000}) == {
        0: "step_0",
        5: "step_5",
        9: "step_9",
    }
    assert revision_names({9: 1_000_400, 12: 1_000_900}) == {9: "chck_1M", 12: "step_12"}
    assert revision_names({1: 10_050_000, 2: 20_000_000}) == {1: "chck_10M", 2: "chck_20M"}


def test_words_are_read_from_the_saved_checkpoints(tmp_path):
    directory = RunDirectory(tmp_path)
    for step, metadata in ((3, {"words": 40, "permanent": True}), (7, {"words": 90}), (8, {})):
        checkpoint.save(directory.checkpoints / str(step), {"a": np.zeros(1)}, metadata)
    assert checkpoint.words_by_step(directory.checkpoints) == {3: 40, 7: 90}
    assert checkpoint.words_by_step(directory.checkpoints, permanent=True) == {3: 40}
