"""Text and tables on standard output, by rich. On a terminal, a table that is too wide is shown in parts, so that no figure is cut."""

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from esnlm.io.console import is_terminal

UNBROKEN = 1_000_000  # columns: as many as any line needs
GAP = 2  # columns between those of a table
NARROWEST_NAME = 16  # columns of the first column, unless it needs less


class Screen:
    """Where results are shown to a person.

    Example:
        Screen().table(["run", "NLL"], [["small", "2.18"], ["large", "1.97"]], align="lr")
    """

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        """
        Args:
            stream: None: standard output.
            width: Columns; None: those of the terminal, and without one there is no limit.
        """
        stream = sys.stdout if stream is None else stream
        forced = bool(os.environ.get("FORCE_COLOR")) or None  # bold letters in a pipe; rich knows NO_COLOR itself
        color = None if os.environ.get("NO_COLOR") else "auto"
        plain: dict[str, Any] = {"color_system": color, "highlight": False, "markup": False, "emoji": False}
        self._console = Console(file=stream, width=UNBROKEN, force_terminal=forced, **plain)
        self.width = width or (Console(file=stream).width if is_terminal(stream) else UNBROKEN)

    def line(self, text: str = "") -> None:
        """Shows a line of text."""
        self._console.print(text, width=self.width)

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        align: str = "lr",
        bold: Collection[str] = (),
        edge: bool = False,
    ) -> None:
        """Shows a table.

        Args:
            header: One text a column; empty: there is no header.
            rows: The cells of each row.
            align: A letter a column, l (text, on the left, broken if there is no room) or r (figures, on the right, never
                broken); the last one stands for all further columns.
            bold: The rows whose first cell is one of these are shown in bold letters.
            edge: Leave a column free on both sides.
        """
        rows = [list(row) for row in rows]
        lines = [*([header] if header else []), *rows]
        count = max(map(len, lines), default=0)
        cells = [[line[i] if i < len(line) else "" for line in lines] for i in range(count)]
        widths = [max(cell_len(part) for cell in column for part in cell.split("\n")) for column in cells]
        letters = (align + align[-1] * count)[:count]
        names = max(letters.find("r"), 1)  # the first columns are the names of a row, which each part has
        room = self.width - 2 * edge
        for number, shown in enumerate(_parts(widths, names, room) if count else ()):
            if number:
                self.line()
            table = Table(box=None, padding=(0, 1), pad_edge=edge, show_header=bool(header), header_style="bold")
            for i in shown:
                is_text = letters[i] == "l"
                table.add_column(
                    cells[i][0] if header else "",
                    justify="left" if is_text else "right",
                    no_wrap=not is_text,
                    overflow="fold",
                    min_width=None if is_text else widths[i],
                )
            for j, row in enumerate(rows, bool(header)):
                table.add_row(*(cells[i][j] for i in shown), style="bold" if row and row[0] in bold else None)
            self._console.print(table, width=self.width)


def _parts(widths: Sequence[int], names: int, room: int) -> list[list[int]]:
    """Divides the columns of a table into parts that fit; each begins with the names of the rows."""
    missing = sum(widths) + GAP * (len(widths) - 1) - room
    if sum(widths[:names]) - missing >= NARROWEST_NAME:  # names that are broken are better than a table in parts
        return [list(range(len(widths)))]
    widest = max(widths[names:], default=0)
    used = names_width = min(sum(widths[:names]) + GAP * (names - 1), max(room - GAP - widest, NARROWEST_NAME))
    parts = [list(range(min(names, len(widths))))]
    for i, width in list(enumerate(widths))[names:]:
        if used + GAP + width > room and len(parts[-1]) > names:
            parts.append(list(range(names)))
            used = names_width
        parts[-1].append(i)
        used += GAP + width
    return parts
