"""Text files to checked lines, a megabyte at a time: plain ones, compressed ones, JSON lines and Parquet.

A file's name says what it is, in small letters or in capitals. `.gz`, `.bz2`, `.xz` and `.zst` are decompressed. What is then called `.jsonl`, `.ndjson` or
`.parquet` holds documents, each in a field of a record. All else is plain text.
"""

import bz2
import gzip
import io
import lzma
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from esnlm.data.markers import Oddities
from esnlm.errors import InputError, require
from esnlm.io.console import warn
from esnlm.io.json_file import parse_json

CHUNK = 1 << 20  # bytes
LONGEST_LINE = 4 << 20  # bytes; a line is split as a whole
LONGEST_RECORD = 64 << 20  # bytes of a line of JSON, which may hold a book
RECORDS = {".jsonl", ".ndjson"}
# How JSON begins that holds text: an object, alone or the first of an array, or an array of strings.
JSON = re.compile(r"""(?:\[\s*)?\{\s*"(?:[^"\\]|\\.)*"\s*:|\[\s*"(?:[^"\\]|\\.)*"\s*[,\]]""")
MARKED = {".csv", ".tsv", ".conllu", ".xml", ".html", ".htm", ".md"}  # suffixes of files that hold more than a text
FIELD = "text"  # of a record, where none is named

Seen = Callable[[bytes], object]


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _ignore(block: bytes) -> None:
    pass


def read_chunks(path: Path, seen: Seen = _ignore, field: str = FIELD) -> Iterator[str]:
    """Yields the text of a file in pieces of about a megabyte that end where lines end.

    Line ends (\\n, \\r\\n, \\r) all become \\n; a byte order mark at the start is dropped. Documents of JSON lines and
    Parquet are kept apart by an empty line.

    Args:
        path: the file.
        seen: is called with each block of the file's bytes as it is read, for a hash or a count.
        field: the field of a record that holds the text.

    Raises:
        InputError: the file cannot be read, is damaged or ends early, is not UTF-8 text, has a line longer than 4 MB, or a
            record has no such field. The line names the file, and where it can the line in it.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        kind = kind_of(path)
        if kind == ".parquet":
            while seen is not _ignore and (block := file.read(CHUNK)):
                seen(block)
            yield from join_documents(_parquet_documents(path, field))
        elif is_compressed(path):
            watched = _Watched(file, seen)
            content = _decompressed(watched, path)
            yield from _texts(content, str(path), _ignore, kind, field)
            while watched.read(CHUNK):  # what stands after the end of the compressed text
                pass
        else:
            yield from _texts(file, str(path), seen, kind, field)


def read_stream(file: BinaryIO, name: str, seen: Seen = _ignore) -> Iterator[str]:
    """Yields the plain text of an open file, called `name` in errors, as `read_chunks` does."""
    return _chunks(file, name, seen, LONGEST_LINE)


def split_lines(text: str) -> list[str]:
    """Returns the lines of a chunk that are not blank, without white space at either end."""
    return [line for line in map(str.strip, text.split("\n")) if line]


def read_text(path: Path | None) -> str:
    """Returns the whole text of a file, or of standard input for None; see `read_chunks`."""
    require(bool(path) or sys.stdin is not None, "standard input is closed: name a file with --input")
    return "".join(read_chunks(path) if path else read_stream(sys.stdin.buffer, "standard input"))


def read_lines(path: Path | None, tells_of_marks: bool = True) -> list[str]:
    """Returns all lines of a text file, or of standard input for None, without white space at either end.

    Blank lines are kept, so that line i of the outcome is line i of a plain file. With `tells_of_marks`
    it warns of marks of other tools and of text that is not in NFC.

    Raises InputError where the file cannot be read, is not UTF-8 text, or holds documents, which have no lines to count.
    """
    require(
        path is None or not holds_documents(path),
        f"{path}: holds documents, and lines of plain text are read here; write a sentence a line, or give a table (.tsv, .csv)",
    )
    text = read_text(path)
    require_sentences(path, text)
    if tells_of_marks:
        oddities = Oddities()
        oddities.note(text)
        oddities.warn(str(path or "standard input"))
    return [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []


def require_sentences(path: Path | None, text: str) -> None:
    """Raises InputError where a text that is to have a sentence a line is JSON. Warns where its name is that of a table or the like.

    Args:
        path: the file; None: standard input.
        text: its first lines, or all of it.
    """
    found = looks_like_records(path, text.lstrip())
    require(not found, f"{path or 'standard input'}: JSON, whose keys would be read as words; write a sentence a line")
    if path is not None and kind_of(path) in MARKED:
        warn(
            f"{path}: each line is read as a sentence, with all marks and separators; write a sentence a line to a .txt"
        )


def looks_like_records(path: Path | None, beginning: str) -> bool:
    """Tells whether a text is JSON, by its name or by how it begins.

    Args:
        path: of a file.
        beginning: of its text, without white space before it.
    """
    name = "" if path is None else path.name.lower()
    return bool(JSON.match(beginning)) or name.endswith((".json", *(f".json{each}" for each in COMPRESSIONS)))


def is_plain(path: Path) -> bool:
    """Tells whether the bytes of a file are its text."""
    return not is_compressed(path) and not holds_documents(path)


def is_compressed(path: Path) -> bool:
    """Tells whether a file's name says that its bytes are compressed."""
    return path.suffix.lower() in COMPRESSIONS


