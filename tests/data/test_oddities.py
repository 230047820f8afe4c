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
    assert {mark: count for (_, mark), count in noted(text).marks.items()} == marks


def test_marks_and_the_form_of_letters_are_warned_of(capsys):
    noted("The cats sleep.").warn()
    assert capsys.readouterr().err == ""
    noted("<|endoftext|>\n</s>\n<|endoftext|>\n\ufeffKa\u0308the schla\u0308ft.\u200b").warn()
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: a.txt: marks such as '<|endoftext|>' are read as text, 3 times;")
    assert "a.txt: " in second and "U+FEFF" in second and "2 times" in second
    assert "a.txt: not in Unicode's form NFC" in third
