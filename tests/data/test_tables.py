"""Tables as people save them, and what is no table."""

import csv
import gzip

import pandas
import pytest

from esnlm.base.errors import InputError
from esnlm.data.tables import order_rows, read_table, table_of


def save(folder, text, name="items.tsv"):
    (folder / name).write_bytes(text.encode())
    return folder / name


def test_tsv_and_csv(tmp_path):
    for name, mark in {"items.tsv": "\t", "items.csv": ",", "items.txt": "\t"}.items():
        lines = [["item", "text"], ["1", '"The ""cats"" sleep, or\nrest."'], ["2", " The dog "]]
        table = read_table(
            save(tmp_path, "\ufeff" + "\r\n".join(map(mark.join, lines)) + "\r\n\r\n", name)
        )
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
        ("a.csv", 'text;item\n"He left;\nshe stayed.";1\n', "He left;\nshe stayed."),
    ],
)
def test_the_header_shows_the_separator(tmp_path, name, text, cell):
    assert read_table(save(tmp_path, text, name)).texts("text", several_lines=True) == [cell]


def test_a_comma_in_a_name_is_no_separator(tmp_path):
    table = read_table(save(tmp_path, "sentence, English\nThe cat sat.\n"))
    assert table.texts("sentence, English") == ["The cat sat."]
    mixed = read_table(save(tmp_path, "item;good;RT, ms\n1;He left.;350,5\n", "a.csv"))
    with pytest.raises(
        InputError, match=r"no column 'good': choose from item;good;RT,  ms \(.* by a comma\)$"
    ):
        mixed.column("good")


def test_a_row_of_another_length_names_the_separator_and_the_option_of_the_command(tmp_path):
    path = save(tmp_path, "item,text;b\n1;He left.;x\n", "a.csv")
    with pytest.raises(
        InputError,
        match="a.csv:2: not 2 cells, .* separated by a comma; if .* double the inner ones$",
    ):
        read_table(path)
    with pytest.raises(InputError, match="double the inner ones, or give --no-quotes$"):
        read_table(path, quotes_option="--no-quotes")
    with pytest.raises(
        InputError, match="separated by a comma; quotation marks were read as text$"
    ):
        read_table(path, quotes=False, quotes_option="--no-quotes")


REAL = [
    ("The", "The"),
    ('"yes"', "yes"),
    ('"no, no"', "no, no"),
    ('"say ""so"""', 'say "so"'),
    ('"well"', "well"),
]


@pytest.mark.parametrize(
    "header, cells, warning",
    [
        ("text", REAL, ":3: quotation marks around 'yes' and 2 other cells are left out"),
        (
            "text",
            REAL[1:2],
            ":2: quotation marks around 'yes' are left out",
        ),  # also if all cells are quoted
        (
            "text",
            [('"Yes, I do."', "Yes, I do.")],
            ":2: quotation marks around 'Yes, I do.' are left out",
        ),
        ('"text"', [*REAL, ("NA", "NA")], ""),  # R quotes names and texts, but not NA
        ("text", [REAL[0], REAL[3], ('""', "")], ""),
    ],
)
def test_quotation_marks_that_a_cell_did_not_need_are_warned_of(
    tmp_path, capsys, header, cells, warning
):
    lines = [f"item\t{header}", *(f"{i}\t{raw}" for i, (raw, _) in enumerate(cells))]
    file = save(tmp_path, "\n".join(lines) + "\n")
    assert read_table(file, quotes_option="--no-quotes").texts("text") == [
        cell for _, cell in cells
    ]
    err = capsys.readouterr().err
    assert err.startswith(f"warning: {file}{warning}: ") if warning else err == ""
    assert read_table(file, quotes=False).texts(header) == [raw for raw, _ in cells]
    assert capsys.readouterr().err == ""


