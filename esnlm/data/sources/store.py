"""Token stores that were made by `esnlm prepare`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esnlm.data.sources.base import CorpusSize, DataSource
from esnlm.data.store import TokenStore, open_store
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory


@dataclass(frozen=True)
class StoreData(DataSource):
    """Token stores made by `python -m esnlm prepare`."""

    kind: str = "store"
    train: str = ""  # folder of the training store
    validation: str | None = None  # folder of the validation store; null: no validation

    def check(self) -> None:
        if not self.train:
            raise InputError("data.train is empty: name a token store made by `python -m esnlm prepare`")

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        return open_store(Path(self.train)), open_store(Path(self.validation)) if self.validation else None

    def train_folder(self, directory: RunDirectory) -> Path | None:
        return Path(self.train)

    def stores_there(self) -> tuple[TokenStore, TokenStore | None]:
        validation = open_store(Path(self.validation), verify=False) if self.validation else None
        return self._unverified(), validation

    def size(self) -> CorpusSize:
        store = self._unverified()
        return CorpusSize(len(store), len(store.tokens) - len(store), store.manifest["tokenizer"]["vocab_size"])

    def tokenizer(self) -> Tokenizer:
        return self._unverified().tokenizer()

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        store = self._unverified()
        store.require_tokenizer(tokenizer)
        return str(store.folder), store.tokens

    def _unverified(self) -> TokenStore:
        return open_store(Path(self.train), verify=False)
