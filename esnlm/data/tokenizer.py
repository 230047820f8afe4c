"""Text to token ids and back: GPT-2's byte-level BPE, one trained on the text at hand, or a closed list of words.

All three are the same thing to tiktoken: a pattern that cuts text into pieces and a rank for every token's bytes.
`<|endoftext|>` has the last id and is both BOS and EOS.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import numpy as np
import tiktoken

from esnlm.data.tokenizer_json import byte_of_character, read_gpt2, read_ranks
from esnlm.errors import InputError
from esnlm.io.atomic import write_files

FORMAT = {"format": "esnlm tokenizer", "version": 1}
OURS = b"esnlm tokenizer"  # it stands in the tokenizer.json that `Tokenizer.save` writes
ENDOFTEXT = "<|endoftext|>"
GPT2_SHA256 = "ddcaf481643a99bd008b1c860f3b59d62ae5e9eb21af240ca07bae82f4552eb7"

# GPT-2's pattern as tiktoken words it; kept here because the words, not only the meaning, go into a tokenizer's hash.
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
# A word with the space before it, whatever letters, hyphens and apostrophes it has; or one punctuation mark.
WORD_PATTERN = r""" ?[^\s.,;:?!"()]++|[.,;:?!"()]|\s"""

# On a million white-space characters in a row tiktoken's stack overflows: a panic, not an exception. So long texts are
# cut before the last of 1000 and more such characters, which no piece of either pattern spans. (\x1c-\x1f are white
# space to Python and not to tiktoken.)
LONG_TEXT = 500_000
LONG_SPACE = re.compile(r"(?=[^\S\x1c-\x1f][\S\x1c-\x1f])(?<=[^\S\x1c-\x1f]{1000})")


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A vocabulary: an id for each of `ranks` (token bytes -> id, in order of merging) and, last, one for `<|endoftext|>`.

    That one is both `bos` and `eos`. Text never gives it: `encode` reads `<|endoftext|>` as ordinary text and adds no BOS or EOS.
    """

    name: str
    pattern: str = field(repr=False)
    ranks: dict[bytes, int] = field(repr=False)

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        return tiktoken.Encoding(
            self.name, pat_str=self.pattern, mergeable_ranks=self.ranks, special_tokens={ENDOFTEXT: len(self.ranks)}
        )

    @property
    def bos(self) -> int:
        return len(self.ranks)

    @property
    def eos(self) -> int:
        return len(self.ranks)

    @property
    def vocab_size(self) -> int:
        return len(self.ranks) + 1

    @cached_property
    def sha256(self) -> str:
        """Returns the hex digest of everything that determines the ids: pattern, ranks and special token, but not the name."""
        rules = {"kind": "tiktoken", "pattern": self.pattern, "special_tokens": {ENDOFTEXT: self.eos}}
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode() + b"\n" + _dump_ranks(self.ranks)).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of `text`. A surrogate pair counts as its character, an unpaired surrogate as U+FFFD."""
        if len(text) < LONG_TEXT:
            return self._encoding.encode_ordinary(text)
        return [i for part in LONG_SPACE.split(text) for i in self._encoding.encode_ordinary(part)]

    def encode_lines(self, lines: Sequence[str]) -> list[np.ndarray]:
        """Encodes each line, without white space at either end, as uint32 arrays (ids,), a fifth faster than one by one."""
        ids = np.array(self.encode("\n".join(lines)), np.uint32)
        ends = np.flatnonzero(ids == self.ranks[b"\n"])
        if len(ends) != len(lines) - 1:
            return [np.array(self.encode(line), np.uint32) for line in lines]
        return [ids[start:end] for start, end in zip([0, *(ends + 1)], [*ends, len(ids)], strict=True)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes each text, on all cores."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self.encode, texts))

    def encode_framed(self, sentences: Iterable[str]) -> np.ndarray:
        """Returns the ids of sentences end to end, each with its BOS and EOS: (tokens,) int32."""
        encoded = self.encode_batch(list(sentences))
        return np.array([i for ids in encoded for i in (self.bos, *ids, self.eos)], np.int32)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Returns the UTF-8 bytes that `ids` stand for. Raises KeyError for an id outside the vocabulary."""
        return self._encoding.decode_bytes([int(i) for i in ids])

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of `ids`, with U+FFFD for bytes that are not UTF-8. BOS and EOS appear as `<|endoftext|>`."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.json` and `ranks.tiktoken` to `folder`, for `load_tokenizer(folder)` on any machine."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        description = FORMAT | {
            "name": self.name,
            "vocab_size": self.vocab_size,
            "bos": self.bos,
            "eos": self.eos,
            "pattern": self.pattern,
            "special_tokens": {ENDOFTEXT: self.eos},
            "sha256": self.sha256,
        }
        text = json.dumps(description, indent=2) + "\n"
        write_files({folder / "ranks.tiktoken": _dump_ranks(self.ranks), folder / "tokenizer.json": text})


