"""esnlm score: what it reads, prints and writes."""

import csv
import dataclasses
import io
import json
import math

import numpy as np
import pytest

import esnlm
from esnlm import commands, loaded_run
from esnlm.commands.score import table_text
from esnlm.data.encode import encode_sentences
from esnlm.data.tables import read_table
from esnlm.evaluation import words as word_rows
from esnlm.evaluation.cache import RANGES, CacheFit
from esnlm.loaded_run import Run
from esnlm.models.ngrams import NgramModel
from esnlm.reports import surprisal_plot
from tests.evaluation import small_run

# The run reads documents, so that a test may choose either context.
pytestmark = pytest.mark.filterwarnings("ignore:run [\\w-]+ was trained on whole documents")


@pytest.fixture(scope="module")
def small():
    return small_run.small_run(data=small_run.OF_DOCUMENTS)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, small):
    monkeypatch.setattr(loaded_run, "load", lambda run, step=None: small)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words):
    by = [] if {"--by", "--word"}.intersection(words) else ["--by", "word"]
    return commands.main(["score", "--run", "small", *by, *words])


def score(capsys, *words):
    """The rows that the command prints."""
    assert call(*words) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline=""), delimiter="\t"))


def surprisals(rows, unit="bits"):
    """The figures of rows, as they are written with six decimals."""
    return pytest.approx([float(row[f"surprisal_{unit}"]) for row in rows], abs=1e-6)


def test_words_in_bits_are_the_default(here, capsys, small):
    (here / "text.txt").write_text("The cats sleep.\n\n  The cat run\n")
    rows = score(capsys, "--input", "text.txt")
    assert list(rows[0]) == ["sentence", "position", "word", "start", "end", "surprisal_bits"]
    assert [(row["sentence"], row["word"]) for row in rows if row["start"] != row["end"]] == [
        *(("0", "The"), ("0", "cats"), ("0", "sleep.")),
        # the number of the line, and a blank line has no row
        *(("2", "The"), ("2", "cat"), ("2", "run")),
    ]
    assert [float(row["surprisal_bits"]) for row in rows] == surprisals(
        small.surprisal(["The cats sleep.", "The cat run"])
    )


def test_a_column_of_a_table_keeps_the_others(here, capsys):
    (here / "items.csv").write_text('item,cond,text\n7,a,"The cats, that run"\n7,b,The cat\n')
    rows = score(
        capsys,
        *[
            "--input",
            "items.csv",
            "--column",
            "text",
            "--by",
            "token",
            "--unit",
            "nats",
            "--no-eos",
        ],
    )
    assert {(row["sentence"], row["item"], row["cond"]) for row in rows} == {
        ("0", "7", "a"),
        ("1", "7", "b"),
    }
    assert [row["token"] for row in rows] == ["The", " cats", ",", " that", " run", "The", " cat"]


WORDS = """item,word,rt,sentence
7,The,300,1
7,cats,320,1
7,sleep.,310,1
7,The,290,2
7,cat,305,2
8,that,280,2
8,run,333,2
"""
SENTENCES = ["The cats sleep.", "The cat", "that run"]


@pytest.mark.parametrize(
    "options", [[], ["--context", "document"], ["--whitespace", "trailing", "--unit", "nats"]]
)
def test_a_table_of_words_is_written_again_with_their_surprisals(here, capsys, small, options):
    (here / "words.csv").write_text(WORDS)
    given = dict(
        zip([word.removeprefix("--") for word in options[::2]], options[1::2], strict=True)
    )
    unit = given.get("unit", "bits")
    columns = ["--word", "word", "--sentence", "sentence", "--document", "item"]
    rows = score(capsys, "--input", "words.csv", *columns, *options, "--format", "tsv")
    before = list(csv.DictReader(io.StringIO(WORDS)))
    assert [{name: row[name] for name in before[0]} for row in rows] == before
    documents = [7, 7, 8] if "context" in given else None
    expected = small.surprisal(SENTENCES, **given, documents=documents, eos=False)
    assert [float(row[f"surprisal_{unit}"]) for row in rows] == surprisals(expected, unit)


