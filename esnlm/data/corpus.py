"""The corpus of a run: its token stores and tokenizer, always those that it was begun with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esnlm.base.console import spinner, warn
from esnlm.base.errors import InputError
from esnlm.base.files import remove, write_json, writing
from esnlm.data.encode import encode_sentences, write_sentences
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


@spinner("opening the text")
def open_corpus(
    source: DataSource, seed: int, directory: RunDirectory, longest: int | None = None
) -> Corpus:
    """Opens the corpus of a run and saves its tokenizer and unigram counts in the run directory.

    Raises InputError if a sentence is longer than `longest` tokens, or the run was begun with other
    data.
    """
    train, validation = source.open(directory, seed)
    corpus = Corpus(train, validation, check_usable(train, validation, longest))
    if validation is not None:
        _warn_of_validation(train, validation)
    if directory.data.exists():
        check_begun_with(directory, fingerprints(corpus), train.folder)
        return corpus
    corpus.tokenizer.save(directory.tokenizer)
    with writing(directory.unigram):
        np.save(directory.unigram, unigram_counts(train, corpus.tokenizer))
    # This file is written last: if it exists, the tokenizer and the counts are complete and belong
    # to this data.
    write_json(directory.data, fingerprints(corpus))
    return corpus


def check_usable(
    train: TokenStore, validation: TokenStore | None, longest: int | None
) -> Tokenizer:
    """Returns the tokenizer of two stores. Raises InputError if a model cannot use both."""
    for store in (train, validation):
        if longest is not None and store is not None and store.lengths.max() - 1 > longest:
            raise InputError(
                f"{store.folder}: a sentence has {store.lengths.max()} tokens, and the model reads"
                f" at most {longest} + 1; raise model.positions, or prepare with --max-length"
            )
    tokenizer = train.tokenizer()
    if validation is not None:
        validation.check_tokenizer(tokenizer)
    return tokenizer


def _warn_of_validation(train: TokenStore, validation: TokenStore) -> None:
    if train.tokens_sha256 == validation.tokens_sha256:
        warn(
            f"{validation.folder}: the same sentences as the training store, so this is no"
            " validation"
        )
    versions = [store.manifest.get("versions", {}).get("nltk") for store in (train, validation)]
    if None not in versions and versions[0] != versions[1]:
        warn(
            f"training text was split by NLTK {versions[0]} and validation text by {versions[1]}:"
            " prepare both with one version"
        )


def put_sentences(
    directory: RunDirectory,
    sentences: list[str],
    validation: list[str] | None,
    tokenizer: Tokenizer,
) -> None:
    """Writes sentences as the token stores of a run.

    Raises InputError if there are none, the run was begun with others, or the folder is not a run.
    """
    is_begun = directory.data.exists()
    if is_begun:
        train = encode_sentences(sentences, tokenizer)
        store = None if validation is None else encode_sentences(validation, tokenizer)
        check_begun_with(directory, fingerprints(Corpus(train, store, tokenizer)), train.folder)
    directory.claim()
    for name, texts in (("train", sentences), ("validation", validation)):
        folder = directory.stores / name
        if texts is None:
            remove(folder)  # from an earlier call that failed before the run began
        elif not (is_begun and folder.exists()):
            write_sentences(folder, texts, tokenizer, overwrite=True)


def fingerprints(corpus: Corpus) -> dict[str, str | None]:
    """Returns the sha256 of the training tokens, the validation tokens and the tokenizer."""
    return {
        "train": corpus.train.tokens_sha256,
        "validation": corpus.validation.tokens_sha256 if corpus.validation else None,
        "tokenizer": corpus.tokenizer.sha256,
    }


def check_begun_with(
    directory: RunDirectory, parts: Mapping[str, str | None], location: Path
) -> None:
    """Raises InputError if a run was begun with other data, by these of its `fingerprints`."""
    try:
        begun = json.loads(directory.data.read_bytes())
        others = [part for part, sha256 in parts.items() if begun[part] != sha256]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{directory.data}: missing or damaged; restore it from a copy of the run"
        ) from None
    if others:
        raise InputError(
            f"{location}: {directory.path} was begun with other data ({', '.join(others)}); name"
            " another --run"
        )


def unigram_counts(store: TokenStore, tokenizer: Tokenizer) -> np.ndarray:
    """Counts the predicted tokens of a store, all but the first of each sentence, (V,) int64."""
    # BOS, but not in later windows of a document
    first = np.asarray(store.tokens[store.offsets[:-1]])
    every = np.bincount(np.asarray(store.tokens), minlength=tokenizer.vocab_size)
    return (every - np.bincount(first, minlength=tokenizer.vocab_size)).astype(np.int64)
