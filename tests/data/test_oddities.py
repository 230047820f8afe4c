"""Marks of other tools in a text: which are found, and what is said of them."""

import pytest

from esnlm.data.oddities import Oddities


def noted(text: str) -> Oddities:
    oddities = Oddities()
    oddities.note(text, "a.txt")
    return oddities


def test_an_invisible_character_is_warned_of(capsys):
    noted("\ufeffThe end, and one \u200bmore.").warn()
    assert "such as U+FEFF" in capsys.readouterr().err


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
