"""Formats tables as Markdown, CSV and TSV. io/screen.py prints them on the terminal."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Table: TypeAlias = tuple[list[str], list[list[str]]]  # header and rows


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], align: str = "l"
) -> list[str]:
    """Returns the lines of a Markdown table.

    Args:
        align: one letter per column, l (left) or r (right); the last letter applies to all further
            columns.
    """
    rule = ["---" if letter == "l" else "---:" for letter in align.ljust(len(header), align[-1])]
    lines = [[str(cell).replace("|", "&#124;") for cell in row] for row in (header, *rows)]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]


def csv_table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    separator: str = ",",
    quotes: bool = True,
) -> str:
    """Formats a table as CSV or TSV. Numbers keep all digits, and None becomes an empty cell.

    Without `quotes`, cells are written as they are; none may contain the separator or a line end.
    """
    text = io.StringIO(newline="")
    style: dict[str, Any] = {} if quotes else {"quoting": csv.QUOTE_NONE, "quotechar": None}
    csv.writer(text, delimiter=separator, lineterminator="\n", **style).writerows([header, *rows])
    return text.getvalue()
