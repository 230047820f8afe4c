"""What a configuration can say: an experiment, its sections, and the choices that each of them has."""

import dataclasses
import math
import typing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esnlm.compute import ComputeConfig
from esnlm.data.sources import DataSource
from esnlm.data.sources.grammar import GrammarData
from esnlm.errors import require
from esnlm.models.base import ModelConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.regression.base import Fitter
from esnlm.regression.fitters import FITTERS
from esnlm.rng import check_seed

LONGEST_LIST = 1000  # values of one setting


@dataclass(frozen=True)
class TrainingConfig:
    """AdamW or SGD on the mean NLL of each batch's predicted tokens.

    The defaults are those of Ueda et al. 2025a, which are PyTorch's.
    """

    kind: str = "adamw"  # the name of training by gradients, with either optimizer; ridge, rls, lms name regressions
    epochs: int = 1  # passes over the training text (Ueda et al. 2025a)
    batch_size: int = 32  # sentences of an update (Ueda et al. 2025a)
    order: str = "shuffled"  # of the sentences: shuffled anew in each epoch [ours], or corpus, as the text has them
    optimizer: str = "adamw"  # what takes the steps, whatever `kind` is called: adamw, or sgd (Ueda et al. 2025a)
    # Size of a step; with model.readout.scaling the eta that multiplies the rates of its arrays (Ueda et al. 2025a).
    learning_rate: float = 1e-3
    momentum: float = 0.9  # of sgd (Utsunomiya 2025)
    beta1: float = 0.9  # of AdamW: decay of the mean gradient (Ueda et al. 2025a)
    beta2: float = 0.999  # of AdamW: decay of the mean squared gradient (Ueda et al. 2025a)
    epsilon: float = 1e-8  # of AdamW: added to the root of the mean squared gradient (Ueda et al. 2025a)
    weight_decay: float = 0.01  # decoupled, on every trained array, biases too (Ueda et al. 2025a)
    schedule: str = "constant"  # constant, linear or cosine, the latter two down to 0 at the end
    schedule_by: str = "updates"  # what the schedule counts: updates, or words of training text
    warmup_updates: int = 0  # of linear warm-up, under any schedule that counts updates
    warmup_words: int = 0  # words of training text in the linear warm-up, under any schedule that counts words
    # Words of training text after which a linear or cosine schedule that counts words is at 0; null: those of the run.
    schedule_words: int | None = None
    clip_norm: float | None = None  # largest global norm of a gradient; null: no clipping
    on_nonfinite: str = "continue"  # where a loss or gradient is not finite: continue, skip (that update) or stop
    # Decay, in each update, of the averaged weights that evaluation reads in place of the last ones; null: no average.
    ema: float | None = None
    validate_every: int | None = None  # updates from one validation to the next; null: at the end of each epoch only
    stop_after: int | None = None  # validations in a row without a new best after which the run ends; null: never
    stop_margin: float = 0.0  # nats per token by which a validation must be below the best one to be a new best
    log_every: int = 20  # updates from one line of metrics to the next
    checkpoint_every: int = 1000  # updates from one checkpoint to the next
    checkpoint_words: tuple[int, ...] = ()  # words of training text at which a checkpoint is kept for good
    keep_checkpoints: int = 2  # how many of the newest are kept, beside those kept for good

    @property
    def checkpoints_at_once(self) -> int:
        """Checkpoints that exist at once at most: the newest, those kept for good, the best one, and one that is being saved."""
        return self.keep_checkpoints + len(self.checkpoint_words) + (self.stop_after is not None) + 1

    def check(self) -> None:
        for name in ("epochs", "batch_size", "log_every", "checkpoint_every", "keep_checkpoints"):
            require(getattr(self, name) >= 1, f"training.{name} is {getattr(self, name)}: it must be at least 1")
        for name in ("validate_every", "stop_after", "schedule_words"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"training.{name} is {value}: it must be at least 1")
        for name in ("learning_rate", "epsilon"):
            require(getattr(self, name) > 0, f"training.{name} is {getattr(self, name)}: it must be above 0")
        for name in ("weight_decay", "warmup_updates", "warmup_words", "stop_margin"):
            require(getattr(self, name) >= 0, f"training.{name} is {getattr(self, name)}: it must not be negative")
        line = f"training.warmup_updates is {self.warmup_updates}: it must be below 2147483648"
        require(self.warmup_updates < 2**31, line)  # which is also what the schedules count to
        for name in ("beta1", "beta2", "momentum"):
            require(0 <= getattr(self, name) < 1, f"training.{name} is {getattr(self, name)}: it must be in [0, 1)")
        require(self.optimizer in ("adamw", "sgd"), f"training.optimizer is {self.optimizer!r}: choose adamw, sgd")
        require(self.order in ("shuffled", "corpus"), f"training.order is {self.order!r}: choose shuffled, corpus")
        schedules = ("constant", "linear", "cosine")
        require(self.schedule in schedules, f"training.schedule is {self.schedule!r}: choose {', '.join(schedules)}")
        self._check_schedule()
        require(self.ema is None or 0 < self.ema < 1, f"training.ema is {self.ema}: it must be above 0 and below 1")
        margin = f"training.stop_margin is {self.stop_margin}: it must be 0 unless training.stop_after is given"
        require(self.stop_after is not None or self.stop_margin == 0, margin)
        choices = ("continue", "skip", "stop")
        require(
            self.on_nonfinite in choices, f"training.on_nonfinite is {self.on_nonfinite!r}: choose {', '.join(choices)}"
        )
        require(
            self.clip_norm is None or self.clip_norm > 0, f"training.clip_norm is {self.clip_norm}: it must be above 0"
        )
        require(all(words > 0 for words in self.checkpoint_words), "training.checkpoint_words must all be above 0")

    def check_new(self) -> None:
        """Raises InputError for a setting of the optimizer that is not chosen, and for an epsilon that float32 may take for 0."""
        settings_of = {"adamw": ("beta1", "beta2", "epsilon"), "sgd": ("momentum",)}
        for optimizer, names in settings_of.items():
            for name in names:
                value, default = getattr(self, name), getattr(TrainingConfig, name)
                line = f"training.{name} is {value}: {self.optimizer} does not read it; leave it out, or choose {optimizer}"
                require(self.optimizer == optimizer or value == default, line)
        # What has no gradient, such as the rows that pad a readout, would be 0 / 0 with an epsilon that float32 takes for 0.
        smallest = float(np.finfo(np.float32).tiny)
        line = f"it must be at least {smallest:.3g}, since float32 may take less for 0"
        require(self.epsilon >= smallest, f"training.epsilon is {self.epsilon}: {line}")

    def _check_schedule(self) -> None:
        """Raises InputError for a schedule that counts one thing and is given in the other."""
        by = self.schedule_by
        require(by in ("updates", "words"), f"training.schedule_by is {by!r}: choose updates, words")
        unused = {"warmup_words": "0", "schedule_words": "null"} if by == "updates" else {"warmup_updates": "0"}
        for name, nothing in unused.items():
            value, other = getattr(self, name), "words" if by == "updates" else "updates"
            line = f"training.{name} is {value}: it must be {nothing} unless training.schedule_by is {other}"
            require(not value, line)
        end = self.schedule_words
        require(
            end is None or self.schedule != "constant",
            f"training.schedule_words is {end}: a constant schedule has no end; choose linear or cosine, or give null",
        )
        require(
            end is None or self.warmup_words < end,
            f"training.warmup_words is {self.warmup_words}: it must be below training.schedule_words = {end}",
        )