# Zones fall within the second sentence; rows of two sentences take turns; two readers are one
# sentence by its key.
IN_ORDER = "item,zone,word\n1,1,The\n1,2,cats\n1,3,sleep.\n2,1,The\n2,2,cat\n2,3,run\n"
FALLS = "item,zone,word\n1,1,The\n1,2,cats\n1,3,sleep.\n2,3,run\n2,1,The\n2,2,cat\n"
IN_TURNS = "item,ZONE,word\n1,1,The\n2,1,The\n1,2,cats\n2,2,cat\n1,3,sleep.\n2,3,run\n"
TWICE = "item,zone,word\n1,1,The\n1,2,cats\n1,1,The\n1,2,cats\n"


@pytest.mark.parametrize(
    "table, line", [(IN_ORDER, ""), (FALLS, "1 document not in the order of zone"), (IN_TURNS, "")]
)
def test_rows_are_scored_in_the_order_of_their_positions(here, capsys, small, table, line):
    (here / "words.csv").write_text(table)
    rows = score(
        capsys, "--input", "words.csv", "--word", "word", "--sentence", "item", "--unit", "nats"
    )
    assert [row["word"] for row in rows] == [
        row["word"] for row in csv.DictReader(io.StringIO(table))
    ]
    expected = small.surprisal(["The cats sleep.", "The cat run"], unit="nats", eos=False)
    by_row = {(row["sentence"] + 1, row["position"] + 1): row["surprisal_nats"] for row in expected}
    for row in rows:
        place = int(row["item"]), int(row.get("zone", row.get("ZONE")))
        assert float(row["surprisal_nats"]) == pytest.approx(by_row[place], abs=1e-6)
    words = ["--input", "words.csv", "--word", "word", "--sentence", "item", "--out", "out.csv"]
    assert commands.main(["score", "--run", "small", *words]) == 0
    assert line in capsys.readouterr().err


def test_semicolons_and_decimal_commas_are_read_as_commas_and_points(here, capsys):
    (here / "commas.csv").write_text(FALLS)
    header, *rows = [line.split(",") for line in FALLS.splitlines()]
    lines = [";".join(header), *(f'{item};{zone},0;"{word}"' for item, zone, word in rows)]
    (here / "semicolons.csv").write_text("\n".join(lines) + "\n")
    options = ["--word", "word", "--sentence", "item", "--position", "zone"]
    expected, actual = (
        [(row["word"], row["surprisal_bits"]) for row in score(capsys, "--input", name, *options)]
        for name in ("commas.csv", "semicolons.csv")
    )
    assert actual == expected


def test_positions_that_stand_twice_are_refused_unless_they_are_none(here, capsys):
    (here / "words.csv").write_text(TWICE)
    words = [
        "score",
        "--run",
        "small",
        "--input",
        "words.csv",
        "--word",
        "word",
        "--sentence",
        "item",
    ]
    assert commands.main(words) == 2
    assert (
        "error: words.csv:4: zone 1 occurs twice in a sentence: name all columns"
        in capsys.readouterr().err
    )
    assert commands.main([*words, "--position", "none"]) == 0
    assert commands.main([*words, "--position", "word"]) == 2
    assert "words.csv: column 'word' does not hold positions of words" in capsys.readouterr().err


