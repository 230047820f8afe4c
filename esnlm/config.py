"""The typed description of one experiment, from a YAML file and the command line."""

import contextlib
import dataclasses
import io
import math
import re
import typing
from dataclasses import dataclass, field
from pathlib import Path

import jsonargparse
import yaml

from esnlm.compute import ComputeConfig
from esnlm.errors import InputError, require
from esnlm.models.base import ModelConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.registry import MODELS
from esnlm.regression.lms import LmsConfig
from esnlm.regression.ridge import RidgeConfig
from esnlm.regression.rls import RlsConfig
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.runs.atomic import write_atomically
from esnlm.runs.yaml_file import read_tree


@dataclass(frozen=True)
class StoreData:
    """Token stores made by `python -m esnlm prepare`."""

    kind: str = "store"
    train: str = ""  # folder of the training store
    validation: str | None = None  # folder of the validation store; null: no validation

    def check(self) -> None:
        require(bool(self.train), "data.train is empty: name a token store made by `python -m esnlm prepare`")


@dataclass(frozen=True)
class GrammarData:
    """A corpus and minimal pairs that the package generates itself (esnlm/data/grammar.py)."""

    kind: str = "grammar"
    sentences: int = 40_000  # of the training corpus
    validation_sentences: int = 4_000
    pairs: int = 500  # minimal pairs a paradigm

    def check(self) -> None:
        for name in ("sentences", "validation_sentences", "pairs"):
            require(getattr(self, name) >= 1, f"data.{name} is {getattr(self, name)}: it must be at least 1")
        require(self.pairs % 2 == 0, f"data.pairs is {self.pairs}: it must be even, as pairs come in mirrored twos")


@dataclass(frozen=True)
class ImportedData:
    """None: the model was trained elsewhere (`python -m esnlm import`)."""

    kind: str = "imported"
    source: str = ""  # name of the folder that it came from

    def check(self) -> None:
        pass


@dataclass(frozen=True)
class TrainingConfig:
    """AdamW or SGD on the mean NLL of each batch's predicted tokens; the defaults are S1's, which are PyTorch's."""

    kind: str = "adamw"
    epochs: int = 1
    batch_size: int = 32  # sentences
    optimizer: str = "adamw"  # adamw, or sgd
    learning_rate: float = 1e-3  # with model.readout.scaling the eta that multiplies its arrays' own rates
    momentum: float = 0.9  # of sgd
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01  # on every trained array, biases too
    schedule: str = "constant"  # constant, linear or cosine, the latter two down to 0 at the end
    warmup_updates: int = 0  # of linear warm-up, under any schedule
    clip_norm: float | None = None  # global gradient norm; null: no clipping
    on_nonfinite: str = "continue"  # where a loss or gradient is not finite: continue, skip (that update) or stop
    log_every: int = 20  # updates
    checkpoint_every: int = 1000  # updates
    checkpoint_words: tuple[int, ...] = ()  # words of training text at which a checkpoint is kept for good
    keep_checkpoints: int = 2  # the newest ones, beside those kept for good

    def check(self) -> None:
        for name in ("epochs", "batch_size", "log_every", "checkpoint_every", "keep_checkpoints"):
            require(getattr(self, name) >= 1, f"training.{name} is {getattr(self, name)}: it must be at least 1")
        for name in ("learning_rate", "epsilon"):
            require(getattr(self, name) > 0, f"training.{name} is {getattr(self, name)}: it must be above 0")
        for name in ("weight_decay", "warmup_updates"):
            require(getattr(self, name) >= 0, f"training.{name} is {getattr(self, name)}: it must not be negative")
        for name in ("beta1", "beta2", "momentum"):
            require(0 <= getattr(self, name) < 1, f"training.{name} is {getattr(self, name)}: it must be in [0, 1)")
        require(self.optimizer in ("adamw", "sgd"), f"training.optimizer is {self.optimizer!r}: choose adamw, sgd")
        schedules = ("constant", "linear", "cosine")
        require(self.schedule in schedules, f"training.schedule is {self.schedule!r}: choose {', '.join(schedules)}")
        choices = ("continue", "skip", "stop")
        require(
            self.on_nonfinite in choices, f"training.on_nonfinite is {self.on_nonfinite!r}: choose {', '.join(choices)}"
        )
        require(
            self.clip_norm is None or self.clip_norm > 0, f"training.clip_norm is {self.clip_norm}: it must be above 0"
        )
        require(all(words > 0 for words in self.checkpoint_words), "training.checkpoint_words must all be above 0")


