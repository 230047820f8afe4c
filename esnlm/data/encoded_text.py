"""Text that is encoded in memory, to be read once: a token store that no folder holds.

Its arrays are those of a store on disk, so it takes a few bytes a token, however long the text is.
"""

import hashlib
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from esnlm.data.encode import chunk_encoder
from esnlm.data.markers import Oddities
from esnlm.data.store import StoreWriter, TokenStore
from esnlm.data.text_files import holds_documents, read_chunks, require_sentences
from esnlm.data.tokenizer import Tokenizer
from esnlm.errors import require


def encode_file(file: Path, tokenizer: Tokenizer) -> TokenStore:
    """Encodes a text file of one sentence a line.

    White space at both ends of a line is no part of the sentence, and blank lines are none. Sentences are kept whole,
    however short or long they are. `manifest["text_sha256"]` is of the bytes that were read: a pipe cannot be read again.

    Raises:
        InputError: the file cannot be read, is not UTF-8 text, or has no sentence.
    """
    encode = chunk_encoder(None, tokenizer, min_length=0, max_length=sys.maxsize)
    oddities, read = Oddities(), hashlib.sha256()
    texts = map(oddities.note, read_chunks(file, read.update))
    first = next(texts, "")
    if not holds_documents(file):
        require_sentences(file, first)
    chunks = [encode(chunk) for chunk in chain([first], texts)]
    require(
        any(len(chunk.lengths) for chunk in chunks), f"{file}: empty, or nothing but white space: no sentence in it"
    )
    oddities.warn(str(file))
    tokens, lengths, words, sizes = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
    store = _store(file, tokenizer, tokens, lengths, words, sizes)
    store.manifest["text_sha256"] = read.hexdigest()
    return store


def encode_sentences(sentences: Sequence[str], tokenizer: Tokenizer) -> TokenStore:
    """Encodes sentences as they are.

    Raises:
        InputError: there is no sentence.
    """
    require(len(sentences) > 0, "no sentence to measure: give at least one")
    ids = tokenizer.encode_batch(sentences)
    framed = [np.array([tokenizer.bos, *each, tokenizer.eos], np.uint32) for each in ids]
    words = [len(sentence.split()) for sentence in sentences]
    sizes = [len(tokenizer.decode_bytes(each)) for each in ids]
    lengths = [len(each) for each in framed]
    return _store(Path("sentences"), tokenizer, np.concatenate(framed), *map(np.array, (lengths, words, sizes)))


def write_sentences(
    folder: Path, sentences: Sequence[str], tokenizer: Tokenizer, *, overwrite: bool = False
) -> TokenStore:
    """Writes a token store of sentences as they are.

    Raises:
        InputError: there is no sentence, or something is there that is not to be lost.
    """
    encoded = encode_sentences(sentences, tokenizer)
    with StoreWriter(folder, tokenizer, overwrite=overwrite) as writer:
        writer.append(encoded.tokens, encoded.lengths, encoded.words, encoded.bytes)
        return writer.finish(sentence_rule="sentences that were given in Python")


def _store(
    name: Path, tokenizer: Tokenizer, tokens: np.ndarray, lengths: np.ndarray, words: np.ndarray, sizes: np.ndarray
) -> TokenStore:
    described = {"name": tokenizer.name, "vocab_size": tokenizer.vocab_size, "sha256": tokenizer.sha256}
    return TokenStore(name, {"tokenizer": described}, tokens, np.append(0, np.cumsum(lengths)), words, sizes)
