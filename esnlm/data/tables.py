"""Reads tables of text, separated by tabs (TSV), commas or semicolons (CSV). Their first line names the columns."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from esnlm.data.text_files import holds_documents, kind_of, read_chunks
from esnlm.errors import InputError
from esnlm.io.console import counted, warn

SEPARATORS = {"\t": "a tab", ",": "a comma", ";": "a semicolon"}


@dataclass(frozen=True)
class Table:
    """The rows of a table, all cells as text."""

    name: str  # of the file
    rows: list[dict[str, str]]  # at least one
    lines: list[int]  # of the file, from 1, where each row ends
    separator: str
    advice: str  # on quotation marks, for messages
    raw_cells: dict[int, list[str]] = field(default_factory=dict)  # of each line, with quotation marks; {} if none

    def column(self, name: str) -> list[str]:
        """Returns the cells of a column. Raises InputError if it is missing."""
        if name not in self.rows[0]:
            raise InputError(f"{self.name}: no column {name!r}: choose from {', '.join(self.rows[0])}")
        return [row[name] for row in self.rows]

    def keys(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Returns the cells of the named columns, one tuple per row."""
        return list(zip(*map(self.column, names), strict=True)) or [()] * len(self.rows)

    def numbers(self, name: str) -> list[float]:
        """Returns the cells of a column as numbers. Tables separated by semicolons may have decimal commas.

        Raises:
            ValueError: a cell is not a number.
        """
        cells = self.column(name)
        return [float(cell.replace(",", ".") if self.separator == ";" else cell) for cell in cells]

    def texts(self, name: str, several_lines: bool = False) -> list[str]:
        """Returns the cells of a column of texts.

        Rejects cells with a tab or, unless texts may have several lines, a line end: they probably join several rows,
        because a quotation mark of the text was read as the beginning of a quoted cell. Warns if quotation marks were
        removed that may be part of the text.
        """
        cells = self.column(name)
        marks = "\t" if several_lines else "\n\r\t"
        for line, cell in zip(self.lines, cells, strict=True):
            if any(mark in cell for mark in marks):
                raise InputError(f"{self.name}:{line}: a line end or a tab in {cell[:40]!r}: {self.advice}")
        if removed := self._needless_quotes(name):
            line, cell = removed[0]
            count = counted(len(removed), "cell")
            warn(
                f"{self.name}:{line}: quotation marks around {cell!r}, one of {count} so quoted, are left out: {self.advice}"
            )
        return cells

    def _needless_quotes(self, name: str) -> list[tuple[int, str]]:
        """Returns the line and the text of each cell of a column that is in quotation marks without need.

        Returns nothing if a program quotes the whole column, as R or pandas with QUOTE_ALL do: its name, too, or all
        cells with text.
        """
        number = list(self.rows[0]).index(name)
        header = next(iter(self.raw_cells.values()), [])
        needless: list[tuple[int, str]] = []
        is_quoted_throughout = True
        for line, row in zip(self.lines, self.rows, strict=True):
            raw_row = self.raw_cells.get(line, [])
            if len(raw_row) != len(row):  # a cell of the row has a separator or a line end
                continue
            cell, raw = row[name], raw_row[number]
            is_quoted_throughout &= raw[:1] in ("", '"')
            # Excel quotes cells with a comma or a semicolon also in TSV.
            if cell and raw == f'"{cell}"' and not any(mark in cell for mark in ",;"):
                needless.append((line, cell))
        is_style = is_quoted_throughout or header[number : number + 1] == [f'"{name}"']
        return [] if is_style else needless


def read_table(path: Path, quotes: bool = True, quotes_option: str | None = None) -> Table:
    """Reads a table, separated by tabs, commas or semicolons.

    The separator is the only one of these in the first line. If that line has several or none, it is a comma if the
    name ends in .csv (or .csv.gz etc.), else a tab. Cells with separators, line ends or quotation marks are quoted,
    with inner quotation marks doubled, as spreadsheets and pandas write them. Without `quotes`, quotation marks are
    ordinary characters, as R writes with quote=FALSE. Skips blank lines.

    Args:
        quotes_option: the command's option for reading without `quotes`, which messages name.
    """
    advice = "if quotation marks are part of the text, double them"
    if quotes_option is not None:
        advice += f", or give {quotes_option}"
    if holds_documents(path):
        raise InputError(f"{path}: holds documents, but this must be a table; write it as .tsv or .csv")
    csv.field_size_limit(1 << 22)
    text = "".join(read_chunks(path))
    separator = _separator(text.partition("\n")[0], usual="," if kind_of(path) == ".csv" else "\t")
    marks: dict[str, Any] = {} if quotes else {"quoting": csv.QUOTE_NONE}
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True, **marks)
    try:
        found = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.reader.line_num}: not a table ({error}); {advice}") from None
    if not found:
        raise InputError(f"{path}: no rows after the first line, which names the columns")
    columns = list(reader.fieldnames or [])
    if len(set(columns)) < len(columns):
        raise InputError(f"{path}: two columns have the same name, in {', '.join(columns)}; rename one")
    for line, row in found:
        if None in row or None in row.values():
            expected = f"{len(columns)} cells, one per column, separated by {SEPARATORS[separator]}"
            raise InputError(f"{path}:{line}: not {expected}; {advice}")
    raw_cells: dict[int, list[str]] = {}
    if quotes and '"' in text:
        raw_reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=csv.QUOTE_NONE)
        for raw_row in raw_reader:
            raw_cells[raw_reader.line_num] = raw_row
    lines, rows = [line for line, _ in found], [row for _, row in found]
    return Table(str(path), rows, lines, separator, advice, raw_cells)


def _separator(header: str, usual: str) -> str:
    """Returns the only separator outside the quotation marks of a header; the usual one if it has several or none."""
    unquoted = re.sub('"[^"]*"', "", header)
    present = [separator for separator in SEPARATORS if separator in unquoted]
    return present[0] if len(present) == 1 else usual
