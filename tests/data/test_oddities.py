"""Marks of other tools in a text: which are found, and what is said of them."""

import pytest

from esnlm.data.oddities import Oddities


def noted(text: str) -> Oddities:
    oddities = Oddities()
    oddities.note(text, "a.txt")
    return oddities


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        (
            "The end.\n<|endoftext|>\nOnce <|endoftext|> more.\n  [SEP]\n</s>\n",
            {"<|endoftext|>": 2, "[SEP]": 1, "</s>": 1},
        ),
        ("\t</s> \u2003\n </s>x\n</s>", {"</s>": 2}),
        ("He writes </s> here.", {}),
        ("[SEP] is a token.", {}),
        ("a <| b |> c <b> [Laughs]", {}),
    ],
)
def test_marks_are_counted_where_they_are_no_text(text, marks):
    assert noted(text).marks == marks


def test_one_warning_names_the_most_frequent_mark_and_one_the_form_of_letters(capsys):
    noted("The cats sleep.").warn("leave it out")
    assert capsys.readouterr().err == ""
    noted("</s>\n<|endoftext|>\n<|endoftext|>\nKa\u0308the schla\u0308ft.").warn("leave it out")
    first, second = capsys.readouterr().err.splitlines()
    assert "a.txt: '<|endoftext|>', or 1 other mark like it, stands in the text 3 times" in first
    assert first.endswith("leave it out") and "a.txt: not in Unicode's form NFC" in second
