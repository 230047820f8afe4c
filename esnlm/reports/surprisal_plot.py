"""Plots the surprisals of a text: its words in lines, with a bar over each word."""

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

from esnlm.reports import plots
from esnlm.reports.plots import FAINT, INK

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
    # of (first character in the line, word, value)
    lines: list[list[tuple[int, str, float | None]]] = []
    at = WIDTH
    for row in rows:
        word = END if row["start"] == row["end"] and row[by] else _shown(row[by])
        if at + cell_len(word) > WIDTH:
            lines.append([])
            at = 0
        lines[-1].append((at, word, row[f"surprisal_{unit}"]))
        at += cell_len(word) + 1
    shown = lines[:LINES]
    made = plots.figure(11, 0.5 + 1.15 * len(shown), rows=len(shown), sharex=True, sharey=True)
    if made is None:
        return None, f"no plot: {plots.NO_MATPLOTLIB}"
    figure, axes = made
    top = 1.18 * max(
        [1e-9, *(value for line in shown for *_, value in line if value and np.isfinite(value))]
    )
    for axis, line in zip(axes[:, 0], shown, strict=True):
        for start, word, value in line:
            middle, colour = start + cell_len(word) / 2, END_BAR if word == END else BAR
            height = np.clip(np.nan_to_num(value or 0.0, posinf=top), 0, top)
            axis.bar(middle, height, width=BAR_WIDTH, color=colour, linewidth=0)
            # if words share a token, only the first has a value
            label = "" if value is None else f"{value:.1f}"
            axis.text(
                middle,
                height + 0.015 * top,
                label,
                ha="center",
                va="bottom",
                fontsize=6.5,
                color=INK,
            )
            style = {
                "family": "monospace",
                "fontsize": 10,
                "color": END_BAR if word == END else INK,
            }
            axis.text(middle, -0.05 * top, word, ha="center", va="top", **style)
        axis.set(xlim=(-0.5, WIDTH + 0.5), ylim=(0, top), xticks=[])
        axis.set_ylabel(unit, fontsize=8, color=INK)
        axis.grid(axis="y", color=FAINT, linewidth=0.5, alpha=0.6)
        axis.set_axisbelow(True)
        axis.spines["left"].set_visible(False)
        axis.spines["bottom"].set_color(FAINT)
        axis.tick_params(length=0, labelsize=8, labelcolor=INK)
    figure.suptitle(title, x=0.02, ha="left", fontsize=11, color=INK)
    drawn = sum(map(len, shown))
    note = None if drawn == len(rows) else f"the first {drawn:,} of {len(rows):,} {by}s are drawn"
    return plots.picture(figure, suffix), note


def _shown(word: str) -> str:
    """Returns a word as drawn: at most half a line, without unprintable characters."""
    word = (
        "".join(character if character.isprintable() else " " for character in word).strip() or " "
    )
    return word if len(word) <= WIDTH // 2 else word[: WIDTH // 2 - 1] + "…"
