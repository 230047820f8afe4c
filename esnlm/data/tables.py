"""Reads tables of text, separated by tabs (TSV), commas or semicolons (CSV).

The first line names the columns. `order_rows` reads tables with one word per row.
"""

import csv
import io
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import Any

from esnlm.base.console import counted, info, warn
from esnlm.base.errors import InputError
from esnlm.data.text_files import RECORDS, check_is_text, kind_of, read_text

SEPARATORS = {"\t": "a tab", ",": "a comma", ";": "a semicolon"}
GIVE_TEXT = "give a text (pandas keeps words such as 'NA' with dtype=str, keep_default_na=False)"
POSITIONS = ("word_number", "ia_id", "zone", "position")  # columns of positions, in lower case
NO_SPACE = ("no", "false", "0", "0.0", "0,0")  # in lower case


@dataclass(frozen=True)
class Table:
    """The rows of a table: of a file, with all cells as text, or from Python (`table_of`)."""

    name: str  # of the file
    rows: list[dict[str, Any]]  # at least one
    lines: list[int]  # of the file, from 1, where each row ends; none from Python
    separator: str
    raw_text: str  # of the file; "" if quotation marks are ordinary characters
    advice: str  # for messages on cells that quotation marks seem to break

    def where(self, row: int) -> str:
        """Returns the place of a row, with which messages begin."""
        return f"{self.name}:{self.lines[row]}" if self.lines else f"{self.name}, row {row}"

    def column(self, name: str) -> list[Any]:
        """Returns the cells of a column. Raises InputError if it is missing."""
        if any(name not in row for row in self.rows):
            style = f" (cells are separated by {SEPARATORS[self.separator]})" if self.lines else ""
            raise InputError(
                f"{self.name}: no column {name!r}: choose from"
                f" {', '.join(map(str, self.rows[0]))}{style}"
            )
        return [row[name] for row in self.rows]

    def keys(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """Returns the cells of several columns, one tuple per row. Raises InputError if one has no
        value."""
        for name in names:
            for row, cell in enumerate(self.column(name)):
                if cell is None or cell != cell:  # NaN
                    raise InputError(f"{self.where(row)}: no value in column {name!r}: give one")
        return list(zip(*map(self.column, names), strict=True)) or [()] * len(self.rows)

    def numbers(self, name: str) -> list[float]:
        """Returns the cells of a column as numbers. Raises ValueError for other cells.

        Tables separated by semicolons may have decimal commas.
        """
        cells = self.column(name)
        return [float(cell.replace(",", ".") if self.separator == ";" else cell) for cell in cells]

    def texts(self, name: str, several_lines: bool = False, check_quotes: bool = True) -> list[str]:
        """Returns the cells of a column of texts.

        Rejects cells with a tab or, unless texts may have several lines, a line end: they probably
        join several rows, because a quotation mark of the text was read as the beginning of a
        quoted cell. With `check_quotes`, warns if quotation marks were removed that may be part of
        the text.
        """
        cells = self.column(name)
        forbidden = "\t" if several_lines else "\n\r\t"
        for row, cell in enumerate(cells):
            if not isinstance(cell, str):
                raise InputError(f"{self.where(row)}: {cell!r} in column {name!r}: {GIVE_TEXT}")
            if any(character in cell for character in forbidden):
                raise InputError(
                    f"{self.where(row)}: a line end or a tab in {cell[:40]!r}: {self.advice}"
                )
        needless = self._needless_quotes(name) if check_quotes else []
        if needless:
            line, cell = needless[0]
            others = f" and {counted(len(needless) - 1, 'other cell')}" if len(needless) > 1 else ""
            warn(
                f"{self.name}:{line}: quotation marks around {cell[:40]!r}{others} are left out:"
                f" {self.advice}"
            )
        return cells

    def _needless_quotes(self, name: str) -> list[tuple[int, str]]:
        """Returns the line and the text of each cell that is in quotation marks without need.

        Returns nothing if the name of the column is in quotation marks, too, as R and pandas with
        QUOTE_ALL write it, or if all cells of a CSV are, since their text may need it elsewhere.
        """
        raw_lines = self.raw_text.split("\n")
        if '"' not in self.raw_text or f'"{name}"' in raw_lines[0]:
            return []
        number = list(self.rows[0]).index(name)
        needless: list[tuple[int, str]] = []
        has_unquoted = self.separator == "\t"
        for line, row in zip(self.lines, self.rows, strict=True):
            # A cell with a separator or a line end displaces the others where its line is split at
            # each separator.
            if any(self.separator in cell or "\n" in cell for cell in row.values()):
                continue
            raw_cell = raw_lines[line - 1].split(self.separator)[number]
            if raw_cell and not raw_cell.startswith('"'):
                has_unquoted = True
            if row[name] and raw_cell == f'"{row[name]}"':
                needless.append((line, row[name]))
        return needless if has_unquoted else []


def table_of(rows: Any) -> Table:
    """Returns the table of a pandas DataFrame, whose undefined cells are None, or of a list of
    dicts."""
    name = "the table"
    if is_data_frame(rows):
        if not rows.columns.is_unique:
            raise InputError(f"{name}: two columns have the same name: rename one")
        defined = rows.astype(object).where(rows.notna(), None)
        rows = defined.to_dict("records")
    if not isinstance(rows, Sequence) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{name} is a {type(rows).__name__}: give a DataFrame or a list of dicts")
    if not len(rows):
        raise InputError(f"{name} has no rows")
    return Table(name, list(rows), [], "", "", "remove it")


def is_data_frame(value: Any) -> bool:
    """Returns whether a value is a pandas DataFrame, without importing pandas."""
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns")


def read_table(path: Path, quotes: bool = True, quotes_option: str | None = None) -> Table:
    """Reads a table, separated by tabs, commas or semicolons.

    The separator is the only one of these in the first line, if it divides the first row into as
    many cells. Otherwise it is a comma if the name ends in .csv (or .csv.gz etc.), else a tab.
    Cells with separators, line ends or quotation marks are quoted, with inner quotation marks
    doubled, as spreadsheets and pandas write them. Without `quotes`, quotation marks are ordinary
    characters, as R writes with quote=FALSE. Skips blank lines.

    Args:
        quotes_option: the command's option for reading without `quotes`, which messages name.
    """
    advice = "quotation marks were read as text"
    if quotes:
        advice = (
            "if quotation marks are part of the text, put the cell in quotation marks and double"
            " the inner ones"
        )
        advice += "" if quotes_option is None else f", or give {quotes_option}"
    if kind_of(path) in RECORDS:
        raise InputError(
            f"{path}: holds documents, but this must be a table; write it as .tsv or .csv"
        )
    check_is_text(path)
    csv.field_size_limit(1 << 22)
    text = read_text(path)
    style: dict[str, Any] = {} if quotes else {"quoting": csv.QUOTE_NONE}
    separator = _separator(text[: 1 << 20], "," if kind_of(path) == ".csv" else "\t", style)
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=separator, strict=True, **style
    )
    rows, lines = [], []
    try:
        for row in reader:
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InputError(
            f"{path}:{reader.reader.line_num}: not a table ({error}); {advice}"
        ) from None
    if not rows:
        raise InputError(f"{path}: no rows after the first line, which names the columns")
    columns = list(reader.fieldnames or [])
    if len(set(columns)) < len(columns):
        raise InputError(
            f"{path}: two columns have the same name, in {', '.join(columns)}; rename one"
        )
    for line, row in zip(lines, rows, strict=True):
        if None in row or None in row.values():
            expected = f"{len(columns)} cells, one per column, separated by {SEPARATORS[separator]}"
            raise InputError(f"{path}:{line}: not {expected}; {advice}")
    return Table(str(path), rows, lines, separator, text if quotes else "", advice)


