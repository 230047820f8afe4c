"""Text and tables on standard output, for a terminal of any width, a pipe and a file.

On a terminal, text is broken between words. A table that is too wide is shown in several parts, one below the other, each with
the names of the rows, so that no figure is cut or broken. Elsewhere nothing is broken: a line is as long as it needs to be.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from esnlm.io.console import columns, has_styles, is_terminal

UNBROKEN = 1_000_000  # columns: as many as any line needs
GAP = 2  # columns between those of a table
NARROWEST_NAME = 16  # columns of the first column, where all others stand beside it
NARROWEST_TEXT = 12  # columns of a table's text, where there is too little room


class Screen:
    """Where results are shown to a person.

    Example:
        Screen().table(["run", "NLL"], [["small", "2.18"], ["large", "1.97"]], align="lr")
    """

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        """
        Args:
            stream: None: standard output.
            width: columns; None: those of the terminal, and without one there is no limit.
        """
        stream = sys.stdout if stream is None else stream
        self.width = width or (columns(stream) if is_terminal(stream) else UNBROKEN)
        styles = has_styles(stream)
        self._console = Console(
            file=stream,
            width=UNBROKEN,
            color_system="standard" if styles else None,
            force_terminal=styles,
            highlight=False,
            markup=False,
            emoji=False,
        )

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
            header: one text a column; empty: there is no header.
            rows: the cells of each row.
            align: a letter a column, l (text, on the left) or r (figures, on the right); the last one stands for all
                further columns. A figure is never broken.
            bold: the rows whose first cell is one of these are shown in bold letters.
            edge: leave a column free on both sides.
        """
        rows = [list(row) for row in rows]
        lines = [*([header] if header else []), *rows]
        count = max(map(len, lines), default=0)
        natural = [max(cell_len(part) for line in lines for part in _cell(line, i).split("\n")) for i in range(count)]
        letters = align + align[-1] * (count - len(align))
        for number, (shown, widths) in enumerate(_parts(natural, letters, self.width - 2 * edge)):
            if number:
                self.line()
            table = Table(
                box=None, padding=(0, 1), pad_edge=edge, show_header=bool(header), header_style="bold", expand=False
            )
            for i, width in zip(shown, widths, strict=True):
                is_text = letters[i] == "l"
                table.add_column(
                    _cell(header, i),
                    justify="left" if is_text else "right",
                    no_wrap=not is_text,
                    overflow="fold",
                    width=width,
                )
            for row in rows:
                table.add_row(*(_cell(row, i) for i in shown), style="bold" if _cell(row, 0) in bold else None)
            self._console.print(table)


def _cell(row: Sequence[str], column: int) -> str:
    return row[column] if column < len(row) else ""


def _parts(natural: Sequence[int], letters: str, room: int) -> list[tuple[list[int], list[int]]]:
    """Divides the columns of a table into parts that fit, and returns the columns of each and their widths.

    Args:
        natural: how wide each column would be.
        letters: of each column, l for text, which may be broken, or r.
        room: columns of the terminal.
    """
    if len(natural) < 2:
        return [([i], [min(width, max(room, NARROWEST_TEXT))]) for i, width in enumerate(natural)]
    names = max(letters.find("r"), 1)  # The first columns are the names of the row, which each part has.
    heads, rest = list(natural[:names]), natural[names:]
    missing = sum(heads) + sum(rest) + GAP * (len(natural) - 1) - room
    if letters[0] == "l" and missing > 0:
        if heads[0] - missing >= NARROWEST_NAME:  # Names that are broken are better than a table in parts.
            heads[0] -= missing
        else:  # Not even one other column may have room beside them. Text can be broken, figures cannot.
            figures = max((width for i, width in enumerate(rest, names) if letters[i] == "r"), default=0)
            least = NARROWEST_TEXT if figures else max((room - GAP) // 2, NARROWEST_TEXT)
            missing = sum(heads) + GAP * names + (figures or max(rest)) - room
            heads[0] = min(heads[0], max(heads[0] - missing, least))
    head = sum(heads) + GAP * (names - 1)
    parts: list[tuple[list[int], list[int]]] = []
    used = room + 1  # so that the first of the other columns begins a part
    for i, width in enumerate(rest, names):
        if letters[i] == "l":
            width = min(width, max(room - GAP - head, NARROWEST_TEXT))
        if used + GAP + width > room:
            parts.append((list(range(names)), list(heads)))
            used = head
        parts[-1][0].append(i)
        parts[-1][1].append(width)
        used += GAP + width
    return parts
