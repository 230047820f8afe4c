"""The data of a model that was trained elsewhere: there is none."""

from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np

from esnlm.data.sources.base import CorpusSize, DataSource
from esnlm.data.store import TokenStore
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory


@dataclass(frozen=True)
class ImportedData(DataSource):
    """None: the model was trained elsewhere (`python -m esnlm import`)."""

    kind: str = "imported"
    source: str = ""  # name of the folder that it came from

    has_corpus: ClassVar[bool] = False

    def check(self) -> None:
        pass

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        self._refuse()

    def size(self) -> CorpusSize:
        self._refuse()

    def tokenizer(self) -> Tokenizer:
        raise InputError("data.kind is imported, which tells no vocabulary; choose store or grammar")

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InputError("data.kind is imported: such a model has no text to train on; choose store or grammar")