def _separator(start: str, usual: str, style: dict[str, Any]) -> str:
    """Returns the separator of a table, from the start of its text.

    It is the only one outside the quotation marks of the header if it divides the first row into as
    many cells, and otherwise the usual one: a header may have commas in its names.
    """
    unquoted_header = re.sub('"[^"]*"', "", start.partition("\n")[0])
    present = [separator for separator in SEPARATORS if separator in unquoted_header]
    if len(present) != 1:
        return usual
    rows = csv.reader(io.StringIO(start, newline=""), delimiter=present[0], **style)
    header_and_first_row = islice(filter(None, rows), 2)
    widths = {len(row) for row in header_and_first_row}
    return present[0] if len(widths) == 1 else usual


def order_rows(
    table: Table, document: Sequence[str], sentence: Sequence[str], position: str | None
) -> list[list[list[int]]]:
    """Returns the rows of each sentence of each document, in the order of their positions.

    Without `sentence`, each document is one sentence.
    """
    columns = [*document, *sentence]
    keys, document_keys = table.keys(columns), table.keys(document)
    sentences = _group(keys)
    name, positions = _read_positions(table, columns, position)
    # neighbouring rows are of different sentences, as in a table in alphabetical order
    is_scattered = (
        len(positions) > 0 and len(set(keys)) < len(sentences) and len(keys) < 2 * len(sentences)
    )
    if is_scattered:
        sentences = _group(keys, is_scattered)
    numbers = _group([document_keys[rows[0]] for rows in sentences], is_scattered)
    documents = [[sentences[number] for number in group] for group in numbers]
    if not positions:
        return documents
    for rows in sentences:
        rows.sort(key=positions.__getitem__)
        for before, row in pairwise(rows):
            if positions[before] == positions[row]:
                unit = "sentence" if sentence else "document"
                raise InputError(
                    f"{table.where(row)}: {name} {positions[row]} occurs twice in a {unit}: name"
                    f" all columns that identify {'sentences and ' if sentence else ''}documents"
                    " (readers, too), or another --position, or --position none"
                )
    for parts in documents:
        rows = list(chain(*parts))
        if len({positions[row] for row in rows}) == len(rows):  # they count through the document
            parts.sort(key=lambda rows: positions[rows[0]])
    moved = [list(chain(*parts)) for parts in documents]
    if count := sum(rows != sorted(rows) for rows in moved):
        info(
            f"{counted(count, 'document')} not in the order of {name}: read in that order; rows"
            " keep their places"
        )
    return documents


