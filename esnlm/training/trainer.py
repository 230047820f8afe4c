"""The interface of a training: the session that is opened for it, and the trainer that does it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from esnlm.base.console import Progress
from esnlm.data.corpus import Corpus
from esnlm.evaluation import likelihood
from esnlm.evaluation.likelihood import Likelihood
from esnlm.features.stream import SentenceFeatures
from esnlm.machine.mesh import Placement
from esnlm.models.base import LanguageModel
from esnlm.models.devices import Machine
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import Metrics
from esnlm.training.config import ResolvedExperiment
from esnlm.training.interruption import Interruption, Profile
from esnlm.training.state import TrainState

FLOAT = 4  # bytes of a number


@dataclass(frozen=True)
class Session:
    """An opened run: everything that is decided before the first update and stays."""

    settings: ResolvedExperiment
    machine: Machine
    placement: Placement  # of the trained arrays on the machine
    directory: RunDirectory
    corpus: Corpus
    model: LanguageModel  # before the first update, with the parent's arrays if there is one


class Needs(NamedTuple):
    """The updates of a training, and the bytes that it needs in addition to its frozen model."""

    method: str  # its short name: AdamW, SGD, ridge, ...
    work: dict[str, str]  # its line in the table of `esnlm train --plan`
    updates: int  # of the whole run; 0 for a regression
    trained: int  # on each device: the trained arrays with their gradient and optimizer state
    checkpoint: int  # each checkpoint on disk
    checkpoints: int  # number of checkpoints on disk at once
    on_host: int = 0  # in the host's memory, for a regression


@dataclass
class Monitor:
    """Reports on a training while it runs, and learns whether it was asked to stop."""

    metrics: Metrics
    interruption: Interruption
    profile: Profile
    validation: Likelihood | None = None  # the last one; None: not measured

    def validate(
        self,
        session: Session,
        stream: SentenceFeatures,
        readout: dict[str, Any],
        step: int,
        epoch: int,
    ) -> bool:
        """Measures and logs the validation text, if there is one. Returns False if interrupted."""
        text = session.corpus.validation
        if text is None:
            return True
        progress = Progress(int(text.lengths.sum()) - len(text))

        def on_progress(nats: float, tokens: int) -> bool:
            line = f"validation  NLL {nats / tokens:.3f}"
            progress.show(tokens, line, final=tokens == progress.total)
            return bool(self.interruption)

        by_document = session.settings.data.document_chunk is not None
        self.validation = likelihood.of_model(
            stream, readout, text, session.settings.compute, on_progress, by_document
        )
        if self.validation is None:
            return False
        figures = ("nll", "nll_without_eos", "bits_per_byte")
        values = {f"val_{name}": getattr(self.validation, name) for name in figures}
        self.metrics.write(step=step, epoch=epoch, **values)
        return True


class Trainer(ABC):
    """Trains the models of one kind of training: by gradients or by a regression."""

    @abstractmethod
    def plan(self, machine: Machine) -> Needs:
        """Returns what the training needs on a machine."""

    @abstractmethod
    def open(self, session: Session) -> TrainState:
        """Returns the state of the newest intact checkpoint, or that of a new run.

        Raises InputError if all checkpoints are damaged, or the disk is too full.
        """

    @abstractmethod
    def run(self, session: Session, state: TrainState, monitor: Monitor) -> bool:
        """Trains to the end or to an interruption, and returns whether the run is finished.

        It updates the state and saves it. The final model has been validated by `monitor`.
        """

    @abstractmethod
    def describe(self, state: TrainState) -> dict[str, Any]:
        """Returns the training's own values for summary.json."""
