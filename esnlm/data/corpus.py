"""The corpus of a run: opens its token stores and tokenizer, and checks that they are those the run
was begun with."""

import json
from dataclasses import dataclass

import numpy as np

from esnlm.base.console import warn, working
from esnlm.base.errors import InputError
from esnlm.base.files import write_json, writing
from esnlm.data.sources import DataSource
from esnlm.data.store import TokenStore
from esnlm.data.tokenizer import Tokenizer
from esnlm.runs.directory import RunDirectory


@dataclass(frozen=True)
class Corpus:
    """The training text, validation text and tokenizer of a run."""

    train: TokenStore
    validation: TokenStore | None
    tokenizer: Tokenizer


@working("opening the text")
def open_corpus(
    source: DataSource, seed: int, directory: RunDirectory, longest: int | None = None
) -> Corpus:
    """Opens the corpus of a run and saves its tokenizer and unigram counts in the run directory.

    Raises InputError if a sentence is longer than `longest` tokens, or the run was begun with other
    data.
    """
    train, validation = source.open(directory, seed)
    tokenizer = require_usable(train, validation, longest)
    if validation is not None and train.tokens_sha256 == validation.tokens_sha256:
        warn(
            f"{validation.folder}: the same sentences as the training store, so this is no"
            " validation"
        )
    splits = [
        store.manifest.get("versions", {}).get("nltk")
        for store in (train, validation)
        if store is not None
    ]
    if None not in splits and len(set(splits)) > 1:
        warn(
            f"training text was split by NLTK {splits[0]} and validation text by {splits[1]}:"
            " prepare both with one version"
        )
    corpus = Corpus(train, validation, tokenizer)
    if directory.data.exists():
        begun, now = _begun_with(directory), fingerprints(corpus)
        for name, store in (("train", train), ("validation", validation)):
            if begun[name] != now[name]:
                given = store.folder if store else "no store"
                line = (
                    f"{given}: not the {name} store that {directory.path} was begun with; name"
                    " another --run"
                )
                raise InputError(line)
        return corpus
    tokenizer.save(directory.tokenizer)
    with writing(directory.unigram):
        np.save(directory.unigram, unigram_counts(train, tokenizer))
    # This file is written last: if it exists, the tokenizer and the counts are complete and belong
    # to this data.
    write_json(directory.data, fingerprints(corpus))
    return corpus


def require_usable(
    train: TokenStore, validation: TokenStore | None, longest: int | None
) -> Tokenizer:
    """Returns the tokenizer of a training and a validation store. Raises InputError if a model
    cannot use both."""
    for store in (train, validation):
        if longest is not None and store is not None and store.lengths.max() - 1 > longest:
            too_long = (
                f"a sentence has {store.lengths.max()} tokens, and the model reads at most"
                f" {longest} + 1"
            )
            raise InputError(
                f"{store.folder}: {too_long}; raise model.positions, or prepare with --max-length"
            )
    tokenizer = train.tokenizer()
    if validation is not None:
        validation.require_tokenizer(tokenizer)
    return tokenizer


def fingerprints(corpus: Corpus) -> dict[str, str | None]:
    """Returns the sha256 of the training tokens, the validation tokens (None without validation)
    and the tokenizer."""
    return {
        "train": corpus.train.tokens_sha256,
        "validation": corpus.validation.tokens_sha256 if corpus.validation else None,
        "tokenizer": corpus.tokenizer.sha256,
    }


def require_training_store(store: TokenStore, directory: RunDirectory) -> None:
    """Raises InputError if a store is not the training store that a run was begun with."""
    if _begun_with(directory)["train"] != store.tokens_sha256:
        raise InputError(
            f"{store.folder}: not the training store that {directory.path} was begun with"
        )


def unigram_counts(store: TokenStore, tokenizer: Tokenizer) -> np.ndarray:
    """Counts the predicted tokens of a store, all but the first of each sentence, (V,) int64."""
    # BOS, but not in later windows of a document
    first = np.asarray(store.tokens[store.offsets[:-1]])
    every = np.bincount(np.asarray(store.tokens), minlength=tokenizer.vocab_size)
    return (every - np.bincount(first, minlength=tokenizer.vocab_size)).astype(np.int64)


def _begun_with(directory: RunDirectory) -> dict[str, str | None]:
    """Returns the fingerprints of the data that a run was begun with."""
    try:
        begun = json.loads(directory.data.read_bytes())
        return {name: begun[name] for name in ("train", "validation", "tokenizer")}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{directory.data}: missing or damaged; restore it from a copy of the run"
        ) from None
