"""The inputs of `prepare`: text files, folders, patterns of names, and datasets of Hugging Face."""

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

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
from esnlm.errors import InputError
from esnlm.io.console import counted
from esnlm.io.sealed_folder import file_sha256

DATASET = "hf:"  # prefix of a dataset's name
ABOUT_A_CORPUS = re.compile("readme|^licen[cs]e", re.IGNORECASE)  # names of files that are not part of it

Records = Callable[[], Iterator[tuple[str, object]]]  # reads the location and the text of each record


@dataclass(frozen=True)
class TextInput:
    """A text that can be read repeatedly."""

    name: str  # in the manifest: the file's name, or its path relative to the given folder
    size: int  # bytes, compressed for a compressed file
    path: Path | None = None  # None: a dataset
    records: Records | None = None  # None: plain text
    skip_missing: bool = False  # leave out records without text

    def chunks(self) -> Iterator[str]:
        """Yields the text in pieces of whole lines. Empty lines separate documents."""
        if self.records is not None:
            return join_documents(self.records(), self.skip_missing)
        assert self.path is not None, "only datasets have no path, and they have records"
        return read_chunks(self.path)

    def count_missing(self) -> int:
        """Counts the records without text."""
        return 0 if self.records is None else sum(text is None for _, text in self.records())

    @cached_property
    def text_size(self) -> int:
        """The size of the uncompressed text in bytes of UTF-8."""
        is_compressed = self.path is not None and self.path.suffix.lower() in COMPRESSED
        if self.records is None and not is_compressed:
            return self.size
        return sum(len(text.encode()) for text in self.chunks())

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
    """Returns the texts of one or more inputs, in order.

    Args:
        inputs: a file; a folder, for all its files except hidden ones, sorted by path; a pattern such as
            "corpus/**/*.txt"; or "hf:NAME", "hf:NAME:SPLIT" or "hf:NAME:CONFIGURATION:SPLIT" for a dataset of the
            Hugging Face Hub or in a folder (default split: train).
        text_field: the field with the text in JSON lines, Parquet, tables and datasets.
        skip_missing: leave out records without text.
    """
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    files = {item: _files(Path(item)) for item in inputs if not str(item).startswith(DATASET)}
    _require_text(path for found in files.values() for path, _ in found)
    sources: list[TextInput] = []
    for item in inputs:
        if item not in files:
            sources.append(_dataset(str(item), text_field, skip_missing))
            continue
        for path, name in files[item]:
            name = os.fsencode(name).decode("utf-8", "replace")  # JSON must be UTF-8
            records = _records_of(path, text_field)
            sources.append(TextInput(name, path.stat().st_size, path, records, skip_missing))
    times = Counter(source.path.resolve() for source in sources if source.path is not None)
    if twice := [path for path, count in times.items() if count > 1]:
        raise InputError(f"{twice[0]}: named twice, so its text would count twice; name it once")
    for source in sources:
        if not any(text.strip() for text in source.chunks()):
            raise InputError(f"{source.path or source.name}: empty or all white space; leave it out")
    return sources


def read_text(path: Path, text_field: str = FIELD) -> Iterator[str]:
    """Yields the text of a file in pieces of whole lines, about a megabyte each. Empty lines separate documents."""
    records = _records_of(path, text_field)
    return read_chunks(path) if records is None else join_documents(records())


def _records_of(path: Path, text_field: str) -> Records | None:
    """Returns a function that reads the records of a file; None for plain text."""
    if kind_of(path) in TABLES:
        return partial(_table_records, path, text_field)
    return partial(read_records, path, text_field) if holds_documents(path) else None


def _table_records(path: Path, text_field: str) -> Iterator[tuple[str, object]]:
    table = read_table(path)
    columns = list(table.rows[0])
    if text_field not in columns:
        raise InputError(
            f"{path}: no column {text_field!r}, only {', '.join(columns)}; name one with --field, or leave the file out"
        )
    for line, row in zip(table.lines, table.rows, strict=True):
        yield f"{path}:{line}", row[text_field]


def _require_text(paths: Iterable[Path]) -> None:
    """Raises InputError that lists the files whose names show that they are not text to train on."""
    advice = {path: NOT_TEXT.get(kind_of(path)) for path in paths}
    advice |= {path: "leave it out" for path in advice if ABOUT_A_CORPUS.search(path.name)}
    refused = [f"{path} ({action})" for path, action in advice.items() if action is not None]
    if refused:
        more = f" and {counted(len(refused) - 3, 'other file')}" if len(refused) > 3 else ""
        raise InputError(f"not running text: {', '.join(refused[:3])}{more}")


def _files(item: Path) -> list[tuple[Path, str]]:
    """Returns the files of a path or a pattern, with the name of each."""
    if item.is_file():
        return [(item, item.name)]
    if item == STANDARD_INPUT or (item.exists() and not item.is_dir()):
        raise InputError(
            f"{item}: can be read only once, and prepare needs to read it again; write the text to a file and give that"
        )
    pattern = f"{glob.escape(str(item))}/**" if item.is_dir() else str(item)
    paths = sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file())
    paths = [path for path in paths if "__MACOSX" not in path.parts]  # macOS adds this folder to ZIP archives
    if not paths:
        raise InputError(f"{item}: no such file, folder with files, or pattern with matches")
    root = item if item.is_dir() else Path(os.path.commonpath([path.parent for path in paths]))
    return [(path, path.relative_to(root).as_posix()) for path in paths]


def _dataset(name: str, text_field: str, skip_missing: bool) -> TextInput:
    """Opens a split of a dataset: a folder that `datasets` can read, or a name on the Hub."""
    try:
        import datasets
    except ImportError:
        raise InputError(f"{name}: reading it needs datasets: pip install 'esnlm[datasets]'") from None
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
        raise InputError(f"{name}: no field {text_field!r}, only {there}; name one of them with --field")
    dataset = dataset.select_columns([text_field])

    def records() -> Iterator[tuple[str, object]]:
        for number, record in enumerate(dataset, start=1):
            yield f"{name}: record {number}", record[text_field]

    size = sum(len(text.encode()) for text in join_documents(records(), skip_missing))
    return TextInput(name, size, records=records, skip_missing=skip_missing)