@dataclass(frozen=True)
class Experiment:
    """One run: everything that decides its result."""

    run: str = "runs/quickstart"  # the run directory
    seed: int = 0  # of the reservoir, the readout, the order of sentences, and a generated corpus
    data: StoreData | GrammarData | ImportedData = field(default_factory=GrammarData)
    model: ModelConfig = field(default_factory=EchoStateConfig)
    training: TrainingConfig | RidgeConfig | RlsConfig | LmsConfig = field(default_factory=TrainingConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)

    @property
    def scaling(self) -> str:
        """Of the readout (readout/scaling.py); "none" for a model whose readout has no choice of it."""
        return self.model.readout.scaling if isinstance(self.model, EchoStateConfig) else "none"

    def check(self) -> None:
        """Raises InputError, naming the field, for a value that no experiment can have."""
        _require_no_null(self, "")
        require(bool(self.run), "run is empty: name a run directory")
        for key, value in flatten(as_dict(self)).items():
            require(
                not isinstance(value, float) or math.isfinite(value), f"{key} is {value}: it must be a finite number"
            )
            require(not isinstance(value, int) or abs(value) < 2**63, f"{key} is {value}: it must be below 2**63")
        require(self.seed >= 0, f"seed is {self.seed}: it must not be negative")
        self.data.check()
        self.model.check("model")
        self.training.check()
        if self.training.kind != "adamw":
            self._check_regression()
        self.compute.check()

    def _check_regression(self) -> None:
        kind, model = self.training.kind, self.model
        require(
            model.features_are_frozen,
            f"training.kind is {kind}: it trains a readout only, and {model.title} trains its features too; choose adamw",
        )
        require(
            model.dropout == 0,
            f"model.dropout is {model.dropout}: training.kind {kind} has none; set it to 0, or choose adamw",
        )
        rank, most = model.readout.rank, model.feature_size
        require(
            rank is None or kind == "ridge",
            f"model.readout.rank is {rank}: training.kind {kind} makes a readout of full rank; set it to null, or choose ridge or adamw",
        )
        require(
            rank is None or rank <= most,
            f"model.readout.rank is {rank}: of {most} features ridge makes at most that rank; lower it",
        )
        scaling = self.scaling
        require(
            scaling == "none",
            f"model.readout.scaling is {scaling}: it is a way of training by gradients; choose none, or adamw",
        )


DATA = {"store": StoreData, "grammar": GrammarData, "imported": ImportedData}
TRAINING = {"adamw": TrainingConfig, "ridge": RidgeConfig, "rls": RlsConfig, "lms": LmsConfig}


def read(file: str | Path, overrides: list[str] = ()) -> Experiment:
    """The experiment of a YAML file, with `--section.key value` overrides, which win.

    Raises:
        InputError: the file is missing or not YAML, a key is unknown, or a value has the wrong type or range.
    """
    tree = _read_yaml(Path(file))
    sections = {
        "data": _choose(file, tree, overrides, "data", "kind", DATA, "grammar"),
        "model": _choose(file, tree, overrides, "model", "family", MODELS, "esn"),
        "training": _choose(file, tree, overrides, "training", "kind", TRAINING, "adamw"),
        "compute": ComputeConfig,
    }
    if any(each.type is ReservoirConfig for each in dataclasses.fields(sections["model"])):
        sections["model.reservoir"] = ReservoirConfig
        topology = _choose(file, tree, overrides, "model.reservoir.topology", "kind", TOPOLOGIES, "erdos_renyi")
        sections["model.reservoir.topology"] = topology
    parser = jsonargparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    parser.add_argument("--run", type=str, default=Experiment.run)
    parser.add_argument("--seed", type=int, default=Experiment.seed)
    for name, section in sections.items():
        parts = {other.rpartition(".")[2] for other in sections if other.rpartition(".")[0] == name}
        parser.add_class_arguments(section, name, skip=parts)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            from_file = parser.parse_object(tree)
    except (jsonargparse.ArgumentError, TypeError, ValueError) as error:
        raise InputError(f"{file}: {_one_line(error)}") from None
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parsed = parser.parse_args(list(overrides), namespace=from_file)
        parsed = parser.instantiate(parsed)
    except (jsonargparse.ArgumentError, TypeError, ValueError) as error:
        raise InputError(f"command line: {_one_line(error)}") from None
    experiment = Experiment(parsed.run, parsed.seed, parsed.data, parsed.model, parsed.training, parsed.compute)
    experiment.check()
    return experiment


