"""The inputs of `prepare`: finds text files and datasets, and reads each as documents.

Empty lines separate the documents of a text. A record of JSON lines, Parquet or a dataset, or a row
of a table, is a document.
"""

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from esnlm.base.console import counted
from esnlm.base.errors import InputError, import_extra
from esnlm.base.files import file_sha256
from esnlm.data.tables import read_table
from esnlm.data.text_files import (
    CHUNK,
    COMPRESSED,
    NOT_TEXT,
    RECORDS,
    STANDARD_INPUT,
    TABLES,
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
EMPTY_LINES = re.compile(r"\n\s*\n")  # within a document, where they only separate paragraphs


class Totals(NamedTuple):
    """The counts of the first reading of a text."""

    text_size: int  # uncompressed, in bytes of UTF-8
    missing: int  # records that were left out because they have no text


@dataclass(frozen=True)
class TextInput:
    """A text that can be read repeatedly."""

    name: str  # in the manifest: the file's name, or its path relative to its folder
    path: Path | None = None  # None: a dataset
    dataset: Any = None  # a split, with the column `field`
    field: str = FIELD  # with the text of a record
    skip_missing: bool = False  # leave out records without text
    has_options: bool = False  # whether error messages may advise --field and --skip-missing

    @property
    def has_records(self) -> bool:
        return self.path is None or kind_of(self.path) in RECORDS | TABLES

    def chunks(self, check_quotes: bool = False) -> Iterator[str]:
        """Yields the text in chunks of whole lines, about a megabyte each.

        With `check_quotes`, warns if quotation marks are removed from the cells of a table.
        """
        if not self.has_records:
            assert self.path is not None, "datasets have records"
            check_is_text(self.path)
            yield from read_chunks(self.path)
            return
        group, size = [], 0
        for document in filter(None, self._documents(check_quotes)):
            group.append(document)
            size += len(document)
            if size > CHUNK:
                yield "".join(group)
                group, size = [], 0
        if group:
            yield "".join(group)

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
        text_size = missing = 0
        is_blank = True
        for text in self._documents(check_quotes=True) if self.has_records else self.chunks():
            if text is None:
                missing += 1
                continue
            text_size += len(text.encode())
            is_blank = is_blank and not text.strip()
            if not (self.has_records or is_compressed or is_blank):
                return Totals(self.size, missing=0)  # no need to read on
        if is_blank:
            raise InputError(f"{self.path or self.name}: empty or all white space; leave it out")
        return Totals(text_size, missing)

    def sha256(self) -> str:
        """Returns the sha256 of a file's bytes, or of the text of a dataset."""
        if self.path is not None:
            return file_sha256(self.path)
        content = hashlib.sha256()
        for text in self.chunks():
            content.update(text.encode())
        return content.hexdigest()

    def _documents(self, check_quotes: bool) -> Iterator[str | None]:
        """Yields the text of each record and an empty line; None for a record that is left out."""
        for location, text in self._records(check_quotes):
            if text is None and self.skip_missing:
                yield None
                continue
            if text is None:
                advice = self._advise("leave such records out with --skip-missing")
                raise InputError(f"{location}: no text; {advice}")
            if not isinstance(text, str):
                advice = self._advise("leave the file out")
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

    def _records(self, check_quotes: bool) -> Iterator[tuple[str, object]]:
        """Yields the location and the text of each record, None if it has none."""
        if self.path is None:
            for number, record in enumerate(self.dataset, start=1):
                yield f"{self.name}: record {number}", record[self.field]
        elif kind_of(self.path) in TABLES:
            table = read_table(self.path)
            self._check_field(self.path, table.rows[0])
            texts = table.texts(self.field, several_lines=True, check_quotes=check_quotes)
            for line, text in zip(table.lines, texts, strict=True):
                yield f"{self.path}:{line}", text or None  # a table has no other way to write null
        elif kind_of(self.path) == ".parquet":
            yield from self._parquet_records(self.path)
        else:
            chunks = read_chunks(self.path)
            lines = (line for text in chunks for line in text.removesuffix("\n").split("\n"))
            for number, record in parse_json_lines(self.path, lines):
                self._check_field(f"{self.path}:{number}", record)
                yield f"{self.path}:{number}", record[self.field]

    def _parquet_records(self, path: Path) -> Iterator[tuple[str, object]]:
        parquet = import_extra("pyarrow.parquet", f"{path}: reading Parquet", "parquet")
        errors = import_extra("pyarrow", f"{path}: reading Parquet", "parquet").ArrowException
        try:
            with parquet.ParquetFile(path) as file:
                self._check_field(path, file.schema_arrow.names)
                number = 0
                for batch in file.iter_batches(batch_size=1000, columns=[self.field]):
                    for text in batch.column(0).to_pylist():
                        number += 1
                        yield f"{path}: row {number}", text
        except (errors, OSError) as error:
            raise InputError(
                f"{path}: damaged, or not a Parquet file ({error}); copy it again"
            ) from None

    def _check_field(self, location: str | Path, fields: Iterable[str]) -> None:
        """Raises InputError if records lack the field with the text."""
        if self.field not in fields:
            advice = self._advise("leave the file out")
            raise InputError(
                f"{location}: no field {self.field!r}, only {', '.join(fields)}; {advice}"
            )

    def _advise(self, alternative: str) -> str:
        if self.has_options:
            return f"name another field with --field, or {alternative}"
        return f"records need their text in the field {self.field!r}"


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
    sources: list[TextInput] = []
    not_text: list[str] = []
    for item in [inputs] if isinstance(inputs, str | Path) else inputs:
        if str(item).startswith(DATASET):
            sources.append(_open_dataset(str(item), text_field, skip_missing))
            continue
        for path, name in _find_files(Path(item)):
            if kind_of(path) in NOT_TEXT:
                not_text.append(f"{path} ({NOT_TEXT[kind_of(path)]})")
            elif path != Path(item) and ABOUT_A_CORPUS.fullmatch(path.name):
                not_text.append(f"{path} (leave it out)")
            name = os.fsencode(name).decode("utf-8", "replace")  # JSON must be UTF-8
            sources.append(TextInput(name, path, None, text_field, skip_missing, has_options=True))
    if not_text:
        rest = f" and {counted(len(not_text) - 3, 'other file')}" if len(not_text) > 3 else ""
        raise InputError(f"not running text: {', '.join(not_text[:3])}{rest}")
    times = Counter(source.path.resolve() for source in sources if source.path is not None)
    for path, count in times.items():
        if count > 1:
            raise InputError(f"{path}: named twice, so its text would count twice; name it once")
    return sources


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
    if text_field not in dataset.column_names:
        columns = ", ".join(dataset.column_names)
        raise InputError(
            f"{name}: no field {text_field!r}, only {columns}; name one of them with --field"
        )
    dataset = dataset.select_columns([text_field])
    return TextInput(name, None, dataset, text_field, skip_missing, has_options=True)
