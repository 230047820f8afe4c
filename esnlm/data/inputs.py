"""The inputs of `prepare`: text files, folders, patterns of names, and datasets of Hugging Face."""

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from esnlm.base.console import counted
from esnlm.base.errors import InputError
from esnlm.base.files import file_sha256
from esnlm.data.tables import read_table
from esnlm.data.text_files import (
    COMPRESSED,
    FIELD,
    NOT_TEXT,
    STANDARD_INPUT,
    TABLES,
    holds_documents,
    join_documents,
    kind_of,
    read_chunks,
    read_records,
)

DATASET = "hf:"  # prefix of a dataset's name
# Names of files that are about a corpus, in a folder with its texts.
ABOUT_A_CORPUS = re.compile(r"(readme|licen[cs]e)(\.(md|txt|rst))?", re.IGNORECASE)
# Advice for a record without the field, or whose field holds no string.
NAME_FIELD = "name another field with --field, or leave the file out"  # in `prepare`
FIELD_IS_FIXED = f"records need their text in the field {FIELD!r}"  # in commands without --field

# reads the location and the text of each record
Records = Callable[[], Iterator[tuple[str, object]]]


class Totals(NamedTuple):
    """What the first reading of a text counts."""

    text_size: int  # uncompressed, in bytes of UTF-8
    missing: int  # records that were left out because they have no text


@dataclass(frozen=True)
class TextInput:
    """A text that can be read repeatedly."""

    name: str  # in the manifest: the file's name, or its path relative to the given folder
    path: Path | None = None  # None: a dataset
    records: Records | None = None  # None: plain text
    skip_missing: bool = False  # leave out records without text

    def chunks(self) -> Iterator[str]:
        """Yields the text in pieces of whole lines. Empty lines separate documents."""
        return self._chunks(Counter())

    def _chunks(self, counts: Counter[str]) -> Iterator[str]:
        """Yields the text, and counts the records that are left out in counts["missing"]."""
        if self.records is not None:
            return join_documents(self._records_with_text(self.records(), counts), NAME_FIELD)
        assert self.path is not None, "only datasets have no path, and they have records"
        return read_chunks(self.path)

    def _records_with_text(
        self, records: Iterable[tuple[str, object]], counts: Counter[str]
    ) -> Iterator[tuple[str, object]]:
        """Leaves out and counts the records without text if `skip_missing` is set; otherwise
        rejects the first."""
        for where, text in records:
            if text is not None:
                yield where, text
            elif self.skip_missing:
                counts["missing"] += 1
            else:
                raise InputError(
                    f"{where}: no text; name another field with --field, or leave such records out"
                    " with --skip-missing"
                )

    @cached_property
    def size(self) -> int:
        """The bytes of a file, compressed or not, or of the text of a dataset."""
        return self.totals.text_size if self.path is None else self.path.stat().st_size

    @cached_property
    def totals(self) -> Totals:
        """Reads the text once; of plain text that is not compressed, only the beginning.

        Raises InputError if it is empty or all white space.
        """
        is_compressed = self.path is not None and self.path.suffix.lower() in COMPRESSED
        size_is_known = self.records is None and not is_compressed
        counts: Counter[str] = Counter()
        text_size, is_blank = 0, True
        for text in self._chunks(counts):
            text_size += len(text.encode())
            is_blank = is_blank and not text.strip()
            if size_is_known and not is_blank:
                return Totals(self.size, missing=0)  # no need to read on
        if is_blank:
            raise InputError(f"{self.path or self.name}: empty or all white space; leave it out")
        return Totals(text_size, counts["missing"])

    def sha256(self) -> str:
        """Returns the sha256 of a file's bytes, or of the text of a dataset."""
        if self.path is not None:
            return file_sha256(self.path)
        whole = hashlib.sha256()
        for text in self.chunks():
            whole.update(text.encode())
        return whole.hexdigest()


def find_inputs(
    inputs: str | Path | Iterable[str | Path], text_field: str = FIELD, skip_missing: bool = False
) -> list[TextInput]:
    """Returns the texts of one or more inputs, in order, without reading them.

    Args:
        inputs: a file; a folder, for all its files except hidden ones, sorted by path; a pattern
            such as "corpus/**/*.txt"; or "hf:NAME", "hf:NAME:SPLIT" or
            "hf:NAME:CONFIGURATION:SPLIT" for a dataset of the Hugging Face Hub or in a folder
            (default split: train).
        text_field: the field with the text in JSON lines, Parquet, tables and datasets.
        skip_missing: leave out records without text.
    """
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    files = {item: _files(Path(item)) for item in inputs if not str(item).startswith(DATASET)}
    _require_text(files)
    sources: list[TextInput] = []
    for item in inputs:
        if item not in files:
            sources.append(_dataset(str(item), text_field, skip_missing))
            continue
        for path, name in files[item]:
            name = os.fsencode(name).decode("utf-8", "replace")  # JSON must be UTF-8
            records = _records_of(path, text_field, NAME_FIELD)
            sources.append(TextInput(name, path, records, skip_missing))
    times = Counter(source.path.resolve() for source in sources if source.path is not None)
    if twice := [path for path, count in times.items() if count > 1]:
        raise InputError(f"{twice[0]}: named twice, so its text would count twice; name it once")
    return sources


