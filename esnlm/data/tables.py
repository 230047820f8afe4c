"""Tables of text: tab-separated (TSV) and comma-separated (CSV) files whose first line names the columns."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from esnlm.data.text_files import holds_documents, kind_of, read_text
from esnlm.errors import InputError, require
from esnlm.io.console import warn

LONGEST_CELL = 1 << 22  # characters


@dataclass(frozen=True)
class Table:
    """The rows of a table, all cells as text."""

    name: str  # of the file
    columns: list[str]
    rows: list[list[str]]  # a cell for each column
    lines: list[int]  # of the file, from 1, at which each row begins
    # Cells, as (row, column), that stand between quotation marks without need: nothing in them asks for it.
    marked: frozenset[tuple[int, int]] = frozenset()
    after_blank: frozenset[int] = frozenset()  # rows with a blank line before them

    def column(self, name: str) -> list[str]:
        """Returns the cells of a column. Raises InputError where there is none of this name."""
        split = "; the cells of a .csv stand between commas, and those of any other name between tabs"
        advice = split if len(self.columns) == 1 and any(mark in self.columns[0] for mark in ",;\t") else ""
        require(name in self.columns, f"{self.name}: no column {name!r}: choose from {', '.join(self.columns)}{advice}")
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def texts(self, name: str) -> list[str]:
        """Returns the cells of a column that are to be read as texts.

        Warns where some, but not all, of a TSV stand between quotation marks without need: the marks may be a part of the text.

        Raises:
            InputError: There is none of this name, or a cell goes over a line end or a tab. That is how several rows look as one, where
                a quotation mark that is a part of the text was taken for the beginning of a quoted cell.
        """
        cells = self.column(name)
        for line, cell in zip(self.lines, cells, strict=True):
            require(
                not any(mark in cell for mark in "\n\r\t"),
                f"{self.name}:{line}: a line end or a tab in {cell[:40]!r}: where quotation marks are a part of the text, double them"
                " (esnlm score takes them as they are with --no-quotes); else write a space in its place",
            )
        place = self.columns.index(name)
        marked = [row for row in range(len(cells)) if (row, place) in self.marked]
        if marked and len(marked) < sum(bool(cell) and not _is_number(cell) for cell in cells):
            more = f", and in {len(marked) - 1:,} more rows," * (len(marked) > 1)
            warn(
                f"{self.name}:{self.lines[marked[0]]}: the quotation marks around {cells[marked[0]][:40]!r}{more} are read as those of a"
                " quoted cell, and left out; where they are a part of the text, double them (esnlm score takes them as they are with"
                " --no-quotes)"
            )
        return cells

    def others(self, without: Sequence[str]) -> list[dict[str, str]]:
        """Returns the cells of each row by column, without those of some columns."""
        kept = [(place, name) for place, name in enumerate(self.columns) if name not in without]
        return [{name: row[place] for place, name in kept} for row in self.rows]


def read_table(path: Path | None, quotes: bool = True) -> Table:
    """Reads a table: CSV where the name ends in .csv, or .csv.gz and so on, else TSV. None is standard input, and TSV.

    A cell that holds separators, line ends or quotation marks stands between quotation marks, and marks in it are doubled,
    as spreadsheets and pandas write it; in a TSV it may not hold both a tab and a line end. Blank lines are left out.

    Args:
        path: the file.
        quotes: False takes quotation marks as characters like others, as R writes tables with quote=FALSE.

    Raises:
        InputError: the file cannot be read, is not UTF-8 text, names no columns or one of them twice, has no row, has a row
            of more or fewer cells, a quotation mark is not closed, or a cell of a TSV looks like several rows, as where quotation
            marks are a part of the text.
    """
    name = str(path) if path else "standard input"
    message = f"{name}: holds documents, and a table is read here, .tsv or .csv; write it as one"
    require(path is None or not holds_documents(path), message)
    text = read_text(path)
    separator = "," if path and kind_of(path) == ".csv" else "\t"
    csv.field_size_limit(LONGEST_CELL)
    lines = io.StringIO(text, newline="")
    if quotes:
        reader = csv.reader(lines, delimiter=separator, strict=True)
    else:
        reader = csv.reader(lines, delimiter=separator, strict=True, quoting=csv.QUOTE_NONE)
    found: list[tuple[int, list[str]]] = []
    after_blank: set[int] = set()
    line = 1
    try:
        for row in reader:
            if row:
                found.append((line, row))
            else:
                after_blank.add(len(found) - 1)  # the names of the columns are no row
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{name}:{line}: not a row of a table ({error}): a cell that begins with a quotation mark ends with one, and marks"
            " inside it are doubled (esnlm score takes marks as they are with --no-quotes)"
        ) from None
    require(bool(found), f"{name}: empty: the first line of a table names its columns")
    (_, columns), *rows = found
    for column in columns:
        require(columns.count(column) == 1, f"{name}:1: column {column!r} stands twice: give each its own name")
    for line, row in rows:
        require(
            len(row) == len(columns),
            f"{name}:{line}: {len(row)} cells where the first line names {len(columns)} columns",
        )
        joined = next(
            (cell for cell in row if separator == "\t" and "\t" in cell and ("\n" in cell or "\r" in cell)), None
        )
        require(
            joined is None,
            f"{name}:{line}: the cell {(joined or '')[:40]!r} goes over the end of a row: where quotation marks are a part of the text,"
            " double them (esnlm score takes them as they are with --no-quotes); else write a space for a tab or a line end",
        )
    require(bool(rows), f"{name}: no row below the names of its columns")
    may_be_marked = quotes and separator == "\t" and '"' in text
    marked = _marked_without_need(text, rows) if may_be_marked else frozenset()
    return Table(
        name, columns, [row for _, row in rows], [line for line, _ in rows], marked, after_blank=frozenset(after_blank)
    )


def _marked_without_need(text: str, rows: Sequence[tuple[int, list[str]]]) -> frozenset[tuple[int, int]]:
    """Returns the cells of a TSV, as (row, column), between quotation marks that nothing in them asks for.

    In a CSV they are common: many programs write them around any text. In a TSV pandas writes none, and R writes them around all text.
    """
    lines, found = text.split("\n"), []
    for number, (line, row) in enumerate(rows):
        cells = lines[line - 1].split("\t")
        if len(cells) == len(row):  # else a cell holds a tab, and needs its marks
            found += [
                (number, place) for place, cell in enumerate(row) if cells[place] == f'"{cell}"' and '"' not in cell
            ]
    return frozenset(found)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
