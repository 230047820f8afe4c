"""The schedule of a run, from numbers alone."""

import numpy as np
import pytest

from esnlm.training.config import TrainingConfig
from esnlm.training.optimizer import Schedule, steps_at_word_counts, unreached_settings


def due(what, **settings):
    """The steps of two epochs of ten updates at which something is due."""
    schedule = Schedule(
        **{"updates_per_epoch": 10, "log_every": 100, "checkpoint_every": 100} | settings
    )
    return [step for step in range(21) if getattr(schedule.due(step), what)]


def test_the_end_of_an_epoch_makes_everything_due_but_permanent_checkpoints():
    assert [due(what) for what in ("log", "checkpoint", "validation")] == [[10, 20]] * 3
    assert due("permanent") == []


def test_lines_and_checkpoints_have_rhythms_of_their_own_over_all_epochs():
    assert due("log", log_every=3) == [3, 6, 9, 10, 12, 15, 18, 20]
    assert due("checkpoint", checkpoint_every=7) == [7, 10, 14, 20]
    assert due("checkpoint", permanent={6, 13}) == [6, 10, 13, 20]
    assert due("permanent", permanent={6, 13}) == [6, 13]


def test_a_validation_makes_a_line_and_a_checkpoint_due():
    for what in ("validation", "log", "checkpoint"):
        assert due(what, validate_every=6) == [6, 10, 12, 18, 20]


@pytest.mark.parametrize(
    "counts, steps",
    [
        ((), set()),
        ((1,), {1}),
        ((5,), {1}),  # reached exactly
        ((6,), {2}),
        ((12, 13), {3, 4}),  # the end of the first epoch, and the beginning of the second
        ((24,), {6}),
        ((25,), set()),  # more than the run reads
    ],
)
def test_the_steps_at_which_so_many_words_were_read(counts, steps):
    words = np.array([5, 4, 3, 5, 4, 3])
    assert steps_at_word_counts(words, counts) == steps


@pytest.mark.parametrize(
    "settings, name",
    [
        ({"warmup_updates": 8}, "training.warmup_updates"),
        ({"checkpoint_words": (500, 100_000)}, "training.checkpoint_words"),
        ({"schedule_by": "words", "warmup_words": 4000}, "training.warmup_words"),
        (
            {"schedule": "linear", "schedule_by": "words", "schedule_words": 400},
            "training.schedule_words",
        ),
    ],
)
def test_what_lies_behind_the_end_of_a_run_is_told(settings, name):
    (found,) = unreached_settings(TrainingConfig(**settings), np.array([300, 200, 300, 200]))
    assert found.startswith(name)
