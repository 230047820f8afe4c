"""The token store: a prepared corpus on disk, memory-mapped, that is whole or refused.

tokens.bin      the ids of all sentences, BOS and EOS with them, end to end: little-endian uint16, or uint32 where
                the vocabulary has more than 65,535 ids
offsets.npy     (sentences + 1,) int64: sentence i is tokens[offsets[i] : offsets[i + 1]]
words.npy       (sentences,) uint32: words of each sentence's text, split at white space
bytes.npy       (sentences,) uint32: bytes of each sentence's text in UTF-8
tokenizer/      the tokenizer, saved
manifest.json   counts, tokenizer, what the maker of the store has to say, and the sha256 of the four files above
                and of itself (without that entry)
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from esnlm.data.tokenizer import Tokenizer, load_tokenizer
from esnlm.errors import InputError
from esnlm.io.atomic import NewFolder, require_folders_above, writing
from esnlm.io.json_file import parse_json, read_small
from esnlm.io.remote import is_url, store_copy
from esnlm.io.sealed_folder import file_sha256

FORMAT = {"format": "esnlm token store", "version": 1}
MOST_SENTENCES = 1 << 29  # half a billion: their order in an epoch takes 4 GB
# Bytes of a file in a row that take no room on the disk, and are read as zeros. Nothing that a StoreWriter writes has
# any. A copy may have some, where the same byte stands there for long.
LONGEST_HOLE = 1 << 20
ARRAYS = {"offsets.npy": "<i8", "words.npy": "<u4", "bytes.npy": "<u4"}
NAMES = {"manifest.json", "tokens.bin", *ARRAYS, "tokenizer"}  # of all that a store holds


@dataclass(frozen=True, eq=False)
class TokenStore:
    """Gives access to an open store. Its arrays are memory-mapped and read-only."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    tokens: np.ndarray = field(repr=False)  # (all tokens,)
    offsets: np.ndarray = field(repr=False)  # (sentences + 1,)
    words: np.ndarray = field(repr=False)  # (sentences,)
    bytes: np.ndarray = field(repr=False)  # (sentences,)

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yields the sentences in order, each (T,) int32."""
        return (self.sentence(i) for i in range(len(self)))

    @property
    def tokens_sha256(self) -> str:
        """The hash of the tokens, as the manifest says it. The bounds of the sentences, BOS and EOS, are among them."""
        return self.manifest["sha256"]["tokens.bin"]

    @cached_property
    def lengths(self) -> np.ndarray:
        """Counts the tokens of each sentence, BOS and EOS among them: (sentences,) int64."""
        return np.diff(self.offsets)

    def sentence(self, i: int) -> np.ndarray:
        """Returns the ids of sentence i, BOS .. EOS: (T,) int32."""
        i = range(len(self))[i]
        return self.tokens[self.offsets[i] : self.offsets[i + 1]].astype(np.int32)

    def tokenizer(self) -> Tokenizer:
        """Loads the tokenizer that the store was made with, from the store's own copy."""
        tokenizer = load_tokenizer(self.folder / "tokenizer")
        self.require_tokenizer(tokenizer)
        if tokenizer.name != self.manifest["tokenizer"]["name"]:
            raise InputError(
                f"{self.folder / 'tokenizer' / 'tokenizer.json'}: changed since it was made; prepare the store again"
            )
        return tokenizer

    def require_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises InputError if the store was made with another tokenizer."""
        own = self.manifest["tokenizer"]
        if own["sha256"] != tokenizer.sha256:
            raise InputError(
                f"store {self.folder} was made with tokenizer {own['name']} ({own['sha256'][:12]}), "
                f"not {tokenizer.name} ({tokenizer.sha256[:12]}): prepare its text again with that tokenizer"
            )


def open_store(folder: str | Path, verify: bool = True) -> TokenStore:
    """Opens the token store in `folder`, or at a URL, from where it is fetched first (docs/cloud.md).

    Sizes are always checked against the manifest; with `verify` so is the sha256 of every file (about a second for
    100 million words). Raises InputError naming the file that is missing, truncated or changed.
    """
    folder = store_copy(folder) if is_url(folder) else Path(folder)
    manifest = _read_manifest(folder / "manifest.json", verify)
    counts = manifest["counts"]
    _require_few(folder, counts["sentences"])
    dtype = _token_dtype(manifest["tokenizer"]["vocab_size"])
    sizes = {"tokens.bin": counts["tokens"] * dtype.itemsize}
    heads = {name: npy_header(kind, counts["sentences"] + (name == "offsets.npy")) for name, kind in ARRAYS.items()}
    lengths = {name: counts["sentences"] + (name == "offsets.npy") for name in ARRAYS}
    sizes |= {name: len(heads[name]) + lengths[name] * np.dtype(kind).itemsize for name, kind in ARRAYS.items()}

    for name, size in sizes.items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path}: missing; the store is not whole: prepare it again")
        if path.stat().st_size != size:
            raise InputError(f"{path}: {path.stat().st_size} bytes where {size} belong; prepare the store again")
        if verify and (hole := _longest_hole(path)) > LONGEST_HOLE:
            line = f"has {hole:,} bytes in a row that were never written, and at most {LONGEST_HOLE:,} are read"
            raise InputError(f"{path}: {line}; prepare the store again")
    for name in sizes if verify else ():
        if file_sha256(folder / name) != manifest["sha256"][name]:
            line = "changed since it was made (its sha256 differs); prepare the store again"
            raise InputError(f"{folder / name}: {line}")

    for name, head in heads.items():  # the only head that this file can have, so nothing in it is interpreted
        with open(folder / name, "rb") as file:
            if file.read(len(head)) != head:
                raise InputError(
                    f"{folder}: damaged: {name} is not the array that belongs there; prepare the store again"
                )
    tokens = np.memmap(folder / "tokens.bin", dtype, mode="r")
    arrays = [np.memmap(folder / name, kind, "r", len(heads[name]), (lengths[name],)) for name, kind in ARRAYS.items()]
    if verify:
        _check_contents(folder, tokens, arrays[0], manifest["tokenizer"]["vocab_size"])
    return TokenStore(folder, manifest, tokens, *arrays)


class StoreWriter:
    """Writes a token store to `folder`, whole or not at all.

        with StoreWriter(folder, tokenizer) as writer:
            writer.append(tokens, lengths, words, bytes)      # any number of times
            store = writer.finish(sources=...)

    Everything is written to a hidden folder (io/atomic.py), which takes the name `folder` in `finish` and is removed if
    that is not reached.

    Raises InputError if `folder` is not empty, unless `overwrite` is given and it holds a token store.
    """

    def __init__(self, folder: str | Path, tokenizer: Tokenizer, *, overwrite: bool = False) -> None:
        self.folder, self.tokenizer, self.overwrite = Path(folder), tokenizer, overwrite
        refuse_target(self.folder, overwrite)
        try:
            self._new = NewFolder(self.folder)
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror}; name another place") from None
        self._dtype = _token_dtype(tokenizer.vocab_size)
        self._counts = dict.fromkeys(("sentences", "tokens", "words", "bytes"), 0)
        self._files: dict[str, IO[bytes]] = {}
        try:
            with writing(folder):
                tokenizer.save(self._new.path / "tokenizer")
                for name in ("tokens.bin", *ARRAYS):
                    self._files[name] = open(self._new.path / name, "wb")  # noqa: SIM115 (`__exit__` closes it)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        for name, kind in ARRAYS.items():
            self._files[name].write(npy_header(kind, 0))
        self._append("offsets.npy", [0])

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *exception: Any) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # of a full disk, for what is still to be written
                file.close()
        self._new.__exit__(*exception)

    def append(self, tokens: ArrayLike, lengths: ArrayLike, words: ArrayLike, bytes: ArrayLike) -> None:
        """Adds n sentences.

        Args:
            tokens: their ids end to end, each sentence with its BOS and EOS, (sum of lengths,).
            lengths: tokens of each, (n,).
            words, bytes: words and UTF-8 bytes of each sentence's text, (n,).
        """
        tokens, lengths = np.asarray(tokens), np.asarray(lengths, np.int64)
        words, bytes = np.asarray(words), np.asarray(bytes)
        if not len(tokens) == lengths.sum() or not len(lengths) == len(words) == len(bytes):
            raise ValueError(f"{len(tokens)} tokens, {lengths.sum()} by length, {len(words)} words, {len(bytes)} bytes")
        _require_few(self.folder, self._counts["sentences"] + len(lengths))
        with writing(self.folder):
            self._files["tokens.bin"].write(tokens.astype(self._dtype).tobytes())
            self._append("offsets.npy", self._counts["tokens"] + np.cumsum(lengths))
            self._append("words.npy", words)
            self._append("bytes.npy", bytes)
        added = {"sentences": len(lengths), "tokens": len(tokens), "words": np.sum(words), "bytes": np.sum(bytes)}
        self._counts = {name: count + int(added[name]) for name, count in self._counts.items()}

    def finish(self, **manifest: Any) -> TokenStore:
        """Puts the store in its place, with `manifest` added to manifest.json, and opens it."""
        if not self._counts["sentences"]:
            raise InputError(f"{self.folder}: no sentence to store; give more text, or filters that let some pass")
        with writing(self.folder):
            for name, kind in ARRAYS.items():
                self._files[name].seek(0)
                self._files[name].write(npy_header(kind, self._counts["sentences"] + (name == "offsets.npy")))
            for file in self._files.values():
                file.close()
        tokenizer = {name: getattr(self.tokenizer, name) for name in ("name", "vocab_size", "bos", "eos", "sha256")}
        counts = self._counts | {"predicted_tokens": self._counts["tokens"] - self._counts["sentences"]}
        hashes = {name: file_sha256(self._new.path / name) for name in self._files}
        manifest = FORMAT | {"tokenizer": tokenizer, "counts": counts} | manifest | {"sha256": hashes}
        hashes["manifest.json"] = _manifest_sha256(manifest)
        with writing(self.folder):
            (self._new.path / "manifest.json").write_text(
                json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8"
            )
            refuse_target(self.folder, self.overwrite)  # again: it may have come meanwhile
            self._new.commit(replace=self.overwrite)
        return open_store(self.folder, verify=False)

    def _append(self, name: str, values: ArrayLike) -> None:
        self._files[name].write(np.asarray(values).astype(ARRAYS[name]).tobytes())


def refuse_target(folder: Path, overwrite: bool) -> None:
    """Raises InputError if a store must not be written to `folder`: something is there that is not to be lost."""
    require_folders_above(folder)
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: exists and is not a token store; name another place for the store")
    others = sorted({path.name for path in folder.iterdir()} - NAMES)
    if others:
        raise InputError(
            f"{folder}: has {others[0]}, which is not of a token store, and would be lost; name another place for the store"
        )
    if not overwrite:
        raise InputError(f"{folder}: exists; name another place for the store, or ask to overwrite it (--overwrite)")


def _read_manifest(path: Path, verify: bool) -> dict[str, Any]:
    try:
        text = read_small(path)
    except OSError:
        raise InputError(f"{path}: missing; not a token store: make one with python -m esnlm prepare") from None
    try:
        manifest = parse_json(text)
    except ValueError:
        raise InputError(f"{path}: not JSON; the store is damaged: prepare it again") from None
    try:
        known = {key: manifest[key] for key in FORMAT} == FORMAT
        changed = known and verify and manifest["sha256"]["manifest.json"] != _manifest_sha256(manifest)
        known = known and (changed or _is_complete(manifest))
    except (AttributeError, KeyError, TypeError):
        known = False
    if not known:
        raise InputError(f"{path}: not the manifest of a token store of version 1; prepare the store again")
    if changed:
        raise InputError(f"{path}: changed since it was made (its sha256 differs); prepare the store again")
    return manifest


def _is_complete(manifest: dict[str, Any]) -> bool:
    """Says whether everything that a store needs is there, with its type. KeyError and TypeError mean no, too."""
    tokenizer, counts = manifest["tokenizer"], manifest["counts"]
    numbers = [tokenizer["vocab_size"], *(counts[name] for name in ("sentences", "tokens", "words", "bytes"))]
    texts = [tokenizer["name"], tokenizer["sha256"], *(manifest["sha256"][name] for name in ("tokens.bin", *ARRAYS))]
    whole = all(type(number) is int and 0 <= number < 1 << 48 for number in numbers) and counts["sentences"] > 0
    return whole and all(isinstance(text, str) for text in texts)


def _require_few(folder: Path, sentences: int) -> None:
    """Raises InputError for more sentences than a store can have."""
    if sentences > MOST_SENTENCES:
        raise InputError(f"{folder}: {sentences:,} sentences: a store has at most {MOST_SENTENCES:,}: make several")


def _longest_hole(path: Path) -> int:
    """Returns the most bytes in a row for which a file has no room on the disk, 0 where the system cannot tell."""
    longest, end, size = 0, 0, path.stat().st_size
    with open(path, "rb") as file, contextlib.suppress(OSError, AttributeError):
        while end < size and longest <= LONGEST_HOLE:
            start, end = os.lseek(file.fileno(), end, os.SEEK_HOLE), size
            with contextlib.suppress(OSError):  # no data follow: the hole goes up to the end
                end = os.lseek(file.fileno(), start, os.SEEK_DATA)
            longest = max(longest, end - start)
    return longest


def _check_contents(folder: Path, tokens: np.ndarray, offsets: np.ndarray, vocab_size: int) -> None:
    """Raises InputError where a store whose hashes agree was not made by a StoreWriter.

    Nothing later looks at each id, so a wrong one must be found here."""
    if offsets[0] != 0 or offsets[-1] != len(tokens) or np.diff(offsets).min() < 2:
        raise InputError(
            f"{folder / 'offsets.npy'}: not the bounds of sentences in tokens.bin; prepare the store again"
        )
    if tokens.max() >= vocab_size:
        raise InputError(
            f"{folder / 'tokens.bin'}: has the id {tokens.max()} of {vocab_size} ids; prepare the store again"
        )


def _manifest_sha256(manifest: dict[str, Any]) -> str:
    hashes = {name: sha256 for name, sha256 in manifest["sha256"].items() if name != "manifest.json"}
    return hashlib.sha256(json.dumps(manifest | {"sha256": hashes}, sort_keys=True).encode()).hexdigest()


def _token_dtype(vocab_size: int) -> np.dtype:
    return np.dtype("<u2" if vocab_size <= 65_535 else "<u4")


def npy_header(kind: str, length: int) -> bytes:
    """Returns the header of a one-dimensional .npy file. It has as many bytes for any length, so it can be rewritten."""
    head = BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": kind, "fortran_order": False, "shape": (length,)})
    return head.getvalue()