def test_chinese_words_and_an_empty_separator(here, capsys, small):
    (here / "words.tsv").write_text("item\tword\n1\t我们\n1\t在\n1\t家\n")
    words = ["--input", "words.tsv", "--word", "word", "--sentence", "item", "--unit", "nats"]
    expected = -small.log_probs(["我们在家"], "no-eos")[0]
    for separator in ([], ["--separator", ""]):
        found = score(capsys, *words, *separator)
        assert sum(float(row["surprisal_nats"]) for row in found) == pytest.approx(
            expected, abs=3e-6
        )
    assert commands.main(["score", "--run", "small", *words[:4]]) == 2
    assert (
        "Punkt finds no end of a sentence in a script without spaces: name columns that"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "after",
    [
        ["NoSpaceAfter=None", "SpaceAfter=No|Gloss=x", "No", "False", "0"],
        ["Yes", "no", "false", "0.0", ""],
        ["1,0", "0,0", "0", "FALSE", "_"],
    ],
)
@pytest.mark.parametrize("sentence", [["--sentence", "item"], []])
def test_a_column_says_where_no_space_follows(here, capsys, small, monkeypatch, after, sentence):
    words = ["The", "cat", "'s", "run", "."]
    rows = [f"1\t{word}\t{cell}\n" for word, cell in zip(words, after, strict=True)]
    (here / "words.tsv").write_text("item\tword\tmisc\n" + "".join(rows))
    monkeypatch.setattr(word_rows, "load_punkt", lambda language: language)
    monkeypatch.setattr(
        word_rows,
        "punkt_splitter",
        lambda language: {"The cat'srun.": ["The cat'srun."]}.__getitem__,
    )
    table = ["--input", "words.tsv", "--word", "word", *sentence, "--unit", "nats"]
    found = [float(row["surprisal_nats"]) for row in score(capsys, *table, "--space-after", "misc")]
    expected = small.surprisal(["The cat'srun."], by="token", unit="nats", eos=False)
    assert sum(found) == pytest.approx(sum(row["surprisal_nats"] for row in expected), abs=3e-6)
    assert call(*table, "--space-after", "word") == 2
    assert (
        "words.tsv: no cell of column 'word' says that no space follows its word"
        in capsys.readouterr().err
    )


def test_rows_of_words_that_take_no_space_are_warned_of(here, capsys):
    (here / "words.tsv").write_text("item\tword\n1\tThe\n1\tcat\n1\trun\n1\t.\n")
    with pytest.warns(UserWarning, match=r"^'\.' \(sentence 0, word 3\) read .* --space-after"):
        call("--input", "words.tsv", "--word", "word", "--sentence", "item")


def test_what_no_quotes_writes_no_quotes_reads(here, capsys, small):
    table = 'item\tword\tnote\n1\tThe\ta "b", c\n1\t"cats"\t"\n1\tthat"\t""\n'
    (here / "words.tsv").write_text(table)
    columns = ["--word", "word", "--sentence", "item", "--no-quotes"]
    assert call("--input", "words.tsv", *columns, "--unit", "nats", "--out", "nats.tsv") == 0
    before, rows = (
        read_table(here / name, quotes=False).rows for name in ("words.tsv", "nats.tsv")
    )
    assert [{name: row[name] for name in before[0]} for row in rows] == before
    nats = [float(row["surprisal_nats"]) for row in rows]
    assert sum(nats) == pytest.approx(-small.log_probs(['The "cats" that"'], "no-eos")[0], abs=3e-6)
    assert call("--input", "nats.tsv", *columns, "--out", "bits.tsv") == 2
    assert (
        "error: nats.tsv: column 'sentence_number' would appear twice in the table: rename it"
        in capsys.readouterr().err
    )
    assert call("--input", "words.tsv", *columns, "--out", "words.csv") == 2
    assert "words.tsv: 'a \"b\", c' has the separator of csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    "header, cells", [("text\tRT, ms", "The cats\t310"), ("text\tRT", "The, cats\t310")]
)
def test_no_quotes_writes_no_separator_in_names_or_sentences(here, capsys, header, cells):
    (here / "text.tsv").write_text(f"{header}\n{cells}\n")
    assert call("--input", "text.tsv", "--column", "text", "--no-quotes", "--format", "csv") == 2
    assert "has the separator of csv, which --no-quotes cannot write" in capsys.readouterr().err


def test_a_text_of_white_space_is_refused(here, capsys):
    (here / "text.tsv").write_text("item\ttext\n1\t \n2\t\n")
    assert call("--input", "text.tsv", "--column", "text") == 2
    assert (
        "error: text.tsv: no sentence to score: the text is all white space"
        in capsys.readouterr().err
    )


