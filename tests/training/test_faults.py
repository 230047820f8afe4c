"""Numbers that stop being numbers are told, with the update; and no score hides them."""

import json
import shutil

import jax
import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.errors import InputError
from esnlm.evaluate_run import evaluate_run
from esnlm.runs import checkpoint
from esnlm.workflows.train import train_run

DATA = """
data: {kind: grammar, sentences: 60, validation_sentences: 10, pairs: 4}
training: {batch_size: 4, log_every: 5}
"""
ESN = "model: {reservoir: {state_size: 24, mean_degree: 6}, readout: {rank: 4}}"
ESN_I = """
model:
  reservoir: {state_size: 24, connectivity: 0.5, input_connectivity: 1, leak_min: 0.8, leak_max: 0.8, activation: relu}
  readout: {rank: null}
  train_input: true
"""


def train(folder, model, *overrides):
    (folder / "small.yaml").write_text(f"run: {folder / 'run'}\n{DATA}\n{model}")
    assert train_run(config_io.read(folder / "small.yaml", list(overrides))) == 0
    return folder / "run"


def test_a_gradient_alone_may_be_what_is_not_finite(tmp_path, capsys):
    """Through time a gradient may be beyond float32 where the states and the loss are not."""
    grown = ("--model.reservoir.spectral_radius", "1e4", "--model.reservoir.input_scale", "1e-6")
    run = train(tmp_path, ESN_I, *grown, "--training.on_nonfinite", "stop")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "training.on_nonfinite" in line]
    assert "a gradient is not finite; the update was left out" in line
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "diverged" and last["val_nll"] == summary["val_nll"], "its validation is logged, too"


def test_states_that_grow_without_bound_are_told(tmp_path, capsys):
    """Ueda et al. 2025b: radius 1.7 under ReLU; here so far above it that float32 ends within a sentence."""
    train(tmp_path, ESN_I, "--model.reservoir.spectral_radius", "1e30", "--training.on_nonfinite", "skip")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "training.on_nonfinite" in line]
    assert line.startswith("warning: update 1: the loss is nan; the update was left out")


def test_an_update_that_is_applied_all_the_same_is_told(tmp_path, capsys):
    train(tmp_path, ESN, "--training.learning_rate", "1e38", "--training.weight_decay", "1e10")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "training.on_nonfinite" in line]
    assert line.startswith("warning: update 2: the loss is ") and "applied all the same" in line


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"), ESN)


def with_readout(run, folder, change):
    """A copy of the run whose newest checkpoint has another readout."""
    shutil.copytree(run, folder / "run")
    newest = checkpoint.all_steps(folder / "run" / "checkpoints")[-1]
    place = folder / "run" / "checkpoints" / str(newest)
    arrays, metadata = checkpoint.restore(place)
    shutil.rmtree(place)
    checkpoint.save(place, arrays | {"params": jax.tree.map(change, arrays["params"])}, metadata)
    return folder / "run"


def test_a_model_that_is_not_finite_has_no_score_and_says_nothing(trained, tmp_path, capsys):
    run = with_readout(trained, tmp_path, lambda array: np.full_like(array, np.nan))
    step = esnlm.load(run).step
    names = f"readout.a, readout.b, readout.bias of step {step} has values that are not finite"
    with pytest.warns(UserWarning, match=f"^2 of 2 sentences have a log-probability that is not a number: {names}$"):
        assert np.isnan(esnlm.load(run).log_probs(["The cats sleep.", "Who?"])).all()
    found = evaluate_run(run)
    assert found.result["status"] == "not defined" and found.result["overall"]["accuracy"] is None
    assert "no accuracy is given" in capsys.readouterr().out
    assert json.loads((run / "evaluation" / "blimp-paper.json").read_text())["status"] == "not defined"
    for temperature in (0, 1):
        with pytest.raises(
            InputError, match="^the model's logits are not finite after 0 tokens: it has diverged; try another --step$"
        ):
            esnlm.load(run).generate("The", temperature=temperature)


def test_a_model_whose_readout_is_zero_has_collapsed(trained, tmp_path, capsys):
    run = with_readout(trained, tmp_path, np.zeros_like)
    found = evaluate_run(run)
    assert found.result["status"] == "collapsed" and found.result["overall"]["accuracy"] is None
    pairs = tmp_path / "lengths.jsonl"
    good, bad = "The {} sleep.", "The {} that the dog likes sleep."
    rows = [
        {"sentence_good": good.format(noun), "sentence_bad": bad.format(noun)} for noun in ("cats", "dogs", "kings")
    ]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = evaluate_run(run, [pairs], out=tmp_path / "lengths.json")
    assert found.result["status"] == "collapsed"
    assert found.result["warnings"] == [
        "every token has the same log-probability: only length decides, and no accuracy is given"
    ]
    assert "collapsed: every token has the same log-probability" in capsys.readouterr().out
