"""Tables as text, in Markdown, LaTeX and CSV. io/screen.py shows them on the terminal."""

import csv
import io
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


LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\u00b1": r"$\pm$"}
LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def latex_table(header: Sequence[str], rows: Iterable[Sequence[object]], align: str = "l") -> list[str]:
    """Returns the lines of a LaTeX table for the package booktabs. Arguments are those of `markdown_table`."""
    letters = align + align[-1] * (len(header) - len(align))

    def line(cells: Sequence[object]) -> str:
        texts = ("".join(LATEX.get(letter, letter) for letter in str(cell)) for cell in cells)
        return f"{' & '.join(texts)} \\\\"

    return [
        f"\\begin{{tabular}}{{{letters}}}  % needs \\usepackage{{booktabs}}",
        r"\toprule",
        line(header),
        r"\midrule",
        *map(line, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def csv_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table as CSV. Numbers keep all their digits, and None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
