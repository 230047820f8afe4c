"""Plots the surprisals of a text: its words in lines, with a bar over each word."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len

from esnlm.reports import plots

BAR, END_BAR = plots.COLOURS[1], "#9aa5b1"
WIDTH = 96  # characters per line
LINES = 30  # maximum
BAR_WIDTH = 1.6  # characters, the same for all words, so that area is proportional to height
END = "EOS"


def plot(rows: Sequence[dict], title: str, suffix: str = ".png") -> tuple[bytes | None, str | None]:
    """Plots the rows of a table of surprisals, from `Run.surprisal`, with a title.

    Returns:
        The content of a file with this suffix, or None if there is no plot, and a note: why there
        is none, or that only the first words are drawn.
    """
    unit = "bits" if "surprisal_bits" in rows[0] else "nats"
    by = "word" if "word" in rows[0] else "token"
    # (first character in the line, word, value) of each word
    lines: list[list[tuple[int, str, float | None]]] = []
    position = WIDTH
    for row in rows:
        word = END if row["start"] == row["end"] and row[by] else _printable(row[by])
        if position + cell_len(word) > WIDTH:
            lines.append([])
            position = 0
        lines[-1].append((position, word, row[f"surprisal_{unit}"]))
        position += cell_len(word) + 1
    content, note = plots.render(lambda: _draw(lines[:LINES], title, unit), suffix)
    drawn = sum(map(len, lines[:LINES]))
    if note is None and drawn < len(rows):
        note = f"the first {drawn:,} of {len(rows):,} {by}s are drawn"
    return content, note


def _draw(lines: list[Any], title: str, unit: str) -> "plots.Figure":
    figure, axes = plots.figure(
        11, 0.5 + 1.15 * len(lines), rows=len(lines), sharex=True, sharey=True
    )
    values = [value for line in lines for *_, value in line if value and np.isfinite(value)]
    top = 1.18 * max([1e-9, *values])
    for axis, line in zip(axes[:, 0], lines, strict=True):
        for start, word, value in line:
            middle, is_end = start + cell_len(word) / 2, word == END
            height = np.clip(np.nan_to_num(value or 0.0, posinf=top), 0, top)
            axis.bar(middle, height, BAR_WIDTH, color=END_BAR if is_end else BAR, linewidth=0)
            # If words share a token, only the first has a value.
            label = "" if value is None else f"{value:.1f}"
            style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 6.5}
            axis.text(middle, height + 0.015 * top, label, color=plots.INK, **style)
            style = {"ha": "center", "va": "top", "fontsize": 10, "family": "monospace"}
            axis.text(middle, -0.05 * top, word, color=END_BAR if is_end else plots.INK, **style)
        axis.set(xlim=(-0.5, WIDTH + 0.5), ylim=(0, top), xticks=[])
        axis.set_ylabel(unit, fontsize=8, color=plots.INK)
        axis.spines["left"].set_visible(False)
        axis.spines["bottom"].set_color(plots.FAINT)
        axis.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
    plots.add_title(figure, title)
    return figure


def _printable(word: str) -> str:
    """Returns a word as drawn: at most half a line, without unprintable characters."""
    word = "".join(character if character.isprintable() else " " for character in word)
    word = word.strip() or " "
    return word if len(word) <= WIDTH // 2 else word[: WIDTH // 2 - 1] + "…"