def load_tokenizer(spec: str | Path) -> Tokenizer:
    """Loads the tokenizer that `spec` names:

    - "gpt2": GPT-2's, by way of tiktoken, which downloads it on first use and keeps it;
    - a folder with GPT-2's files `vocab.bpe` and `encoder.json`, or others in that format, which are named by their hash; Hugging
      Face's names for them are `merges.txt` and `vocab.json`;
    - a folder written by `Tokenizer.save`, or a token store or run, which has one;
    - a tokenizer.json of Hugging Face's library `tokenizers`, or a folder with one (see `read_ranks`).

    Raises InputError if there is no such tokenizer, if it cannot be downloaded, or if its files are damaged.
    """
    if spec == "gpt2":
        return _download_gpt2()
    folder = Path(spec)
    described = folder if folder.suffix == ".json" and folder.is_file() else folder / "tokenizer.json"
    if described.exists() or (folder / "ranks.tiktoken").exists():
        content = _read(described)
        is_ours = OURS in content or (described.parent / "ranks.tiktoken").exists()
        return _load_saved(described.parent) if is_ours else _named(read_ranks(content, described))
    for encoder, merges in (
        (folder / "encoder.json", folder / "vocab.bpe"),
        (folder / "vocab.json", folder / "merges.txt"),
    ):
        if encoder.exists() or merges.exists():
            return _load_gpt2_files(encoder, merges)
    if (folder / "tokenizer").is_dir():
        return load_tokenizer(folder / "tokenizer")
    raise InputError(f"tokenizer {str(spec)!r}: neither 'gpt2' nor a tokenizer.json, nor a folder with a tokenizer")


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Trains a byte-level BPE of `vocab_size` ids (256 bytes, the merges, `<|endoftext|>`) on `texts`, with GPT-2's pattern.

    A pair that occurs once is not merged. The same texts give the same tokenizer. Raises InputError if the texts do not have as many
    merges as asked for.
    """
    if vocab_size < 257:
        raise InputError(f"vocabulary size {vocab_size}: give at least 257, the 256 bytes and {ENDOFTEXT}")
    try:
        import tokenizers
    except ImportError:
        raise InputError("training a vocabulary needs tokenizers: pip install 'esnlm[text]'") from None

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
        raise InputError(f"vocabulary size {vocab_size}: the text has merges for {len(ranks) + 1} only; ask for fewer")
    return Tokenizer(f"bpe-{vocab_size}", GPT2_PATTERN, ranks)


def word_tokenizer(words: Sequence[str]) -> Tokenizer:
    """Makes a tokenizer of a closed list of words, one id each, and of the 256 bytes, which spell all other pieces.

    A word may begin with a space: " cat" and "cat" are two words. The ids are 0..255 for the bytes, 256.. for `words` in their order,
    and the last for `<|endoftext|>`. A word of a single byte, as ".", is that byte. Raises InputError for one that is no single piece.
    """
    ranks = _byte_ranks()
    for word in words:
        ranks.setdefault(word.encode(), len(ranks))
    tokenizer = Tokenizer("words", WORD_PATTERN, ranks)
    for word in words:
        if tokenizer.encode(word) != [ranks[word.encode()]]:
            raise InputError(f"word {word!r} is not one word: a space goes before it, and punctuation stands alone")
    return tokenizer


def _download_gpt2() -> Tokenizer:
    from tiktoken_ext.openai_public import gpt2

    try:
        ranks = gpt2()["mergeable_ranks"]
    except (OSError, ValueError) as error:
        line = f"tokenizer 'gpt2' cannot be downloaded ({type(error).__name__})"
        raise InputError(f"{line}; name a folder that holds GPT-2's vocab.bpe and encoder.json instead") from error
    return Tokenizer("gpt2", GPT2_PATTERN, ranks)


def _load_gpt2_files(encoder: Path, merges: Path) -> Tokenizer:
    contents = _read(encoder), _read(merges)
    try:
        return _named(read_gpt2(*contents))
    except (KeyError, TypeError, ValueError):
        line = f"{merges.name} and {encoder.name} are damaged or do not belong together"
        raise InputError(f"{encoder.parent}: {line}") from None


def _named(ranks: dict[bytes, int]) -> Tokenizer:
    """Returns the tokenizer of these ranks and GPT-2's pattern, named "gpt2" if it is GPT-2's, else by its hash."""
    tokenizer = Tokenizer("gpt2", GPT2_PATTERN, ranks)
    if tokenizer.sha256 != GPT2_SHA256:
        return Tokenizer(f"bpe-{tokenizer.vocab_size}-{tokenizer.sha256[:8]}", GPT2_PATTERN, ranks)
    return tokenizer


def _load_saved(folder: Path) -> Tokenizer:
    described, ranks = _read(folder / "tokenizer.json"), _read(folder / "ranks.tiktoken")
    try:
        description = json.loads(described)
        tokenizer = Tokenizer(description["name"], description["pattern"], _parse_ranks(ranks))
        if {key: description[key] for key in FORMAT} == FORMAT and description["sha256"] == tokenizer.sha256:
            return tokenizer
    except (KeyError, TypeError, ValueError):
        pass
    raise InputError(f"{folder}: tokenizer.json and ranks.tiktoken are damaged or do not belong together")


def _dump_ranks(ranks: dict[bytes, int]) -> bytes:
    """Returns the ranks in tiktoken's own file format: a line of base64 and rank for each token."""
    ordered = sorted(ranks.items(), key=itemgetter(1))
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ordered)


def _parse_ranks(data: bytes) -> dict[bytes, int]:
    """Reads what `_dump_ranks` wrote."""
    pairs = (line.split(b" ") for line in data.splitlines())
    return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}


def _byte_ranks() -> dict[bytes, int]:
    return {bytes([byte]): byte for byte in range(256)}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; the tokenizer needs it: copy the folder again") from None
