"""Prints text and tables on standard output with rich. Text wraps; figures are never cut."""

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest
from typing import Literal, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from esnlm.base.console import is_terminal

UNBROKEN = 1_000_000  # columns, enough for any line
NARROWEST_TEXT = 16  # minimum columns of wrapped text


class Screen:
    """Prints results.

    Example:
        Screen().table(["run", "NLL"], [["small", "2.18"], ["large", "1.97"]], align="lr")
    """

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        """Prints on standard output, with the width of the terminal, or unlimited without one."""
        stream = sys.stdout if stream is None else stream
        self._console = Console(
            file=stream,
            width=UNBROKEN,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            highlight=False,
            markup=False,
            emoji=False,
        )
        self.width = width or (Console(file=stream).width if is_terminal(stream) else UNBROKEN)

    def line(self, text: str = "") -> None:
        """Prints a line of text."""
        self._console.print(text, width=self.width)

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        align: str = "lr",
        bold: Collection[str] = (),
    ) -> None:
        """Prints a table; an empty header is left out.

        Args:
            align: one letter per column, l (text, wrapped if needed) or r (figures, never wrapped);
                the last letter applies to all further columns.
            bold: rows whose first cell is one of these are bold.
        """
        lines = [list(row) for row in rows]
        table = Table(
            box=None, padding=(0, 1), pad_edge=False, show_header=bool(header), header_style="bold"
        )
        needed = 0  # terminal columns
        for i, cells in enumerate(zip_longest(header, *lines, fillvalue="")):
            width = max(cell_len(part) for cell in cells for part in cell.split("\n"))
            is_text = (align + align[-1] * i)[i] == "l"
            least = min(width, NARROWEST_TEXT) if is_text else width
            needed += least + 2
            side: Literal["left", "right"] = "left" if is_text else "right"
            table.add_column(
                cells[0], justify=side, no_wrap=not is_text, overflow="fold", min_width=least
            )
        for line in lines:
            table.add_row(*line, style="bold" if line and line[0] in bold else None)
        if table.columns:
            self._console.print(table, width=max(self.width, needed))