def write(experiment: Experiment, file: Path) -> None:
    """Writes the experiment as YAML that `read` gives back."""
    write_atomically(file, yaml.safe_dump(as_dict(experiment), sort_keys=False))


def as_dict(experiment: Experiment) -> dict:
    """The experiment as nested dicts of plain values."""
    tree = dataclasses.asdict(experiment)
    tree["training"] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in tree["training"].items()
    }
    return tree


def flatten(tree: dict, prefix: str = "") -> dict:
    """A nested dict as one of dotted keys: {"a": {"b": 1}} becomes {"a.b": 1}."""
    flat = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _require_no_null(section, prefix: str) -> None:
    """Raises InputError for a null where a number or a text must stand: the parser lets it through."""
    hints = typing.get_type_hints(type(section))
    for each in dataclasses.fields(section):
        value, hint = getattr(section, each.name), hints[each.name]
        if dataclasses.is_dataclass(value):
            _require_no_null(value, f"{prefix}{each.name}.")
        kinds = typing.get_args(hint)
        name = getattr(hint, "__name__", str(hint))
        require(value is not None or type(None) in kinds, f"{prefix}{each.name} is null: it must be {name}")


def _read_yaml(file: Path) -> dict:
    tree = read_tree(file, "give a configuration file with --config")
    if not isinstance(tree, dict):
        raise InputError(f"{file}: not a configuration: it must hold keys such as run, data, model")
    known = [field.name for field in dataclasses.fields(Experiment)]
    for key, value in tree.items():
        require(key in known, f"{file}: unknown key {key!r}: choose from {', '.join(known)}")
        is_section = key not in ("run", "seed")
        require(
            not is_section or isinstance(value, dict), f"{file}: {key} is {value!r}: it must be a section of settings"
        )
    return tree


def _choose(file, tree, overrides, section, key, choices, default):
    """The dataclass that `section.key` names: it is read first, so that a typo meets one family's fields only."""
    inside = _section(file, tree, section)
    name = in_file = inside.get(key, default)
    given = []  # on the command line, below the section
    for i, argument in enumerate(overrides):
        flag, _, value = argument.partition("=")
        require(
            not f"--{section}.".startswith(f"{flag}."),
            f"command line: {flag} is a section: give its settings, as {flag}.KEY value",
        )
        if flag == f"--{section}.{key}":
            name = value or (overrides[i + 1] if i + 1 < len(overrides) else "")
        if flag.startswith(f"--{section}."):
            given.append(flag.split(".")[section.count(".") + 1])
    if not isinstance(name, str) or name not in choices:
        raise InputError(f"{section}.{key} is {name!r}: choose {', '.join(choices)}")
    if name != in_file and inside.keys() - {key}:
        raise InputError(
            f"{section}.{key} is {name!r} on the command line, but the settings in {file} are for {in_file!r};"
            f" give a --config with {section}.{key}: {name}"
        )
    known = [field.name for field in dataclasses.fields(choices[name])]
    for where, names in ((file, inside), ("command line", given)):
        for each in names:
            require(
                each in known, f"{where}: {section}.{each}: {name} has no such setting; choose from {', '.join(known)}"
            )
    return choices[name]


def _section(file, tree, section) -> dict:
    """The settings of a section, which may lie inside others, in a file's tree."""
    *outer, last = section.split(".")
    inside = (_section(file, tree, ".".join(outer)) if outer else tree).get(last, {})
    require(isinstance(inside, dict), f"{file}: {section} is {inside!r}: it must be a section of settings")
    return inside


def _one_line(error) -> str:
    message = re.sub(r"\s+", " ", str(error)).strip()
    return re.sub(
        r'Parser key "([^"]+)": Expected a <class \'(\w+)\'>. Got value: (.*)', r"\1 is \3: it must be \2", message
    )
