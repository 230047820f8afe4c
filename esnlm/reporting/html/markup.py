"""HTML from Python. Text is always escaped, because names of runs and sentences of a corpus may hold anything.

Example:
    tag("p", "a < b, and ", tag("b", name), class_="note")
"""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

# Characters that no text needs and that HTML forbids, and half surrogate pairs, which UTF-8 cannot write.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
VOID = {"meta", "link", "br", "col"}  # elements without content


class Html(str):
    """Text that is HTML already. Only `tag` and `join` make it, and `raw` of what stands in this package."""


Child: TypeAlias = str | int | float | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """Returns an element.

    Args:
        name: of the element, such as "p".
        children: what stands in it. Html stays as it is, other text is escaped, and None is nothing.
        attributes: by name. `_` stands for `-`, and a `_` at the end, as in `class_`, for nothing. True is an attribute
            without a value; None and False are left out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{escape(str(value))}"')
    head = f"<{' '.join(words)}>"
    return Html(head if name in VOID else f"{head}{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Returns several pieces one after the other, as `tag` treats its children."""
    pieces = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, str | int | float):
            pieces.append(escape(child))
        else:
            pieces.append(join(*child))
    return Html("".join(pieces))


def escape(text: str | int | float) -> str:
    """Returns text as HTML shows it, in an element and in an attribute. Html is returned as it is."""
    if isinstance(text, Html):
        return text
    return html.escape(UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", str(text)))


class Section(NamedTuple):
    """A heading and what stands below it."""

    title: str
    content: Html

    @property
    def id(self) -> str:
        """What a link calls it."""
        return re.sub(r"[^\w]+", "-", self.title).lower()


class Cell(NamedTuple):
    """A cell of a table that is sorted by something else than its text."""

    shown: Child
    sort: float | str | None


def table(
    header: Sequence[str], rows: Iterable[Sequence[Child | Cell]], align: str = "l", tools: str | None = None
) -> Html:
    """Returns a table in a box of its own, in which it can be moved sideways where the page is narrow.

    Args:
        header: of each column.
        rows: the cells of each row.
        align: a letter a column, l (left) or r (right, for figures); the last letter stands for all further columns.
        tools: what the rows are, such as "paradigms". Then a reader with JavaScript can sort and filter them.
    """
    letters = align + align[-1] * (len(header) - len(align))
    titles = [title.replace(" %", "\N{NO-BREAK SPACE}%") for title in header]
    classes = ["num" if letter == "r" else None for letter in letters]

    def body(cells: Sequence[Child | Cell]) -> Iterable[Html]:
        for i, (cell, class_) in enumerate(zip(cells, classes, strict=True)):
            shown, sort = cell if isinstance(cell, Cell) else (cell, None)
            # The first column names its row.
            yield tag("td" if i else "th", shown, class_=class_, data_sort=sort, scope=None if i else "row")

    head = tag("tr", (tag("th", title, class_=c, scope="col") for title, c in zip(titles, classes, strict=True)))
    found = tag("table", tag("thead", head), tag("tbody", (tag("tr", body(row)) for row in rows)), data_tools=tools)
    return tag("div", found, class_="scroll", tabindex=0, role="region", aria_label=tools or "table")


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Returns names with what belongs to them, one below the other."""
    return tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), class_="facts")


def note(*children: Child) -> Html:
    """Returns a line of explanation."""
    return tag("p", *children, class_="note")


def command(line: str) -> Html:
    """Returns a command to copy."""
    return tag("pre", _code(line), class_="command", tabindex=0)


def ask(what: str, line: str) -> Html:
    """Returns the line that stands where something is not there yet, with the command that makes it."""
    return note(what, " ", _code(line))


def _code(line: str) -> Html:
    """Returns a command, of which page.css breaks no option: a browser would break a line after its hyphens."""
    words = (tag("span", word) if word.startswith("-") else word for word in line.split(" "))
    return tag("code", ([" " if i else None, word] for i, word in enumerate(words)))
