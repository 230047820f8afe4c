"""The interface of data sources: all that the rest of the package needs from the data of an
experiment."""

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
    """The size of the training text, read in one epoch."""

    sentences: int
    predicted_tokens: int
    vocab_size: int


@dataclass(frozen=True)
class DataSource(ABC):
    """The source of an experiment's sentences: the section `data` of its configuration.

    Subclasses use the decorator `settings` (esnlm/settings.py); their fields are the settings of
    the section. The first is `kind`; its default is the name of the source. To make it available,
    list it in esnlm/data/sources/__init__.py.
    """

    kind: str

    has_corpus: ClassVar[bool] = True  # False: no training text
    depends_on_seed: ClassVar[bool] = False  # whether the text depends on the seed of a run
    has_minimal_pairs: ClassVar[bool] = (
        False  # whether `open` writes minimal pairs into the run directory
    )
    is_in_run_only: ClassVar[bool] = (
        False  # whether only the run directory has the text, and no setting describes it
    )
    refusal: ClassVar[str] = (
        "it has no corpus; choose store or grammar"  # if it has none outside of runs
    )

    @property
    def document_piece(self) -> int | None:
        """Tokens of a document in an update; None: each sentence begins from an empty state."""
        return None

    @abstractmethod
    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        """Opens the training store and the validation store (or None), or makes them in the run
        directory."""

    def train_folder(self, directory: RunDirectory) -> Path | None:
        """Returns the path of a run's training store, which may be missing; None if the source has
        none."""
        return directory.stores / "train" if self.has_corpus else None

    def stores_there(self) -> tuple[TokenStore, TokenStore | None] | None:
        """Returns the training and the validation store, unverified; None if runs make their own
        text."""
        return None

    def text_sha256(self) -> dict[str, str | None] | None:
        """Returns the sha256 of the tokens of `train` and `validation`; None if settings and seed
        determine them."""
        if (stores := self.stores_there()) is None:
            return None
        train, validation = stores
        return {
            "train": train.tokens_sha256,
            "validation": validation.tokens_sha256 if validation else None,
        }

    def size(self) -> CorpusSize:
        """Returns the size of the training corpus without making or verifying it. Raises InputError
        if unusable."""
        self._refuse()

    def tokenizer(self) -> Tokenizer:
        """Returns the tokenizer of the corpus without opening it. Raises InputError if it is
        missing or damaged."""
        self._refuse()

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        """Returns a name and token ids of the training corpus: those of a store, or of sentences
        made from the seed."""
        self._refuse()

    def reference_nlls(self, validation: TokenStore, tokenizer: Tokenizer) -> dict[str, float]:
        """Returns reference values of the validation NLL known for the corpus, by name, in nats per
        token."""
        return {}

    def _refuse(self) -> NoReturn:
        raise InputError(f"data.kind is {self.kind}: {self.refusal}")
