"""Configuration files and the command line: strict, typed, and every mistake named in one line."""

import dataclasses
import re
from pathlib import Path

import jax.numpy as jnp
import pytest

from esnlm import config, config_io
from esnlm.data.sources.grammar import GrammarData
from esnlm.data.sources.store import StoreData
from esnlm.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir.functions import ACTIVATIONS
from esnlm.reservoir.topology.erdos_renyi import ErdosRenyi
from esnlm.reservoir.topology.ring import Ring
from esnlm.reservoir.topology.small_world import SmallWorld
from esnlm.reservoir.weights import ReservoirConfig

CONFIGS = Path(__file__).parents[1] / "configs"
OF_ADAMW = [field.name for field in dataclasses.fields(config.TrainingConfig)]


@pytest.fixture
def file(tmp_path):
    """Writes a configuration file and gives its path."""

    def write(text):
        path = tmp_path / "experiment.yaml"
        path.write_text(text)
        return path

    return write


def refusal(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return str(caught.value)


def test_the_command_line_wins_over_the_file(file):
    path = file("seed: 3\nmodel:\n  reservoir: {state_size: 64}\n  readout: {rank: 8}\ntraining: {epochs: 2}\n")
    experiment = config_io.read(
        path, ["--training.epochs", "5", "--model.readout.rank", "null", "--model.reservoir.leak_min=0.5"]
    )
    assert (experiment.seed, experiment.training.epochs, experiment.model.readout.rank) == (3, 5, None)
    assert (experiment.model.reservoir.state_size, experiment.model.reservoir.leak_min) == (64, 0.5)


def test_a_text_of_another_kind_takes_the_place_of_the_parent_s(file):
    """What `train --from RUN --data.kind store` reads: of the parent's section `data` nothing is left."""
    parent = file("seed: 3\ndata: {kind: grammar, sentences: 40}\ntraining: {epochs: 2}\n")
    child = config_io.read_of_parent(parent, ["--data.kind", "store", "--data.train", "stores/more"])
    assert child.data == StoreData(train="stores/more") and (child.seed, child.training.epochs) == (3, 2)
    assert config_io.read_of_parent(parent, ["--data.pairs", "6"]).data == GrammarData(sentences=40, pairs=6)
    assert refusal(config_io.read_of_parent, parent, ["--data.train", "stores/more"]) == (
        "command line: data.train: the parent's data.kind, grammar, has no such setting; give --data.kind store with it"
    )
    assert refusal(config_io.read_of_parent, parent, ["--data.text", "a"]).startswith(
        "command line: data.text: grammar has no such setting; choose from kind"
    )


def test_the_defaults_are_the_papers(file):
    """Ueda et al. 2025a: radius 0.99, d 32, leak 0..1, tanh, rank 512; AdamW with PyTorch's defaults, batch 32, one epoch."""
    experiment = config_io.read(file("run: runs/x\n"))
    reservoir, training = experiment.model.reservoir, experiment.training
    assert (reservoir.spectral_radius, reservoir.mean_degree, reservoir.input_scale) == (0.99, 32, 1)
    assert (reservoir.leak_min, reservoir.leak_max, reservoir.activation) == (0, 1, "tanh")
    assert experiment.model.readout.rank == 512
    assert (training.learning_rate, training.beta1, training.beta2) == (1e-3, 0.9, 0.999)
    assert (training.epsilon, training.weight_decay, training.batch_size, training.epochs) == (1e-8, 0.01, 32, 1)
    assert (training.schedule, training.warmup_updates, training.clip_norm) == ("constant", 0, None)


def test_what_is_written_is_read_back(file, tmp_path):
    experiment = config_io.read(file("training: {checkpoint_words: [1000, 2000]}\nmodel: {readout: {rank: null}}"))
    config_io.write(experiment, tmp_path / "copy.yaml")
    assert config_io.read(tmp_path / "copy.yaml") == experiment


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "trainng: {}",
            "unknown key 'trainng': choose from run, seed, data, model, training, compute, parent, tracking",
        ),
        (
            "parent: {step: {1: 2}}",
            "parent.step.1: parent.step is one setting, and no section of settings",
        ),
        ("training: {epoch: 2}", f"training.epoch: adamw has no such setting; choose from {', '.join(OF_ADAMW)}"),
        ("training: {epochs: two}", "training.epochs is two: it must be a whole number"),
        ("training: {epochs: 2.5}", "training.epochs is 2.5: it must be a whole number"),
        ("training: {ema: []}", "training.ema is []: it must be a number or null"),
        (
            "model: {reservoir: {continuous: 3}}",
            "model.reservoir.continuous is 3: it must be a section of settings or null",
        ),
        ("training: 3", "training is 3: it must be a section of settings"),
        ("model: {readout: null}", "model.readout is None: it must be a section of settings"),
        (
            "model: {family: deep_readout, readout: {gated_mlp: null}}",
            "model.readout.gated_mlp is None: it must be a section of settings",
        ),
        ("training:\n  epochs: 2\n  epochs: 3", "epochs stands twice in one section, at line 3: leave one of them out"),
        ("data: " + "[" * 6000, "not a YAML file: more than 50 sections within each other, at line 1"),
        ("data:\n" + "- " * 6000, "not a YAML file: more than 50 sections within each other, at line 2"),
        ("- a\n- b", "not a configuration: it must hold keys such as run, data, model"),
        ("", "not a configuration: it must hold keys such as run, data, model"),
    ],
)
def test_a_bad_file(file, text, line):
    path = file(text)
    assert refusal(config_io.read, path) == f"{path}: {line}"


