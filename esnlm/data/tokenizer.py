"""Tokenizers: GPT-2's byte-level BPE, a BPE trained on text, a word list, or those in other files.

tiktoken computes the first three, from a pattern that splits text into pieces and a rank for each
token's bytes. `<|endoftext|>` has the last id and is both BOS and EOS. Hugging Face's library
`tokenizers` computes the others.
"""

import base64
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken

from esnlm.base.errors import InputError, import_extra
from esnlm.base.files import write_files
from esnlm.data import tokenizer_json
from esnlm.data.tokenizer_json import ENDOFTEXT, byte_of_character, well_formed

FORMAT = {"format": "esnlm tokenizer", "version": 1}
OURS = b"esnlm tokenizer"  # marks the tokenizer.json written by `Tokenizer.save`
GPT2_SHA256 = "ddcaf481643a99bd008b1c860f3b59d62ae5e9eb21af240ca07bae82f4552eb7"

# GPT-2's pattern exactly as in tiktoken, since a tokenizer's hash depends on its spelling.
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
# A word with the space before it, any letters, hyphens and apostrophes; or one punctuation mark.
WORD_PATTERN = r""" ?[^\s.,;:?!"()]++|[.,;:?!"()]|\s"""


class Tokenizer(ABC):
    """Converts text to ids below `vocab_size` and back. Special tokens are ordinary text."""

    name: str
    bos: int
    eos: int
    vocab_size: int
    sha256: str  # hex digest of everything that determines the ids, without the name

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the token ids of `text`, with U+FFFD for unpaired surrogates."""

    @abstractmethod
    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Returns the UTF-8 bytes of `ids`. Raises KeyError for an id outside the vocabulary."""

    @abstractmethod
    def files(self) -> dict[str, str | bytes]:
        """Returns the content of each file that `save` writes."""

    def save(self, folder: str | Path) -> None:
        """Writes files to `folder`, for `load_tokenizer(folder)` on any machine."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_files({Path(folder, name): content for name, content in self.files().items()})

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        """Returns the character span of each token; None if the tokens have the text's bytes."""
        return None

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes each text, on all cores."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self.encode, texts))

    def encode_framed(self, sentences: Iterable[str]) -> np.ndarray:
        """Returns the ids of sentences end to end, each with BOS and EOS: (tokens,) int32."""
        encoded = self.encode_batch(list(sentences))
        return np.array([i for ids in encoded for i in (self.bos, *ids, self.eos)], np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of `ids`, with U+FFFD for bytes that are not UTF-8."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")


@dataclass(frozen=True, eq=False)
class TiktokenTokenizer(Tokenizer):
    """A vocabulary with an id for each of `ranks`, and a last for `<|endoftext|>`.

    The last id is both `bos` and `eos`. The bytes of a text's tokens are those of the text.
    """

    name: str
    pattern: str = field(repr=False)
    ranks: dict[bytes, int] = field(repr=False)  # bytes of each token -> id, in merging order

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        return tiktoken.Encoding(
            self.name,
            pat_str=self.pattern,
            mergeable_ranks=self.ranks,
            special_tokens={ENDOFTEXT: len(self.ranks)},
        )

    bos = eos = property(lambda self: len(self.ranks))
    vocab_size = property(lambda self: len(self.ranks) + 1)

    @cached_property
    def sha256(self) -> str:  # type: ignore[override]
        rules = {
            "kind": "tiktoken",
            "pattern": self.pattern,
            "special_tokens": {ENDOFTEXT: self.eos},
        }
        return hashlib.sha256(
            json.dumps(rules, sort_keys=True).encode() + b"\n" + _dump_ranks(self.ranks)
        ).hexdigest()

    def encode(self, text: str) -> list[int]:
        return self._encoding.encode_ordinary(text)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return self._encoding.decode_bytes([int(i) for i in ids])

    def files(self) -> dict[str, str | bytes]:
        names = ("name", "vocab_size", "bos", "eos", "pattern")
        description = FORMAT | {name: getattr(self, name) for name in names}
        description |= {"special_tokens": {ENDOFTEXT: self.eos}, "sha256": self.sha256}
        return {
            "ranks.tiktoken": _dump_ranks(self.ranks),
            "tokenizer.json": json.dumps(description, indent=2) + "\n",
        }


