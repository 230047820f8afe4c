"""The configuration: an experiment, its sections, and the choices of each section."""

import dataclasses
import hashlib
import json
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from esnlm.base.errors import InputError
from esnlm.base.rng import LARGEST_SEED
from esnlm.base.settings import Choice, Count, Natural, NonNegative, Positive, Rate, settings
from esnlm.data.sources import SOURCES, DataSource, GrammarData
from esnlm.machine.compute import ComputeConfig, ResolvedCompute
from esnlm.models.base import MODELS, ModelConfig
from esnlm.models.devices import Machine, choose_compute
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.base import Fitter
from esnlm.readout.lms import LeastMeanSquares
from esnlm.readout.ridge import Ridge
from esnlm.readout.rls import RecursiveLeastSquares


@settings
class TrainingConfig:
    """AdamW or SGD on the mean NLL of each batch's predicted tokens.

    The defaults follow Ueda et al. 2025a, and so PyTorch.
    """

    kind: Literal["gradient"] = "gradient"  # ridge, rls and lms fit the readout by regression
    epochs: Count = 1  # passes over the training text (Ueda et al. 2025a)
    batch_size: Count = 32  # sentences of an update (Ueda et al. 2025a)
    # Sentences shuffled anew in each epoch [ours], or as the text has them.
    order: Literal["shuffled", "corpus"] = "shuffled"
    optimizer: Literal["adamw", "sgd"] = "adamw"  # update rule (Ueda et al. 2025a)
    # Step size; with model.readout.scaling, the eta that multiplies the rates of its arrays (Ueda
    # et al. 2025a).
    learning_rate: Positive = 1e-3
    momentum: Rate = 0.9  # of sgd (Utsunomiya 2025)
    beta1: Rate = 0.9  # of AdamW: decay of the mean gradient (Ueda et al. 2025a)
    beta2: Rate = 0.999  # of AdamW: decay of the mean squared gradient (Ueda et al. 2025a)
    # of AdamW: added to the root of the mean squared gradient (Ueda et al. 2025a)
    epsilon: Positive = 1e-8
    # decoupled, on every trained array, biases too (Ueda et al. 2025a)
    weight_decay: NonNegative = 0.01
    # linear and cosine fall to 0 at the end
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    # unit of the schedule: updates, or words of training text
    schedule_by: Literal["updates", "words"] = "updates"
    warmup_updates: Natural = 0  # updates of linear warm-up, for any schedule by updates
    # words of training text in the linear warm-up, for any schedule by words
    warmup_words: Natural = 0
    # Words of training text after which a linear or cosine schedule by words reaches 0; null: all
    # words of the run.
    schedule_words: Count | None = None
    clip_norm: Positive | None = None  # largest global norm of a gradient; null: no clipping
    # If a loss or gradient is not finite: continue, skip that update, or stop.
    on_nonfinite: Literal["continue", "skip", "stop"] = "continue"
    # Decay per update of averaged weights, which evaluation uses in place of the last ones; null:
    # no average.
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    # updates from one validation to the next; null: at the end of each epoch only
    validate_every: Count | None = None
    # end the run after this many validations in a row without a new best; null: never
    stop_after: Count | None = None
    stop_margin: NonNegative = 0.0  # nats per token by which a new best must be below the old one
    log_every: Count = 20  # updates from one line of metrics to the next
    checkpoint_every: Count = 1000  # updates from one checkpoint to the next
    # words of training text at which a checkpoint is kept for good
    checkpoint_words: tuple[Count, ...] = ()
    keep_checkpoints: Count = 2  # number of the newest to keep, besides those kept for good

    def __post_init__(self) -> None:
        unread = ("momentum",) if self.optimizer == "adamw" else ("beta1", "beta2", "epsilon")
        for name in unread:
            if (value := getattr(self, name)) != getattr(TrainingConfig, name):
                other = "sgd" if self.optimizer == "adamw" else "adamw"
                raise ValueError(
                    f"{name} is {value}: {self.optimizer} does not read it; choose {other}"
                )
        by_words, by_updates = ("warmup_words", "schedule_words"), ("warmup_updates",)
        for name in by_words if self.schedule_by == "updates" else by_updates:
            if value := getattr(self, name):
                raise ValueError(
                    f"{name} is {value}: schedule_by {self.schedule_by} does not read it"
                )
        end = self.schedule_words
        if end is not None and self.schedule == "constant":
            raise ValueError(
                f"schedule_words is {end}: a constant schedule has no end; choose linear or cosine"
            )
        if end is not None and self.warmup_words >= end:
            raise ValueError(
                f"warmup_words is {self.warmup_words}: it must be below schedule_words = {end}"
            )

    @property
    def checkpoints_at_once(self) -> int:
        """Maximum number of checkpoints on disk, with the best one and one being saved."""
        best = int(self.stop_after is not None)
        return self.keep_checkpoints + len(self.checkpoint_words) + best + 1


