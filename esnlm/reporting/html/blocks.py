"""What a page is made of: blocks of plain data. The macro `show` of page.html has a branch for each kind."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

Block: TypeAlias = dict[str, Any]


class Section(NamedTuple):
    """A heading and what stands below it."""

    title: str
    blocks: list[Block]

    @property
    def id(self) -> str:
        """What a link calls it."""
        return re.sub(r"[^\w]+", "-", self.title).lower()


class Cell(NamedTuple):
    """A cell of a table that is sorted by something else than its text."""

    shown: str
    sort: float | None


def block(kind: str, **content: Any) -> Block:
    """Returns a block of a kind that page.html knows, such as block("text", text="...")."""
    return {"kind": kind, **content}


def note(text: str, command: str | None = None) -> Block:
    """Returns a line of explanation, or the line for what is missing, with the command that makes it."""
    return block("note", text=text, command=command)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], align: str = "lr", tools: str | None = None) -> Block:
    """Returns a table, in which rows have texts or `Cell`s.

    Args:
        align: a letter a column, l (left) or r (right, for figures); the last letter stands for all further columns.
        tools: what the rows are, such as "paradigms". Then a reader with JavaScript can sort and filter them.
    """
    cells = [[cell if isinstance(cell, Cell) else Cell(cell, None) for cell in row] for row in rows]
    titles = [title.replace(" %", "\N{NO-BREAK SPACE}%") for title in header]
    return block("table", header=titles, rows=cells, align=align.ljust(len(titles), align[-1]), tools=tools)


def sortable(text: str) -> str | Cell:
    """Returns a cell that is sorted by the number it begins with."""
    try:
        return Cell(text, float(text.partition(" ")[0].replace(",", "")))
    except ValueError:
        return text