def kind_of(path: Path) -> str:
    """Returns the suffix of what is in the file: of a.jsonl.gz it is .jsonl."""
    return (Path(path.stem).suffix if is_compressed(path) else path.suffix).lower()


def holds_documents(path: Path) -> bool:
    """Tells whether a file, compressed or not, holds records with a document in each."""
    return kind_of(path) in {*RECORDS, ".parquet"}


def join_documents(documents: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Yields documents in chunks of about a megabyte, with an empty line between them.

    Args:
        documents: where each stands, for an error, and its text.

    Raises:
        InputError: a document is no text, or a line of it is longer than 4 MB.
    """
    group, size = [], 0
    for where, text in documents:
        if not isinstance(text, str):
            raise InputError(
                f"{where}: its text is a {type(text).__name__}, not a string: esnlm prepare takes another field with --field"
            )
        if "\0" in text:
            raise InputError(f"{where}: not a text: it has a character 0x00; give plain text")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"{where}: not a text: it has half a surrogate pair; give plain text") from None
        text = _one_line_end(text)
        if len(text) > LONGEST_LINE // 4 and max(len(line.encode()) for line in text.split("\n")) > LONGEST_LINE:
            raise InputError(f"{where}: {_too_long()}")
        group.append(text)
        size += len(text)
        if size > CHUNK:
            yield "\n\n".join([*group, ""])
            group, size = [], 0
    if group:
        yield "\n\n".join([*group, ""])


def _texts(content: Readable, name: str, seen: Seen, kind: str, field: str) -> Iterator[str]:
    if kind in RECORDS:
        return join_documents(_json_documents(_chunks(content, name, seen, LONGEST_RECORD), name, field))
    return _chunks(content, name, seen, LONGEST_LINE)


def _json_documents(chunks: Iterable[str], name: str, field: str) -> Iterator[tuple[str, object]]:
    number = 0
    for chunk in chunks:
        for line in chunk.removesuffix("\n").split("\n"):
            number += 1
            if not line.strip():
                continue
            where = f"{name}:{number}"
            try:
                record = parse_json(line)
            except ValueError as error:
                raise InputError(f"{where}: not JSON ({error}); give one object a line") from None
            if not isinstance(record, dict):
                raise InputError(f"{where}: a JSON {type(record).__name__}; give one object a line")
            if field not in record:
                raise InputError(f"{where}: no field {field!r}; {_choice(record)}")
            yield where, record[field]


def _parquet_documents(path: Path, field: str) -> Iterator[tuple[str, object]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(f"{path}: reading Parquet needs pyarrow: pip install 'esnlm[parquet]'") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if field not in file.schema_arrow.names:
                raise InputError(f"{path}: no field {field!r}; {_choice(file.schema_arrow.names)}")
            number = 0
            for batch in file.iter_batches(batch_size=1000, columns=[field]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    yield f"{path}: record {number}", text
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: damaged, or no Parquet file ({reason}); copy it again") from None


def _choice(names: Iterable[str]) -> str:
    return f"there are {', '.join(names)}: esnlm prepare takes one of them with --field, other commands take {FIELD!r}"


class _Watched(io.RawIOBase):
    """A file that tells what is read of it."""

    def __init__(self, file: BinaryIO, seen: Seen) -> None:
        self._file, self._seen = file, seen

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._file.read(len(buffer))
        self._seen(block)
        buffer[: len(block)] = block
        return len(block)


class _Decompressed:
    """A compressed file that reads as its content, and whose faults are one line."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path = file, path

    def read(self, size: int, /) -> bytes:
        try:
            return self._file.read(size)
        except EOFError:
            raise InputError(f"{self._path}: ends early, in the midst of the compressed text; copy it again") from None
        except Exception as error:  # each format has a class of its own for damage
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk, not of the content
            reason = " ".join(str(error).split())
            raise InputError(f"{self._path}: damaged, or not what its name says ({reason}); copy it again") from None


def _decompressed(file: _Watched, path: Path) -> _Decompressed:
    return _Decompressed(COMPRESSIONS[path.suffix.lower()](io.BufferedReader(file, CHUNK)), path)


def _open_zstd(file: BinaryIO) -> Any:
    return _zstd().ZstdFile(file)


def _zstd() -> Any:
    """Returns the module for Zstandard, which Python has from 3.14 on."""
    try:
        from compression import zstd
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise InputError("reading .zst needs backports.zstd: pip install 'esnlm[zstd]'") from None
    return zstd


class _Streams:
    """Compressed streams, one after another, that read as their content.

    Python's own BZ2File and LZMAFile take what is no stream, behind one that is, for the end: a damaged byte would end the text there.
    """

    def __init__(self, file: BinaryIO, decompressor: Callable[[], Any], padding: bytes = b"") -> None:
        """
        Args:
            file: the compressed streams.
            decompressor: makes one for each stream.
            padding: bytes that may stand between two streams.
        """
        self._file, self._make, self._padding = file, decompressor, padding
        self._stream = decompressor()

    def read(self, size: int, /) -> bytes:
        while True:
            if self._stream.eof:
                rest = self._stream.unused_data.lstrip(self._padding)
                while not rest:
                    block = self._file.read(CHUNK)
                    if not block:
                        return b""
                    rest = block.lstrip(self._padding)
                self._stream = self._make()
                found = self._stream.decompress(rest, size)
            else:
                block = self._file.read(CHUNK) if self._stream.needs_input else b""
                if self._stream.needs_input and not block:
                    raise EOFError
                found = self._stream.decompress(block, size)
            if found:
                return found


COMPRESSIONS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": lambda file: _Streams(file, bz2.BZ2Decompressor, padding=b"\0"),
    ".xz": lambda file: _Streams(file, lzma.LZMADecompressor, padding=b"\0"),
    ".zst": _open_zstd,
}