@settings
class ParentConfig:
    """The finished run that this one continues: `esnlm train --from RUN` (docs/own_text.md)."""

    run: str | None = None  # its run directory; null: start from random arrays
    step: Natural | None = None  # update whose trained arrays are taken; null: the last one
    keep_optimizer: bool = False  # also keep its optimizer's moments; false: they start at 0
    # configuration hash in its summary; filled in when the run begins
    config_sha256: str | None = None

    def __post_init__(self) -> None:
        if self.run is None and (
            self.step is not None or self.keep_optimizer or self.config_sha256 is not None
        ):
            raise ValueError("run is null: step, keep_optimizer and config_sha256 need a run")


FITTERS: dict[str, type[Fitter]] = {
    "ridge": Ridge,
    "rls": RecursiveLeastSquares,
    "lms": LeastMeanSquares,
}
# Choices of `training.kind`. data/sources.py has those of `data.kind`, models/base.py those of
# `model.family`.
TRAINING: dict[str, type] = {"gradient": TrainingConfig, **FITTERS}


@settings
class Experiment:
    """One run: everything that decides its result, and what follows it."""

    run: str = ""  # the run directory; a training needs one
    seed: Natural = 0  # of all random draws: reservoir, readout, order, generated corpus
    data: Annotated[DataSource, Choice(SOURCES, "kind", "grammar")] = field(
        default_factory=GrammarData
    )
    model: Annotated[ModelConfig, Choice(MODELS, "family", "esn")] = field(
        default_factory=EchoStateConfig
    )
    training: Annotated[TrainingConfig | Fitter, Choice(TRAINING, "kind", "gradient")] = field(
        default_factory=TrainingConfig
    )
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    parent: ParentConfig = field(default_factory=ParentConfig)
    # names of trackers, which log the run in addition to metrics.jsonl
    tracking: tuple[str, ...] = ()

    @property
    def fitter(self) -> Fitter | None:
        """The regression that fits the readout; None if gradients train the model."""
        return self.training if isinstance(self.training, Fitter) else None

    @property
    def folder(self) -> Path:
        """The run directory. Raises InputError if none is named."""
        if not self.run:
            raise InputError("run is empty: name a run directory, as in --run runs/small")
        return Path(self.run)

    def __post_init__(self) -> None:
        if self.seed > LARGEST_SEED:
            raise ValueError(f"seed is {self.seed}: it must be at most {LARGEST_SEED}")
        fitter = self.fitter
        if self.data.document_chunk is not None and (fitter or self.model.max_length):
            title = fitter.kind if fitter else self.model.title
            raise ValueError(f"data.context is document: {title} carries no state; choose sentence")
        if fitter is not None:
            self._check_regression(fitter)
        if self.compute.state_precision != "float32" and not hasattr(self.model, "reservoir"):
            raise ValueError(
                f"compute.state_precision is {self.compute.state_precision}: {self.model.title} has"
                " no reservoir"
            )

    def _check_regression(self, fitter: Fitter) -> None:
        """Raises ValueError for a model whose readout no regression can fit."""
        model, kind, readout = self.model, fitter.kind, self.model.linear_readout
        if not model.features_are_frozen:
            raise ValueError(
                f"training.kind is {kind}: it only fits a readout, but {model.title} also trains"
                " its features; choose gradient"
            )
        if self.parent.run is not None:
            raise ValueError(
                f"parent.run is {self.parent.run}: {kind} cannot continue another run; choose"
                " gradient"
            )
        if model.dropout:
            raise ValueError(
                f"model.dropout is {model.dropout}: training.kind {kind} has no dropout; set it"
                " to 0"
            )
        if readout.rank is not None and not fitter.makes_low_rank:
            raise ValueError(
                f"model.readout.rank is {readout.rank}: {kind} only fits a full-rank readout; set"
                " it to null"
            )
        if readout.rank is not None and readout.rank > model.feature_size:
            raise ValueError(
                f"model.readout.rank is {readout.rank}: it must be at most the {model.feature_size}"
                " features"
            )
        if readout.scaling != "none":
            raise ValueError(
                f"model.readout.scaling is {readout.scaling}: it needs training.kind gradient"
            )


