"""Tables in Markdown, LaTeX, CSV, TSV and JSON lines, read back by their own readers."""

import csv
import io
import json
import math
from pathlib import Path

import pytest

from esnlm.errors import InputError
from esnlm.reporting.row_table import table_format, table_text
from esnlm.reporting.tables import csv_table, latex_table, markdown_table


def test_a_table_is_aligned_by_letters_and_the_last_one_goes_on():
    assert markdown_table(["run", "NLL", "a|b"], [["small", 2.5, 94], ["large", "", None]], align="lr") == [
        "| run | NLL | a&#124;b |",
        "| --- | ---: | ---: |",
        "| small | 2.5 | 94 |",
        "| large |  | None |",
    ]


def test_a_latex_table_escapes_what_latex_would_read():
    assert latex_table(["a_b", "%"], [["r&d ~ 2^10 {#1} \\x", "5.1 ± 0.2"]], align="lr") == [
        "\\begin{tabular}{lr}  % needs \\usepackage{booktabs}",
        "\\toprule",
        "a\\_b & \\% \\\\",
        "\\midrule",
        "r\\&d \\textasciitilde{} 2\\textasciicircum{}10 \\{\\#1\\} \\textbackslash{}x & 5.1 $\\pm$ 0.2 \\\\",
        "\\bottomrule",
        "\\end{tabular}",
    ]


def test_a_csv_table_keeps_all_digits_and_quotes_commas():
    assert csv_table(["run", "NLL"], [["a,b", 1 / 3], ["c", None]]) == 'run,NLL\n"a,b",0.3333333333333333\nc,\n'


ROWS = [
    {"sentence": 0, "word": 'a "b"', "surprisal_bits": 1 / 3},
    {"sentence": 1, "word": "c,\td\n", "surprisal_bits": -1e-9},
]


@pytest.mark.parametrize("kind, mark", [("tsv", "\t"), ("csv", ",")])
def test_rows_with_a_line_of_names(kind, mark):
    names, *rows = csv.reader(io.StringIO(table_text(ROWS, kind), newline=""), delimiter=mark)
    assert names == ["sentence", "word", "surprisal_bits"]
    assert rows == [["0", 'a "b"', "0.333333"], ["1", "c,\td\n", "0.000000"]]


def test_rows_as_json_lines():
    text = table_text([*ROWS, {"word": "日本", "surprisal_bits": math.inf}], "jsonl")
    assert [json.loads(line) for line in text.splitlines()] == [
        {"sentence": 0, "word": 'a "b"', "surprisal_bits": 0.333333},
        {"sentence": 1, "word": "c,\td\n", "surprisal_bits": 0.0},
        {"word": "日本", "surprisal_bits": "inf"},
    ]


def test_the_format_is_the_one_asked_for_or_that_of_the_name():
    given = ((None, None), (Path("a.CSV"), None), (Path("a.txt"), "jsonl"))
    assert [table_format(*each) for each in given] == ["tsv", "csv", "jsonl"]
    with pytest.raises(InputError, match=r"a.txt: end the name in .tsv, .csv or .jsonl"):
        table_format(Path("a.txt"), None)
