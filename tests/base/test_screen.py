"""Tables of a terminal of any width."""

import io
import re

import pytest

from esnlm.base.screen import Screen

HEADER = ["run", "trained", "NLL", "bits/byte", "accuracy", "95 %"]
ROWS = [
    ["determiner_noun_agreement", "1,234,567", "4.3210", "1.2345", "81.25", "80.1, 82.4"],
    ["overall", "98,765,432", "4.5678", "1.3456", "79.50", "78.9, 80.2"],
]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_figure_is_whole_and_text_gives_way(width):
    out = io.StringIO()
    Screen(out, width).table(HEADER, ROWS)
    text = out.getvalue()
    for figure in [cell for row in ROWS for cell in row[1:]] + HEADER[1:]:
        assert len(re.findall(rf"(?<!\S){re.escape(figure)}(?!\S)", text)) == 1, figure
    assert "overall" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= max(width, 72)
