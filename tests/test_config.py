"""Configuration files and the command line: strict, typed, and every mistake named in one line."""

from pathlib import Path

import pytest

from esnlm import config
from esnlm.errors import InputError
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reservoir.weights import ReservoirConfig


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
    experiment = config.read(path, ["--training.epochs", "5", "--model.readout.rank", "null", "--model.reservoir.leak_min=0.5"])
    assert (experiment.seed, experiment.training.epochs, experiment.model.readout.rank) == (3, 5, None)
    assert (experiment.model.reservoir.state_size, experiment.model.reservoir.leak_min) == (64, 0.5)


def test_the_defaults_are_the_papers(file):
    """S1: radius 0.99, d 32, leak 0..1, tanh, rank 512; AdamW with PyTorch's defaults, batch 32, one epoch."""
    experiment = config.read(file("run: runs/x\n"))
    reservoir, training = experiment.model.reservoir, experiment.training
    assert (reservoir.spectral_radius, reservoir.mean_degree, reservoir.input_scale) == (0.99, 32, 1)
    assert (reservoir.leak_min, reservoir.leak_max, reservoir.activation) == (0, 1, "tanh")
    assert experiment.model.readout.rank == 512
    assert (training.learning_rate, training.beta1, training.beta2) == (1e-3, 0.9, 0.999)
    assert (training.epsilon, training.weight_decay, training.batch_size, training.epochs) == (1e-8, 0.01, 32, 1)
    assert (training.schedule, training.warmup_updates, training.clip_norm) == ("constant", 0, None)


def test_what_is_written_is_read_back(file, tmp_path):
    experiment = config.read(file("training: {checkpoint_words: [1000, 2000]}\nmodel: {readout: {rank: null}}"))
    config.write(experiment, tmp_path / "copy.yaml")
    assert config.read(tmp_path / "copy.yaml") == experiment


@pytest.mark.parametrize(
    "text, line",
    [
        ("trainng: {}", "unknown key 'trainng': choose from run, seed, data, model, training, compute"),
        ("training: {epoch: 2}", "Group 'training' does not accept option 'epoch'"),
        ("training: {epochs: two}", "training.epochs is two: it must be int"),
        ("training: {epochs: 2.5}", "training.epochs is 2.5: it must be int"),
        ("training: 3", "training is 3: it must be a section of settings"),
        ("- a\n- b", "not a configuration: it must hold keys such as run, data, model"),
        ("", "not a configuration: it must hold keys such as run, data, model"),
    ],
)
def test_a_bad_file(file, text, line):
    path = file(text)
    assert refusal(config.read, path) == f"{path}: {line}"


def test_a_file_that_is_not_yaml(file):
    path = file("a: [")
    assert refusal(config.read, path).startswith(f"{path}: not a YAML file: while parsing a flow")


def test_a_missing_file(tmp_path):
    path = tmp_path / "none.yaml"
    assert refusal(config.read, path) == f"{path}: No such file or directory; give a configuration file with --config"


@pytest.mark.parametrize(
    "overrides, line",
    [
        (["--training.epoch", "3"], "command line: unrecognized arguments: --training.epoch 3"),
        (["--training.epochs", "x"], "command line: training.epochs is x: it must be int"),
        (["--training.epochs"], "command line: argument --training.epochs: expected one argument"),
        (["stray"], "command line: unrecognized arguments: stray"),
        (["--model.family", "gru"], "model.family is 'gru': choose esn, lstm"),
        (["--data.kind=corpus"], "data.kind is 'corpus': choose store, grammar"),
        (["--training.batch_size", "0"], "training.batch_size is 0: it must be at least 1"),
        (["--training.schedule", "step"], "training.schedule is 'step': choose constant, linear, cosine"),
        (["--compute.kernel", "coo"], "compute.kernel is 'coo': choose auto, bcoo, csr, ell, dense"),
        (["--compute.precision", "fp8"], "compute.precision is 'fp8': choose float32, tf32, bf16"),
        (["--seed", "-1"], "seed is -1: it must not be negative"),
        (
            ["--model.reservoir.state_size", "16"],
            "model.reservoir.mean_degree is 32.0: it must be above 0 and at most model.reservoir.state_size = 16, since "
            "connectivity = mean_degree / state_size; lower mean_degree or raise state_size",
        ),
        (["--data.kind", "store"], "data.train is empty: name a token store made by `python -m esnlm prepare`"),
    ],
)
def test_a_bad_command_line(file, overrides, line):
    assert refusal(config.read, file("run: runs/x"), overrides) == line


def test_settings_of_one_kind_are_not_taken_for_another(file):
    path = file("data: {kind: grammar, sentences: 100}")
    assert refusal(config.read, path, ["--data.kind", "store", "--data.train", "x"]) == (
        f"data.kind is 'store' on the command line, but the settings in {path} are for 'grammar';"
        " give a --config with data.kind: store"
    )


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "configs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_of_the_repository_can_be_read(path):
    config.read(path)


def test_the_rows_of_table_3_differ_in_their_size_only():
    folder = Path(__file__).parents[1] / "configs" / "esn_at_scale"
    for path in folder.glob("*.yaml"):
        size = int(path.stem[1:])
        experiment = config.read(path)
        paper = EchoStateConfig(reservoir=ReservoirConfig(state_size=size))
        assert experiment.model == paper and experiment.training == config.TrainingConfig()


def test_yaml_makes_no_objects(file):
    path = file("run: !!python/object/apply:os.system ['true']")
    assert "could not determine a constructor" in refusal(config.read, path)
