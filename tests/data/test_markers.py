"""Marks of other tools in a text: which are found, and how one is told."""

from collections import Counter

import pytest

from esnlm.data.markers import count_markers, describe_markers


def test_marks_are_counted_by_name():
    text = "The end.\n<|endoftext|>\nOnce <|endoftext|> more.\n  [SEP]\n</s>\n"
    assert count_markers(text) == {"<|endoftext|>": 2, "[SEP]": 1, "</s>": 1}


def test_a_mark_may_have_white_space_beside_it_in_its_line():
    assert count_markers("\t</s> \u2003\n </s>x\n</s>") == {"</s>": 2}


def test_a_mark_in_a_long_line_does_not_read_the_line_again():
    """A document a line, with marks between its sentences, would take time with the square of its length."""

    class Text(str):
        longest = 0

        def __getitem__(self, place):
            found = super().__getitem__(place)
            self.longest = max(self.longest, len(found))
            return found

    text = Text("The cats sleep well here now . </s> " * 100)
    assert not count_markers(text) and text.longest == 1


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
