"""What a run needs is known before it is begun."""

import re

import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.sources import CorpusSize
from esnlm.machine.mesh import make_mesh
from esnlm.models.devices import Machine
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.lstm import LstmConfig
from esnlm.readout.base import Fitter
from esnlm.readout.linear import ReadoutConfig
from esnlm.readout.ridge import Ridge
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io, gradient, plan
from esnlm.training.config import Experiment, TrainingConfig, resolved
from esnlm.training.trainer import Session
from tests.machine.test_mesh import EIGHT
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
    saved_bytes = gradient.saved_bytes
    assert saved_bytes(TrainingConfig(optimizer=optimizer), 1000) == 4000 * (1 + arrays)
    averaged = TrainingConfig(optimizer=optimizer, ema=0.9)
    assert saved_bytes(averaged, 1000) == 4000 * (2 + arrays)


def needs_of(experiment, machine, vocab_size=5000):
    return plan.trainer_of(experiment, CorpusSize(10, 100, vocab_size)).plan(machine)


@pytest.mark.parametrize("model", [EchoStateConfig(), LstmConfig()], ids=["esn", "lstm"])
def test_a_run_that_needs_a_byte_more_than_there_is_is_refused(model, monkeypatch):
    machine = Machine("cpu")
    experiment = resolved(Experiment(model=model), machine)
    run = experiment, needs_of(experiment, machine), machine, 5000
    needed = plan.memory(*run)
    least = sum(needed.values())
    assert needed["trained with AdamW"] == 16 * model.expected_counts(5000).trainable
    monkeypatch.setattr(plan, "device_memory", lambda: least)
    plan.check_memory(*run)
    monkeypatch.setattr(plan, "device_memory", lambda: least - 1)
    with pytest.raises(InputError, match="memory"):
        plan.check_memory(*run)
    monkeypatch.setenv("ESNLM_MEMORY_CHECK", "off")
    plan.check_memory(*run)


def test_devices_of_a_mesh_share_what_is_trained_and_the_features():
    machines = Machine("gpu", make_mesh({"data": 2, "vocabulary": 4}, EIGHT)), Machine("gpu")
    each, alone = (
        plan.memory(resolved(Experiment(), machine), needs_of(Experiment(), machine), machine, 5000)
        for machine in machines
    )
    assert each["frozen"] == alone["frozen"]
    assert each["trained with AdamW"] == alone["trained with AdamW"] / 8


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
    assert isinstance(experiment.training, Fitter) and experiment.training is experiment.fitter
    sums = experiment.training.start(40, 30)
    assert experiment.training.sums_size(40, 30) == sum(array.nbytes for array in sums.values())
    model, machine = experiment.model, Machine("cpu")
    untrained = model.initialize(30, 0, model.initialize_frozen(30, 0)[0])
    settings = resolved(experiment, machine)
    session = Session(settings, machine, RunDirectory(tmp_path), None, untrained)
    plan.trainer_of(experiment, CorpusSize(10, 100, 30)).open(session)
    assert asked[0] == 2 * (
        experiment.training.sums_size(40, 30) + 4 * experiment.model.expected_counts(30).trainable
    )


def test_the_memory_of_the_sums_of_a_ridge_regression_is_planned():
    """At N 65,536 and GPT-2's vocabulary: G and Q take 34.4 GB each, C 26.3."""
    model = EchoStateConfig(
        reservoir=ReservoirConfig(state_size=65_536), readout=ReadoutConfig(rank=None)
    )
    needs = needs_of(Experiment(model=model, training=Ridge()), Machine("cpu"), 50_257)
    assert 95e9 < needs.host_bytes == needs.trained_bytes < 99e9