def test_reader_and_item_together_name_a_document(here, capsys, small):
    """Neither column alone tells the second document from both of its neighbours."""
    (here / "text.tsv").write_text(
        "reader\titem\ttext\na\t1\tThe cats\na\t2\tThe cat\nb\t2\tthat run\n"
    )
    words = [
        "--input",
        "text.tsv",
        "--column",
        "text",
        "--context",
        "document",
        "--document",
        "reader",
        "item",
    ]
    expected = small.surprisal(["The cats", "The cat", "that run"])
    found = [float(row["surprisal_bits"]) for row in score(capsys, *words)]
    assert found == pytest.approx([row["surprisal_bits"] for row in expected], abs=1e-6)


def test_words_without_sentences_are_split_by_punkt(here, capsys, small, monkeypatch):
    (here / "words.csv").write_text(WORDS)
    monkeypatch.setattr(word_rows, "load_punkt", lambda language: language)
    split = {"The cats sleep. The cat": ["The cats sleep.", "The cat"], "that run": ["that run"]}
    monkeypatch.setattr(word_rows, "punkt_splitter", lambda language: split.__getitem__)
    rows = score(capsys, "--input", "words.csv", "--word", "word", "--document", "item")
    assert [float(row["surprisal_bits"]) for row in rows] == surprisals(
        small.surprisal(SENTENCES, eos=False)
    )


def test_blank_lines_and_columns_tell_documents_apart(here, capsys, small):
    (here / "text.txt").write_text("The cats\n\nThe cat\nthat run\n")
    (here / "text.tsv").write_text("text\tstory\nThe cats\ta\nThe cat\tb\nthat run\tb\n")
    expected = small.surprisal(
        ["The cats", "The cat", "that run"], context="document", documents=[0, 1, 1]
    )
    for words in (
        ["--input", "text.txt"],
        ["--input", "text.tsv", "--column", "text", "--document", "story"],
    ):
        rows = score(capsys, *words, "--context", "document")
        assert [float(row["surprisal_bits"]) for row in rows] == surprisals(expected)


def test_several_runs_score_a_table_of_words_without_tokens(here, capsys, small, monkeypatch):
    """The command writes what the function returns."""
    load = lambda run, step=None: dataclasses.replace(small, directory=here / run)  # noqa: E731
    monkeypatch.setattr(loaded_run, "load", load)
    store = encode_sentences(["The cats sleep.", "The cat run"], small.tokenizer)
    monkeypatch.setattr(Run, "training_store", lambda run: store)
    (here / "words.csv").write_text(WORDS)
    words = ["score", "--run", "a-1", "b", "--input", "words.csv", "--word", "word"]
    words += ["--sentence", "sentence", "--document", "item", "--baselines", "unigram", "3-gram"]
    words += ["--previous", "1"]
    expected = esnlm.score_words(
        list(csv.DictReader(io.StringIO(WORDS))),
        [load("a-1"), load("b")],
        sentence="sentence",
        document="item",
        baselines=["unigram", "3-gram"],
        previous=1,
    )
    assert commands.main([*words, "--out", "rows.jsonl"]) == 0
    rows = [json.loads(line) for line in (here / "rows.jsonl").read_text().splitlines()]
    assert [list(row) for row in rows] == [list(row) for row in expected]
    assert {"surprisal_bits_a_1", "surprisal_bits_b", "surprisal_bits_3gram"} <= set(rows[0])
    for row, other in zip(rows, expected, strict=True):
        assert row == pytest.approx(other, abs=1e-6)
    assert commands.main([*words, "--out", "rows.csv"]) == 0
    cells = list(csv.DictReader(io.StringIO((here / "rows.csv").read_text())))
    assert cells[0]["length_previous1"] == "" and cells[1]["length_previous1"] == "3"
    capsys.readouterr()
    assert commands.main([*words, "--plot", "rows.png"]) == 2
    assert capsys.readouterr().err.startswith("error: --plot draws the surprisals of one run: ")
    assert commands.main(["score", "--run", "a", "b", "--by", "word", "--input", "words.csv"]) == 2
    assert "error: several runs can score a table with one word per row only" in (
        capsys.readouterr().err
    )


def test_words_are_drawn_in_reading_order(here, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        surprisal_plot, "plot", lambda rows, *_: drawn.append(rows) or (b"picture", None)
    )
    (here / "words.csv").write_text(FALLS)
    columns = ["--word", "word", "--sentence", "item"]
    assert call("--input", "words.csv", *columns, "--plot", "rows.png") == 0
    assert [row["word"] for row in drawn[0]] == ["The", "cats", "sleep.", "The", "cat", "run"]
    assert (here / "rows.png").read_bytes() == b"picture"


