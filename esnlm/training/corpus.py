"""The text of an experiment: token stores that were prepared, or a corpus generated into the run directory."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esnlm.config import Experiment, GrammarData, ImportedData
from esnlm.data import grammar, grammar_pairs
from esnlm.data.store import StoreWriter, TokenStore, open_store
from esnlm.data.tokenizer import Tokenizer, word_tokenizer
from esnlm.errors import InputError
from esnlm.runs.atomic import write_file
from esnlm.runs.console import say
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import write_json


@dataclass(frozen=True)
class Corpus:
    train: TokenStore
    validation: TokenStore | None
    tokenizer: Tokenizer


def sha256(store: TokenStore) -> str:
    """What a store holds, by the hash of its tokens: the sentences' bounds are among them."""
    return store.manifest["sha256"]["tokens.bin"]


def open_corpus(experiment: Experiment, directory: RunDirectory) -> Corpus:
    """The experiment's corpus; its tokenizer and unigram counts are saved in the run directory.

    Raises:
        InputError: a store is missing or damaged, or the two were made with different tokenizers.
    """
    if isinstance(experiment.data, ImportedData):
        raise InputError("data.kind is imported: such a model has no text to train on; choose store or grammar")
    if isinstance(experiment.data, GrammarData):
        train, validation = _generate(experiment.data, experiment.seed, directory)
    else:
        train = open_store(Path(experiment.data.train))
        validation = open_store(Path(experiment.data.validation)) if experiment.data.validation else None
    longest = experiment.model.longest
    for store in (train, validation):
        if longest is not None and store is not None and store.lengths.max() - 1 > longest:
            raise InputError(
                f"{store.folder}: its longest sentence has {store.lengths.max()} tokens, and the model reads at most {longest} + 1;"
                " raise model.positions, or prepare the text with a smaller --max-length"
            )
    tokenizer = train.tokenizer()
    if validation is not None:
        validation.require_tokenizer(tokenizer)
    corpus = Corpus(train, validation, tokenizer)
    if directory.data.exists():
        _require_same(corpus, directory)
        return corpus
    tokenizer.save(directory.tokenizer)
    counts = io.BytesIO()
    np.save(counts, unigram_counts(train, tokenizer))
    write_file(directory.unigram, counts.getvalue())
    # Last: where it lies, tokenizer and counts are whole and of this data.
    write_json(directory.data, fingerprints(corpus))
    return corpus


def fingerprints(corpus: Corpus) -> dict[str, str | None]:
    """sha256 of what a run learns from and is measured on."""
    validation = sha256(corpus.validation) if corpus.validation else None
    return {"train": sha256(corpus.train), "validation": validation, "tokenizer": corpus.tokenizer.sha256}


def _require_same(corpus: Corpus, directory: RunDirectory) -> None:
    """Raises InputError where a store or the tokenizer is not the one that the run was begun with."""
    begun, now = json.loads(directory.data.read_text()), fingerprints(corpus)
    for name, store in {"train": corpus.train, "tokenizer": corpus.train, "validation": corpus.validation}.items():
        if begun[name] != now[name]:
            what = "tokenizer" if name == "tokenizer" else f"{name} store"
            where = store.folder if store else "no store"
            raise InputError(
                f"{where}: not the {what} that {directory.path} was begun with (sha256 {begun[name]} there,"
                f" {now[name]} now); give the same data, or another run directory with --run"
            )


def unigram_counts(store: TokenStore, tokenizer: Tokenizer) -> np.ndarray:
    """How often each token is predicted in a store, (V,) int64: every token but the BOS of each sentence."""
    counts = np.bincount(np.asarray(store.tokens), minlength=tokenizer.vocab_size).astype(np.int64)
    counts[tokenizer.bos] -= len(store)
    return counts


def _generate(data: GrammarData, seed: int, directory: RunDirectory) -> tuple[TokenStore, TokenStore]:
    """The generated corpus: stores/train, stores/validation and minimal_pairs/, made once."""
    folders = [directory.stores / "train", directory.stores / "validation"]
    if not directory.minimal_pairs.exists():
        say(f"generating {data.sentences:,} + {data.validation_sentences:,} sentences and the minimal pairs")
        tokenizer = word_tokenizer(grammar.words())
        seen = set()
        for folder, count in zip(folders, (data.sentences, data.validation_sentences), strict=True):
            sentences = list(grammar.sentences(count, seed, split=folder.name))
            seen.update(sentences)
            _write_store(folder, sentences, tokenizer)
        # Last, and in one move: where the pairs are, the stores are whole.
        grammar_pairs.write_pairs(grammar_pairs.minimal_pairs(data.pairs, seed, exclude=seen), directory.minimal_pairs)
    return tuple(open_store(folder) for folder in folders)


def _write_store(folder: Path, sentences: list[str], tokenizer: Tokenizer) -> None:
    ids = [[tokenizer.bos, *encoded, tokenizer.eos] for encoded in tokenizer.encode_batch(sentences)]
    words = [len(sentence.split()) for sentence in sentences]
    sizes = [len(sentence.encode()) for sentence in sentences]
    with StoreWriter(folder, tokenizer, overwrite=True) as writer:
        writer.append(np.concatenate(ids), [len(sentence) for sentence in ids], words, sizes)
        writer.finish(sentence_rule="one sentence a line, from the generated grammar")
