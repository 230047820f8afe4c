"""Configuration files and the command line: strict, typed, and every mistake named in one line."""

from pathlib import Path

import pytest

from esnlm.base.errors import InputError
from esnlm.data.sources import GrammarData, StoreData
from esnlm.reservoir.topology import ErdosRenyi, Ring, SmallWorld
from esnlm.training import config_io
from esnlm.training.config import as_dict, flatten

CONFIGS = Path(__file__).parents[2] / "configs"


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
    path = file(
        "seed: 3\nmodel:\n  reservoir: {state_size: 64}\n  readout: {rank: 8}\ntraining: {epochs:"
        " 2}\n"
    )
    experiment = config_io.read(
        path,
        [
            "--training.epochs",
            "5",
            "--model.readout.rank",
            "null",
            "--model.reservoir.leak_min=0.5",
        ],
    )
    assert (experiment.seed, experiment.training.epochs, experiment.model.readout.rank) == (
        3,
        5,
        None,
    )
    assert (experiment.model.reservoir.state_size, experiment.model.reservoir.leak_min) == (64, 0.5)


def test_a_text_of_another_kind_takes_the_place_of_the_parent_s(file):
    """What `train --from RUN --data.kind store` reads: of the parent's section `data` nothing is
    left."""
    parent = file("seed: 3\ndata: {kind: grammar, sentences: 40}\ntraining: {epochs: 2}\n")
    child = config_io.read_of_parent(
        parent, ["--run", "runs/second", "--data.kind", "store", "--data.train", "stores/more"]
    )
    assert child.data == StoreData(train="stores/more") and (child.seed, child.training.epochs) == (
        3,
        2,
    )
    assert config_io.read_of_parent(
        parent, ["--run", "runs/second", "--data.pairs", "6"]
    ).data == GrammarData(sentences=40, pairs=6)
    refused = refusal(
        config_io.read_of_parent, parent, ["--run", "runs/second", "--data.train", "stores/more"]
    )
    assert refused.startswith(
        "command line: data.train: no such setting; choose from kind, sentences"
    )


def test_the_defaults_are_the_papers(file):
    """Ueda et al. 2025a: radius 0.99, d 32, leak 0..1, tanh, rank 512; AdamW with PyTorch's
    defaults, batch 32, one epoch."""
    experiment = config_io.read(file("run: runs/x\n"))
    reservoir, training = experiment.model.reservoir, experiment.training
    assert (reservoir.spectral_radius, reservoir.mean_degree, reservoir.input_scale) == (
        0.99,
        32,
        1,
    )
    assert (reservoir.leak_min, reservoir.leak_max, reservoir.activation) == (0, 1, "tanh")
    assert experiment.model.readout.rank == 512
    assert (training.learning_rate, training.beta1, training.beta2) == (1e-3, 0.9, 0.999)
    assert (training.epsilon, training.weight_decay, training.batch_size, training.epochs) == (
        1e-8,
        0.01,
        32,
        1,
    )
    assert (training.schedule, training.warmup_updates, training.clip_norm) == ("constant", 0, None)


def test_what_is_written_is_read_back(file, tmp_path):
    experiment = config_io.read(
        file(
            "{training: {checkpoint_words: [1000, 2000]}, model: {readout: {rank: null}}, tracking:"
            " [wandb]}"
        )
    )
    config_io.write(experiment, tmp_path / "copy.yaml")
    assert config_io.read(tmp_path / "copy.yaml") == experiment


# What a file holds, and how the line about it begins after the file's name.
MISTAKES = {
    "a name": (
        "training: {epoch: 2}",
        "training.epoch: no such setting; choose from kind, epochs,",
    ),
    "a section's name": ("trainng: {}", "trainng: no such setting"),
    "a type": ("training: {epochs: many}", "training.epochs is 'many'"),
    "a text for a number": ("seed: '3'", "seed is '3'"),
    "a range": ("training: {beta1: 1.0}", "training.beta1 is 1.0"),
    "a null": ("seed: null", "seed is null"),
    "a choice": ("compute: {precision: fp32}", "compute.precision is 'fp32'"),
    "a kind": ("model: {family: rnn}", "model.family is 'rnn': choose from esn, lstm,"),
    "a number that is none": ("training: {learning_rate: .nan}", "training.learning_rate is nan"),
    "a value for a section": ("model: {reservoir: 64}", "model.reservoir is 64"),
    "a topology's setting": (
        "model: {reservoir: {state_size: 33, topology: {kind: block_diagonal, blocks: 2}}}",
        "model.reservoir.topology.blocks is 2",
    ),
    "two that do not go together": (
        "model: {reservoir: {state_size: 64, leak_min: 0.9, leak_max: 0.5}}",
        "model.reservoir.leak_min is 0.9",
    ),
    "too many units asked for": (
        "model: {reservoir: {state_size: 16}}",
        "model.reservoir.mean_degree is 32.0",
    ),
    "a regression of trained features": (
        "model: {family: lstm}\ntraining: {kind: ridge}",
        "training.kind is ridge",
    ),
    "no mapping": ("- run", "not a configuration"),
    "a key twice": ("seed: 1\nseed: 2", "not a YAML file: seed stands twice"),
    "an object": (
        "run: !!python/object/apply:os.system ['true']",
        "not a YAML file: could not determine a constructor",
    ),
}


