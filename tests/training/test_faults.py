"""Numbers that stop being numbers are told, with the update; and no score hides them."""

import json
import shutil

import jax
import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.runs import checkpoint
from tests.golden import small
from tests.training.small import DATA, TRAINING, summary_of, train

ESN_I = f"""{DATA}{TRAINING}
model:
  reservoir: {{state_size: 16, connectivity: 0.5, input_connectivity: 1, leak_min: 0.8, leak_max: 0.8, activation: relu}}
  readout: {{rank: null}}
  train_input: true
"""


@pytest.mark.parametrize(
    "radius, scale, reason",
    [
        ("1e30", "1", "the loss is "),
        pytest.param("1e4", "1e-6", "a gradient is not finite", marks=pytest.mark.nightly),
    ],
    ids=["states that grow without bound", "a gradient alone, through time"],
)
def test_what_is_not_finite_is_told_and_left_out(radius, scale, reason, tmp_path, capsys):
    """Ueda et al. 2025b: radius 1.7 under ReLU; here so far above it that float32 ends within a
    sentence."""
    grown = ("--model.reservoir.spectral_radius", radius, "--model.reservoir.input_scale", scale)
    run = train(tmp_path, "run", *grown, "--training.on_nonfinite", "stop", text=ESN_I)
    [line] = [
        line for line in capsys.readouterr().err.splitlines() if "training.on_nonfinite" in line
    ]
    assert line.startswith("warning: update ") and reason in line
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert summary_of(run)["status"] == "diverged"
    assert last["val_nll"] == summary_of(run)["val_nll"], "its validation is logged, too"


def with_readout(run, folder, change):
    """A copy of the run whose newest checkpoint has another readout."""
    shutil.copytree(run, folder / "run")
    newest = checkpoint.all_steps(folder / "run" / "checkpoints")[-1]
    place = folder / "run" / "checkpoints" / str(newest)
    arrays, metadata = checkpoint.restore(place)
    shutil.rmtree(place)
    checkpoint.save(place, arrays | {"params": jax.tree.map(change, arrays["params"])}, metadata)
    return folder / "run"


def test_a_model_that_is_not_finite_has_no_score_and_says_nothing(trained, tmp_path):
    run = with_readout(trained("esn"), tmp_path, lambda array: np.full_like(array, np.nan))
    with pytest.warns(
        UserWarning, match="not a number: readout.a, readout.b, readout.bias of step 60"
    ):
        assert np.isnan(esnlm.load(run).log_probs(["The cats sleep.", "Who?"])).all()
    with pytest.raises(InputError, match="not finite"):
        esnlm.load(run).generate("The")


@pytest.mark.parametrize("value, status", [(np.nan, "not defined"), (0, "collapsed")])
def test_neither_a_model_that_is_not_finite_nor_a_collapsed_one_has_an_accuracy(
    value, status, trained, tmp_path
):
    run = with_readout(trained("esn"), tmp_path, lambda array: np.full_like(array, value))
    pairs = tmp_path / "lengths.jsonl"
    nouns, good, bad = (
        ("cats", "dogs", "kings"),
        "The {} sleep.",
        "The {} that the dog likes sleep.",
    )
    rows = [
        {"sentence_good": good.format(noun), "sentence_bad": bad.format(noun)} for noun in nouns
    ]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "lengths.json"
    assert small.esnlm("blimp", "--run", run, "--data", pairs, "--out", out) == 0
    result = json.loads(out.read_text())
    assert result["status"] == status and result["overall"]["accuracy"] is None
