"""Tables of text: tab-separated (TSV) and comma-separated (CSV) files whose first line names the columns."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from esnlm.data.text_files import holds_documents, kind_of, read_text
from esnlm.errors import InputError
from esnlm.io.console import warn

LONGEST_CELL = 1 << 22  # characters
QUOTES = "if quotation marks are a part of the text, double them, or give esnlm score --no-quotes"


@dataclass(frozen=True)
class Table:
    """The rows of a table, all cells as text."""

    name: str  # of the file
    columns: list[str]
    rows: list[list[str]]  # a cell for each column
    lines: list[int]  # of the file, from 1, at which each row begins
    bare: list[list[str]]  # the cells of each row with their quotation marks; empty if these are not known

    def column(self, name: str) -> list[str]:
        """Returns the cells of a column. Raises InputError if there is none of this name."""
        if name not in self.columns:
            raise InputError(
                f"{self.name}: no column {name!r}: choose from {', '.join(self.columns)} (a .csv has commas between cells, any other"
                " table tabs)"
            )
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def texts(self, name: str) -> list[str]:
        """Returns the cells of a column that are to be read as texts.

        Warns if some, but not all, of a TSV stand between quotation marks without need: these may be a part of the text.

        Raises InputError if there is none of this name, or a cell goes over a line end or a tab: several rows look like one cell
        if a quotation mark that is a part of the text is taken for the beginning of a quoted cell.
        """
        cells, place = self.column(name), self.columns.index(name)
        for line, cell in zip(self.lines, cells, strict=True):
            if any(mark in cell for mark in "\n\r\t"):
                raise InputError(
                    f"{self.name}:{line}: a line end or a tab in {cell[:40]!r}: {QUOTES}; else write a space"
                )
        marked = [i for i, row in enumerate(self.bare) if row[place] == f'"{cells[i]}"' and '"' not in cells[i]]
        if marked and len(marked) < sum(bool(cell) and not _is_number(cell) for cell in cells):
            warn(
                f"{self.name}:{self.lines[marked[0]]}: the quotation marks around {cells[marked[0]][:40]!r}, and in {len(marked) - 1:,}"
                f" more rows, are left out as those of a quoted cell; {QUOTES}"
            )
        return cells

    def is_after_blank(self, row: int) -> bool:
        """Tells whether a blank line stands between a row and the one before it."""
        lines_before = 1 + sum(cell.count("\n") for cell in self.rows[row - 1])
        return self.lines[row] > self.lines[row - 1] + lines_before

    def others(self, without: Sequence[str] = ()) -> list[dict[str, str]]:
        """Returns the cells of each row by column, without those of some columns."""
        kept = [(place, name) for place, name in enumerate(self.columns) if name not in without]
        return [{name: row[place] for place, name in kept} for row in self.rows]


def read_table(path: Path | None, quotes: bool = True) -> Table:
    """Reads a table: CSV if the name ends in .csv, or .csv.gz and so on, else TSV. None is standard input, and TSV.

    A cell that holds separators, line ends or quotation marks stands between quotation marks, and marks in it are doubled, as
    spreadsheets and pandas write it. Blank lines are left out.

    Args:
        path: the file.
        quotes: False takes quotation marks as characters like others, as R writes tables with quote=FALSE.

    Raises:
        InputError: the file cannot be read, names no columns or one of them twice, has no row, has a row of more or fewer cells,
            or a quotation mark is not closed.
    """
    name = str(path) if path else "standard input"
    if path is not None and holds_documents(path):
        raise InputError(f"{name}: holds documents, and a table is read here; write it as .tsv or .csv")
    text, separator = read_text(path), "," if path and kind_of(path) == ".csv" else "\t"
    try:
        found = _read_rows(text, separator, quotes)
    except csv.Error as error:
        raise InputError(
            f"{name}: not a table ({error}): a cell begins and ends with a quotation mark, or has none; {QUOTES}"
        ) from None
    if not found:
        raise InputError(f"{name}: empty: the first line of a table names its columns")
    (_, columns), *rows = found
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise InputError(f"{name}:1: column {twice[0]!r} stands twice: give each its own name")
    for line, row in rows:
        if len(row) != len(columns):
            raise InputError(f"{name}:{line}: {len(row)} cells, and the first line names {len(columns)} columns")
        if separator == "\t" and any("\t" in cell and "\n" in cell for cell in row):
            raise InputError(f"{name}:{line}: a cell goes over the end of its row: {QUOTES}")
    if not rows:
        raise InputError(f"{name}: no row below the names of its columns")
    bare = [row for _, row in _read_rows(text, separator, quotes=False)[1:]] if separator == "\t" and quotes else []
    whole = len(bare) == len(rows) and all(len(row) == len(columns) for row in bare)
    return Table(name, columns, [row for _, row in rows], [line for line, _ in rows], bare if whole else [])


def _read_rows(text: str, separator: str, quotes: bool) -> list[tuple[int, list[str]]]:
    """Returns the line at which each row begins, and its cells."""
    csv.field_size_limit(LONGEST_CELL)
    lines = io.StringIO(text, newline="")
    if quotes:
        reader = csv.reader(lines, delimiter=separator, strict=True)
    else:
        reader = csv.reader(lines, delimiter=separator, strict=True, quoting=csv.QUOTE_NONE)
    found, line = [], 1
    for row in reader:
        if row:
            found.append((line, row))
        line = reader.line_num + 1
    return found


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
