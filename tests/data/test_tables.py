"""Tables as people save them, and what is no table."""

import gzip
import re

import pytest

from esnlm.data.tables import read_table
from esnlm.errors import InputError


def save(folder, text, name="items.tsv"):
    (folder / name).write_bytes(text.encode())
    return folder / name


def test_tsv_and_csv(tmp_path):
    for name, mark in {"items.tsv": "\t", "items.csv": ",", "items.txt": "\t"}.items():
        lines = [["item", "text"], ["1", '"The ""cats"" sleep, or\nrest."'], ["2", " The dog "]]
        table = read_table(save(tmp_path, "\ufeff" + "\r\n".join(map(mark.join, lines)) + "\r\n\r\n", name))
        assert table.columns == ["item", "text"] and table.lines == [2, 4]
        assert table.column("text") == ['The "cats" sleep, or\nrest.', " The dog "]
        assert table.others(["text"]) == [{"item": "1"}, {"item": "2"}]
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,sentence\n1,The cats sleep.\n"))
    assert read_table(tmp_path / "a.csv.gz").texts("sentence") == ["The cats sleep."]


def test_rows_that_a_quotation_mark_joins_are_refused(tmp_path):
    """A quotation that spans rows, in a table without quoting, looks like one cell that spans rows."""
    content = 'item\ttext\n1\tHe came.\n2\t"Come here.\n3\tI am late."\n4\tHe left.\n'
    in_notes = 'text\tnote\nHe came.\tfine\nCome here.\t"a\nI am late.\tb"\nHe left.\tfine\n'
    for text in (content, in_notes):
        with pytest.raises(InputError, match="items.tsv:3: a cell goes over the end of its row: .*--no-quotes"):
            read_table(save(tmp_path, text))
    lines = read_table(save(tmp_path, 'text\n"Come here.\nI am late."\n'))
    with pytest.raises(InputError, match="items.tsv:2: a line end or a tab in 'Come here.*: if quotation marks"):
        lines.texts("text")
    assert read_table(save(tmp_path, content), quotes=False).texts("text")[1:3] == ['"Come here.', 'I am late."']


def test_quotation_marks_that_may_be_a_part_of_the_text_are_warned_of(tmp_path, capsys):
    """Written by pandas, or by R, marks are around cells that need them, or around all text."""
    asks = 'item\tword\n1\tShe\n1\tsaid\n1\t"No."\n1\t"Why?"\n'
    assert read_table(save(tmp_path, asks)).texts("word") == ["She", "said", "No.", "Why?"]
    assert "items.tsv:4: the quotation marks around 'No.', and in 1 more rows, are left out" in capsys.readouterr().err
    by_r = '"item"\t"word"\n1\t"She"\n1\t"said"\n2\t"No."\n3\t"17"\n'
    in_need = 'item\tword\n1\tShe\n2\t"""No."""\n'
    in_notes = 'item\tword\n1\tShe\n"2"\tsaid\n'
    for text, name in ((by_r, "a.tsv"), (in_need, "b.tsv"), (in_notes, "c.tsv"), (asks.replace("\t", ","), "d.csv")):
        read_table(save(tmp_path, text, name)).texts("word")
    read_table(save(tmp_path, asks), quotes=False).texts("word")
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "text, line",
    [
        ("", ": empty: the first line of a table names its columns"),
        ("a\tb\n", ": no row below the names of its columns"),
        ("a\ta\n1\t2\n", ":1: column 'a' stands twice: give each its own name"),
        ("a\tb\n1\t2\n\n3\n", ":4: 1 cells, and the first line names 2 columns"),
        ('a\tb\n1\t"Yes", he said\n', ": not a table ("),
        ('a\tb\n1\t"Yes\n', ": not a table (unexpected end of data)"),
    ],
)
def test_what_is_no_table_is_named_by_its_line(tmp_path, text, line):
    file = save(tmp_path, text)
    with pytest.raises(InputError, match=f"^{re.escape(f'{file}{line}')}"):
        read_table(file)


def test_blank_lines_are_left_out_and_known(tmp_path):
    found = read_table(save(tmp_path, 'a\tb\n1\t"x\ny"\n3\t4\n\n\n5\t6\n\n'))
    assert found.column("a") == ["1", "3", "5"] and found.lines == [2, 4, 7]
    assert [found.is_after_blank(row) for row in (1, 2)] == [False, True]


def test_a_missing_column_and_documents_are_named(tmp_path):
    file = save(tmp_path, "a\tb\n1\t2\n")
    with pytest.raises(InputError, match=r"no column 'text': choose from a, b \(a .csv has commas"):
        read_table(file).column("text")
    with pytest.raises(InputError, match=r"a\.jsonl: holds documents, and a table is read here"):
        read_table(file.rename(tmp_path / "a.jsonl"))
