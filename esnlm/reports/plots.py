"""Makes figures in one style and writes them as files. Without matplotlib, callers print a note
instead."""

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.base.console import tell
from esnlm.base.files import write_file, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT = "#22262b", "#c9ced6"
COLOURS = ("#c8102e", "#1f6fb2", "#2a9d8f", "#e0a100", "#7b5ea7", "#8c6d31", "#6b8e23", "#d76ba3")
SUFFIXES = [".png", ".pdf", ".svg"]
NO_MATPLOTLIB = "matplotlib is not installed (pip install 'esnlm[plots]')"


def figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **subplots: Any
) -> "tuple[Figure, Any] | None":
    """Returns a figure (size in inches) and its axes, an array (rows, columns); None if matplotlib
    is not installed."""
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


def picture(figure: "Figure", suffix: str = ".png") -> bytes:
    """Returns the figure as the content of a file with this suffix."""
    _choose_fonts(figure)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # `_choose_fonts` has reported missing glyphs
        figure.savefig(content, dpi=150, format=suffix.lower()[1:])
    return content.getvalue()


def _choose_fonts(figure: "Figure") -> None:
    """Adds system fonts for characters that the figure's fonts lack, such as Chinese. Reports those
    in no font."""
    from matplotlib import font_manager
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if not text.get_text().isascii()]
    missing, others = {ord(character) for text in texts for character in text.get_text()}, []
    for font in font_manager.fontManager.ttflist if missing else ():
        if "Last Resort" not in font.name and (
            found := missing & set(font_manager.get_font(font.fname).get_charmap())
        ):
            others.append(font.name)
            missing -= found
    for text in texts:
        text.set_fontfamily([*text.get_fontfamily(), *others])
    if missing:
        shown = " ".join(map(chr, sorted(missing)[:8]))
        tell(
            f"no font here has {shown}: drawn as boxes; install a font of that script, such as Noto"
            " Sans CJK"
        )


def save(figure: "Figure", path: Path) -> None:
    """Makes the folder and writes the figure to a file, completely or not at all."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, picture(figure, path.suffix))


def apart(heights: Mapping[str, float], gap: float) -> list[str]:
    """Returns labels that do not overlap: among labels closer than `gap`, only the last, the most
    informative one."""
    names = list(heights)
    return [
        n
        for i, n in enumerate(names)
        if all(abs(heights[n] - heights[other]) > gap for other in names[i + 1 :])
    ]
