"""Rows in three formats, read back by their own readers."""

import csv
import io
import json
import math
from pathlib import Path

import pytest

from esnlm.errors import InputError
from esnlm.reporting.row_table import table_format, table_text

ROWS = [
    {"sentence": 0, "word": 'a "b"', "surprisal_bits": 1 / 3},
    {"sentence": 1, "word": "c,\td\n", "surprisal_bits": -1e-9},
]


@pytest.mark.parametrize("kind, mark", [("tsv", "\t"), ("csv", ",")])
def test_tables_with_a_line_of_names(kind, mark):
    names, *rows = csv.reader(io.StringIO(table_text(ROWS, kind), newline=""), delimiter=mark)
    assert names == ["sentence", "word", "surprisal_bits"]
    assert rows == [["0", 'a "b"', "0.333333"], ["1", "c,\td\n", "0.000000"]]


def test_json_lines():
    text = table_text([*ROWS, {"word": "日本", "surprisal_bits": math.inf}], "jsonl")
    assert [json.loads(line) for line in text.splitlines()] == [
        {"sentence": 0, "word": 'a "b"', "surprisal_bits": 0.333333},
        {"sentence": 1, "word": "c,\td\n", "surprisal_bits": 0.0},
        {"word": "日本", "surprisal_bits": "inf"},
    ]
    assert "日本" in text


def test_the_format_is_the_one_asked_for_or_that_of_the_name():
    assert [table_format(*given) for given in ((None, None), (Path("a.CSV"), None), (Path("a.txt"), "jsonl"))] == [
        *("tsv", "csv", "jsonl")
    ]
    with pytest.raises(InputError, match=r"a.txt: its name does not say which table to write: end it in .tsv, .csv or"):
        table_format(Path("a.txt"), None)
