"""The plot draws every row, whatever its word and value."""

import math

import pytest

from esnlm.reporting import plots, surprisal_plot


def row(word, value, start=0, end=1, by="word", unit="bits"):
    return {"sentence": 0, "position": 0, by: word, "start": start, "end": end, f"surprisal_{unit}": value}


def test_words_of_all_kinds_are_drawn(rendered):
    rows = [row(word, 3.0) for word in ("The", "$x$", "日本", "a\tb", "", "w" * 200)]
    rows += [row("x", value) for value in (math.inf, math.nan, -1e-9, 0.0)] + [row("<|endoftext|>", 1.0, 5, 5)]
    picture, note = surprisal_plot.plot(rows, "small, step 1")
    assert picture.startswith(b"\x89PNG") and note is None
    picture, note = surprisal_plot.plot([row("a", math.nan, by="token", unit="nats")], "$")
    assert picture.startswith(b"\x89PNG") and note is None


def test_what_is_not_finite_is_labelled_as_it_is(monkeypatch):
    pytest.importorskip("matplotlib")
    kept = []
    monkeypatch.setattr(plots, "png", lambda figure: kept.append(figure) or b"")
    values = [5.0, math.inf, math.nan, 20.0]
    rows = [{"word": "a", "start": 0, "end": 1, "surprisal_bits": value} for value in values]
    surprisal_plot.plot(rows, "a title")
    labels = [text.get_text() for text in kept[0].axes[0].texts][::2]
    assert labels == ["5.0", "inf", "nan", "20.0"]


def test_a_long_text_is_drawn_in_part(monkeypatch):
    monkeypatch.setattr(surprisal_plot, "LINES", 2)
    monkeypatch.setattr(surprisal_plot, "WIDTH", 10)
    picture, note = surprisal_plot.plot([row("word", 1.0)] * 9, "small")
    assert picture is not None and note == "the first 4 of 9 words are drawn"
