"""The plot of surprisals: what is drawn of unusual words and figures."""

import math

from esnlm.reporting import plots, surprisal_plot


def row(word, value, start=0, end=1, by="word", unit="bits"):
    return {"sentence": 0, "position": 0, by: word, "start": start, "end": end, f"surprisal_{unit}": value}


def test_words_of_all_kinds_are_drawn_with_their_surprisals(rendered, monkeypatch):
    rows = [row(word, 3.0) for word in ("The", "$x$", "日本", "a\tb", "", "w" * 200)]
    values = [math.inf, math.nan, -1e-9, 0.0]
    rows += [row("x", value) for value in values] + [row("<|endoftext|>", 1.0, 5, 5)]
    picture, note = surprisal_plot.plot(rows, "small, step 1")
    assert picture.startswith(b"\x89PNG") and note is None
    kept = []
    monkeypatch.setattr(plots, "png", lambda figure: kept.append(figure) or b"")
    surprisal_plot.plot([row("a", value, by="token", unit="nats") for value in (5.0, *values)], "$")
    assert [text.get_text() for text in kept[0].axes[0].texts][::2] == ["5.0", "inf", "nan", "-0.0", "0.0"]
