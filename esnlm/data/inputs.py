"""The inputs of `prepare`: finds text files and datasets, and reads each as documents.

Empty lines separate the documents of a text. A record of JSON lines, Parquet or a dataset, or a row
of a table, is a document.
"""

import glob
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.base.console import counted
from esnlm.base.errors import InputError, import_extra
from esnlm.base.files import file_sha256
from esnlm.data.tables import read_table
from esnlm.data.text_files import (
    CHUNK,
    COMPRESSED,
    NOT_TEXT,
    STANDARD_INPUT,
    check_is_text,
    kind_of,
    parse_json_lines,
    read_chunks,
    unify_line_ends,
)

FIELD = "text"  # default field of a record with the text
DATASET = "hf:"  # prefix of a dataset's name
# Names of files that are about a corpus, in a folder with its texts.
ABOUT_A_CORPUS = re.compile(r"(readme|licen[cs]e)(\.(md|txt|rst))?", re.IGNORECASE)
# An empty line within a record would end its document, so it is removed.
EMPTY_LINES = re.compile(r"\n\s*\n")


@dataclass
class TextInput(ABC):
    """A text that can be read repeatedly."""

    name: str  # in the manifest: the file's name, or its path relative to its folder
    location: Path | str  # the file's path, or the dataset's name; error messages begin with it

    @abstractmethod
    def chunks(self) -> Iterator[str]:
        """Yields the text in chunks of whole lines, about a megabyte each."""

    @abstractmethod
    def count(self) -> tuple[int, int]:
        """Returns the bytes of the text in UTF-8, and the number of records left out without text.

        Raises InputError if the text is empty or all white space.
        """

    def describe(self) -> dict[str, Any]:
        """Returns the entry of the manifest: name, size and sha256 of the file as it is."""
        file = Path(self.location)
        return {"name": self.name, "bytes": file.stat().st_size, "sha256": file_sha256(file)}

    def _count(self, texts: Iterable[str | None]) -> tuple[int, int]:
        text_size = missing = 0
        is_blank = True
        for text in texts:
            if text is None:
                missing += 1
                continue
            text_size += len(text.encode())
            is_blank = is_blank and not text.strip()
        if is_blank:
            raise InputError(f"{self.location}: empty or all white space; leave it out")
        return text_size, missing


class PlainText(TextInput):
    """A file of plain text, compressed or not."""

    def chunks(self) -> Iterator[str]:
        check_is_text(Path(self.location))
        yield from read_chunks(Path(self.location))

    def count(self) -> tuple[int, int]:
        """Counts the text. Reads only the beginning of a file that is not compressed."""
        file = Path(self.location)
        is_compressed = file.suffix.lower() in COMPRESSED
        if not is_compressed and any(text.strip() for text in self.chunks()):
            return file.stat().st_size, 0
        return self._count(self.chunks())


@dataclass
class Records(TextInput):
    """A text of which each record is a document."""

    field: str = FIELD  # with the text of a record
    skip_missing: bool = False  # leave out records without text
    has_options: bool = False  # whether error messages may advise --field and --skip-missing

    @abstractmethod
    def _records(self) -> Iterator[tuple[str, object]]:
        """Yields the location and the text of each record, None if it has none."""

    def chunks(self) -> Iterator[str]:
        group, size = [], 0
        for document in filter(None, self._documents()):
            group.append(document)
            size += len(document)
            if size > CHUNK:
                yield "".join(group)
                group, size = [], 0
        if group:
            yield "".join(group)

    def count(self) -> tuple[int, int]:
        return self._count(self._documents())

    def check_field(self, location: str | Path, fields: Iterable[str]) -> None:
        """Raises InputError if records lack the field with the text."""
        if self.field not in fields:
            advice = self._advise("leave this input out")
            raise InputError(
                f"{location}: no field {self.field!r}, only {', '.join(fields)}; {advice}"
            )

    def _documents(self) -> Iterator[str | None]:
        """Yields each record's text and an empty line, or None for a record that is left out."""
        for location, text in self._records():
            if text is None and self.skip_missing:
                yield None
                continue
            if text is None:
                advice = self._advise("leave such records out with --skip-missing")
                raise InputError(f"{location}: no text; {advice}")
            if not isinstance(text, str):
                advice = self._advise("leave this input out")
                raise InputError(
                    f"{location}: its text is a {type(text).__name__}, not a string; {advice}"
                )
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InputError(
                    f"{location}: has an unpaired surrogate, which is not valid text"
                ) from None
            yield EMPTY_LINES.sub("\n", unify_line_ends(text)) + "\n\n"

    def _advise(self, alternative: str) -> str:
        if self.has_options:
            return f"name another field with --field, or {alternative}"
        return f"records need their text in the field {self.field!r}"