def _group(keys: Sequence[Hashable], is_scattered: bool = False) -> list[list[int]]:
    """Returns the indices of equal keys: of neighbours, or of all keys if they are scattered."""
    if not is_scattered:
        return [list(group) for _, group in groupby(range(len(keys)), keys.__getitem__)]
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _read_positions(
    table: Table, columns: Sequence[str], position: str | None
) -> tuple[str, list[int]]:
    """Returns the name and the values of the column of positions; no values if it has none."""
    names = {str(name).lower(): name for name in table.rows[0] if name not in columns}
    name = position or next((names[each] for each in POSITIONS if each in names), "none")
    if name == "none":
        return name, []
    try:
        return name, list(map(int, table.numbers(name)))
    except InputError:
        raise  # There is no such column.
    except (ValueError, TypeError, OverflowError) as error:
        if position is None:
            return name, []
        raise InputError(
            f"{table.name}: column {name!r} does not hold positions of words: {error}"
        ) from None


def read_spaces(table: Table, column: str) -> list[bool]:
    """Returns whether a space follows the word of each row: not if the cell is No or has
    SpaceAfter=No."""
    cells = [str(cell).strip().lower() for cell in table.column(column)]
    spaces = [cell not in NO_SPACE and "spaceafter=no" not in cell.split("|") for cell in cells]
    if all(spaces):
        raise InputError(
            f"{table.name}: no cell of column {column!r} says that no space follows its word: write"
            " No, False, 0 or SpaceAfter=No there, or leave out --space-after"
        )
    return spaces