@pytest.mark.parametrize(
    "text, line",
    [
        ("training: {epochs: null}", "training.epochs is null: it must be a whole number"),
        ("training: {learning_rate: null}", "training.learning_rate is null: it must be a number"),
        ("seed: null", "seed is null: it must be a whole number"),
        ("model: {family: lstm, dropout: null}", "model.dropout is null: it must be a number"),
        ("model: {reservoir: {spectral_radius: null}}", "model.reservoir.spectral_radius is null: it must be a number"),
        (
            "model: {reservoir: {topology: {kind: ring}, activation: null}}",
            "model.reservoir.activation is null: it must be a text",
        ),
    ],
)
def test_a_null_where_a_value_must_stand(file, text, line):
    assert refusal(config_io.read, file(text)) == line


def test_a_file_that_is_not_yaml(file):
    path = file("a: [")
    assert refusal(config_io.read, path).startswith(f"{path}: not a YAML file: while parsing a flow")


def test_a_text_that_was_read_before_is_read_as_it_was_and_checked_again(tmp_path, monkeypatch):
    """A study reads the configurations of all its runs whenever one of them ends."""
    text = "run: runs/a\nmodel: {reservoir: {activation: own}}\n"
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(text)
    monkeypatch.setitem(ACTIVATIONS, "own", jnp.sin)
    read, instantiate = [], config_io._instantiate
    monkeypatch.setattr(config_io, "_instantiate", lambda *given: read.append(1) or instantiate(*given))
    first, again = config_io.read(tmp_path / "a.yaml"), config_io.read(tmp_path / "b.yaml")
    assert first == again == config_io.read(tmp_path / "a.yaml")
    assert len(read) == 1
    other = config_io.read(tmp_path / "a.yaml", ["--seed", "7"])
    assert other == dataclasses.replace(first, seed=7) and config_io.read(tmp_path / "a.yaml").seed == 0
    narrow = config_io.read(tmp_path / "b.yaml", ["--model.readout.rank=3", "--model.reservoir.mean_degree=2"])
    assert narrow.model.readout.rank == 3 and narrow.model.reservoir.mean_degree == 2
    assert config_io.read(tmp_path / "b.yaml", ["--seed=7"]) == other, "what a file says is kept without overrides"
    monkeypatch.delitem(ACTIVATIONS, "own")
    for name in ("a.yaml", "b.yaml"):
        with pytest.raises(InputError, match="^model.reservoir.activation is own: it must be tanh or relu"):
            config_io.read(tmp_path / name)
        (tmp_path / name).write_text("run: [")
        with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path / name))}: not a YAML file"):
            config_io.read(tmp_path / name)


def test_a_missing_file(tmp_path):
    path = tmp_path / "none.yaml"
    assert (
        refusal(config_io.read, path) == f"{path}: No such file or directory; name a configuration file that is there"
    )


