"""What a run needs is known before it is begun."""

import re

import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.readout.base import Fitter
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io, plan, readout_regression
from esnlm.training.config import Experiment, TrainingConfig
from tests.training.small import read, summary_of, train


def test_the_plan_counts_what_the_run_then_has(tmp_path, capsys):
    assert plan.show(read(tmp_path, "run")) == 0
    planned = capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    trained = summary_of(train(tmp_path, "run"))["trainable_params"]
    assert re.search(rf"trained parameters +{trained:,}\b", planned)
    assert re.search(r"updates +24 of 8 sentences\b", planned)
    assert re.search(r"memory +about .*Python and JAX .*compiled programs", planned)


def test_the_plan_refuses_stores_that_a_training_would_refuse(tmp_path):
    """Before a job has waited in a queue for it."""
    esnlm.prepare(["the cats sleep . " * 3] * 4, tmp_path / "train", tokenizer="words")
    esnlm.prepare(["a dog barks ."] * 4, tmp_path / "other", tokenizer="words")
    path = tmp_path / "small.yaml"
    for validation, model, line in (
        ("none", "family: esn", "none"),
        ("other", "family: esn", "tokenizer"),
        ("train", "family: gpt2, positions: 8, layers: 1, heads: 1, width: 8", "18 tokens"),
    ):
        data = f"kind: store, train: {tmp_path / 'train'}, validation: {tmp_path / validation}"
        path.write_text(f"run: {tmp_path / 'run'}\ndata: {{{data}}}\nmodel: {{{model}}}")
        with pytest.raises(InputError, match=line):
            plan.show(config_io.read(path))


@pytest.mark.parametrize("optimizer, arrays", [("adamw", 2), ("sgd", 1)])
def test_the_plan_counts_the_state_of_the_optimizer(optimizer, arrays):
    assert plan.optimizer_bytes(TrainingConfig(optimizer=optimizer), 1000) == (
        4000 * (2 + arrays),
        4000 * (1 + arrays),
    )
    averaged = plan.optimizer_bytes(TrainingConfig(optimizer=optimizer, ema=0.9), 1000)
    assert averaged == (4000 * (3 + arrays), 4000 * (2 + arrays))


@pytest.mark.parametrize("model", [EchoStateConfig(), LstmConfig()], ids=["esn", "lstm"])
def test_a_run_that_needs_a_byte_more_than_there_is_is_refused(model, monkeypatch):
    experiment = Experiment(model=model)
    needed = plan.memory(experiment, "cpu", vocab_size=5000)
    least = sum(needed)
    assert needed.trained == 16 * model.expected_counts(5000).trainable
    monkeypatch.setattr(plan, "device_memory", lambda: least)
    plan.require_memory(experiment, 5000)
    monkeypatch.setattr(plan, "device_memory", lambda: least - 1)
    with pytest.raises(InputError, match="memory"):
        plan.require_memory(experiment, 5000)
    monkeypatch.setenv("ESNLM_MEMORY_CHECK", "off")
    plan.require_memory(experiment, 5000)


def test_devices_of_a_mesh_share_what_is_trained_and_the_features():
    mesh = {"data": 2, "vocabulary": 4}
    each, alone = (
        plan.memory(Experiment(), "gpu", given, vocab_size=5000)
        for given in (mesh, plan.ONE_DEVICE)
    )
    assert each.frozen == alone.frozen
    assert each.trained == alone.trained / 8


@pytest.mark.parametrize("kind", ["ridge", "rls", "lms"])
def test_the_disk_of_a_regression_has_room_for_its_sums_twice(kind, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(checkpoint, "check_free_space", lambda _, size: asked.append(size))
    experiment = config_io.from_dict(
        {
            "training": {"kind": kind},
            "model": {"reservoir": {"state_size": 40, "mean_degree": 4}, "readout": {"rank": None}},
        }
    )
    assert isinstance(experiment.training, Fitter)
    sums = experiment.training.start(40, 30)
    assert experiment.training.sums_size(40, 30) == sum(array.nbytes for array in sums.values())
    params = experiment.model.initialize(30, 0, experiment.model.initialize_frozen(30, 0)[0]).params
    readout_regression.open_state(experiment.training, params, 40, 30, RunDirectory(tmp_path))
    assert asked[0] == 2 * (
        experiment.training.sums_size(40, 30) + 4 * experiment.model.expected_counts(30).trainable
    )
