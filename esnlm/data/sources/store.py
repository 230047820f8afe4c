"""Token stores made by `esnlm prepare`, as a data source."""

from pathlib import Path
from typing import Literal

import numpy as np

from esnlm.data.sources.base import CorpusSize, DataSource
from esnlm.data.store import TokenStore, open_store
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory
from esnlm.settings import Count, settings


@settings
class StoreData(DataSource):
    """Token stores made by `esnlm prepare`."""

    kind: str = "store"
    train: str = ""  # folder of the training store
    validation: str | None = None  # folder of the validation store; null: no validation
    # sentence: the state is reset before each sentence, as in the papers. document: it is carried
    # over the sentences of a document, and an update has the next `piece` tokens of
    # `training.batch_size` documents [ours].
    context: Literal["sentence", "document"] = "sentence"
    # tokens of each document in an update, over which gradients go back; for context document only
    piece: Count = 32

    def __post_init__(self) -> None:
        if self.context == "sentence" and self.piece != StoreData.piece:
            raise ValueError(
                f"piece is {self.piece}: context sentence does not read it; choose document"
            )

    @property
    def document_piece(self) -> int | None:
        return self.piece if self.context == "document" else None

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        return open_store(self._folder()), (
            open_store(Path(self.validation)) if self.validation else None
        )

    def train_folder(self, directory: RunDirectory) -> Path | None:
        return self._folder()

    def stores_there(self) -> tuple[TokenStore, TokenStore | None]:
        validation = open_store(Path(self.validation), verify=False) if self.validation else None
        return self._unverified(), validation

    def size(self) -> CorpusSize:
        store = self._unverified()
        return CorpusSize(
            len(store), len(store.tokens) - len(store), store.manifest["tokenizer"]["vocab_size"]
        )

    def tokenizer(self) -> Tokenizer:
        return self._unverified().tokenizer()

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        store = self._unverified()
        store.require_tokenizer(tokenizer)
        return str(store.folder), store.tokens

    def _unverified(self) -> TokenStore:
        return open_store(self._folder(), verify=False)

    def _folder(self) -> Path:
        if not self.train:
            raise InputError("data.train is empty: name a token store made by `esnlm prepare`")
        return Path(self.train)