@pytest.mark.parametrize(
    "overrides, line",
    [
        (
            ["--training.epoch", "3"],
            f"command line: training.epoch: adamw has no such setting; choose from {', '.join(OF_ADAMW)}",
        ),
        (
            ["--run", "model.v2", "--training.epochs", "x"],
            "command line: training.epochs is x: it must be a whole number",
        ),
        (
            ["--run", "model.v2", "--training.epochs", ""],
            "command line: training.epochs is empty: it must be a whole number",
        ),
        (["--training.epochs"], "command line: argument --training.epochs: expected one argument"),
        (["stray"], "command line: unrecognized arguments: stray"),
        (
            ["--model.readout.rnk", "4"],
            "command line: model.readout.rnk: readout has no such setting; choose from rank, scaling",
        ),
        (
            ["--model.reservoir.continuous.size", "4"],
            "command line: model.reservoir.continuous.size: continuous has no such setting; choose from decay, step,"
            " time_constant",
        ),
        (
            ["--model.readout.rank.x", "4"],
            "command line: model.readout.rank.x: model.readout.rank is one setting, and no section of settings",
        ),
        (
            ["--parent.dir", "a"],
            "command line: parent.dir: parent has no such setting; choose from run, step, keep_optimizer, config_sha256",
        ),
        (["--model.family", "gru"], "model.family is 'gru': choose esn, lstm, gpt2, jaeger, deep_readout"),
        (["--data.kind=corpus"], "data.kind is 'corpus': choose store, grammar, given, imported"),
        (
            ["--data.length", "3"],
            "command line: data.length: grammar has no such setting; choose from kind, sentences, validation_sentences, pairs",
        ),
        (["--model.readout", "null"], "command line: model.readout is null: it must be a section of settings"),
        (["--model", "{family: esn}"], "command line: --model is a section: give its settings, as --model.KEY value"),
        (["--training.batch_size", "0"], "training.batch_size is 0: it must be at least 1"),
        (
            ["--training.epsilon", "1e-46"],
            "training.epsilon is 1e-46: it must be at least 1.18e-38, since float32 may take less for 0",
        ),
        (
            ["--training.momentum", "0.5"],
            "training.momentum is 0.5: adamw does not read it; leave it out, or choose sgd",
        ),
        (
            ["--training.optimizer", "sgd", "--training.beta1", "0.8"],
            "training.beta1 is 0.8: sgd does not read it; leave it out, or choose adamw",
        ),
        (["--training.order", "random"], "training.order is 'random': choose shuffled, corpus"),
        (["--training.schedule", "step"], "training.schedule is 'step': choose constant, linear, cosine"),
        (["--compute.kernel", "coo"], "compute.kernel is 'coo': choose auto, bcoo, csr, ell, dense, fused"),
        (["--compute.precision", "fp8"], "compute.precision is 'fp8': choose float32, tf32, bf16"),
        (["--seed", "-1"], "seed is -1: it must not be negative"),
        (
            ["--model.reservoir.state_size", "16"],
            "model.reservoir.mean_degree is 32.0: it must be above 0 and at most model.reservoir.state_size = 16, since "
            "connectivity = mean_degree / state_size; lower mean_degree or raise state_size",
        ),
        (["--data.kind=", "--seed", "3"], "data.kind is '': choose store, grammar, given, imported"),
        (["--data.kind", "store"], "data.train is empty: name a token store made by `python -m esnlm prepare`"),
    ],
)
def test_a_bad_command_line(file, overrides, line):
    assert refusal(config_io.read, file("run: runs/x"), overrides) == line


KIND = "--model.reservoir.topology.kind"


def test_a_topology_is_chosen_in_the_file_or_on_the_command_line(file, tmp_path):
    assert config_io.read(file("run: runs/x")).model.reservoir.topology == ErdosRenyi()
    assert config_io.read(file("run: runs/x"), [KIND, "ring"]).model.reservoir.topology == Ring()
    overrides = [f"{KIND}=small_world", "--model.reservoir.topology.rewiring", "0.2"]
    assert config_io.read(file("run: runs/x"), overrides).model.reservoir.topology == SmallWorld(
        degree=32, rewiring=0.2
    )
    path = file("model: {reservoir: {state_size: 64, mean_degree: 8, topology: {kind: small_world, degree: 4}}}")
    experiment = config_io.read(path, ["--model.reservoir.topology.degree", "6"])
    assert experiment.model.reservoir == ReservoirConfig(64, SmallWorld(degree=6), mean_degree=8)
    config_io.write(experiment, tmp_path / "copy.yaml")
    assert config_io.read(tmp_path / "copy.yaml") == experiment