def read_text(path: Path) -> Iterator[str]:
    """Yields the text of a file in pieces of whole lines, about a megabyte each. Empty lines
    separate documents.

    The text of a record, or of a row of a table, is in its field `text`.
    """
    records = _records_of(path, FIELD, FIELD_IS_FIXED)
    return read_chunks(path) if records is None else join_documents(records(), FIELD_IS_FIXED)


def _records_of(path: Path, text_field: str, advice: str) -> Records | None:
    """Returns a function that reads the records of a file; None for plain text. Messages end in the
    `advice`."""
    if kind_of(path) in TABLES:
        return _TableRecords(path, text_field, advice)
    return partial(read_records, path, text_field, advice) if holds_documents(path) else None


@dataclass
class _TableRecords:
    """Reads the rows of a table as records. The first call checks the texts and warns, as
    `Table.texts` does."""

    path: Path
    text_field: str
    advice: str
    is_checked: bool = False

    def __call__(self) -> Iterator[tuple[str, object]]:
        table = read_table(self.path)
        columns = list(table.rows[0])
        if self.text_field not in columns:
            raise InputError(
                f"{self.path}: no column {self.text_field!r}, only {', '.join(columns)};"
                f" {self.advice}"
            )
        if self.is_checked:
            texts = table.column(self.text_field)
        else:
            texts = table.texts(self.text_field, several_lines=True)
            self.is_checked = True
        for line, text in zip(table.lines, texts, strict=True):
            yield f"{self.path}:{line}", text or None  # a table has no other way to write null


def _require_text(files: Mapping[str | Path, Sequence[tuple[Path, str]]]) -> None:
    """Raises InputError that lists the files whose names show that they are not text to train on.

    `files` are those of each input, as `_files` returns them. An input may itself be a README.
    """
    refused = []
    for item, matches in files.items():
        for path, _ in matches:
            if kind_of(path) in NOT_TEXT:
                refused.append(f"{path} ({NOT_TEXT[kind_of(path)]})")
            elif path != Path(item) and ABOUT_A_CORPUS.fullmatch(path.name):
                refused.append(f"{path} (leave it out)")
    if refused:
        more = f" and {counted(len(refused) - 3, 'other file')}" if len(refused) > 3 else ""
        raise InputError(f"not running text: {', '.join(refused[:3])}{more}")


def _files(item: Path) -> list[tuple[Path, str]]:
    """Returns the files of a path or a pattern, with the name of each."""
    if item.is_file():
        return [(item, item.name)]
    if item == STANDARD_INPUT or (item.exists() and not item.is_dir()):
        raise InputError(
            f"{item}: can be read only once, and prepare needs to read it again; write the text to"
            " a file and give that"
        )
    pattern = f"{glob.escape(str(item))}/**" if item.is_dir() else str(item)
    paths = sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file())
    # macOS adds this folder to ZIP archives
    paths = [path for path in paths if "__MACOSX" not in path.parts]
    if not paths:
        raise InputError(f"{item}: no such file, folder with files, or pattern with matches")
    root = item if item.is_dir() else Path(os.path.commonpath([path.parent for path in paths]))
    return [(path, path.relative_to(root).as_posix()) for path in paths]


def _dataset(name: str, text_field: str, skip_missing: bool) -> TextInput:
    """Opens a split of a dataset: a folder that `datasets` can read, or a name on the Hub."""
    try:
        import datasets
    except ImportError:
        raise InputError(
            f"{name}: reading it needs datasets: pip install 'esnlm[datasets]'"
        ) from None
    path, *rest = name.removeprefix(DATASET).split(":")
    if len(rest) > 2 or not all((path, *rest)):
        raise InputError(f"{name}: give hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIGURATION:SPLIT")
    configuration, split = rest[0] if len(rest) == 2 else None, rest[-1] if rest else "train"
    try:
        if Path(path, "state.json").exists():
            dataset = datasets.load_from_disk(path)  # a single split
        elif Path(path, "dataset_dict.json").exists():
            dataset = datasets.load_from_disk(path)[split]
        else:
            dataset = datasets.load_dataset(path, configuration, split=split)
    except Exception as error:  # the network, the Hub and dataset builders raise any class
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{name}: cannot be loaded: {type(error).__name__}: {reason}") from None
    if text_field not in dataset.column_names:
        there = ", ".join(dataset.column_names)
        raise InputError(
            f"{name}: no field {text_field!r}, only {there}; name one of them with --field"
        )
    dataset = dataset.select_columns([text_field])

    def records() -> Iterator[tuple[str, object]]:
        for number, record in enumerate(dataset, start=1):
            yield f"{name}: record {number}", record[text_field]

    return TextInput(name, records=records, skip_missing=skip_missing)
