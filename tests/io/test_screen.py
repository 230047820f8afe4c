"""Tables and text for a terminal of any width, a pipe and a file."""

import io
import re

import pytest

from esnlm.io.screen import Screen
from tests.terminal import in_pipe, in_terminal, python

HEADER = ["run", "trained", "NLL", "bits/byte", "accuracy", "95 %"]
ROWS = [
    ["determiner_noun_agreement", "1,234,567", "4.3210", "1.2345", "81.25", "80.1, 82.4"],
    ["overall", "98,765,432", "4.5678", "1.3456", "79.50", "78.9, 80.2"],
]
PROGRAM = f"""
from esnlm.io.screen import Screen
Screen().line("accuracy 81.25 % [80.10, 82.40], mean of 67 paradigms, which is a long line")
Screen().table({HEADER!r}, {ROWS!r}, bold=["overall"])
"""


def shown(width, *arguments, **options):
    text = io.StringIO()
    Screen(text, width).table(*arguments, **options)
    return text.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_figure_is_whole_and_text_gives_way(width):
    text = shown(width, HEADER, ROWS)
    for figure in [cell for row in ROWS for cell in row[1:]] + HEADER[1:]:
        assert len(re.findall(rf"(?<!\S){re.escape(figure)}(?!\S)", text)) == 1, figure
    assert "overall" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= max(width, 72)


def test_text_is_broken_between_words():
    text = shown(40, [], [["memory", "0.12 GB: frozen 0.01 GB, trained with AdamW 0.03 GB"]], align="l")
    assert all(len(line.rstrip()) <= 40 for line in text.splitlines())
    assert text.split() == ["memory", "0.12", "GB:", "frozen", "0.01", "GB,", "trained", "with", "AdamW", "0.03", "GB"]


def test_a_table_may_be_empty_or_have_one_column():
    assert shown(40, [], []) == ""
    assert shown(40, ["name"], [["a"]]).split() == ["name", "a"]


def test_a_terminal_is_filled_and_not_exceeded():
    text = re.sub(r"\033\[\d*m", "", in_terminal(python("-c", PROGRAM), 80))
    widths = [len(line.rstrip()) for line in text.splitlines()]
    assert 50 < max(widths) <= 80
    assert all(figure in text for row in ROWS for figure in row[1:])


@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_pipe_gets_whole_lines_whatever_COLUMNS_says(columns):
    out, _ = in_pipe(python("-c", PROGRAM), {"COLUMNS": columns})
    assert "\033" not in out and "\r" not in out
    assert len(out.splitlines()) == 4
    assert out.splitlines()[2].split() == " ".join(ROWS[0]).split()


def test_styles_are_for_terminals_and_for_those_who_ask():
    bold = "\033[1m"
    assert bold in in_terminal(python("-c", PROGRAM), 80)
    assert bold not in in_terminal(python("-c", PROGRAM), 80, {"NO_COLOR": "1"})
    out, _ = in_pipe(python("-c", PROGRAM), {"FORCE_COLOR": "1"})
    assert bold in out and len(out.splitlines()) == 4
    out, _ = in_pipe(python("-c", PROGRAM), {"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert "\033" not in out
