"""Encodes text as token ids with counts: chunks of files, in worker processes, and sentences."""

import hashlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.data.inputs import open_file
from esnlm.data.sentences import punkt_splitter
from esnlm.data.store import StoreWriter, TokenStore, token_dtype
from esnlm.data.tokenizer import Tokenizer
from esnlm.data.tokenizer_json import well_formed

if TYPE_CHECKING:  # NLTK is an extra
    from nltk.tokenize.punkt import PunktParameters


class Encoded(NamedTuple):
    """Encoded sentences, including short ones to drop, which `tokens` leaves out."""

    tokens: np.ndarray  # (sum of kept lengths,) uint32
    lengths: np.ndarray  # (sentences,) int64, counting BOS and EOS, before the cut
    words: np.ndarray  # (sentences,) int64, after the cut
    bytes: np.ndarray  # (sentences,) int64, after the cut
    documents: np.ndarray  # (sentences,) int64, the number of empty lines before each sentence
    empty_lines: int  # in all


@dataclass(frozen=True)
class Encoder:
    """Encodes a chunk of text: lines to sentences to token ids.

    Lengths count BOS and EOS: shorter sentences have no ids in the result, longer ones are cut.
    """

    tokenizer: Tokenizer
    parameters: "PunktParameters | None" = None  # None: each line is a sentence
    min_length: int = 0
    max_length: int = sys.maxsize
    # Sentences may contain line ends, and a chunk has one document. Otherwise empty lines separate
    # documents.
    across_lines: bool = False

    @cached_property
    def _split(self) -> Callable[[str], list[str]]:
        return punkt_splitter(self.parameters) if self.parameters else lambda line: [line]

    def __call__(self, text: str) -> Encoded:
        sentences: list[str] = []
        documents: list[int] = []
        empty_lines = 0
        for line in [text] if self.across_lines else text.removesuffix("\n").split("\n"):
            if line := line.strip():
                sentences += self._split(line)
                documents += [empty_lines] * (len(sentences) - len(documents))
            else:
                empty_lines += 1
        ids = map(self.tokenizer.encode, sentences)
        return self.encode(sentences, ids, documents)._replace(empty_lines=empty_lines)

    def encode(
        self, sentences: Sequence[str], token_ids: Iterable[list[int]], documents: Sequence[int]
    ) -> Encoded:
        """Frames, cuts and counts sentences with these token ids."""
        bos, eos = self.tokenizer.bos, self.tokenizer.eos
        tokens: list[int] = []
        lengths, words, sizes = [], [], []
        for sentence, inner in zip(sentences, token_ids, strict=True):
            length, content = len(inner) + 2, well_formed(sentence).encode()
            if length > self.max_length:
                inner = inner[: self.max_length - 2]
                content = self.tokenizer.decode_bytes(inner)
                sentence = content.decode(errors="ignore")
            if length >= self.min_length:
                tokens += (bos, *inner, eos)
            lengths.append(length)
            words.append(len(sentence.split()))
            sizes.append(len(content))
        ids = np.array(tokens, np.uint32)
        columns = np.array([lengths, words, sizes, documents], np.int64)
        return Encoded(ids, columns[0], columns[1], columns[2], columns[3], empty_lines=0)


def encode_in_order(
    chunks: Iterable[tuple[int, str]], workers: int, encoder: Encoder
) -> Iterator[tuple[int, Encoded]]:
    """Encodes (source, chunk) pairs in `workers` processes, and yields the results in order.

    Spawns processes, as forks are unsafe with threads. Raises InputError if one died.
    """
    if workers == 1:
        yield from ((source, encoder(text)) for source, text in chunks)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (encoder,))
    pending: deque[tuple[int, Future[Encoded]]] = deque()
    try:
        for source, text in chunks:
            pending.append((source, pool.submit(_encode_in_worker, text)))
            if len(pending) > 2 * workers:  # enough to keep all workers busy; bounds the memory
                source, future = pending.popleft()
                yield source, future.result()
        yield from ((source, future.result()) for source, future in pending)
    except BrokenProcessPool:
        raise InputError(
            "a worker process died, perhaps out of memory: try fewer workers (--workers 1)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_encoder: Encoder  # of a worker process


def _start_worker(encoder: Encoder) -> None:
    """Prepares a worker process, which always ends with its parent."""
    global _encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _encoder = encoder


def _end_with_parent() -> None:
    connection.wait([parent_process().sentinel])  # type: ignore[union-attr]
    os._exit(1)


def _encode_in_worker(text: str) -> Encoded:
    return _encoder(text)


def encode_file(file: Path, tokenizer: Tokenizer) -> TokenStore:
    """Encodes a text file with one sentence per line as a token store in memory. Reads it once.

    Strips white space at both ends of lines. Blank lines separate documents. Keeps all sentences
    whole, whatever their length.
    """
    text = "".join(open_file(file).chunks())
    encoded = Encoder(tokenizer)(text)
    if not len(encoded.lengths):
        raise InputError(f"{file}: no sentence: the file is empty or all white space")
    return store_in_memory(file, tokenizer, encoded)


def encode_sentences(sentences: Sequence[str], tokenizer: Tokenizer) -> TokenStore:
    """Encodes unchanged sentences as a token store in memory. Raises InputError without any."""
    return store_in_memory(Path("sentences"), tokenizer, _encode_list(sentences, tokenizer))


def write_sentences(
    folder: Path,
    sentences: Sequence[str],
    tokenizer: Tokenizer,
    *,
    overwrite: bool = False,
    rule: str = "sentences given in Python",
) -> TokenStore:
    """Writes a token store of unchanged sentences. Raises InputError without any."""
    with StoreWriter(folder, tokenizer, overwrite=overwrite) as writer:
        writer.append(*_encode_list(sentences, tokenizer)[:-1])
        return writer.finish(sentence_rule=rule)


def _encode_list(sentences: Sequence[str], tokenizer: Tokenizer) -> Encoded:
    """Encodes unchanged sentences, on all cores, as one document."""
    if not len(sentences):
        raise InputError("no sentences; give at least one")
    ids = tokenizer.encode_batch(sentences)
    return Encoder(tokenizer).encode(sentences, ids, documents=[0] * len(sentences))


def store_in_memory(name: Path, tokenizer: Tokenizer, encoded: Encoded) -> TokenStore:
    """Returns encoded sentences, all of which have ids, as a token store in memory."""
    file = encoded.tokens.astype(token_dtype(tokenizer.vocab_size)).tobytes()
    keys = ("name", "vocab_size", "sha256")
    manifest = {
        "tokenizer": {key: getattr(tokenizer, key) for key in keys},
        "sha256": {"tokens.bin": hashlib.sha256(file).hexdigest()},
    }
    offsets = np.append(0, np.cumsum(encoded.lengths))
    return TokenStore(
        name, manifest, encoded.tokens, offsets, encoded.words, encoded.bytes, encoded.documents
    )