@dataclass(frozen=True)
class ParentConfig:
    """The finished run that this one goes on from: `train.py --from RUN` names it. docs/continue.md tells how."""

    run: str | None = None  # its run directory; null: training begins from random arrays
    step: int | None = None  # the update after which its trained arrays are taken; null: its last one
    keep_optimizer: bool = False  # go on with its optimizer's moments too; false: they begin at 0
    config_sha256: str | None = None  # that of its summary; it is found out where the run begins

    def check(self) -> None:
        for name in ("step", "config_sha256"):
            value = getattr(self, name)
            require(self.run is not None or value is None, f"parent.{name} is {value}: give parent.run too")
        require(self.run is not None or not self.keep_optimizer, "parent.keep_optimizer is true: give parent.run too")
        require(self.run != "", "parent.run is empty: name a run directory, or give null")
        require(self.step is None or self.step >= 0, f"parent.step is {self.step}: it must not be negative")


@dataclass(frozen=True)
class Experiment:
    """One run: everything that decides its result, and what follows it."""

    run: str = "runs/quickstart"  # the run directory
    seed: int = 0  # of the reservoir, the readout, the order of sentences, and a generated corpus
    data: DataSource = field(default_factory=GrammarData)
    model: ModelConfig = field(default_factory=EchoStateConfig)
    training: TrainingConfig | Fitter = field(default_factory=TrainingConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    parent: ParentConfig = field(default_factory=ParentConfig)
    tracking: tuple[str, ...] = ()  # names of trackers, which follow the run beside metrics.jsonl

    def check(self) -> None:
        """Raises InputError, naming the field, for a value that no experiment can have."""
        _require_short_lists(self, "")
        require_no_null(self, "")
        require(bool(self.run), "run is empty: name a run directory, as in --run runs/small")
        for key, value in flatten(as_dict(self)).items():
            require(
                not isinstance(value, float) or math.isfinite(value), f"{key} is {value}: it must be a finite number"
            )
            require(not isinstance(value, int) or abs(value) < 2**63, f"{key} is {value}: it must be below 2**63")
        require(self.seed >= 0, f"seed is {self.seed}: it must not be negative")
        self.data.check()
        self.model.check("model")
        self.training.check()
        if isinstance(self.training, Fitter):
            self._check_regression(self.training)
        self.compute.check()
        self.parent.check()

    def check_new(self) -> None:
        """Raises InputError for what nobody can begin, though a run of an earlier version may have been begun with it."""
        check_seed(self.seed)
        self.model.check_new("model")
        if isinstance(self.training, TrainingConfig):
            self.training.check_new()
        require(
            self.compute.state_precision == "float32" or self.model.reservoir_units > 0,
            f"compute.state_precision is {self.compute.state_precision}: {self.model.title} has no reservoir, whose states it"
            " is about; leave it out",
        )

    def _check_regression(self, fitter: Fitter) -> None:
        """Raises InputError for a model whose readout no regression can fit."""
        kind = fitter.kind
        model, parent = self.model, self.parent.run
        require(
            parent is None,
            f"parent.run is {parent}: training.kind {kind} fits a readout from nothing; choose adamw, or no parent",
        )
        require(
            model.features_are_frozen,
            f"training.kind is {kind}: it trains a readout only, and {model.title} trains its features too; choose adamw",
        )
        require(
            model.dropout == 0,
            f"model.dropout is {model.dropout}: training.kind {kind} has none; set it to 0, or choose adamw",
        )
        rank, most = model.readout_rank, model.feature_size
        require(
            rank is None or fitter.makes_low_rank,
            f"model.readout.rank is {rank}: training.kind {kind} makes a readout of full rank; set it to null, or choose ridge or adamw",
        )
        require(
            rank is None or rank <= most,
            f"model.readout.rank is {rank}: of {most} features ridge makes at most that rank; lower it",
        )
        scaling = model.readout_scaling
        require(
            scaling == "none",
            f"model.readout.scaling is {scaling}: it is a way of training by gradients; choose none, or adamw",
        )


# What `training.kind` and `model.family` can name; `data.kind` has data/sources, and the topology's kind reservoir/topology.
TRAINING: dict[str, type] = {"adamw": TrainingConfig, **FITTERS}


def as_dict(experiment: Experiment) -> dict[str, Any]:
    """Returns the experiment as nested dicts of plain values."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return plain(dataclasses.asdict(experiment))


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns a nested dict as one of dotted keys: {"a": {"b": 1}} becomes {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


# Types as a configuration file has them, where that is not what Python calls them.
SPELLED_TYPES = {
    **{"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "NoneType": "null"},
    **{"tuple": "a list such as [a, b]", "dict": "a mapping such as {a: 1}"},
}


def _require_short_lists(section: Any, prefix: str) -> None:
    """Raises InputError for a setting of too many values, before anything looks at each of them."""
    for each in dataclasses.fields(section):
        value = getattr(section, each.name)
        if dataclasses.is_dataclass(value):
            _require_short_lists(value, f"{prefix}{each.name}.")
        if isinstance(value, list | tuple):
            given = f"{prefix}{each.name} has {len(value):,} values"
            require(len(value) <= LONGEST_LIST, f"{given}: it must have at most {LONGEST_LIST:,}")


def require_no_null(section: Any, prefix: str) -> None:
    """Raises InputError for a null where a number or a text must stand: the parser lets it through."""
    hints = typing.get_type_hints(type(section))
    for each in dataclasses.fields(section):
        value, hint = getattr(section, each.name), hints[each.name]
        if dataclasses.is_dataclass(value):
            require_no_null(value, f"{prefix}{each.name}.")
        kinds = typing.get_args(hint)
        name = getattr(hint, "__name__", str(hint))
        line = f"{prefix}{each.name} is null: it must be {SPELLED_TYPES.get(name, name)}"
        require(value is not None or type(None) in kinds, line)