@pytest.mark.parametrize("context", ["sentence", "document"])
def test_documents_say_where_the_counts_of_the_cache_begin_anew(
    here, capsys, small, monkeypatch, context
):
    fit = CacheFit(0, "", "", RANGES, [], [1.0] * 5, math.nan, math.nan)
    monkeypatch.setitem(small.__dict__, "cache_fit", fit)
    counts = np.ones(small.tokenizer.vocab_size)
    monkeypatch.setattr(loaded_run.Run, "unigram", lambda run: NgramModel.from_counts(counts))
    (here / "words.csv").write_text(WORDS)
    columns = ["--word", "word", "--sentence", "sentence", "--document", "item"]
    words = ["--input", "words.csv", *columns, "--format", "tsv", "--context", context]
    found = score(capsys, *words, "--cache")
    expected, as_one = (
        small.surprisal(SENTENCES, context=context, documents=documents, cache=True, eos=False)
        for documents in ([7, 7, 8], [7, 7, 7] if context == "sentence" else [7, 8, 8])
    )
    assert [float(row["surprisal_bits"]) for row in found] == surprisals(expected)
    assert expected[-2:] != as_one[-2:]
    assert [row["surprisal_bits"] for row in score(capsys, *words)] != [
        row["surprisal_bits"] for row in found
    ]
    assert commands.main(["score", "--run", "small", "--cache"]) == 2
    assert "--cache is for tables: give --by word, --by token or --word" in capsys.readouterr().err


def test_files_are_written_and_not_overwritten_unasked(here, rendered):
    (here / "text.txt").write_text("The cats sleep.\n")
    words = ["--input", "text.txt", "--out", "rows.jsonl", "--plot", "rows.png"]
    assert call(*words) == 0
    first = (here / "rows.jsonl").read_bytes()
    assert (
        json.loads(first.splitlines()[0])["word"] == "The"
        and (here / "rows.png").stat().st_size > 10_000
    )
    assert [call(*words), call(*words[:-1], "rows.docx", "--overwrite")] == [2, 2]
    assert (here / "rows.jsonl").read_bytes() == first
    assert call(*words[:-1], "rows.svg", "--overwrite", "--format", "csv") == 0
    assert "</svg>" in (here / "rows.svg").read_text()
    assert (
        (here / "rows.jsonl")
        .read_text()
        .startswith("sentence,position,word,start,end,surprisal_bits\n0,0,The,0,3,")
    )


def test_rows_are_written_with_six_decimals_and_read_back():
    rows = [
        {"sentence": 0, "word": 'a "b"', "surprisal_bits": 1 / 3},
        {"sentence": 1, "word": "c,\td\n", "surprisal_bits": -1e-9},
    ]
    for kind, mark in (("tsv", "\t"), ("csv", ",")):
        names, *found = csv.reader(io.StringIO(table_text(rows, kind), newline=""), delimiter=mark)
        assert names == list(rows[0])
        assert found == [["0", 'a "b"', "0.333333"], ["1", "c,\td\n", "0.000000"]]
    text = table_text([*rows, {"word": "日本", "surprisal_bits": math.inf}], "jsonl")
    assert [json.loads(line) for line in text.splitlines()] == [
        rows[0] | {"surprisal_bits": 0.333333},
        rows[1] | {"surprisal_bits": 0.0},
        {"word": "日本", "surprisal_bits": "inf"},
    ]


@pytest.mark.parametrize(
    "options, message",
    [
        (["--unit", "nats"], "--unit is for tables: give --by word, --by token or --word"),
        (["--no-eos"], "--no-eos is for tables: give --by word, --by token or --word"),
        (["--word", "word", "--by", "token"], "are for texts: leave them out"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(here, capsys, options, message):
    (here / "words.csv").write_text(WORDS)
    assert commands.main(["score", "--run", "small", "--input", "words.csv", *options]) == 2
    assert message in capsys.readouterr().err
