"""The one writer of Markdown tables."""

from collections.abc import Iterable, Sequence

LINES = {"l": "---", "r": "---:"}


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], align: str = "l") -> list[str]:
    """Returns the lines of a Markdown table.

    Args:
        header: one text a column.
        rows: the cells of each row, as str shows them; a | in a cell is escaped.
        align: a letter a column, l (left) or r (right); the last letter stands for all further columns.

    Example:
        markdown_table(["run", "NLL", "BLiMP"], [["small", 2.18, 94.3]], align="lr")
    """
    letters = align + align[-1] * (len(header) - len(align))
    cells = [[str(cell).replace("|", "&#124;") for cell in row] for row in (header, *rows)]
    return [f"| {' | '.join(line)} |" for line in (cells[0], [LINES[letter] for letter in letters], *cells[1:])]
