"""Pictures in one style, made with matplotlib, from the extra `plots`."""

import io
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from esnlm.base.console import notice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, FAINT = "#22262b", "#5a626c", "#c9ced6"
COLOURS = ("#c8102e", "#1f6fb2", "#2a9d8f", "#e0a100", "#7b5ea7", "#8c6d31", "#6b8e23", "#d76ba3")
SUFFIXES = [".png", ".pdf", ".svg"]
NO_MATPLOTLIB = "matplotlib is not installed (pip install 'esnlm[plots]')"


def figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **subplots: Any
) -> "tuple[Figure, Any]":
    """Returns a figure (size in inches) and its axes, an array (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **subplots)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(colors=INK)
        panel.grid(color=FAINT, linewidth=0.5, alpha=0.6)
        panel.set_axisbelow(True)
    return figure, axes


def use_log_axis(panel: Any, ticks: tuple[float, ...]) -> None:
    """Makes the x axis logarithmic, with ticks at these multiples of powers of ten."""
    from matplotlib.ticker import LogLocator

    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=ticks))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()


def add_legend(figure: "Figure", panel: Any, columns: int = 2) -> None:
    """Adds the legend of a panel below the figure."""
    handles, labels = panel.get_legend_handles_labels()
    place: Any = {"loc": "outside lower center", "ncols": columns}
    legend = figure.legend(handles, labels, frameon=False, fontsize=9, **place)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may have dollar signs


def add_title(figure: "Figure", title: str) -> None:
    """Adds a title at the left, which wraps."""
    text = figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=INK, wrap=True)
    text.set_parse_math(False)


def picture(figure: "Figure", suffix: str = ".png") -> bytes:
    """Returns the figure as the content of a file with this suffix."""
    from matplotlib import rc_context

    _choose_fonts(figure)
    content = io.BytesIO()
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none"}):
        warnings.filterwarnings("ignore", "Glyph")  # `_choose_fonts` has reported missing glyphs
        figure.savefig(content, dpi=150, format=suffix.lower()[1:])
    return content.getvalue()


def render(draw: "Callable[[], Figure]", suffix: str = ".png") -> tuple[bytes | None, str | None]:
    """Returns the picture of a figure and None; without matplotlib, None and the reason."""
    try:
        return picture(draw(), suffix), None
    except ImportError:
        return None, f"no plot: {NO_MATPLOTLIB}"


def inline_svg(figure: "Figure") -> str:
    """Returns the figure as an SVG element of a page, whose style sheet has the colours."""
    element = picture(figure, ".svg").decode().partition("<svg")[2]
    for part in ("<metadata>.*?</metadata>", "<style.*?</style>", r' id="[\w.]+_\d+"'):
        element = re.sub(part, "", element, flags=re.DOTALL)
    colours = {INK: "ink", SOFT: "soft", FAINT: "hair", "#000000": "soft"}
    colours |= {colour: f"s{i}" for i, colour in enumerate(COLOURS)}
    for colour, variable in colours.items():
        element = element.replace(colour, f"var(--{variable})")
    return f'<svg class="picture"{element.replace("fill: #ffffff", "fill: none")}'


def _choose_fonts(figure: "Figure") -> None:
    """Adds system fonts for characters that the figure's fonts lack, such as Chinese.

    Reports characters that no font has.
    """
    from matplotlib import font_manager
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if not text.get_text().isascii()]
    missing, others = {ord(character) for text in texts for character in text.get_text()}, []
    for font in font_manager.fontManager.ttflist if missing else ():
        if "Last Resort" in font.name:
            continue
        if available := missing & set(font_manager.get_font(font.fname).get_charmap()):
            others.append(font.name)
            missing -= available
    for text in texts:
        text.set_fontfamily([*text.get_fontfamily(), *others])
    if missing:
        examples = " ".join(map(chr, sorted(missing)[:8]))
        notice(
            f"no font here has {examples}: drawn as boxes; install a font of that script, such as"
            " Noto Sans CJK"
        )


def thin_out(heights: Mapping[str, float], gap: float) -> list[str]:
    """Returns labels that do not overlap: of those closer than `gap`, the last one."""
    names = list(heights)
    return [
        name
        for i, name in enumerate(names)
        if all(abs(heights[name] - heights[other]) > gap for other in names[i + 1 :])
    ]
