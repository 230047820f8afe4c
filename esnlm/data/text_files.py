"""Reads and checks text files, a megabyte at a time: plain text, JSON lines and Parquet, compressed
or not.

Suffixes give the format. `.gz`, `.bz2`, `.xz` and `.zst` are decompressed. Of the remaining names,
`.jsonl`, `.ndjson` and `.parquet` hold documents, each in a field of a record; `.csv` and `.tsv`
are tables (tables.py); those of NOT_TEXT are rejected. All others are plain text.
"""

import bz2
import codecs
import gzip
import importlib
import json
import lzma
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from esnlm.base.errors import InputError

CHUNK = 1 << 20  # bytes
COMPRESSED = {".gz", ".bz2", ".xz", ".zst"}
RECORDS = {".jsonl", ".ndjson", ".parquet"}
TABLES = {".csv", ".tsv"}
# Suffixes of files whose characters are not all running text, and how to make text of them.
NOT_TEXT = {".json": "write plain text or JSON Lines (.jsonl)"}
NOT_TEXT |= dict.fromkeys((".conllu", ".conll"), "write its sentences as plain text, one per line")
NOT_TEXT |= dict.fromkeys(
    (".html", ".htm", ".xml", ".rtf", ".pdf", ".docx"), "write its text to a plain text file"
)
NOT_TEXT |= dict.fromkeys((".zip", ".tar"), "unpack it")
NOT_TEXT |= dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".svg"), "leave it out")
FIELD = "text"  # default field of a record with the text
STANDARD_INPUT = Path("-")  # can be read only once
EMPTY_LINES = re.compile(r"\n\s*\n")  # within a document, where they only separate paragraphs


def read_chunks(path: Path) -> Iterator[str]:
    r"""Yields the decompressed content of a text file in pieces of whole lines, about a megabyte
    each.

    Converts line ends (\n, \r\n, \r) to \n and drops a byte order mark.
    """
    if (advice := NOT_TEXT.get(kind_of(path))) is not None:
        raise InputError(f"{path}: not plain text; {advice}")
    return _decode(_read_blocks(path), str(path))


def read_records(path: Path, field: str, advice: str) -> Iterator[tuple[str, object]]:
    """Yields the location and the value of `field` of each record of JSON lines or Parquet.

    If there is no such field, the message ends in the caller's `advice`.
    """
    read = _parquet_records if kind_of(path) == ".parquet" else _json_records
    return read(path, field, advice)


def read_whole_text(path: Path) -> str:
    """Returns the whole text of a file of any kind, decompressed, with line ends as in
    `read_chunks`."""
    return "".join(_decode(_read_blocks(path), str(path)))


def split_lines(text: str) -> list[str]:
    """Returns the non-blank lines of a chunk, without white space at either end."""
    return [line for line in map(str.strip, text.split("\n")) if line]


def read_lines(path: Path) -> list[str]:
    """Returns all lines of a text file, including blank ones, without white space at either end."""
    if kind_of(path) in RECORDS | TABLES:
        raise InputError(f"{path}: holds records; give plain text with one sentence per line")
    text = "".join(read_chunks(path))
    return [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []


def kind_of(path: Path) -> str:
    """Returns the suffix of the decompressed file: .jsonl for a.jsonl.gz."""
    return without_compression(path).suffix.lower()


def without_compression(path: Path) -> Path:
    """Returns the path of the decompressed file: a.jsonl for a.jsonl.gz."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def holds_documents(path: Path) -> bool:
    """Returns whether a file, compressed or not, holds records with one document each."""
    return kind_of(path) in RECORDS


def join_documents(records: Iterable[tuple[str, object]], advice: str) -> Iterator[str]:
    """Joins documents, pairs (location, text), to chunks of about a megabyte, with empty lines
    between documents.

    If a text is not a string, the message ends in the caller's `advice`.
    """
    group, size = [], 0
    for where, text in records:
        if text is None:
            raise InputError(f"{where}: no text; {advice}")
        if not isinstance(text, str):
            raise InputError(
                f"{where}: its text is a {type(text).__name__}, not a string; {advice}"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{where}: has an unpaired surrogate, which is not valid text"
            ) from None
        group.append(EMPTY_LINES.sub("\n", _one_line_end(text)))
        size += len(group[-1])
        if size > CHUNK:
            yield "\n\n".join([*group, ""])
            group, size = [], 0
    if group:
        yield "\n\n".join([*group, ""])


def _json_records(path: Path, field: str, advice: str) -> Iterator[tuple[str, object]]:
    lines = (line for chunk in read_chunks(path) for line in chunk.removesuffix("\n").split("\n"))
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield f"{path}:{number}", json.loads(line)[field]
        except ValueError as error:
            raise InputError(
                f"{path}:{number}: not JSON ({error}); give one object per line"
            ) from None
        except (KeyError, TypeError):
            raise InputError(f"{path}:{number}: no field {field!r}; {advice}") from None


def _parquet_records(path: Path, field: str, advice: str) -> Iterator[tuple[str, object]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow: pip install 'esnlm[parquet]'"
        ) from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if field not in names:
                raise InputError(f"{path}: no field {field!r}, only {', '.join(names)}; {advice}")
            rows = 0
            for batch in file.iter_batches(batch_size=1000, columns=[field]):
                for row, text in enumerate(batch.column(0).to_pylist(), start=rows + 1):
                    yield f"{path}: row {row}", text
                rows += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: damaged, or not a Parquet file ({error}); copy it again"
        ) from None


def _read_blocks(path: Path) -> Iterator[bytes]:
    """Yields the decompressed content of a file or of standard input, in blocks of a megabyte."""
    try:
        with _open(path) as file:
            while block := file.read(CHUNK):
                yield block
    except InputError:
        raise
    except Exception as error:  # each format raises its own class for damage
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        raise InputError(
            f"{path}: damaged, or not the format of its name ({error}); copy it again"
        ) from None


def _open(path: Path) -> Any:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    if path.suffix.lower() != ".zst":
        return openers.get(path.suffix.lower(), open)(path, "rb")
    try:
        zstd = importlib.import_module(
            "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        )
    except ImportError:
        raise InputError("reading .zst needs backports.zstd: pip install 'esnlm[zstd]'") from None
    return zstd.open(path)


def _decode(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    encoding, rest = "utf-8-sig", b""  # rest: read but not yielded yet
    for block in blocks:
        data = rest + block
        # a \r at the end may be half of a \r\n
        end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1))
        rest = data[end:]
        if end:
            yield _decoded(data[:end], encoding, name)
            encoding = "utf-8"
    if rest:
        yield _decoded(rest, encoding, name)


def _decoded(data: bytes, encoding: str, name: str) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        # bytes that UTF-8 never has
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError(
                f"{name}: not UTF-8 but UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"
            ) from None
        raise InputError(f"{name}: not UTF-8 text ({error}); give plain text in UTF-8") from None
    if "\0" in text:
        raise InputError(f"{name}: not text (it has a byte 0); give plain text in UTF-8")
    return _one_line_end(text)


def _one_line_end(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