@dataclass(frozen=True, eq=False)
class HuggingFaceTokenizer(Tokenizer):
    """A byte-level BPE computed by Hugging Face's library `tokenizers`, with the ids of its file.

    Depending on its file, it may change the text (NFC, a space before it).
    """

    content: str = field(repr=False)  # of a tokenizer.json
    bos: int
    eos: int
    vocab_size: int  # including ids without a token at the end

    @cached_property
    def name(self) -> str:  # type: ignore[override]
        return f"bpe-{self.vocab_size}-{self.sha256[:8]}"

    @cached_property
    def sha256(self) -> str:  # type: ignore[override]
        return hashlib.sha256(json.dumps(["tokenizers", *astuple(self)]).encode()).hexdigest()

    @cached_property
    def _library(self) -> Any:
        return tokenizer_json.open_library(self.content)

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        return tokenizer_json.bytes_of_ids(self.content, self.vocab_size)

    def __getstate__(self) -> dict[str, Any]:
        # the library's pickle loses settings
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def encode(self, text: str) -> list[int]:
        return self._library.encode(well_formed(text), add_special_tokens=False).ids

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return self._library.encode(well_formed(text), add_special_tokens=False).offsets

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join(self._bytes[int(i)] for i in ids)

    def files(self) -> dict[str, str | bytes]:
        settings = {
            "bos_token": self.decode_bytes([self.bos]).decode(),
            "eos_token": self.decode_bytes([self.eos]).decode(),
            "vocab_size": self.vocab_size,
        }
        return {"tokenizer.json": self.content, "tokenizer_config.json": json.dumps(settings)}


def load_tokenizer(spec: str | Path, vocab_size: int | None = None) -> Tokenizer:
    """Loads the tokenizer `spec`:

    - "gpt2": GPT-2's, from tiktoken, which downloads it on first use and caches it;
    - a folder written by `Tokenizer.save`, or a token store or run;
    - a byte-level BPE in Hugging Face's files: a tokenizer.json or a folder with one, or vocab.json
      and merges.txt (GPT-2: encoder.json and vocab.bpe). This needs `tokenizers`, from the extra
      `text`, except for GPT-2's own.

    `vocab_size` is the size of a model with Hugging Face's files; ids after the last token pad the
    vocabulary and have no text. Raises InputError if the tokenizer does not exist, cannot be
    downloaded, or cannot be read.
    """
    if spec == "gpt2":
        return _download_gpt2()
    folder = Path(spec)
    is_file = folder.suffix == ".json" and folder.is_file()
    file = folder if is_file else folder / "tokenizer.json"
    if file.exists() or (folder / "ranks.tiktoken").exists():
        content = _read(file)
        if OURS in content or (file.parent / "ranks.tiktoken").exists():
            return _load_saved(file.parent)
        return _load_files(file, (content,), vocab_size)
    for names in (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")):
        encoder, merges = (folder / name for name in names)
        if encoder.exists() or merges.exists():
            return _load_files(encoder, (_read(encoder), _read(merges)), vocab_size)
    if (folder / "tokenizer").is_dir():
        return load_tokenizer(folder / "tokenizer")
    raise InputError(
        f"tokenizer {str(spec)!r}: not 'gpt2', a tokenizer.json, or a folder with a tokenizer"
    )


def train_bpe(texts: Iterable[str], vocab_size: int) -> TiktokenTokenizer:
    """Trains a byte-level BPE on `texts`, with GPT-2's pattern.

    Its `vocab_size` ids are those of the 256 bytes, the merges, and `<|endoftext|>`. Does not merge
    pairs that occur once. The same texts give the same tokenizer. Raises InputError if the texts
    have too few merges.
    """
    if vocab_size < 257:
        raise InputError(
            f"vocabulary size {vocab_size}: give at least 257, the 256 bytes and {ENDOFTEXT}"
        )
    tokenizers = import_extra("tokenizers", "training a vocabulary", "text")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=2,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)

    byte_of = byte_of_character()
    ranks = _byte_ranks()
    for left, right in json.loads(bpe.to_str())["model"]["merges"]:
        ranks.setdefault(bytes(byte_of[character] for character in left + right), len(ranks))
    if len(ranks) + 1 < vocab_size:
        raise InputError(
            f"vocabulary size {vocab_size}: the text has merges for {len(ranks) + 1} only; ask for"
            " fewer"
        )
    return TiktokenTokenizer(f"bpe-{vocab_size}", GPT2_PATTERN, ranks)


