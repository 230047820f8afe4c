"""HTML in which all text is escaped."""

from esnlm.reporting.html.markup import Cell, escape, join, table, tag


def test_text_is_escaped_and_elements_are_not():
    inner = tag("b", '1 < 2 & "3"')
    assert inner == "<b>1 &lt; 2 &amp; &quot;3&quot;</b>"
    assert tag("p", inner, None, [" and ", 4]) == f"<p>{inner} and 4</p>"
    assert tag("a", "x", href='"><script>', data_sort=0.5, hidden=True, title=None) == (
        '<a href="&quot;&gt;&lt;script&gt;" data-sort="0.5" hidden>x</a>'
    )
    assert join("<", inner) == f"&lt;{inner}" and tag("br") == "<br>"


def test_text_can_always_be_written():
    shown = escape("a\x00b\udc80c\x1b[31m\ttab")  # a control character, half a surrogate pair, a colour for a terminal
    assert shown == "a\ufffdb\ufffdc\ufffd[31m\ttab" and shown.encode()


def test_a_table_names_its_rows_and_columns():
    shown = table(["run", "NLL"], [["a<b", Cell("5,000.1", 5000.1)]], align="lr", tools="runs")
    assert '<th class="num" scope="col">NLL</th>' in shown and '<th scope="row">a&lt;b</th>' in shown
    assert '<td class="num" data-sort="5000.1">5,000.1</td>' in shown and 'data-tools="runs"' in shown