def test_a_topology_without_settings_can_be_replaced_on_the_command_line(file):
    path = file("model: {reservoir: {topology: {kind: small_world}}}")
    assert config_io.read(path, [KIND, "ring"]).model.reservoir.topology == Ring()


@pytest.mark.parametrize(
    "topology, line",
    [
        ("ring", "{file}: {at} is 'ring': it must be a section of settings"),
        (
            "{kind: rings}",
            "{at}.kind is 'rings': choose antisymmetric, block_diagonal, erdos_renyi, fixed_in_degree, given, orthogonal, ring, scale_free, small_world;"
            " a function of your own is registered first, in Python, with @esnlm.topology above its def",
        ),
        (
            "{kind: small_world, degre: 4}",
            "{file}: {at}.degre: small_world has no such setting; choose from kind, degree, rewiring",
        ),
        ("{kind: ring, degree: 4}", "{file}: {at}.degree: ring has no such setting; choose from kind"),
        (
            "{kind: erdos_renyi, mean_degree: 4}",
            "{file}: {at}.mean_degree: erdos_renyi has no such setting; choose from kind",
        ),
        ("{kind: small_world, degree: few}", "{file}: {at}.degree is few: it must be a whole number"),
        (
            "{kind: small_world, degree: 64}",
            "{at}.degree is 64: it must be even, at least 2 and below the state size, 64",
        ),
        (
            "{kind: small_world, degree: 7}",
            "{at}.degree is 7: it must be even, at least 2 and below the state size, 64",
        ),
        ("{kind: scale_free, edges: 64}", "{at}.edges is 64: it must be at least 1 and below the state size, 64"),
        ("{kind: block_diagonal, blocks: 6}", "{at}.blocks is 6: it must divide the state size, 64"),
    ],
)
def test_a_bad_topology(file, topology, line):
    path = file(f"model: {{reservoir: {{state_size: 64, mean_degree: 8, topology: {topology}}}}}")
    assert refusal(config_io.read, path) == line.format(file=path, at="model.reservoir.topology")


@pytest.mark.parametrize(
    "overrides, line",
    [
        (
            [KIND, "ring", "--model.reservoir.connectivity", "0.1"],
            "model.reservoir.connectivity is 0.1: topology ring has a density of its own; leave it out, and for W_in give "
            "input_connectivity",
        ),
        (
            [KIND, "ring", "--model.reservoir.topology.degree", "4"],
            "command line: model.reservoir.topology.degree: ring has no such setting; choose from kind",
        ),
        (
            ["--model.reservoir.topology", "{kind: ring}"],
            "command line: --model.reservoir.topology is a section: give its settings, as --model.reservoir.topology.KEY value",
        ),
        (
            ["--model.family", "lstm", KIND, "ring"],
            "command line: model.reservoir: lstm has no such setting; choose from family, width, dropout, tied, ngrams",
        ),
    ],
)
def test_a_bad_topology_on_the_command_line(file, overrides, line):
    assert refusal(config_io.read, file("run: runs/x"), overrides) == line


def test_settings_of_one_kind_are_not_taken_for_another(file):
    path = file("data: {kind: grammar, sentences: 100}")
    assert refusal(config_io.read, path, ["--data.kind", "store", "--data.train", "x"]) == (
        f"data.kind is 'store' on the command line, but the settings in {path} are for 'grammar';"
        " give a --config with data.kind: store"
    )


# A study is no configuration: tests/studies reads those.
@pytest.mark.parametrize(
    "path", sorted({*CONFIGS.rglob("*.yaml")} - {*(CONFIGS / "studies").rglob("*.yaml")}), ids=lambda path: path.stem
)
def test_every_configuration_of_the_repository_can_be_read(path):
    config_io.read(path)


