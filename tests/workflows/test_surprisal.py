"""esnlm score --tokens: what it reads, prints and writes."""

import csv
import io
import json

import pytest

from esnlm import commands, loaded_run
from tests.evaluation import small_run


@pytest.fixture(scope="module")
def small():
    return small_run.small_run()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, small):
    monkeypatch.setattr(loaded_run, "load", lambda run, step=None: small)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def score(capsys, *words):
    """The rows that the command prints."""
    assert commands.main(["score", "--run", "small", "--tokens", *words]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline=""), delimiter="\t"))


def test_words_in_bits_are_the_default(here, capsys, small):
    (here / "text.txt").write_text("The cats sleep.\n\n  The cat run\n")
    rows = score(capsys, "--input", "text.txt")
    assert list(rows[0]) == ["sentence", "position", "word", "start", "end", "surprisal_bits"]
    assert [(row["sentence"], row["word"]) for row in rows if row["start"] != row["end"]] == [
        *(("0", "The"), ("0", "cats"), ("0", "sleep.")),
        *(("2", "The"), ("2", "cat"), ("2", "run")),  # the number of the line, and a blank line has no row
    ]
    expected = small.surprisal(["The cats sleep.", "The cat run"])
    assert [float(row["surprisal_bits"]) for row in rows] == pytest.approx(
        [row["surprisal_bits"] for row in expected], abs=1e-6
    )


def test_a_column_of_a_table_keeps_the_others(here, capsys):
    (here / "items.csv").write_text('item,cond,text\n7,a,"The cats, that run"\n7,b,The cat\n')
    words = ["--input", "items.csv", "--column", "text", "--by", "token", "--unit", "nats", "--no-eos"]
    assert commands.main(["score", "--run", "small", "--tokens", *words]) == 0
    assert "has one word" not in capsys.readouterr().err
    rows = score(capsys, *words)
    assert {(row["sentence"], row["item"], row["cond"]) for row in rows} == {("0", "7", "a"), ("1", "7", "b")}
    assert [row["token"] for row in rows] == ["The", " cats", ",", " that", " run", "The", " cat"]


def test_a_row_a_word_is_told_of(here, capsys):
    (here / "words.csv").write_text("word,rt\nThe,300\ncats,320\nsleep.,310\n")
    assert commands.main(["score", "--run", "small", "--tokens", "--input", "words.csv", "--column", "word"]) == 0
    assert "each row of column 'word' has one word, which is scored as a whole sentence" in capsys.readouterr().err


def test_blank_lines_and_columns_tell_documents_apart(here, capsys, small):
    sentences = ["The cats", "The cat", "that run"]
    (here / "text.txt").write_text("The cats\n\nThe cat\nthat run\n")
    (here / "text.tsv").write_text("text\tstory\nThe cats\ta\nThe cat\tb\nthat run\tb\n")
    expected = small.surprisal(sentences, context="document", documents=[0, 1, 1])
    for words in (["--input", "text.txt"], ["--input", "text.tsv", "--column", "text", "--document", "story"]):
        found = score(capsys, *words, "--context", "document")
        assert [float(row["surprisal_bits"]) for row in found] == pytest.approx(
            [row["surprisal_bits"] for row in expected], abs=1e-6
        )


def test_files_are_written_and_not_overwritten_unasked(here, capsys):
    (here / "text.txt").write_text("The cats sleep.\n")
    words = ["score", "--run", "small", "--tokens", "--input", "text.txt", "--out", "rows.jsonl", "--plot", "rows.png"]
    assert commands.main(words) == 0
    assert capsys.readouterr() == ("", "written: rows.jsonl, rows.png\n")
    first = (here / "rows.jsonl").read_bytes()
    assert json.loads(first.splitlines()[0])["word"] == "The" and (here / "rows.png").read_bytes()[:4] == b"\x89PNG"
    assert commands.main(words) == 2
    assert capsys.readouterr() == (
        "",
        "error: rows.jsonl: exists: name another file, or replace it with --overwrite\n",
    )
    assert commands.main([*words, "--overwrite", "--format", "csv"]) == 0
    assert (here / "rows.jsonl").read_text().startswith("sentence,position,word,start,end,surprisal_bits\n0,0,The,0,3,")
