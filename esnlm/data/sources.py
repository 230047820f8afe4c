"""The data sources of experiments: the section `data` of a configuration."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, NoReturn

import numpy as np

from esnlm.base.console import info
from esnlm.base.errors import InputError
from esnlm.base.remote import is_url
from esnlm.base.settings import Count, settings
from esnlm.data import grammar, grammar_pairs
from esnlm.data.encode import write_sentences
from esnlm.data.store import TokenStore, open_store
from esnlm.data.tokenizer import Tokenizer, word_tokenizer
from esnlm.runs.directory import RunDirectory

Part = Literal["train", "validation"]
Stores = tuple[TokenStore, TokenStore | None]  # for training and, if there is one, validation


class CorpusSize(NamedTuple):
    """The size of the training text, read in one epoch."""

    sentences: int
    predicted_tokens: int
    vocab_size: int

    @classmethod
    def of(cls, text: TokenStore, vocab_size: int) -> "CorpusSize":
        """Returns the size of a text. The first token of each sentence is not predicted."""
        return cls(len(text), len(text.tokens) - len(text), vocab_size)

    @property
    def tokens(self) -> int:
        return self.sentences + self.predicted_tokens


@dataclass(frozen=True)
class DataSource(ABC):
    """The interface of data sources: all that the rest of the package needs of the data.

    Subclasses use the decorator `settings` (esnlm/base/settings.py); their fields are the settings
    of the section. The first is `kind`; its default is the name of the source. To make it
    available, list it in SOURCES.
    """

    kind: str

    has_corpus: ClassVar[bool] = True  # False: no training text
    depends_on_seed: ClassVar[bool] = False  # whether the text depends on the seed of a run
    # whether `open` writes minimal pairs into the run directory
    has_minimal_pairs: ClassVar[bool] = False
    # whether only the run directory has the text, and no setting describes it
    is_in_run_only: ClassVar[bool] = False
    # the reason of errors, if it has no text outside of runs
    refusal: ClassVar[str] = "it has no corpus; choose store or grammar"

    @property
    def document_chunk(self) -> int | None:
        """Tokens of a document in an update; None: each sentence begins from an empty state."""
        return None

    @abstractmethod
    def open(self, directory: RunDirectory, seed: int) -> Stores:
        """Opens the stores, or makes them in the run directory."""

    def store_folder(self, directory: RunDirectory, part: Part) -> Path | None:
        """Returns the path of a store of a run, existing or not; None without such a text."""
        return directory.stores / part if self.has_corpus else None

    def prepared_stores(self) -> Stores | None:
        """Opens the stores without verifying them; None if runs make their own text."""
        return None

    def text_sha256(self) -> dict[str, str | None]:
        """Returns the sha256 of each text that settings and seed do not determine."""
        stores = zip(("train", "validation"), self.prepared_stores() or (), strict=False)
        return {name: store.tokens_sha256 if store else None for name, store in stores}

    def size(self) -> CorpusSize:
        """Returns the size of the training corpus without making or verifying it."""
        self._refuse()

    def tokenizer(self) -> Tokenizer:
        """Returns the tokenizer of the corpus without opening it."""
        self._refuse()

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        """Returns a name and token ids of the training corpus, or of generated sentences."""
        self._refuse()

    def reference_nlls(self, validation: TokenStore, tokenizer: Tokenizer) -> dict[str, float]:
        """Returns known values of the validation NLL by name, in nats per token."""
        return {}

    def _refuse(self) -> NoReturn:
        raise InputError(f"data.kind is {self.kind}: {self.refusal}")


@settings
class StoreData(DataSource):
    """Token stores made by `esnlm prepare`."""

    kind: str = "store"
    train: str = ""  # folder of the training store
    validation: str | None = None  # folder of the validation store; null: no validation
    # sentence: the state is reset before each sentence, as in the papers. document: it is carried
    # over the sentences of a document, and an update has the next `bptt_length` tokens of
    # `training.batch_size` documents [ours].
    context: Literal["sentence", "document"] = "sentence"
    # tokens of each document in an update, over which gradients go back; for context document only
    bptt_length: Count = 32

    def __post_init__(self) -> None:
        if self.context == "sentence" and self.bptt_length != StoreData.bptt_length:
            raise ValueError(
                f"bptt_length is {self.bptt_length}: context sentence does not read it; choose"
                " document"
            )

    @property
    def document_chunk(self) -> int | None:
        return self.bptt_length if self.context == "document" else None

    @property
    def is_missing(self) -> bool:
        """Whether the training store is named, and not there yet."""
        return bool(self.train) and not is_url(self.train) and not Path(self.train).exists()

    def open(self, directory: RunDirectory, seed: int) -> Stores:
        return self._open(verify=True)

    def store_folder(self, directory: RunDirectory, part: Part) -> Path | None:
        folder = {"train": self.train, "validation": self.validation}[part]
        return Path(folder) if folder else None

    def prepared_stores(self) -> Stores:
        return self._open(verify=False)

    def size(self) -> CorpusSize:
        store, _ = self.prepared_stores()
        return CorpusSize.of(store, store.manifest["tokenizer"]["vocab_size"])

    def tokenizer(self) -> Tokenizer:
        return self.prepared_stores()[0].tokenizer()

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        store, _ = self.prepared_stores()
        store.check_tokenizer(tokenizer)
        return str(store.folder), store.tokens

    def _open(self, verify: bool) -> Stores:
        if not self.train:
            raise InputError("data.train is empty: name a token store made by `esnlm prepare`")
        train = open_store(Path(self.train), verify)
        return train, open_store(Path(self.validation), verify) if self.validation else None


@settings
class GrammarData(DataSource):
    """A generated corpus with minimal pairs (esnlm/data/grammar.py)."""

    kind: str = "grammar"
    sentences: Count = 40_000  # sentences of the training corpus
    validation_sentences: Count = 4_000  # sentences of the validation corpus
    pairs: Count = 500  # minimal pairs per paradigm, an even number

    depends_on_seed: ClassVar[bool] = True
    has_minimal_pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.pairs % 2:
            raise ValueError(f"pairs is {self.pairs}: it must be even, since pairs are mirrored")

    def open(self, directory: RunDirectory, seed: int) -> Stores:
        """Opens the stores in the run directory; generates them and the pairs if missing."""
        folders = directory.stores / "train", directory.stores / "validation"
        if not directory.minimal_pairs.exists():
            info(
                f"generating {self.sentences:,} + {self.validation_sentences:,} sentences and the"
                " minimal pairs"
            )
            tokenizer, seen = self.tokenizer(), set()
            rule = "one sentence per line, from the generated grammar"
            for folder, count in zip(
                folders, (self.sentences, self.validation_sentences), strict=True
            ):
                sentences = list(grammar.sentences(count, seed, split=folder.name))
                seen.update(sentences)
                write_sentences(folder, sentences, tokenizer, overwrite=True, rule=rule)
            # The pairs are written last, in one move: if they exist, the stores are complete.
            pairs = grammar_pairs.minimal_pairs(self.pairs, seed, exclude=seen)
            grammar_pairs.write_pairs(pairs, directory.minimal_pairs)
        return open_store(folders[0]), open_store(folders[1])

    def size(self) -> CorpusSize:
        predicted_tokens = round(self.sentences * grammar.entropy().tokens_per_sentence)  # expected
        return CorpusSize(self.sentences, predicted_tokens, self.tokenizer().vocab_size)

    def tokenizer(self) -> Tokenizer:
        return word_tokenizer(grammar.words())

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        return "the generated grammar", tokenizer.encode_framed(grammar.sentences(sentences, seed))

    def reference_nlls(self, validation: TokenStore, tokenizer: Tokenizer) -> dict[str, float]:
        """Returns the NLL of this text under its grammar, and the grammar's exact entropy."""
        nats = -np.sum([grammar.log_prob(tokenizer.decode(ids[1:-1])) for ids in validation])
        predicted_tokens = len(validation.tokens) - len(validation)
        return {
            "the grammar itself, on this text": float(nats / predicted_tokens),
            "the grammar's entropy": grammar.entropy().nats_per_token,
        }


@settings
class InMemoryData(DataSource):
    """Sentences given to `esnlm.train` (docs/library.md), in token stores of the run directory."""

    kind: str = "in_memory"

    is_in_run_only: ClassVar[bool] = True
    refusal: ClassVar[str] = (
        "only the run directory has the given sentences; name a text with --data, or choose store"
    )

    def open(self, directory: RunDirectory, seed: int) -> Stores:
        train, validation = directory.stores / "train", directory.stores / "validation"
        if not train.exists():
            raise InputError(
                f"{train}: missing; give the sentences again with esnlm.train(..., sentences=...)"
            )
        return open_store(train), open_store(validation) if validation.exists() else None


@settings
class ImportedData(DataSource):
    """No data: the model was trained elsewhere (`esnlm import`)."""

    kind: str = "imported"
    source: str = ""  # name of the imported folder

    has_corpus: ClassVar[bool] = False
    refusal: ClassVar[str] = "an imported model has no training text; choose store or grammar"

    def open(self, directory: RunDirectory, seed: int) -> Stores:
        self._refuse()


# By `data.kind`. The first is the default.
SOURCES: dict[str, type[DataSource]] = {
    source.kind: source for source in (StoreData, GrammarData, InMemoryData, ImportedData)
}
