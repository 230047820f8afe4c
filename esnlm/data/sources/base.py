"""What a data source offers: everything that the rest of the package asks about the data of an experiment."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np

from esnlm.data.store import TokenStore
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory


class CorpusSize(NamedTuple):
    """How much a model is trained on in one epoch."""

    sentences: int
    predicted_tokens: int
    vocab_size: int


@dataclass(frozen=True)
class DataSource(ABC):
    """Where the sentences of an experiment come from: the section `data` of its configuration.

    A subclass is made by `settings` (esnlm/settings.py), and its fields are the settings of that section. The first field is `kind`, and its
    default is the name of the source. Listed in esnlm/data/sources/__init__.py, it can be chosen by `data.kind`.
    """

    kind: str

    has_corpus: ClassVar[bool] = True  # False: there is nothing to train on
    depends_on_seed: ClassVar[bool] = False  # whether the text is another one for each seed of a run
    has_minimal_pairs: ClassVar[bool] = False  # whether `open` writes minimal pairs into the run directory
    is_in_run_only: ClassVar[bool] = False  # whether the text lies in the run directory, and no setting says what it is
    refusal: ClassVar[str] = "it has no corpus; choose store or grammar"  # of a source that has none outside of a run

    @abstractmethod
    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        """Opens the training store and the validation store, which may be None, or makes them in the run directory."""

    def train_folder(self, directory: RunDirectory) -> Path | None:
        """Returns where the training store of a run lies, or should lie; None if there is none."""
        return directory.stores / "train" if self.has_corpus else None

    def stores_there(self) -> tuple[TokenStore, TokenStore | None] | None:
        """Returns the training and the validation store, unverified; None if a run makes its text itself."""
        return None

    def text_sha256(self) -> dict[str, str | None] | None:
        """Returns the sha256 of the tokens of the `train` and the `validation` text; None if settings and seed determine it."""
        if (stores := self.stores_there()) is None:
            return None
        train, validation = stores
        return {"train": train.tokens_sha256, "validation": validation.tokens_sha256 if validation else None}

    def size(self) -> CorpusSize:
        """Returns the size of the training corpus without making or verifying it. Raises InputError if it cannot be used."""
        self._refuse()

    def tokenizer(self) -> Tokenizer:
        """Returns the tokenizer of the corpus without opening it. Raises InputError if there is none, or it is damaged."""
        self._refuse()

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        """Returns a name and token ids of the training corpus: a store's, or so many sentences that are made from the seed."""
        self._refuse()

    def reference_nlls(self, validation: TokenStore, tokenizer: Tokenizer) -> dict[str, float]:
        """Returns what is known of the corpus itself: the NLL of the validation text by name, in nats per token."""
        return {}

    def _refuse(self) -> NoReturn:
        raise InputError(f"data.kind is {self.kind}: {self.refusal}")
