"""Marks of other tools in a text: which are found, and how one is told."""

from collections import Counter

import pytest

from esnlm.data.markers import count_markers, describe_markers


def test_marks_are_counted_by_name():
    text = "The end.\n<|endoftext|>\nOnce <|endoftext|> more.\n  [SEP]\n</s>\n"
    assert count_markers(text) == {"<|endoftext|>": 2, "[SEP]": 1, "</s>": 1}


@pytest.mark.parametrize("text", ["", "He writes </s> here.", "[SEP] is a token.", "a <| b |> c", "<b>", "[Laughs]"])
def test_what_is_no_mark(text):
    assert not count_markers(text)


def test_the_line_names_the_most_frequent_one():
    assert describe_markers(Counter()) is None
    assert describe_markers(Counter({"</s>": 1})).startswith(
        "'</s>' stands in the text 1 time: it is read as any other characters"
    )
    several = Counter({"</s>": 1, "<|endoftext|>": 1200, "[SEP]": 2})
    assert describe_markers(several).startswith(
        "'<|endoftext|>', or one of 2 other marks like it, stands in the text 1,203 times: it is read as any other characters"
    )
