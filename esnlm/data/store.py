"""The token store: a prepared corpus on disk, memory-mapped and verified.

tokens.bin      the ids of all sentences with BOS and EOS, end to end: little-endian uint16, or
                uint32 if the vocabulary has more than 65,535 ids
offsets.npy     (sentences + 1,) int64: sentence i is tokens[offsets[i] : offsets[i + 1]]
words.npy       (sentences,) uint32: words of each sentence's text, split at white space
bytes.npy       (sentences,) uint32: bytes of each sentence's text in UTF-8
documents.npy   (sentences,) uint32: the document of each sentence, a number that never falls
tokenizer/      the saved tokenizer
manifest.json   counts, tokenizer, values from the maker of the store, and the sha256 of the five
                files above and of itself (without that entry)
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from esnlm.base.errors import InputError
from esnlm.base.files import NewFolder, file_sha256, writing
from esnlm.base.remote import is_url, store_copy
from esnlm.base.versions import check_format
from esnlm.data.tokenizer import Tokenizer, load_tokenizer

FORMAT: dict[str, Any] = {"format": "esnlm token store", "version": 2}
ARRAYS = ("offsets.npy", "words.npy", "bytes.npy", "documents.npy")
NAMES = {"manifest.json", "tokens.bin", *ARRAYS, "tokenizer"}  # all entries of a store
AGAIN = "prepare the store again"


@dataclass(frozen=True, eq=False)
class TokenStore:
    """An open store, whose arrays are memory-mapped and read-only."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    tokens: np.ndarray = field(repr=False)  # (all tokens,)
    offsets: np.ndarray = field(repr=False)  # (sentences + 1,)
    words: np.ndarray = field(repr=False)  # (sentences,)
    bytes: np.ndarray = field(repr=False)  # (sentences,)
    # (sentences,), the number of each sentence's document
    documents: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yields the sentences in order, each (T,) int32."""
        return (self.sentence(i) for i in range(len(self)))

    @property
    def tokens_sha256(self) -> str:
        """The sha256 of the tokens. It covers sentence bounds, since tokens include BOS and EOS."""
        return self.manifest["sha256"]["tokens.bin"]

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each sentence, BOS and EOS included: (sentences,) int64."""
        return np.diff(self.offsets)

    def sentence(self, i: int) -> np.ndarray:
        """Returns the ids of sentence i, BOS .. EOS: (T,) int32."""
        i = range(len(self))[i]
        return self.tokens[self.offsets[i] : self.offsets[i + 1]].astype(np.int32)

    def tokenizer(self) -> Tokenizer:
        """Loads the store's copy of its tokenizer."""
        tokenizer = load_tokenizer(self.folder / "tokenizer")
        self.check_tokenizer(tokenizer)
        return tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises InputError if the store has another tokenizer."""
        name, sha256 = self.manifest["tokenizer"]["name"], self.manifest["tokenizer"]["sha256"]
        if sha256 != tokenizer.sha256:
            raise InputError(
                f"store {self.folder} was made with tokenizer {name} ({sha256[:12]}), not"
                f" {tokenizer.name} ({tokenizer.sha256[:12]}): prepare its text again"
            )


def open_store(folder: str | Path, verify: bool = True) -> TokenStore:
    """Opens the token store in `folder`, or at a URL, from which it is downloaded first.

    Always checks sizes against the manifest, and with `verify` also the sha256 of every file (about
    a second for 100 million words). Raises InputError naming the file that is missing, truncated or
    changed.
    """
    folder = store_copy(folder) if is_url(folder) else Path(folder)
    manifest = _read_manifest(folder / "manifest.json", verify)
    sentences, tokens = manifest["counts"]["sentences"], manifest["counts"]["tokens"]
    dtype = token_dtype(manifest["tokenizer"]["vocab_size"])
    arrays: dict[str, np.ndarray] = {}
    lengths = (
        {"tokens.bin": tokens} | dict.fromkeys(ARRAYS, sentences) | {"offsets.npy": sentences + 1}
    )
    for name, length in lengths.items():
        path = folder / name
        try:
            is_changed = verify and file_sha256(path) != manifest["sha256"][name]
            arrays[name] = (
                np.memmap(path, dtype, "r")
                if name == "tokens.bin"
                else np.load(path, mmap_mode="r")
            )
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path}: missing or damaged ({error}); {AGAIN}") from None
        if is_changed or len(arrays[name]) != length:
            raise InputError(f"{path}: changed since it was made; {AGAIN}")
    return TokenStore(folder, manifest, *arrays.values())


class StoreWriter(NewFolder):
    """Writes a token store to `folder`, completely or not at all.

        with StoreWriter(folder, tokenizer) as writer:
            writer.append(tokens, lengths, words, bytes, documents)      # any number of times
            store = writer.finish(sources=...)

    `finish` renames a hidden folder to `folder`; without `finish`, it is removed. Raises InputError
    if `folder` is not empty, unless `overwrite` is given and it holds a token store.
    """

    def __init__(
        self, folder: str | Path, tokenizer: Tokenizer, *, overwrite: bool = False
    ) -> None:
        self.folder, self.tokenizer, self.overwrite = Path(folder), tokenizer, overwrite
        check_target(self.folder, overwrite)
        # the length, words, bytes and document of each sentence
        self._columns = [np.zeros((4, 0), "<u4")]
        with writing(self.folder):
            super().__init__(self.folder)
            self._file = open(self.path / "tokens.bin", "wb")  # noqa: SIM115 (`__exit__` closes it)

    def __exit__(self, *exception: Any) -> None:
        with contextlib.suppress(OSError):  # a full disk, which an earlier write has reported
            self._file.close()
        super().__exit__(*exception)

    def append(
        self,
        tokens: ArrayLike,
        lengths: ArrayLike,
        words: ArrayLike,
        bytes: ArrayLike,
        documents: ArrayLike,
    ) -> None:
        """Adds sentences: their ids end to end, and the length, words, bytes, document of each."""
        ids = np.asarray(tokens).astype(token_dtype(self.tokenizer.vocab_size))
        with writing(self.folder):
            self._file.write(ids.tobytes())
        self._columns.append(np.array([lengths, words, bytes, documents]).astype("<u4"))

    def finish(self, **manifest: Any) -> TokenStore:
        """Completes the store, with `manifest` added to manifest.json, and opens it."""
        lengths, words, sizes, documents = np.concatenate(self._columns, axis=1)
        offsets = np.append(0, np.cumsum(lengths, dtype="<i8"))
        sentences, tokens = len(lengths), int(offsets[-1])
        if not sentences:
            raise InputError(
                f"{self.folder}: no sentence to store; give more text, or relax the filters"
            )
        counts = {
            "sentences": sentences,
            "tokens": tokens,
            "words": int(words.sum(dtype=np.int64)),
            "bytes": int(sizes.sum(dtype=np.int64)),
            "predicted_tokens": tokens - sentences,
        }
        tokenizer = {
            name: getattr(self.tokenizer, name)
            for name in ("name", "vocab_size", "bos", "eos", "sha256")
        }
        with writing(self.folder):
            self._file.close()
            self.tokenizer.save(self.path / "tokenizer")
            for name, array in zip(ARRAYS, (offsets, words, sizes, documents), strict=True):
                np.save(self.path / name, array)
            hashes = {name: file_sha256(self.path / name) for name in ("tokens.bin", *ARRAYS)}
            manifest = (
                FORMAT | {"tokenizer": tokenizer, "counts": counts} | manifest | {"sha256": hashes}
            )
            hashes["manifest.json"] = _manifest_sha256(manifest)
            text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
            (self.path / "manifest.json").write_text(text, "utf-8")
            check_target(self.folder, self.overwrite)  # again, since the folder may be new
            self.commit(replace=self.overwrite)
        return open_store(self.folder, verify=False)


def check_target(folder: Path, overwrite: bool) -> None:
    """Raises InputError if writing a store to `folder` would destroy other data."""
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / "manifest.json").is_file() or {path.name for path in folder.iterdir()} - NAMES:
        raise InputError(
            f"{folder}: holds other files than a token store; name another folder for the store"
        )
    if not overwrite:
        raise InputError(
            f"{folder}: exists; name another folder for the store, or replace it with --overwrite"
        )


def _read_manifest(path: Path, verify: bool) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != FORMAT["format"]:
            raise ValueError("it describes something else")
        version = manifest["version"]
        # Another format may compute the sha256 in another way, and is rejected below.
        verify = verify and version == FORMAT["version"]
        if verify and manifest["sha256"]["manifest.json"] != _manifest_sha256(manifest):
            raise ValueError("changed since it was made")
    except OSError:
        raise InputError(
            f"{path}: missing; not a token store: make one with esnlm prepare"
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not the manifest of a token store ({error}); {AGAIN}") from None
    check_format(path.parent, version, FORMAT["version"], AGAIN)
    return manifest


def _manifest_sha256(manifest: dict[str, Any]) -> str:
    hashes = {
        name: sha256 for name, sha256 in manifest["sha256"].items() if name != "manifest.json"
    }
    return hashlib.sha256(
        json.dumps(manifest | {"sha256": hashes}, sort_keys=True).encode()
    ).hexdigest()


def token_dtype(vocab_size: int) -> np.dtype:
    """Returns the dtype of ids in tokens.bin."""
    return np.dtype("<u2" if vocab_size <= 65_535 else "<u4")