class JsonRecords(Records):
    """A file of JSON lines."""

    def _records(self) -> Iterator[tuple[str, object]]:
        file = Path(self.location)
        lines = (line for text in read_chunks(file) for line in text.removesuffix("\n").split("\n"))
        for number, record in parse_json_lines(file, lines):
            self.check_field(f"{file}:{number}", record)
            yield f"{file}:{number}", record[self.field]


class ParquetRecords(Records):
    """A file in Parquet."""

    def _records(self) -> Iterator[tuple[str, object]]:
        task = f"{self.location}: reading Parquet"
        parquet = import_extra("pyarrow.parquet", task, "parquet")
        errors = import_extra("pyarrow", task, "parquet").ArrowException
        try:
            with parquet.ParquetFile(self.location) as file:
                self.check_field(self.location, file.schema_arrow.names)
                batches = file.iter_batches(batch_size=1000, columns=[self.field])
                texts = (text for batch in batches for text in batch.column(0).to_pylist())
                for number, text in enumerate(texts, start=1):
                    yield f"{self.location}: row {number}", text
        except (errors, OSError) as error:
            raise InputError(
                f"{self.location}: damaged, or not a Parquet file ({error}); copy it again"
            ) from None


class TableRecords(Records):
    """A table, each row of which is a record.

    Its first reading warns if quotation marks are removed from its cells.
    """

    _is_checked = False

    def _records(self) -> Iterator[tuple[str, object]]:
        table = read_table(Path(self.location))
        self.check_field(self.location, table.rows[0])
        texts = table.texts(self.field, several_lines=True, check_quotes=not self._is_checked)
        self._is_checked = True
        for line, text in zip(table.lines, texts, strict=True):
            yield f"{self.location}:{line}", text or None  # an empty cell is a table's null


@dataclass
class DatasetRecords(Records):
    """A split of a dataset."""

    split: Any = None  # of `datasets`

    def describe(self) -> dict[str, Any]:
        """Returns the entry of the manifest: name, size and sha256 of the text."""
        content, size = hashlib.sha256(), 0
        for text in self.chunks():
            content.update(text.encode())
            size += len(text.encode())
        return {"name": self.name, "bytes": size, "sha256": content.hexdigest()}

    def _records(self) -> Iterator[tuple[str, object]]:
        for number, record in enumerate(self.split.select_columns([self.field]), start=1):
            yield f"{self.name}: record {number}", record[self.field]


RECORD_CLASSES: dict[str, type[Records]] = {
    ".jsonl": JsonRecords,
    ".ndjson": JsonRecords,
    ".parquet": ParquetRecords,
    ".csv": TableRecords,
    ".tsv": TableRecords,
}


def open_file(
    file: Path,
    name: str | None = None,
    *,
    field: str = FIELD,
    skip_missing: bool = False,
    has_options: bool = False,
) -> TextInput:
    """Returns the text of a file, without reading it; the suffix identifies the format."""
    records = RECORD_CLASSES.get(kind_of(file))
    if records is None:
        return PlainText(name or file.name, file)
    return records(name or file.name, file, field, skip_missing, has_options)


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
    texts: list[TextInput] = []
    paths: list[Path] = []
    not_text: list[str] = []
    for item in [inputs] if isinstance(inputs, str | Path) else inputs:
        if str(item).startswith(DATASET):
            texts.append(_open_dataset(str(item), text_field, skip_missing))
            continue
        for path, name in _find_files(Path(item)):
            if kind_of(path) in NOT_TEXT:
                not_text.append(f"{path} ({NOT_TEXT[kind_of(path)]})")
            elif path != Path(item) and ABOUT_A_CORPUS.fullmatch(path.name):
                not_text.append(f"{path} (leave it out)")
            name = os.fsencode(name).decode("utf-8", "replace")  # JSON must be UTF-8
            texts.append(
                open_file(path, name, field=text_field, skip_missing=skip_missing, has_options=True)
            )
            paths.append(path.resolve())
    if not_text:
        rest = f" and {counted(len(not_text) - 3, 'other file')}" if len(not_text) > 3 else ""
        raise InputError(f"not running text: {', '.join(not_text[:3])}{rest}")
    if not texts:
        raise InputError("no inputs; give at least one")
    for path, count in Counter(paths).items():
        if count > 1:
            raise InputError(f"{path}: named twice, so its text would count twice; name it once")
    return texts


def _find_files(item: Path) -> list[tuple[Path, str]]:
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


def _open_dataset(name: str, text_field: str, skip_missing: bool) -> TextInput:
    """Opens a split of a dataset: a folder that `datasets` can read, or a name on the Hub."""
    datasets = import_extra("datasets", f"{name}: reading it", "datasets")
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
    records = DatasetRecords(name, name, text_field, skip_missing, has_options=True, split=dataset)
    records.check_field(name, dataset.column_names)
    return records
