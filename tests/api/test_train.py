"""`esnlm.train` trains what the command trains, tells functions of it, and stops where one of them
says so."""

import os
import signal

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data import grammar

SENTENCES = list(grammar.sentences(96, seed=0))
OTHERS = list(grammar.sentences(20, seed=1))
MODEL = {"reservoir": {"state_size": 16, "mean_degree": 4}, "readout": {"rank": 4}}
GIVEN = {"sentences": SENTENCES, "validation": OTHERS}


def experiment(folder, **training):
    settings = {"epochs": 2, "log_every": 1, "batch_size": 8} | training
    return {"run": str(folder / "run"), "model": MODEL, "training": settings}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return esnlm.train(experiment(tmp_path_factory.mktemp("undisturbed")), **GIVEN)


def arrays_are_equal(one, other):
    return all(np.array_equal(array, other.arrays()[name]) for name, array in one.arrays().items())


def test_a_training_without_a_run_directory_is_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options in (GIVEN, {}):
        with pytest.raises(esnlm.InputError, match="^run is empty: name a run directory"):
            esnlm.train({"model": MODEL}, **options)
    assert not list(tmp_path.iterdir())


def test_functions_see_steps_and_metrics_and_change_nothing(tmp_path, undisturbed):
    seen = []
    run = esnlm.train(experiment(tmp_path), [lambda *line: seen.append(line)], **GIVEN)
    assert run.step == undisturbed.step == 24 and arrays_are_equal(run, undisturbed)
    assert [step for step, metrics in seen if "train_nll" in metrics] == list(range(1, 25))
    assert [step for step, metrics in seen if "val_nll" in metrics] == [12, 24]
    assert seen[-1][1]["val_nll"] == pytest.approx(run.likelihood(OTHERS).nll, rel=1e-5)


def test_a_function_stops_a_run_which_the_same_call_resumes(tmp_path, undisturbed):
    stopped = esnlm.train(experiment(tmp_path), [lambda step, metrics: step >= 5], **GIVEN)
    assert 5 <= stopped.step < 24
    assert arrays_are_equal(esnlm.train(experiment(tmp_path), **GIVEN), undisturbed)


def test_an_interruption_is_saved_and_raised(tmp_path, undisturbed):
    """As where a notebook's stop button sends SIGINT."""
    with pytest.raises(KeyboardInterrupt, match="stopped; the same call resumes it$"):
        esnlm.train(
            experiment(tmp_path),
            [lambda step, _: step == 4 and os.kill(os.getpid(), signal.SIGINT)],
            **GIVEN,
        )
    assert 4 <= esnlm.load(tmp_path / "run").step < 24
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert arrays_are_equal(esnlm.train(experiment(tmp_path), **GIVEN), undisturbed)


@pytest.mark.nightly
def test_a_function_that_stops_a_regression_is_told_that_there_is_no_readout(tmp_path):
    asked = experiment(tmp_path) | {
        "training": {"kind": "ridge"},
        "model": {"reservoir": MODEL["reservoir"]},
    }
    asked["model"]["readout"] = {"rank": None}
    with pytest.raises(InputError, match="a callback stopped it before the readout was fitted"):
        esnlm.train(asked, [lambda step, metrics: True], sentences=SENTENCES)
    assert np.isfinite(esnlm.train(asked, sentences=SENTENCES).log_probs(["The cats sleep."])).all()


def test_an_experiment_and_a_file_are_taken_too(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr("esnlm.api.train.train_run", lambda read, *_, **__: given.append(read) or 0)
    monkeypatch.setattr("esnlm.loaded_run.load", lambda run: run)
    made = esnlm.Experiment(run=str(tmp_path / "run"), seed=4)
    (tmp_path / "file.yaml").write_text(f"run: {tmp_path / 'run'}\nseed: 4\n")
    for form in (made, {"run": str(tmp_path / "run"), "seed": np.int64(4)}, tmp_path / "file.yaml"):
        assert esnlm.train(form) == str(tmp_path / "run")
    assert given == [made] * 3


def test_a_reservoir_in_the_hand_is_trained_on(tmp_path):
    """Its arrays are those of the run, bit for bit, also if no seed could draw them."""
    tokenizer = esnlm.tokenizer("words", SENTENCES)
    drawn = esnlm.Reservoir.draw(24, vocabulary=tokenizer, mean_degree=4, seed=7)
    excited = drawn.replace(w_rec=abs(drawn.w_rec), spectral_radius=0.8)
    asked = experiment(tmp_path, epochs=1) | {"model": {"readout": MODEL["readout"]}}
    run = esnlm.train(asked, sentences=SENTENCES, tokenizer=tokenizer, reservoir=excited)
    kept = esnlm.Reservoir.of(run)
    np.testing.assert_array_equal(kept.w_rec.toarray(), excited.w_rec.toarray())
    ids = np.array(tokenizer.encode(SENTENCES[0]))
    np.testing.assert_array_equal(kept.states(ids), excited.states(ids))
    assert (
        esnlm.train(asked, sentences=SENTENCES, tokenizer=tokenizer, reservoir=excited).step
        == run.step
    )