@pytest.mark.parametrize("size", [1024, 2048, 4096, 8192, 16384, 32768, 65536])
def test_the_rows_of_table_3_differ_in_their_size_only(size):
    path = Path(__file__).parents[1] / "configs" / "esn_at_scale" / "esn.yaml"
    experiment = config_io.read(path, ["--model.reservoir.state_size", str(size)])
    paper = EchoStateConfig(reservoir=ReservoirConfig(state_size=size))
    assert experiment.model == paper and experiment.training == config.TrainingConfig()


@pytest.mark.parametrize("overrides", [["--compute.lanes", "24"], ["--compute.lanes=24"], []])
def test_a_setting_that_was_renamed_is_read_under_its_former_name(file, overrides):
    path = file("run: runs/x" if overrides else "compute: {lanes: 24, kernel: csr}")
    experiment = config_io.read(path, overrides)
    assert experiment.compute.batch_slots == 24
    assert "lanes" not in config.as_dict(experiment)["compute"]


def test_a_setting_under_two_names(file):
    path = file("compute: {lanes: 24, batch_slots: 32}")
    assert refusal(config_io.read, path) == (
        f"{path}: compute.lanes and compute.batch_slots are one setting: leave compute.lanes out"
    )
    # The command line wins over the file, whatever the spelling.
    assert config_io.read(file("compute: {batch_slots: 32}"), ["--compute.lanes", "24"]).compute.batch_slots == 24


def test_trackers_are_a_list_of_names(file, tmp_path):
    assert config_io.read(file("run: runs/x")).tracking == ()
    assert config_io.read(file("run: runs/x"), ["--tracking", "[csv]"]).tracking == ("csv",)
    experiment = config_io.read(file("tracking: [csv]"))
    assert experiment.tracking == ("csv",)
    config_io.write(experiment, tmp_path / "copy.yaml")
    assert config_io.read(tmp_path / "copy.yaml") == experiment
    unknown = refusal(config_io.read, file("tracking: [tape]"))
    assert unknown.startswith("tracking has 'tape': choose from csv, tensorboard, wandb")
    assert config_io.read_begun(file("tracking: [tape]")).tracking == ("tape",)  # of a run that was made elsewhere


def test_yaml_makes_no_objects(file):
    path = file("run: !!python/object/apply:os.system ['true']")
    assert "could not determine a constructor" in refusal(config_io.read, path)


# ---- how much a configuration can say ----


def test_a_setting_of_very_many_values_is_refused_without_a_look_at_them(file, monkeypatch):
    many = tuple([1.0] * 1_000_000)
    monkeypatch.setattr(config, "as_dict", lambda *_: pytest.fail("looked at"))
    experiment = config.Experiment(training=config.TRAINING["ridge"](regularizations=many))
    line = "training.regularizations has 1,000,000 values: it must have at most 1,000"
    assert refusal(experiment.check) == line
    experiment = config.Experiment(tracking=("csv",) * 1001)
    assert refusal(experiment.check) == "tracking has 1,001 values: it must have at most 1,000"
    training = config.TrainingConfig(checkpoint_words=tuple(range(1, 1002)))
    line = "training.checkpoint_words has 1,001 values: it must have at most 1,000"
    assert refusal(config.Experiment(training=training).check) == line


def test_the_longest_list_is_written_and_read_back(file, tmp_path):
    words = tuple(10**15 + i for i in range(config.LONGEST_LIST))
    experiment = config.Experiment(training=config.TrainingConfig(checkpoint_words=words))
    config_io.write(experiment, tmp_path / "written.yaml")
    assert config_io.read(tmp_path / "written.yaml").training.checkpoint_words == words


def test_a_command_line_is_no_longer_than_a_file(file, monkeypatch):
    path = file("training: {kind: ridge}\n")
    monkeypatch.setattr(config_io, "read_tree", lambda *_: pytest.fail("read"))
    arguments = ["--training.regularizations", "[" + "1," * 32_800 + "1]"]
    line = "command line: 65,629 characters of settings: give at most 65,536, as a file may have"
    assert refusal(config_io.read, path, arguments) == line
    assert refusal(config_io.read, path, ["--seed", "1"] * 10_000).startswith("command line: 70,000 characters")