def _chunks(file: Readable, name: str, seen: Seen, longest: int) -> Iterator[str]:
    offset, line, rest = 0, 1, b""  # rest: what is read and not yielded; it begins at byte `offset`, in line `line`
    while block := file.read(CHUNK):
        seen(block)
        data = rest + block
        end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1))  # a \r at the very end may be half of a \r\n
        if end:
            text = _decode(data[:end], name, offset, line)
            line += text.count("\n")
            yield text
        offset, rest = offset + end, data[end:]
        if len(rest) > longest:
            raise InputError(f"{name}:{line}: {_too_long(longest)}")
    if rest:
        yield _decode(rest, name, offset, line)


def _too_long(longest: int = LONGEST_LINE) -> str:
    return f"longer than {longest >> 20} MB; put one paragraph or one sentence on a line"


def _decode(data: bytes, name: str, offset: int, line: int) -> str:
    """Decodes `data`, which begins at byte `offset`, in line `line`, of the file called `name`."""
    wrong, at = "not UTF-8", data.find(b"\0")
    if at >= 0:
        wrong = "not a text file"
    else:
        try:
            text = _one_line_end(data.decode())
            return text.removeprefix("\ufeff") if offset == 0 else text
        except UnicodeDecodeError as error:
            at = error.start
    line += _one_line_end(data[:at].decode("latin-1")).count("\n")
    raise InputError(f"{name}:{line}: {wrong}: 0x{data[at]:02x} at byte {offset + at}; give plain text in UTF-8")


def _one_line_end(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