@pytest.mark.parametrize("text, line", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_file_names_the_file_and_the_setting(file, text, line):
    path = file(text)
    assert refusal(config_io.read, path).startswith(f"{path}: {line}")


def test_a_mistake_on_the_command_line_says_so(file):
    path = file("training: {epochs: 2}")
    for words, line in {
        ("--training.epochs", "2.5"): "command line: training.epochs is 2.5",
        ("--training.epoch=3",): "command line: training.epoch: no such setting",
        ("--training", "3"): "command line: training is 3",
        ("--seed",): "command line: --seed",
        ("more.yaml",): "command line: more.yaml",
    }.items():
        assert refusal(config_io.read, path, list(words)).startswith(line)


def test_a_missing_file(tmp_path):
    assert refusal(config_io.read, tmp_path / "none.yaml").startswith(
        f"{tmp_path / 'none.yaml'}: No such file"
    )


def test_numbers_may_be_written_as_people_write_them(file):
    """YAML 1.1 reads 1e-3 as a text."""
    path = file("training: {kind: ridge, regularizations: [1e-3, 1]}")
    assert config_io.read(path, []).training.regularizations == (1e-3, 1.0)
    assert (
        config_io.read(file("seed: 0"), ["--training.learning_rate", "2e-3"]).training.learning_rate
        == 2e-3
    )
    assert config_io.read(file("seed: 0"), ["--run", "2024"]).run == "2024"


def test_settings_of_one_kind_are_not_taken_for_another(file):
    path = file("data: {kind: grammar, sentences: 100}")
    line = refusal(config_io.read, path, ["--data.kind", "store", "--data.train", "x"])
    assert line.startswith(f"{path}: data.sentences: no such setting; choose from kind, train,")


def test_a_topology_is_chosen_in_the_file_or_on_the_command_line(file, tmp_path):
    path = file("model: {reservoir: {state_size: 64, topology: {kind: small_world, degree: 6}}}")
    experiment = config_io.read(path, ["--model.reservoir.topology.rewiring", "0.5"])
    assert experiment.model.reservoir.topology == SmallWorld(degree=6, rewiring=0.5)
    config_io.write(experiment, tmp_path / "copy.yaml")
    assert config_io.read(tmp_path / "copy.yaml") == experiment
    plain = file("model: {reservoir: {state_size: 64}}")
    assert config_io.read(plain).model.reservoir.topology == ErdosRenyi()
    assert (
        config_io.read(plain, ["--model.reservoir.topology.kind", "ring"]).model.reservoir.topology
        == Ring()
    )


@pytest.mark.parametrize(
    "path, former, current",
    [
        ("data.kind", "given", "in_memory"),
        ("model.reservoir.topology.kind", "given", "from_matrix"),
        ("compute.kernel", "ell", "auto"),
    ],
)
def test_former_names_are_read_with_a_warning_and_silently_from_a_run(file, path, former, current):
    text = former
    for key in reversed(path.split(".")):
        text = f"{{{key}: {text}}}"
    begun = config_io.read_begun(file(text))
    assert flatten(as_dict(begun))[path] == current
    with pytest.warns(FutureWarning, match=f"{path} {former} is now {current}"):
        assert config_io.read(file(text)) == begun
    with pytest.warns(FutureWarning, match=f"{path} {former} is now {current}"):
        assert config_io.read(file("{}"), [f"--{path}", former]) == begun


def test_a_former_setting_is_read_with_a_warning_and_silently_from_a_run(file):
    text = "data: {kind: store, train: text, context: document, piece: 8}"
    begun = config_io.read_begun(file(text))
    assert begun.data.bptt_length == 8
    with pytest.warns(FutureWarning, match="data.piece is now data.bptt_length"):
        assert config_io.read(file(text)) == begun


def test_trackers_are_a_list_of_names(file):
    assert config_io.read(file("run: runs/x"), ["--tracking", "[wandb]"]).tracking == ("wandb",)
    assert "tape" in refusal(config_io.read, file("tracking: [tape]"))
    # of a run that was made elsewhere
    assert config_io.read_begun(file("tracking: [tape]")).tracking == ("tape",)
