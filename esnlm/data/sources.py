"""The interface of data sources: all that the rest of the package needs from the data of an
experiment."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, NoReturn

import numpy as np

from esnlm.base.console import say
from esnlm.base.errors import InputError
from esnlm.base.files import remove
from esnlm.base.settings import Count, settings
from esnlm.data import grammar, grammar_pairs
from esnlm.data.encode import encode_sentences, write_sentences
from esnlm.data.store import TokenStore, open_store
from esnlm.data.tokenizer import Tokenizer, word_tokenizer
from esnlm.runs.directory import RunDirectory


class CorpusSize(NamedTuple):
    """The size of the training text, read in one epoch."""

    sentences: int
    predicted_tokens: int
    vocab_size: int


@dataclass(frozen=True)
class DataSource(ABC):
    """The source of an experiment's sentences: the section `data` of its configuration.

    Subclasses use the decorator `settings` (esnlm/base/settings.py); their fields are the settings of
    the section. The first is `kind`; its default is the name of the source. To make it available,
    list it in esnlm/data/sources.py.
    """

    kind: str

    has_corpus: ClassVar[bool] = True  # False: no training text
    depends_on_seed: ClassVar[bool] = False  # whether the text depends on the seed of a run
    # whether `open` writes minimal pairs into the run directory
    has_minimal_pairs: ClassVar[bool] = False
    # whether only the run directory has the text, and no setting describes it
    is_in_run_only: ClassVar[bool] = False
    # if it has none outside of runs
    refusal: ClassVar[str] = "it has no corpus; choose store or grammar"

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


# Token stores made by `esnlm prepare`, as a data source.


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


# A corpus and minimal pairs generated from the grammar in esnlm/data/grammar.py.


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

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        """Opens stores/train and stores/validation of the run directory; generates them and the
        pairs if missing."""
        train, validation = directory.stores / "train", directory.stores / "validation"
        if not directory.minimal_pairs.exists():
            say(
                f"generating {self.sentences:,} + {self.validation_sentences:,} sentences and the"
                " minimal pairs"
            )
            tokenizer, seen = self.tokenizer(), set()
            for folder, count in ((train, self.sentences), (validation, self.validation_sentences)):
                sentences = list(grammar.sentences(count, seed, split=folder.name))
                seen.update(sentences)
                rule = "one sentence per line, from the generated grammar"
                write_sentences(folder, sentences, tokenizer, overwrite=True, rule=rule)
            # The pairs are written last, in one move: if they exist, the stores are complete.
            pairs = grammar_pairs.minimal_pairs(self.pairs, seed, exclude=seen)
            grammar_pairs.write_pairs(pairs, directory.minimal_pairs)
        return open_store(train), open_store(validation)

    def size(self) -> CorpusSize:
        predicted_tokens = round(self.sentences * grammar.entropy().tokens_per_sentence)  # expected
        return CorpusSize(self.sentences, predicted_tokens, self.tokenizer().vocab_size)

    def tokenizer(self) -> Tokenizer:
        return word_tokenizer(grammar.words())

    def sample(self, tokenizer: Tokenizer, sentences: int, seed: int) -> tuple[str, np.ndarray]:
        return "the generated grammar", tokenizer.encode_framed(grammar.sentences(sentences, seed))

    def reference_nlls(self, validation: TokenStore, tokenizer: Tokenizer) -> dict[str, float]:
        """Returns the NLL of this text under its grammar, and the grammar's exact entropy."""
        nats = -np.sum(
            [grammar.log_prob(tokenizer.decode(sentence[1:-1])) for sentence in validation]
        )
        return {
            "the grammar itself, on this text": float(
                nats / (len(validation.tokens) - len(validation))
            ),
            "the grammar's entropy": grammar.entropy().nats_per_token,
        }


# Sentences given in Python: the run directory holds their token stores.


@settings
class InMemoryData(DataSource):
    """Sentences given to `esnlm.train` (docs/library.md)."""

    kind: str = "in_memory"

    is_in_run_only: ClassVar[bool] = True
    refusal: ClassVar[str] = (
        "only the run directory has the given sentences; name a text with --data, or choose store"
    )

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        """Opens stores/train of the run directory, and stores/validation if it exists."""
        train, validation = directory.stores / "train", directory.stores / "validation"
        if not train.exists():
            raise InputError(
                f"{train}: missing; give the sentences again with esnlm.train(..., sentences=...)"
            )
        return open_store(train), open_store(validation) if validation.exists() else None


def put_sentences(
    directory: RunDirectory,
    sentences: list[str],
    validation: list[str] | None,
    tokenizer: Tokenizer,
) -> None:
    """Writes the token stores of a run. Existing stores must hold the same sentences.

    Raises InputError if there are no sentences, the run was begun with others, or the folder is not
    a run.
    """
    begun = directory.config.exists()
    directory.claim()
    for name, given in (("train", sentences), ("validation", validation)):
        folder = directory.stores / name
        if begun:
            if not _is_of(folder, given, tokenizer):
                raise InputError(
                    f"{folder}: the run was begun with other sentences; name another run directory"
                )
        elif given is not None:
            write_sentences(folder, given, tokenizer, overwrite=True)
        else:
            remove(folder)  # from an earlier call that failed before the run began


def _is_of(folder: Path, sentences: list[str] | None, tokenizer: Tokenizer) -> bool:
    """Returns whether a store holds these sentences, or is missing if there are none."""
    if sentences is None or not folder.exists():
        return sentences is None and not folder.exists()
    store, now = open_store(folder), encode_sentences(sentences, tokenizer)
    return (store.tokens_sha256, store.manifest["tokenizer"]["sha256"]) == (
        now.tokens_sha256,
        tokenizer.sha256,
    )


# The empty data section of a model that was trained elsewhere.


@settings
class ImportedData(DataSource):
    """No data: the model was trained elsewhere (`esnlm import`)."""

    kind: str = "imported"
    source: str = ""  # name of the imported folder

    has_corpus: ClassVar[bool] = False
    refusal: ClassVar[str] = "an imported model has no training text; choose store or grammar"

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        self._refuse()


# By `data.kind`. The first is the default.
SOURCES: dict[str, type[DataSource]] = {
    source.kind: source for source in (StoreData, GrammarData, InMemoryData, ImportedData)
}