def word_tokenizer(words: Sequence[str]) -> TiktokenTokenizer:
    """Makes a tokenizer from a closed word list. Other words are spelled with the 256 bytes.

    A word may begin with a space: " cat" and "cat" are two words. The ids are 0..255 for the bytes,
    then `words` in order, then `<|endoftext|>`. A single byte, such as ".", has the byte's id.
    Raises InputError for several pieces.
    """
    ranks = _byte_ranks()
    for word in words:
        ranks.setdefault(word.encode(), len(ranks))
    tokenizer = TiktokenTokenizer("words", WORD_PATTERN, ranks)
    for word in words:
        if tokenizer.encode(word) != [ranks[word.encode()]]:
            raise InputError(
                f"word {word!r} is not one word: put a space before it, and keep punctuation"
                " separate"
            )
    return tokenizer


def _download_gpt2() -> Tokenizer:
    from tiktoken_ext.openai_public import gpt2

    try:
        ranks = gpt2()["mergeable_ranks"]
    except (OSError, ValueError) as error:
        raise InputError(
            f"tokenizer 'gpt2' cannot be downloaded ({type(error).__name__}); name a folder with"
            " GPT-2's vocab.bpe and encoder.json instead"
        ) from error
    return TiktokenTokenizer("gpt2", GPT2_PATTERN, ranks)


def _load_files(path: Path, contents: tuple[bytes, ...], vocab_size: int | None) -> Tokenizer:
    """Returns the tokenizer of a tokenizer.json, or of an encoder.json with its merges."""
    tree, bos, eos, size = tokenizer_json.read_files(path, *contents)
    ranks = tokenizer_json.ranks_of(tree)
    if ranks is not None and bos == eos and (vocab_size or size) == size:
        gpt2 = TiktokenTokenizer("gpt2", GPT2_PATTERN, ranks)
        if gpt2.sha256 == GPT2_SHA256:
            return gpt2
    tokenizer_json.check(path, tree)
    return HuggingFaceTokenizer(json.dumps(tree), bos, eos, max(size, vocab_size or 0))


def _load_saved(folder: Path) -> Tokenizer:
    described, ranks = _read(folder / "tokenizer.json"), _read(folder / "ranks.tiktoken")
    try:
        description = json.loads(described)
        pairs = (line.split(b" ") for line in ranks.splitlines())
        by_token = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
        tokenizer = TiktokenTokenizer(description["name"], description["pattern"], by_token)
        is_format = {key: description[key] for key in FORMAT} == FORMAT
        if is_format and description["sha256"] == tokenizer.sha256:
            return tokenizer
    except (KeyError, TypeError, ValueError):
        pass
    raise InputError(
        f"{folder}: tokenizer.json and ranks.tiktoken are damaged or do not belong together"
    )


def _dump_ranks(ranks: dict[bytes, int]) -> bytes:
    """Returns the ranks in tiktoken's file format: one line of base64 and rank per token."""
    ordered = sorted(ranks.items(), key=itemgetter(1))
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ordered)


def _byte_ranks() -> dict[bytes, int]:
    return {bytes([byte]): byte for byte in range(256)}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; the tokenizer needs this file: copy the folder again"
        ) from None
