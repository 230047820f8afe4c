"""Tables of text: tab-separated (TSV) and comma-separated (CSV) files whose first line names the columns."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.data.text_files import holds_documents, kind_of, read_chunks
from esnlm.errors import InputError

QUOTES = "if quotation marks are a part of the text, double them, or give esnlm score --no-quotes"


@dataclass(frozen=True)
class Table:
    """The rows of a table, all cells as text."""

    name: str  # of the file
    rows: list[dict[str, str]]  # at least one
    lines: list[int]  # of the file, from 1, at which each row ends

    def column(self, name: str) -> list[str]:
        """Returns the cells of a column. Raises InputError if there is none of this name."""
        if name not in self.rows[0]:
            raise InputError(f"{self.name}: no column {name!r}: choose from {', '.join(self.rows[0])}")
        return [row[name] for row in self.rows]

    def keys(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Returns the cells of several columns by row; of no column, empty tuples."""
        return list(zip(*map(self.column, names), strict=True)) or [()] * len(self.rows)

    def texts(self, name: str) -> list[str]:
        """Returns the cells of a column that are to be read as texts.

        A cell with a line end or a tab is refused: it is several rows, if a quotation mark that is a part of the text was taken
        for the beginning of a quoted cell.
        """
        cells = self.column(name)
        for line, cell in zip(self.lines, cells, strict=True):
            if any(mark in cell for mark in "\n\r\t"):
                raise InputError(f"{self.name}:{line}: a line end or a tab in {cell[:40]!r}: {QUOTES}")
        return cells


def read_table(path: Path, quotes: bool = True) -> Table:
    """Reads a table: CSV if the name ends in .csv, or .csv.gz and so on, else TSV.

    A cell that holds separators, line ends or quotation marks stands between quotation marks, and marks in it are doubled, as
    spreadsheets and pandas write it. Without `quotes` they are characters like others, as R writes tables with quote=FALSE. Blank
    lines are left out.
    """
    if holds_documents(path):
        raise InputError(f"{path}: holds documents, and a table is read here; write it as .tsv or .csv")
    separator = "," if kind_of(path) == ".csv" else "\t"
    csv.field_size_limit(1 << 22)
    text = io.StringIO("".join(read_chunks(path)), newline="")
    marks: dict[str, Any] = {} if quotes else {"quoting": csv.QUOTE_NONE}
    reader = csv.DictReader(text, delimiter=separator, strict=True, **marks)
    try:
        found = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.reader.line_num}: not a table ({error}); {QUOTES}") from None
    if not found:
        raise InputError(f"{path}: no rows: the first line of a table names its columns, and rows follow")
    columns = list(reader.fieldnames or [])
    if len(set(columns)) < len(columns):
        raise InputError(f"{path}: two columns have one name, in {', '.join(columns)}: give each its own name")
    for line, row in found:
        if None in row or None in row.values():
            raise InputError(f"{path}:{line}: not a cell for each of the {len(columns)} columns; {QUOTES}")
    return Table(str(path), [row for _, row in found], [line for line, _ in found])
