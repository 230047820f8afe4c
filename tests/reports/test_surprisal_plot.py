"""The plot of surprisals: what is drawn of unusual words and figures."""

import math

from esnlm.reports import plots, surprisal_plot


def row(word, value, start=0, end=1, by="word", unit="bits"):
    return {
        "sentence": 0,
        "position": 0,
        by: word,
        "start": start,
        "end": end,
        f"surprisal_{unit}": value,
    }


def test_words_of_all_kinds_are_drawn_with_their_surprisals(rendered, monkeypatch):
    rows = [row(word, 3.0) for word in ("The", "$x$", "日本", "a\tb", "", "w" * 200)]
    values = [math.inf, math.nan, -1e-9, 0.0]
    rows += [row("x", value) for value in values] + [row("<|endoftext|>", 1.0, 5, 5)]
    picture, note = surprisal_plot.plot(rows, "small, step 1")
    assert picture.startswith(b"\x89PNG") and note is None
    kept = []
    monkeypatch.setattr(plots, "picture", lambda figure, suffix: kept.append(figure) or b"")
    surprisal_plot.plot([row("a", value, by="token", unit="nats") for value in (5.0, *values)], "$")
    assert [text.get_text() for text in kept[0].axes[0].texts][::2] == [
        "5.0",
        "inf",
        "nan",
        "-0.0",
        "0.0",
    ]


def test_fonts_of_the_system_draw_what_the_first_lacks_and_a_line_says_what_none_has(
    rendered, monkeypatch, capsys
):
    """DejaVu Sans Mono has no Hebrew, and DejaVu Sans has."""
    from matplotlib import font_manager

    fonts = [
        font
        for font in font_manager.fontManager.ttflist
        if font.name.startswith(("DejaVu", "Last Resort"))
    ]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
    made, _ = plots.figure(2, 2)
    text = made.text(0, 0, "שלום", family="monospace")
    plots.picture(made)
    assert text.get_fontfamily() == ["monospace", "DejaVu Sans"] and capsys.readouterr().err == ""
    made.text(0, 0.5, "日本")
    plots.picture(made)
    assert capsys.readouterr().err.startswith(
        "no font here has 日 本: drawn as boxes; install a font of that script"
    )
    picture, _ = surprisal_plot.plot([row("我们", 3.0, 0, 2), row("在", None, 2, 3)], "small")
    assert picture is not None
