"""Raw text files to a token store: lines -> sentences -> tokens, in chunks, on all cores.

A chunk is about a megabyte of one file, cut at line ends. Chunks go to worker processes and come back in their order,
so the store is the same whatever the number of workers, and memory does not grow with the corpus.
"""

import codecs
import hashlib
import io
import math
import multiprocessing
import os
import signal
import string
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esnlm.errors import InputError
from esnlm.text.store import StoreWriter, TokenStore, refuse_target
from esnlm.text.vocabulary import Tokenizer, load_tokenizer, train_bpe

CHUNK = 1 << 20  # bytes
LONGEST_LINE = 4 << 20  # bytes: a line is split as a whole, so it must fit in memory many times over
PUNKT_SAMPLE = 4 << 20  # bytes that Punkt is trained on, about 700,000 words (half a minute of NLTK per 16 MB)
SMALL = 8 << 20  # bytes that are prepared before a second process is ready to help


def prepare(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    tokenizer: str | Path = "gpt2",
    sentences: str = "punkt",
    language: str = "english",
    punkt_data: str | Path | None = None,
    min_length: int = 6,
    max_length: int = 512,
    max_words: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> TokenStore:
    """Make the token store `out` of raw text: UTF-8, any line ends. A sentence never crosses a line.

    Args:
        inputs: text files, or folders, of which all files are taken in the order of their names (hidden ones not).
        tokenizer: "gpt2", a folder (see `load_tokenizer`), or "train:N": a BPE of N ids trained on the input's lines.
        sentences: "punkt" splits each line with NLTK's Punkt; with "line" a line is a sentence.
        language: of the Punkt model. Where this machine has none, Punkt is trained on (the first share of each file
            of) the input, which the output and the manifest then say.
        punkt_data: folder with Punkt's data, if not on `nltk.data.path` (see `load_punkt`).
        min_length, max_length: in tokens, counting BOS and EOS. A shorter sentence is dropped; of a longer one BOS, its
            first max_length - 2 tokens and EOS are kept.
        max_words: keep about so many words. Each file gives its first sentences, up to and including the one with
            which it reaches its share, which is proportional to its words; a file that has fewer, because sentences
            were dropped, gives them all. A tokenizer or Punkt model trained on the input sees these shares only.
        workers: processes; default one per core, fewer for little text. No result depends on it. More than one
            needs the caller's script to be importable (`if __name__ == "__main__":`).
        overwrite: replace an existing token store.
        progress: say how far it is and what came of it, on stderr.

    Raises InputError for bad input or settings; `out` is then as it was.
    """
    started, say = time.monotonic(), _say if progress else _say_nothing
    if not 2 <= min_length <= max_length:
        raise InputError(f"lengths {min_length} to {max_length}: give 2 <= min_length <= max_length")
    if workers is not None and workers < 1:
        raise InputError(f"workers {workers}: give at least 1")
    refuse_target(Path(out), overwrite)
    sources = _find(inputs)
    total = sum(source.size for source in sources)
    share, quotas = _shares(sources, max_words)

    splitter, rule = _splitter(sentences, language, punkt_data, sources, share, say)
    vocabulary = _tokenizer(tokenizer, sources, share, say)
    workers = workers or min(_cores(), math.ceil(total / SMALL))
    encode = ChunkEncoder(splitter, vocabulary, min_length, max_length)
    dropped = cut = 0
    with (
        StoreWriter(out, vocabulary, overwrite=overwrite) as writer,
        _executor(workers, encode) as submit,
        _progress(total, progress) as advance,
    ):
        chunks = ((source, text) for source in sources for text in source.chunks())
        for source, text, encoded in _in_order(submit, chunks, ahead=2 * workers):
            encoded, quotas[source] = encoded.up_to(quotas[source], min_length)
            kept = encoded.lengths >= min_length
            lengths = np.minimum(encoded.lengths[kept], max_length)
            writer.append(encoded.tokens[: lengths.sum()], lengths, encoded.words[kept], encoded.bytes[kept])
            dropped += int(np.sum(~kept))
            cut += int(np.sum(encoded.lengths > max_length))
            advance(len(text))
        store = writer.finish()
    return store
