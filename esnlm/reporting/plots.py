"""Figures of one style and their PNG files. Without matplotlib there is no figure, and a note instead."""

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.io.atomic import write_file, writing
from esnlm.io.console import tell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT = "#22262b", "#c9ced6"
COLOURS = ("#c8102e", "#1f6fb2", "#2a9d8f", "#e0a100", "#7b5ea7", "#8c6d31", "#6b8e23", "#d76ba3")
NO_MATPLOTLIB = "matplotlib is not installed (pip install 'esnlm[plots]')"


def figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **subplots: Any
) -> "tuple[Figure, Any] | None":
    """Returns a figure of some inches and its axes, an array (rows, columns); None if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    made = Figure(figsize=(width, height), layout="constrained")
    axes = made.subplots(rows, columns, squeeze=False, **subplots)
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(colors=INK)
    return made, axes


def png(figure: "Figure") -> bytes:
    """Returns the figure as the content of a PNG file."""
    _choose_fonts(figure)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # that no font has one is said already
        figure.savefig(content, dpi=150, format="png")
    return content.getvalue()


def _choose_fonts(figure: "Figure") -> None:
    """Has fonts of the system draw what the figure's own lack, such as Chinese. A line says what none has."""
    from matplotlib import font_manager
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if not text.get_text().isascii()]
    missing, others = {ord(character) for text in texts for character in text.get_text()}, []
    for font in font_manager.fontManager.ttflist if missing else ():
        if "Last Resort" not in font.name and (found := missing & set(font_manager.get_font(font.fname).get_charmap())):
            others.append(font.name)
            missing -= found
    for text in texts:
        text.set_fontfamily([*text.get_fontfamily(), *others])
    if missing:
        shown = " ".join(map(chr, sorted(missing)[:8]))
        tell(f"no font here has {shown}: drawn as boxes; install one of that script, such as Noto Sans CJK")


def save_png(figure: "Figure", path: Path) -> None:
    """Writes the figure to a PNG file, whole or not at all, and makes its folder."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, png(figure))


def apart(heights: Mapping[str, float], gap: float) -> list[str]:
    """Returns the labels that do not overlap: of those that are nearer than `gap`, the last, which says most."""
    names = list(heights)
    return [n for i, n in enumerate(names) if all(abs(heights[n] - heights[other]) > gap for other in names[i + 1 :])]
