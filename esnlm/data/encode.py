"""Encodes text, here or in worker processes: lines to sentences to token ids, with counts."""

import hashlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.data.inputs import read_text
from esnlm.data.sentences import punkt_splitter
from esnlm.data.store import StoreWriter, TokenStore, token_dtype
from esnlm.data.tokenizer import Tokenizer
from esnlm.data.tokenizer_json import well_formed

if TYPE_CHECKING:  # NLTK is an extra
    from nltk.tokenize.punkt import PunktParameters


class Encoded(NamedTuple):
    """The sentences of a chunk, including short ones to drop, which `tokens` leaves out."""

    tokens: np.ndarray  # (sum of kept lengths,) uint32
    lengths: np.ndarray  # (sentences,) int64, counting BOS and EOS, before the cut
    words: np.ndarray  # (sentences,) int64, after the cut
    bytes: np.ndarray  # (sentences,) int64, after the cut
    documents: np.ndarray  # (sentences,) int64, the number of empty lines before each sentence
    empty_lines: int  # in all


def chunk_encoder(
    parameters: "PunktParameters | None",
    tokenizer: Tokenizer,
    min_length: int,
    max_length: int,
    across_lines: bool = False,
) -> Callable[[str], Encoded]:
    """Returns a function from a chunk of text to its encoded sentences.

    Without Punkt's parameters, each line is a sentence; with `across_lines`, sentences may contain
    line ends, and the chunk has one document. Otherwise empty lines separate documents.
    Lengths count BOS and EOS: shorter sentences have no ids in the result, longer ones are cut.
    """
    split = punkt_splitter(parameters) if parameters else lambda line: [line]
    no_ids, bos, eos = (np.array(ids, np.uint32) for ids in ([], [tokenizer.bos], [tokenizer.eos]))

    def encode(text: str) -> Encoded:
        lines = [text] if across_lines else text.removesuffix("\n").split("\n")
        pieces = [line.strip() for line in lines]
        sentences = [
            (sentence, i) for i, piece in enumerate(pieces) if piece for sentence in split(piece)
        ]
        empty = np.cumsum([not piece for piece in pieces])
        tokens, lengths, words, sizes = [no_ids], [], [], []
        for sentence, _ in sentences:
            ids = tokenizer.encode(sentence)
            lengths.append(len(ids) + 2)
            covered = sentence.encode()
            if len(ids) + 2 > max_length:
                ids = ids[: max_length - 2]
                covered = tokenizer.decode_bytes(ids)
                sentence = covered.decode(errors="ignore")
            words.append(len(sentence.split()))
            sizes.append(len(covered))
            if len(ids) + 2 >= min_length:
                tokens += bos, np.array(ids, np.uint32), eos
        documents = empty[np.array([i for _, i in sentences], int)]
        counts = [np.array(values, np.int64) for values in (lengths, words, sizes)]
        return Encoded(
            np.concatenate(tokens), counts[0], counts[1], counts[2], documents, int(empty[-1])
        )

    return encode


_encode: Callable[[str], Encoded]  # of a worker process


def encode_in_order(
    chunks: Iterable[tuple[int, str]], count: int, *arguments: Any
) -> Iterator[tuple[int, Encoded]]:
    """Encodes (source, chunk) pairs with `count` processes, and yields (source, encoded chunk) in
    order.

    `arguments` are for `chunk_encoder`. Spawns processes, as forks are unsafe with threads. Raises
    InputError if one died.
    """
    if count == 1:
        encode = chunk_encoder(*arguments)
        yield from ((i, encode(text)) for i, text in chunks)
        return
    pool = ProcessPoolExecutor(count, get_context("spawn"), _start, arguments)
    try:
        pending: deque[tuple[int, Future[Encoded]]] = deque()
        for i, text in chunks:
            pending.append((i, pool.submit(_encode_here, text)))
            if len(pending) > 2 * count:  # enough to keep all workers busy; bounds the memory
                i, future = pending.popleft()
                yield i, future.result()
        yield from ((i, future.result()) for i, future in pending)
    except BrokenProcessPool:
        raise InputError(
            "a worker process died, perhaps out of memory: try fewer workers (--workers 1)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(*arguments: Any) -> None:
    """Prepares a worker process, which always ends with its parent."""
    global _encode
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _encode = chunk_encoder(*arguments)


def _end_with_parent() -> None:
    connection.wait([parent_process().sentinel])  # type: ignore[union-attr]
    os._exit(1)


def _encode_here(text: str) -> Encoded:
    return _encode(text)


def encode_file(file: Path, tokenizer: Tokenizer) -> TokenStore:
    """Encodes a text file with one sentence per line as a token store in memory. Reads the file
    once.

    Strips white space at both ends of lines. Blank lines separate documents. Keeps all sentences
    whole, whatever their length.
    """
    encode = chunk_encoder(None, tokenizer, min_length=0, max_length=sys.maxsize)
    encoded = encode("".join(read_text(file)))
    if not len(encoded.lengths):
        raise InputError(f"{file}: no sentence: the file is empty or all white space")
    return _store(file, tokenizer, encoded)


def encode_sentences(sentences: Sequence[str], tokenizer: Tokenizer) -> TokenStore:
    """Encodes sentences unchanged as a token store in memory. Raises InputError if there are
    none."""
    return _store(Path("sentences"), tokenizer, _encode_list(sentences, tokenizer))


def write_sentences(
    folder: Path,
    sentences: Sequence[str],
    tokenizer: Tokenizer,
    *,
    overwrite: bool = False,
    rule: str = "sentences given in Python",
) -> TokenStore:
    """Writes a token store of unchanged sentences. Raises InputError if there are none, or the
    folder is in use."""
    with StoreWriter(folder, tokenizer, overwrite=overwrite) as writer:
        writer.append(*_encode_list(sentences, tokenizer)[:-1])
        return writer.finish(sentence_rule=rule)


def _encode_list(sentences: Sequence[str], tokenizer: Tokenizer) -> Encoded:
    if not len(sentences):
        raise InputError("no sentences; give at least one")
    ids = tokenizer.encode_batch(sentences)
    tokens = np.array([i for each in ids for i in (tokenizer.bos, *each, tokenizer.eos)], np.uint32)
    words = [len(sentence.split()) for sentence in sentences]
    sizes = [len(well_formed(sentence).encode()) for sentence in sentences]
    lengths = np.array([len(each) + 2 for each in ids])
    # one document
    return Encoded(tokens, lengths, np.array(words), np.array(sizes), np.zeros_like(lengths), 0)


def _store(name: Path, tokenizer: Tokenizer, encoded: Encoded) -> TokenStore:
    described = {
        "name": tokenizer.name,
        "vocab_size": tokenizer.vocab_size,
        "sha256": tokenizer.sha256,
    }
    stored = encoded.tokens.astype(token_dtype(tokenizer.vocab_size))
    manifest = {
        "tokenizer": described,
        "sha256": {"tokens.bin": hashlib.sha256(stored.tobytes()).hexdigest()},
    }
    offsets = np.append(0, np.cumsum(encoded.lengths))
    return TokenStore(
        name, manifest, encoded.tokens, offsets, encoded.words, encoded.bytes, encoded.documents
    )
