"""Tables as text: Markdown, LaTeX, CSV and TSV. io/screen.py shows them on the terminal."""

import csv
import io
from collections.abc import Iterable, Sequence

LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\u00b1": r"$\pm$"}
LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], align: str = "l") -> list[str]:
    """Returns the lines of a Markdown table.

    Args:
        align: a letter a column, l (left) or r (right); the last letter stands for all further columns.

    Example:
        markdown_table(["run", "NLL", "BLiMP"], [["small", 2.18, 94.3]], align="lr")
    """
    rule = ["---" if letter == "l" else "---:" for letter in align.ljust(len(header), align[-1])]
    lines = [[str(cell).replace("|", "&#124;") for cell in row] for row in (header, *rows)]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]


def latex_table(header: Sequence[str], rows: Iterable[Sequence[object]], align: str = "l") -> list[str]:
    """Returns the lines of a LaTeX table for the package booktabs. Arguments are those of `markdown_table`."""
    escapes = str.maketrans(LATEX)
    first, *others = (" & ".join(str(cell).translate(escapes) for cell in row) + r" \\" for row in (header, *rows))
    begin = f"\\begin{{tabular}}{{{align.ljust(len(header), align[-1])}}}  % needs \\usepackage{{booktabs}}"
    return [begin, r"\toprule", first, r"\midrule", *others, r"\bottomrule", r"\end{tabular}"]


def csv_table(header: Sequence[str], rows: Iterable[Sequence[object]], separator: str = ",") -> str:
    """Returns a table as CSV or TSV. Numbers keep all their digits, and None is an empty cell."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
