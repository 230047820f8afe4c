"""Validation every so many updates, early stopping, and evaluation of averaged weights, in whole
runs."""

from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm.data.store import open_store
from esnlm.runs import checkpoint
from esnlm.training import gradient
from esnlm.training import optimizer as learning_rate
from esnlm.training.config import flatten
from esnlm.training.state import TrainState
from tests.training import small
from tests.training.small import metrics, same_run, summary_of

KEEP = ["--training.checkpoint_every", "100", "--training.keep_checkpoints", "1"]
DECAY = 0.6
AVERAGED = ["--training.ema", str(DECAY)]
MARGIN = 0.005
# The rate is 0 after two thirds of an epoch, so that nothing improves from there on.
EARLY = [
    *(
        "--training.schedule",
        "cosine",
        "--training.schedule_by",
        "words",
        "--training.schedule_words",
        "600",
    ),
    *("--training.warmup_words", "100", "--training.validate_every", "3"),
    *("--training.stop_after", "3", "--training.stop_margin", str(MARGIN)),
]


def train(folder: Path, name: str, *settings: str) -> Path:
    return small.train(folder, name, *KEEP, *settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def plain(folder):
    return train(folder, "plain")


@pytest.fixture(scope="module")
def words_of_schedule():
    """The words of each update that the learning rates of `stopped_early` were made with."""
    return []


@pytest.fixture(scope="module")
def stopped_early(folder, words_of_schedule):
    def learning_rates(config, updates, words):
        words_of_schedule[:] = words
        return learning_rate.learning_rates(config, updates, words)

    with pytest.MonkeyPatch.context() as here:
        here.setattr(gradient, "learning_rates", learning_rates)
        return train(folder, "early", *EARLY, *AVERAGED)


def validations(run):
    return {line["step"]: line["val_nll"] for line in metrics(run) if "val_nll" in line}


def arrays(run, **options):
    return flatten(esnlm.load(run, **options).model.params)


def test_neither_validations_nor_an_average_change_a_bit_of_what_is_trained(folder, plain):
    run = train(
        folder, "all", "--training.validate_every", "5", "--training.stop_after", "99", *AVERAGED
    )
    expected, found = arrays(plain), arrays(run, averaged=False)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert list(validations(plain)) == [12, 24] and list(validations(run)) == [
        5,
        10,
        12,
        15,
        20,
        24,
    ]


def test_a_validation_is_that_of_the_checkpoint_and_its_average(stopped_early):
    run, store = esnlm.load(stopped_early), open_store(stopped_early / "stores" / "validation")
    assert validations(stopped_early)[run.step] == pytest.approx(
        run.likelihood(store).nll, rel=1e-9
    )
    raw = esnlm.load(stopped_early, averaged=False)
    assert raw.likelihood(store).nll != run.likelihood(store).nll


def test_the_average_of_a_run_is_the_weighted_mean_of_its_checkpoints(tmp_path):
    settings = (
        "--training.checkpoint_every",
        "1",
        "--training.keep_checkpoints",
        "99",
        "--training.epochs",
        "1",
    )
    run = train(tmp_path, "run", *settings, *AVERAGED)
    saved = [
        flatten(checkpoint.restore(run / "checkpoints" / str(step))[0]["params"])
        for step in range(1, 13)
    ]
    weights = DECAY ** np.arange(11, -1, -1.0)
    for name, found in arrays(run).items():
        expected = np.average([np.float64(each[name]) for each in saved], axis=0, weights=weights)
        # a few roundings of numbers of about 1
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        assert np.abs(found - saved[-1][name]).max() > 1e-3
    nll = esnlm.load(run).likelihood(open_store(run / "stores" / "validation")).nll
    assert validations(run)[12] == pytest.approx(nll, rel=1e-6), (
        "features, too, are those of the average"
    )


def test_early_stopping_is_replayed_from_the_validations(stopped_early):
    best_step, best, since, ended = None, np.inf, 0, None
    for step, nll in validations(stopped_early).items():
        assert ended is None, "nothing is trained after the last validation"
        if nll < best - MARGIN:
            best_step, best, since = step, nll, 0
        else:
            since += 1
        ended = step if since == 3 else None
    summary = summary_of(stopped_early)
    assert 0 < best_step < ended == summary["step"] < 24
    assert (summary["best_step"], summary["best_val_nll"]) == (best_step, best)
    assert summary["ended_because"].startswith("3 validations without a new best")


def test_a_schedule_by_words_counts_them_in_the_order_of_the_updates(
    stopped_early, words_of_schedule
):
    read = {line["step"]: line["words"] for line in metrics(stopped_early) if "words" in line}
    assert len(words_of_schedule) == 24 and len(read) > 3
    assert {step: sum(words_of_schedule[:step]) for step in read} == read


def test_the_best_checkpoint_is_kept_and_loads_by_name(stopped_early):
    best, newest = esnlm.load(stopped_early, step="best"), esnlm.load(stopped_early)
    assert checkpoint.all_steps(stopped_early / "checkpoints") == [best.step, newest.step]
    store = open_store(stopped_early / "stores" / "validation")
    found = validations(stopped_early)[best.step]
    assert best.likelihood(store).nll == pytest.approx(found, rel=1e-9)


def test_a_run_stopped_again_and_again_ends_where_and_as_it_would_have(
    stopped_early, tmp_path, monkeypatch
):
    experiment = small.read(tmp_path, "again", *KEEP, *EARLY, *AVERAGED)
    assert small.train_with_stops(experiment, monkeypatch, every=5) > 1
    same_run(stopped_early, tmp_path / "again")
    averages = [
        flatten(checkpoint.restore(run / "checkpoints" / str(esnlm.load(run).step))[0])
        for run in (stopped_early, tmp_path / "again")
    ]
    assert averages[0].keys() == averages[1].keys() and "average.readout.a" in averages[0]
    assert all(np.array_equal(averages[0][name], averages[1][name]) for name in averages[0])


def test_what_counts_as_a_new_best():
    state = TrainState(params={})
    for step, nll in enumerate((5.0, 4.9, float("nan"), 4.7, 4.7), start=1):
        state.step = step
        state.note_validation(nll, margin=0.2)
    assert (state.best_step, state.best_val_nll, state.validations_since_best) == (4, 4.7, 1)
