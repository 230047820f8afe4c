"""Reads text files, compressed or not, a megabyte at a time, and warns of oddities in their text.

Suffixes give the format. `.gz`, `.bz2`, `.xz` and `.zst` are decompressed. Of the remaining names,
`.jsonl`, `.ndjson` and `.parquet` hold a document per record (inputs.py); `.csv` and `.tsv` are
tables (tables.py); those of NOT_TEXT are rejected. All others are plain text.
"""

import bz2
import codecs
import gzip
import json
import lzma
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from esnlm.base.console import counted, warn
from esnlm.base.errors import InputError, import_extra

CHUNK = 1 << 20  # bytes
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
STANDARD_INPUT = Path("-")  # can be read only once


def kind_of(path: Path) -> str:
    """Returns the suffix of the decompressed file: .jsonl for a.jsonl.gz."""
    return without_compression(path).suffix.lower()


def without_compression(path: Path) -> Path:
    """Returns the path of the decompressed file: a.jsonl for a.jsonl.gz."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def check_is_text(path: Path) -> None:
    """Raises InputError if the name of a file shows that it is not text."""
    if kind_of(path) in NOT_TEXT:
        raise InputError(f"{path}: not plain text; {NOT_TEXT[kind_of(path)]}")


def read_chunks(path: Path) -> Iterator[str]:
    r"""Yields the decompressed text of a file of any kind in chunks of whole lines.

    Converts line ends (\n, \r\n, \r) to \n and drops a byte order mark.
    """
    encoding, rest = "utf-8-sig", b""  # rest: read but not yielded yet
    for block in _read_blocks(path):
        data = rest + block
        # a \r at the end may be half of a \r\n
        end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1))
        rest = data[end:]
        if end:
            yield _decode(data[:end], encoding, path)
            encoding = "utf-8"
    if rest:
        yield _decode(rest, encoding, path)


def read_text(path: Path) -> str:
    """Returns the whole text of a file, as `read_chunks` reads it."""
    return "".join(read_chunks(path))


def read_lines(path: Path) -> list[str]:
    """Returns all lines of a text file, including blank ones, without white space at either end."""
    if kind_of(path) in RECORDS | TABLES:
        raise InputError(f"{path}: holds records; give plain text with one sentence per line")
    check_is_text(path)
    text = read_text(path)
    return [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []


def parse_json_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number and the object of each line of `path` that is not blank."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(
                f"{path}:{number}: not JSON ({error}); give one object per line"
            ) from None
        if not isinstance(record, dict):
            raise InputError(f"{path}:{number}: not a JSON object; give one per line")
        yield number, record


def unify_line_ends(text: str) -> str:
    r"""Converts \r\n and \r to \n."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _open_zst(path: Path, mode: str) -> Any:
    module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return import_extra(module, f"{path}: reading .zst", "zstd").open(path, mode)


COMPRESSED: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}


def _read_blocks(path: Path) -> Iterator[bytes]:
    """Yields the decompressed content of a file or of standard input, in blocks of a megabyte."""
    opener = COMPRESSED.get(path.suffix.lower(), open)
    try:
        with sys.stdin.buffer if path == STANDARD_INPUT else opener(path, "rb") as file:
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


def _decode(data: bytes, encoding: str, path: Path) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        # bytes that UTF-8 never has
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError(
                f"{path}: not UTF-8 but UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"
            ) from None
        raise InputError(f"{path}: not UTF-8 text ({error}); give plain text in UTF-8") from None
    if "\0" in text:
        raise InputError(f"{path}: not text (it has a byte 0); give plain text in UTF-8")
    return unify_line_ends(text)


# Oddities: probable mistakes in a text, which is read as it is.

# Unmistakable marks of other tools anywhere; other marks only as a whole line, since within a line
# they may be text.
MARK = re.compile(
    r"<\|(?:endoftext|endofdoc|startoftext|begin_of_text|end_of_text|im_start|im_end|eot_id|end)\|>"
    r"|^[^\S\n]*(?:</?s>|<(?:bos|eos|pad|sep|cls)>|\[(?:bos|eos|pad|sep|cls)\])(?=[^\S\n]*$)",
    re.IGNORECASE | re.MULTILINE,
)
# Invisible or replacement characters, unpaired surrogates, and control characters except white
# space. Each has its own tokens, which make the words beside it improbable.
INVISIBLE = re.compile(
    "[\ufeff\u200b\u200e\u200f\u00ad\ufffd\ud800-\udfff\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"
)
UNNAMED = {"Cc": "CONTROL CHARACTER", "Cs": "UNPAIRED SURROGATE"}  # by Unicode category
# [ours] Minimum share of characters that NFC would join to the letters before them; fewer may be
# single signs.
FEW = 1e-4


class Oddities:
    """Counts the oddities of texts, chunk by chunk."""

    def __init__(self) -> None:
        self.marks: Counter[tuple[str, str]] = Counter()  # by name of the text, and mark
        self.invisible: Counter[tuple[str, str]] = Counter()  # by name of the text, and character
        self.decomposed: dict[str, None] = {}  # names of texts not in NFC, in order

    def note(self, text: str, name: str) -> None:
        """Counts the oddities in a chunk of the text `name`."""
        self.marks.update((name, match[0].strip()) for match in MARK.finditer(text))
        self.invisible.update((name, match[0]) for match in INVISIBLE.finditer(text))
        if len(text) - len(unicodedata.normalize("NFC", text)) > FEW * len(text):
            self.decomposed[name] = None

    def warn(self) -> None:
        """Prints a warning for each kind of oddity."""
        if self.marks:
            name, mark = next(iter(self.marks))
            times = counted(self.marks.total(), "time")
            warn(
                f"{name}: marks such as {mark!r} are read as text, {times}; replace them by empty"
                " lines"
            )
        if self.invisible:
            name, character = next(iter(self.invisible))
            times = counted(self.invisible.total(), "time")
            warn(
                f"{name}: invisible characters, such as {code_point(character)}, {times}: remove"
                " them"
            )
        if self.decomposed:
            warn(
                f"{', '.join(self.decomposed)}: not in Unicode form NFC: words have other tokens"
                " than in NFC"
            )


def code_point(character: str) -> str:
    """Formats a character with its number and name, as "U+FEFF (ZERO WIDTH NO-BREAK SPACE)"."""
    name = unicodedata.name(character, UNNAMED.get(unicodedata.category(character), "UNNAMED"))
    return f"U+{ord(character):04X} ({name})"
