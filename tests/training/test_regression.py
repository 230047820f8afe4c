"""Whole runs by ridge, RLS and LMS: they finish, come back, resume to the same bits, and refuse
what they cannot do."""

import json
import os
import signal

import numpy as np
import pytest

import esnlm
from esnlm.base.console import Progress
from esnlm.base.errors import InputError
from esnlm.data.store import open_store
from esnlm.evaluation.likelihood import of_ngrams
from esnlm.models.ngrams import NgramModel
from esnlm.training import regression
from esnlm.training.run import train_run
from tests import oracle
from tests.training.small import metrics, read, same_run

MODEL = "model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: null}}\n"
DATA = "data: {kind: grammar, sentences: 300, validation_sentences: 60, pairs: 2}\n"
SETTINGS = {
    "ridge": "{kind: ridge, regularizations: [1.0e-5, 1.0e-3, 0.1]}",
    "rls": "{kind: rls, block: 100}",
    "lms": "{kind: lms, learning_rate: 0.1, batch_size: 8, epochs: 2}",
}


def experiment(folder, name, *overrides):
    text = f"{DATA}{MODEL}training: {SETTINGS[name]}\ncompute: {{window_tokens: 600}}\n"
    return read(folder, name, *overrides, text=text)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Trains each of SETTINGS once: name -> run directory."""
    folder = tmp_path_factory.mktemp("regression")
    for name in SETTINGS:
        assert train_run(experiment(folder, name)) == 0
    return {name: folder / name for name in SETTINGS}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_is_an_ordinary_one(finished, name):
    run = esnlm.load(finished[name])
    summary = json.loads((finished[name] / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["step"] == run.step
    unigram = NgramModel.fit(
        open_store(finished[name] / "stores" / "train"), run.tokenizer.vocab_size, order=1
    )
    validation = open_store(finished[name] / "stores" / "validation")
    assert summary["val_nll"] < of_ngrams(unigram, validation).nll - 0.1
    # of a sample, or all of it
    assert summary["regression"]["held_out"] == pytest.approx(summary["val_nll"], abs=0.2)
    assert not (finished[name] / "sums").exists()
    lines = metrics(finished[name])
    assert "val_nll" in lines[-1] and lines[-2]["train_nll"] == summary["train_nll"]
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)


def test_the_ridge_of_a_run_is_least_squares_on_its_states(finished):
    """From text to readout in NumPy: states by the oracle, one solve, and the rule of
    readout/calibration.py."""
    run = esnlm.load(finished["ridge"])
    record = json.loads((finished["ridge"] / "summary.json").read_text())["regression"]
    frozen, vocab_size = run.model.reservoir, run.tokenizer.vocab_size
    store = open_store(finished["ridge"] / "stores" / "train")
    weights = oracle.matrices(frozen)
    learned, held_out = regression.split_held_out(
        store, run.config.seed, run.config.training.held_out_tokens
    )
    assert set(learned) | set(held_out) == set(range(len(store))) and not set(learned) & set(
        held_out
    )
    sentences = [store.sentence(s) for s in learned]
    h = np.concatenate([oracle.states(*weights, sentence[:-1]) for sentence in sentences])
    targets = np.concatenate([sentence[1:] for sentence in sentences])
    centred = h - h.mean(0)
    covariance, d = centred.T @ centred, np.eye(vocab_size)[targets]
    penalty = record["regularization"] * np.trace(covariance) / len(covariance)
    w = np.linalg.solve(
        covariance + penalty * np.eye(len(covariance)), centred.T @ (d - d.mean(0))
    ).T
    counts = d.sum(0)
    p = (counts + 1) / (len(targets) + vocab_size)
    # beyond the token's share, which is the intercept
    own = np.einsum("vn,vn->v", w, d.T @ centred) / np.maximum(counts, 1)
    scale = record["beta"] / p ** record["gamma"]
    bias = np.log(p) + scale * (-w @ h.mean(0) - own / 2)
    # The states are float32 in the run, 1e-6 off; the smallest penalised eigenvalue makes more of
    # that.
    np.testing.assert_allclose(
        run.model.readout.w[...], scale[:, None] * w, atol=1e-3 * np.abs(scale[:, None] * w).max()
    )
    np.testing.assert_allclose(run.model.readout.bias[...], bias, atol=1e-3 * np.abs(bias).max())


@pytest.mark.parametrize("name", SETTINGS)
def test_a_stopped_run_resumes_to_the_same_bits(finished, tmp_path, monkeypatch, name):
    """Stopped at every second window, and while it validates."""

    show, calls = Progress.show, []

    def show_and_stop(self, *arguments, **options):
        show(self, *arguments, **options)
        calls.append(1)
        if len(calls) % 2 == 0 and len(calls) < 12:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Progress, "show", show_and_stop)
    statuses = []
    while not statuses or statuses[-1] == 75:
        statuses.append(train_run(experiment(tmp_path, name)))
    assert statuses[-1] == 0 and len(statuses) > 3
    same_run(finished[name], tmp_path / name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SETTINGS)
def test_a_stopped_run_may_go_on_with_other_windows(finished, tmp_path, monkeypatch, name):
    """Every sentence is taken in once, and the readout is what it would have been, up to
    rounding."""
    show = Progress.show

    def show_and_stop(self, *arguments, **options):
        show(self, *arguments, **options)
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "show", show_and_stop)
        assert train_run(experiment(tmp_path, name)) == 75
    other = experiment(tmp_path, name, "--compute.window_tokens", "1500")
    assert train_run(other, allow_change=["compute.window_tokens"]) == 0
    found, expected = (
        json.loads((run / "summary.json").read_text()) for run in (tmp_path / name, finished[name])
    )
    assert (found["words"], found["tokens"]) == (expected["words"], expected["tokens"])
    assert found["val_nll"] == pytest.approx(expected["val_nll"], rel=1e-4)
    if name == "lms":  # one update a time step, whatever the windows
        assert found["step"] == expected["step"]


def test_sums_are_saved_every_so_many_windows(tmp_path, monkeypatch):
    """A killed run goes on from there."""

    class Killed(BaseException):
        pass

    saved = []

    def show(self, *arguments, **options):
        saved.append(len(list((tmp_path / "ridge" / "sums").glob("[0-9]*"))))
        if len(saved) == 4:
            raise Killed

    monkeypatch.setattr(Progress, "show", show)
    with pytest.raises(Killed):
        train_run(experiment(tmp_path, "ridge", "--training.checkpoint_every", "2"))
    assert saved == [0, 0, 1, 1]


@pytest.mark.parametrize("name", ["ridge", "rls"])
def test_states_that_are_not_finite_are_refused_before_any_sum_is_made(tmp_path, name, monkeypatch):
    wild = ["--model.reservoir.activation", "relu", "--model.reservoir.spectral_radius", "1e30"]
    given = experiment(tmp_path, name, *wild)
    monkeypatch.setattr(
        type(given.training), "accumulate", lambda *_: pytest.fail("it took them in")
    )
    with pytest.raises(
        InputError,
        match=f"^training.kind is {name}: the states of some sentences are not finite; lower",
    ):
        train_run(given)


def test_one_sentence_cannot_be_learnt_from_and_held_out(tmp_path):
    model = {"reservoir": {"state_size": 16, "mean_degree": 4}, "readout": {"rank": None}}
    settings = {"run": str(tmp_path / "run"), "model": model, "training": {"kind": "ridge"}}
    with pytest.raises(InputError, match="training.kind"):
        esnlm.train(settings, sentences=["the cats sleep"])
