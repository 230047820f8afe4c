"""Tables as people save them, and what is no table."""

import csv
import gzip

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
        assert list(table.rows[0]) == ["item", "text"] and table.lines == [3, 4]
        assert table.column("text") == ['The "cats" sleep, or\nrest.', " The dog "]
        assert table.keys(["item"]) == [("1",), ("2",)] and table.keys([]) == [(), ()]
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,sentence\n1,The cats sleep.\n"))
    assert read_table(tmp_path / "a.csv.gz").texts("sentence") == ["The cats sleep."]


@pytest.mark.parametrize(
    "name, text, cell",
    [
        ("a.csv", "item;text\n1;He left, she stayed.\n", "He left, she stayed."),
        ("a.csv", '"item, no.";"text"\n1;"He left; she stayed."\n', "He left; she stayed."),
        ("a.csv", "item,text\n1,He left; she stayed.\n", "He left; she stayed."),
        ("a.csv", "item\ttext\n1\tHe left, she stayed.\n", "He left, she stayed."),
        ("a.csv", "text\nHe left; she stayed.\n", "He left; she stayed."),
    ],
)
def test_the_header_shows_the_separator(tmp_path, name, text, cell):
    assert read_table(save(tmp_path, text, name)).texts("text") == [cell]


def test_a_row_of_another_length_names_the_separator_and_the_option_of_the_command(tmp_path):
    path = save(tmp_path, "item,text;b\n1;He left.;x\n", "a.csv")
    with pytest.raises(InputError, match="a.csv:2: not 2 cells, .* separated by a comma; if .*, double them$"):
        read_table(path)
    with pytest.raises(InputError, match="double them, or give --no-quotes$"):
        read_table(path, quotes_option="--no-quotes")


REAL = [("The", "The"), ('"yes"', "yes"), ('"no, no"', "no, no"), ('"say ""so"""', 'say "so"'), ('"well"', "well")]


@pytest.mark.parametrize(
    "header, cells, warned",
    [
        ("text", REAL, True),
        ('"text"', [*REAL, ("NA", "NA")], False),  # R quotes names and texts, but not NA
        ("text", [*REAL[1:], ("", "")], False),  # all cells with text are quoted
        ("text", [REAL[0], *REAL[2:4]], False),  # Excel quotes a comma also in TSV
    ],
)
def test_quotation_marks_that_a_cell_did_not_need_are_warned_of(tmp_path, capsys, header, cells, warned):
    lines = [f"item\t{header}", *(f"{i}\t{raw}" for i, (raw, _) in enumerate(cells))]
    file = save(tmp_path, "\n".join(lines) + "\n")
    assert read_table(file).texts("text") == [cell for _, cell in cells]
    (*_, err) = capsys.readouterr()
    assert err.startswith(f"warning: {file}:3: quotation marks around 'yes', one of 2 cells") == warned
    assert bool(err) == warned
    assert read_table(file, quotes=False).column("item") == list(map(str, range(len(cells))))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_tables_of_programs_are_read_without_a_warning(tmp_path, capsys, quoting):
    with open(tmp_path / "items.csv", "w", encoding="utf-8", newline="") as file:
        rows = [[i, text] for i, (_, text) in enumerate(REAL)]
        csv.writer(file, quoting=quoting).writerows([["item", "text"], *rows])
    assert read_table(tmp_path / "items.csv").texts("text") == [text for _, text in REAL]
    assert capsys.readouterr().err == ""


def test_rows_that_a_quotation_mark_joins_are_refused(tmp_path):
    content = 'item\ttext\n1\tHe came.\n2\t"Come here.\n3\tI am late."\n4\tHe left.\n'
    joined = read_table(save(tmp_path, content))
    with pytest.raises(InputError, match="items.tsv:4: a line end or a tab in 'Come here.*: if quotation marks"):
        joined.texts("text")
    assert read_table(save(tmp_path, content), quotes=False).texts("text")[1:3] == ['"Come here.', 'I am late."']