def test_the_advice_on_quotation_marks_keeps_them(tmp_path, capsys):
    read_table(save(tmp_path, 'text\n"yes"\n'), quotes_option="--no-quotes").texts("text")
    advice = "put the cell in quotation marks and double the inner ones, or give --no-quotes\n"
    assert capsys.readouterr().err.endswith(advice)
    assert read_table(save(tmp_path, 'text\n"""yes"""\n')).texts("text") == ['"yes"']
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "text, column",
    [
        ('a,b,c\n"x,y","p",p\n', "c"),
        ('a,b,c\n"""x""","p\n""x"",y",z\n', "a"),
        ('a,b\n1,"x\ny"\n', "b"),
    ],
)
def test_rows_whose_cells_have_separators_or_line_ends_are_not_warned_of(
    tmp_path, capsys, text, column
):
    table = read_table(save(tmp_path, text, "items.csv"))
    table.texts(column, several_lines=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_tables_of_programs_are_read_without_a_warning(tmp_path, capsys, quoting):
    with open(tmp_path / "items.csv", "w", encoding="utf-8", newline="") as file:
        rows = [[i, text] for i, (_, text) in enumerate(REAL)]
        csv.writer(file, quoting=quoting).writerows([["item", "text"], *rows])
    assert read_table(tmp_path / "items.csv").texts("text") == [text for _, text in REAL]
    read_table(
        save(tmp_path, 'text\n"The cat, it sleeps."\n"The cats sleep."\n', "by_hand.csv")
    ).texts("text")
    assert capsys.readouterr().err == ""


def test_rows_that_a_quotation_mark_joins_are_refused(tmp_path):
    content = 'item\ttext\n1\tHe came.\n2\t"Come here.\n3\tI am late."\n4\tHe left.\n'
    joined = read_table(save(tmp_path, content))
    with pytest.raises(
        InputError, match="items.tsv:4: a line end or a tab in 'Come here.*: if quotation marks"
    ):
        joined.texts("text")
    assert read_table(save(tmp_path, content), quotes=False).texts("text")[1:3] == [
        '"Come here.',
        'I am late."',
    ]


def test_a_table_from_python():
    table = table_of([{"item": 1, "word": "The"}, {"item": 2, "word": "cat"}])
    assert table.keys(["item"]) == [(1,), (2,)] and table.texts("word") == ["The", "cat"]
    for rows, line in {
        (): "the table has no rows",
        ("The",): "the table is a tuple: give a DataFrame or a list of dicts",
    }.items():
        with pytest.raises(InputError, match=f"^{line}$"):
            table_of(rows)
    with pytest.raises(InputError, match="^the table: no column 'zone': choose from item, word$"):
        table.column("zone")


def test_a_data_frame_has_no_value_for_any_kind_of_missing_cell():
    frame = pandas.DataFrame({"word": ["The", None], "rt": [1.5, float("nan")]})
    frame["item"] = pandas.array([1, None], dtype="Int64")
    assert table_of(frame).rows == [
        {"word": "The", "rt": 1.5, "item": 1},
        {"word": None, "rt": None, "item": None},
    ]
    with pytest.raises(InputError, match="^the table: two columns have the same name"):
        table_of(pandas.concat([frame, frame], axis=1))


def test_rows_in_any_order_are_read_by_their_positions(capsys):
    """The table is in alphabetical order, and positions count through a document."""
    text = ["The", "cats", "sleep.", "Dogs", "run."]
    words = [("a", s, i, word) for s, i, word in zip("11122", range(5), text, strict=True)]
    words += [("b", *row[1:]) for row in words]
    words.sort(key=lambda row: row[3])
    rows = [dict(zip(("story", "s", "zone", "word"), row, strict=True)) for row in words]
    for sentence, expected in ((["s"], [text[:3], text[3:]]), ([], [text])):
        table = table_of(rows)
        ordered = words_in_order(table, sentence)
        assert ordered == [expected, expected]
    assert "2 documents not in the order of zone: read in that order" in capsys.readouterr().err


def words_in_order(table, sentence):
    """Returns the words of each sentence of each document, without Punkt."""
    documents = order_rows(table, ["story"], sentence, None)
    return [[[table.rows[row]["word"] for row in rows] for rows in parts] for parts in documents]


def test_positions_that_begin_anew_leave_sentences_in_the_order_of_the_table():
    names = ("story", "s", "zone", "word")
    cells = [("a", 2, 1, "The"), ("a", 2, 2, "cats"), ("a", 1, 2, "run."), ("a", 1, 1, "Dogs")]
    rows = [dict(zip(names, row, strict=True)) for row in cells]
    assert words_in_order(table_of(rows), ["s"]) == [[["The", "cats"], ["Dogs", "run."]]]
