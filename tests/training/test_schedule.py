"""The schedule of a run, from numbers alone."""

import numpy as np
import pytest

from esnlm.config import TrainingConfig
from esnlm.training.schedule import Schedule, not_reached, steps_at_words

TWO_EPOCHS = [[range(0, 4), range(4, 9), range(9, 10)], [range(0, 5), range(5, 10)]]


def calls(step=0, updates_per_call=100, **settings):
    schedule = Schedule(TWO_EPOCHS, **{"log_every": 100, "checkpoint_every": 100} | settings)
    return list(schedule.calls(step, lambda: updates_per_call))


def bounds(some):
    return [(call.epoch, call.first, call.last) for call in some]


def steps_where(some, what):
    return [call.step for call in some if getattr(call, what)]


def test_a_call_is_a_window_where_nothing_else_is_due():
    found = calls()
    assert bounds(found) == [(0, 0, 4), (0, 4, 9), (0, 9, 10), (1, 0, 5), (1, 5, 10)]
    assert [call.step for call in found] == [4, 9, 10, 15, 20]
    assert all(call.opens_window for call in found)
    # The end of an epoch makes a validation, a line of metrics and a checkpoint due, whatever their own rhythm.
    for what in ("validate", "log", "checkpoint"):
        assert steps_where(found, what) == [10, 20]
    assert steps_where(found, "permanent") == []


def test_a_call_ends_where_it_is_asked_to_and_nothing_else_is_due_there():
    found = calls(ends_of_calls=(0, 6, 12))
    assert [call.step for call in found] == [4, 6, 9, 10, 12, 15, 20]
    for what in ("validate", "log", "checkpoint"):
        assert steps_where(found, what) == [10, 20]


def test_a_call_ends_where_a_line_or_a_checkpoint_is_due():
    found = calls(log_every=3, checkpoint_every=7)
    assert [call.step for call in found] == [3, 4, 6, 7, 9, 10, 12, 14, 15, 18, 20]
    assert steps_where(found, "log") == [3, 6, 9, 10, 12, 15, 18, 20]
    assert steps_where(found, "checkpoint") == [7, 10, 14, 20]


def test_steps_are_counted_over_all_epochs():
    assert steps_where(calls(checkpoint_every=6), "checkpoint") == [6, 10, 12, 18, 20]


def test_a_permanent_checkpoint_is_due_in_the_middle_of_a_window():
    found = calls(permanent={6, 13})
    assert [call.step for call in found] == [4, 6, 9, 10, 13, 15, 20]
    assert steps_where(found, "permanent") == [6, 13]
    assert steps_where(found, "checkpoint") == [6, 10, 13, 20]


@pytest.mark.parametrize("updates_per_call", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("step", range(21))
def test_a_resumed_run_is_scheduled_as_the_undisturbed_one(step, updates_per_call):
    """Each update is run once, in order, in the window that is loaded, and what is due does not depend on the resuming."""
    settings = {"log_every": 3, "checkpoint_every": 7, "permanent": {8}}
    found, loaded, done = calls(step, updates_per_call, **settings), None, step
    for call in found:
        if call.opens_window:
            loaded = call.epoch, call.window
        assert loaded == (call.epoch, call.window)
        assert call.epoch * 10 + call.first == done and call.window.start <= call.first < call.last <= call.window.stop
        assert call.last - call.first <= updates_per_call
        assert call.in_window == (call.first - call.window.start, call.last - call.window.start)
        done = call.step
        assert done == call.epoch * 10 + call.last
    assert done == 20
    for what in ("log", "checkpoint", "permanent", "validate"):
        undisturbed = steps_where(calls(updates_per_call=updates_per_call, **settings), what)
        assert steps_where(found, what) == [due for due in undisturbed if due > step]


def test_a_window_is_loaded_once_in_each_process_that_needs_it():
    assert [call.window for call in calls(6, updates_per_call=2) if call.opens_window] == [
        *(range(4, 9), range(9, 10)),
        *(range(0, 5), range(5, 10)),
    ]


def test_how_many_updates_a_call_has_is_asked_each_time():
    rising = iter([1, 2, 3, 100, 100, 100, 100])
    schedule = Schedule([[range(0, 8), range(8, 12)]], log_every=100, checkpoint_every=100)
    assert [(call.first, call.last) for call in schedule.calls(0, lambda: next(rising))] == [
        *((0, 1), (1, 3), (3, 6), (6, 8), (8, 12)),
    ]


def test_where_each_outcome_must_be_known_a_call_is_one_update():
    found = calls(one_update_a_call=True)
    assert [call.step for call in found] == list(range(1, 21))
    assert [call.window for call in found if call.opens_window] == [window for epoch in TWO_EPOCHS for window in epoch]


def test_the_end_of_an_epoch():
    schedule = Schedule(TWO_EPOCHS, log_every=100, checkpoint_every=100)
    assert schedule.updates_per_epoch == 10
    assert [step for step in range(22) if schedule.ends_epoch(step)] == [10, 20]
    assert list(schedule.calls(20, lambda: 1)) == []


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
    words = [np.array([5, 4, 3]), np.array([5, 4, 3])]
    assert steps_at_words(words, counts) == steps


@pytest.mark.parametrize("step", range(0, 21, 3))
def test_a_validation_makes_a_line_and_a_checkpoint_due_and_its_window_is_loaded_again(step):
    """The features of validation text are written where those of the window were."""
    found = calls(step, validate_every=6)
    due = [each for each in (6, 10, 12, 18, 20) if each > step]
    for what in ("validate", "log", "checkpoint"):
        assert steps_where(found, what) == due
    assert [call.step for call in found if call.validate and call.step % 10] == [each for each in due if each % 10]
    for before, call in zip(found, found[1:], strict=False):
        assert call.opens_window == (before.validate or before.window != call.window or before.epoch != call.epoch)
    schedule = Schedule(TWO_EPOCHS, log_every=100, checkpoint_every=100, validate_every=6)
    assert [each for each in range(21) if schedule.validates(each)] == [6, 10, 12, 18, 20]


def test_what_lies_behind_the_end_of_a_run_is_told():
    words = [np.array([300, 200]), np.array([300, 200])]
    inside = TrainingConfig(warmup_updates=4, checkpoint_words=(500, 1000))
    assert not_reached(inside, words) == []
    behind = TrainingConfig(learning_rate=0.02, warmup_updates=8, checkpoint_words=(500, 100_000))
    assert not_reached(behind, words) == [
        "training.warmup_updates is 8 and the run has 4 updates: its learning rate ends at 0.01",
        "training.checkpoint_words has 100,000, and the run reads 1,000 words: no checkpoint is kept there",
    ]
    by_words = TrainingConfig(learning_rate=0.02, schedule_by="words", warmup_words=4000)
    assert not_reached(by_words, words) == [
        "training.warmup_words is 4,000 and the run has 1,000 words: its learning rate ends at 0.005"
    ]
    early = TrainingConfig(schedule="linear", schedule_by="words", schedule_words=400)
    assert not_reached(early, words) == [
        "training.schedule_words is 400 and the run reads 1,000 words: its learning rate is 0 for the last 600"
    ]
    assert not_reached(TrainingConfig(schedule="linear", schedule_by="words", schedule_words=995), words) == []