@settings
class ResolvedExperiment(Experiment):
    """An experiment as it runs on this machine, with every null of `compute` chosen."""

    compute: ResolvedCompute = field(kw_only=True)


def resolved(experiment: Experiment, machine: Machine) -> ResolvedExperiment:
    """Returns the experiment with its open compute settings chosen for a machine."""
    compute = choose_compute(experiment.compute, experiment.model, machine.backend, machine.devices)
    return ResolvedExperiment(**vars(experiment) | {"compute": compute})


# ---- an experiment as plain values, to write, compare and hash ----


def as_dict(experiment: Any) -> dict[str, Any]:
    """Returns an experiment, or a section of one, as nested dicts of plain values."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return plain(dataclasses.asdict(experiment))


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens a nested dict to dotted keys: {"a": {"b": 1}} becomes {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= (
            flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return flat


def differences(begun: Experiment, now: Experiment) -> dict[str, str]:
    """Returns the settings that differ, in alphabetical order, as {key: "key old -> new"}."""
    old, new = flatten(as_dict(begun)), flatten(as_dict(now))
    return {
        key: f"{key} {old.get(key)} -> {new.get(key)}"
        for key in sorted(old | new)
        if old.get(key) != new.get(key)
    }


# Settings that do not affect the result: paths of texts (data/corpus.py hashes their content), and
# how often something is saved. From `compute`, only the settings that change the rounding affect
# it.
DECIDES_NOTHING = (
    "data.train",
    "data.validation",
    "training.log_every",
    "training.checkpoint_every",
    "training.checkpoint_words",
    "training.keep_checkpoints",
)
ROUNDING = ("precision", "state_precision")


def identity(experiment: Experiment) -> dict[str, Any]:
    """Returns the settings that the result depends on, by dotted name, on any machine.

    It omits defaults, so that new settings of esnlm do not change the identity.
    """
    settings = {"seed": experiment.seed}
    rounding = ComputeConfig(**{name: getattr(experiment.compute, name) for name in ROUNDING})
    sections = {name: getattr(experiment, name) for name in ("data", "model", "training", "parent")}
    for name, section in (sections | {"compute": rounding}).items():
        defaults = flatten(as_dict(type(section)()), f"{name}.")
        for key, value in flatten(as_dict(section), f"{name}.").items():
            names_class = key.endswith(("kind", "family"))
            is_default = key in defaults and value == defaults[key] and not names_class
            if not is_default and key not in DECIDES_NOTHING:
                settings[key] = value
    return settings


def hash_settings(experiment: Experiment, with_seed: bool = False) -> str:
    """Returns the sha256 of an experiment's identity.

    Runs that differ only in their seed share one hash, except `with_seed`. With the seed, a parent
    is identified by the hash of its own experiment, otherwise by its path.
    """
    settings = identity(experiment)
    omitted = ["seed", "parent.step", "parent.config_sha256"]
    if with_seed:
        omitted = ["parent.run"] if "parent.config_sha256" in settings else []
    for key in omitted:
        settings.pop(key, None)
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
