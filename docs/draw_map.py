"""Draws docs/map.png: the rooms of the package, and the way of a sentence through them.

python docs/draw_map.py
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

PATH, FROZEN, TRAINED, AROUND = "#dfe8f3", "#d8ecdc", "#fbe3c8", "#eeeeee"

# The way of a sentence: (room, what it does, x, y, colour). Boxes are 2.0 wide and 1.0 high.
WAY = [
    ("data/", "text to sentences\nto token ids", 0.0, 3.0, PATH),
    ("features/", "sentences packed into\nbatch slots, time steps", 2.6, 3.0, FROZEN),
    ("models/", "one module per family:\ntokens to features", 5.2, 3.0, FROZEN),
    ("readout/", "features to logits;\nridge, RLS, LMS", 7.8, 3.0, TRAINED),
    ("training/", "update, log,\ncheckpoint, validate", 10.4, 3.0, TRAINED),
    ("reservoir/", "W_rec, W_in, leaks:\none time step", 5.2, 4.6, FROZEN),
    ("evaluation/", "log-probabilities,\nminimal pairs", 7.8, 1.4, PATH),
    ("loaded_run", "the model of a run,\nrestored", 10.4, 1.4, PATH),
    ("reports/", "tables, plots,\npages", 5.2, 1.4, PATH),
]
ARROWS = [
    ("data/", "features/"),
    ("features/", "models/"),
    ("models/", "readout/"),
    ("readout/", "training/"),
    ("reservoir/", "models/"),
    ("training/", "loaded_run"),
    ("loaded_run", "evaluation/"),
    ("evaluation/", "reports/"),
]
FLOORS = [
    ("commands/  studies/  api/  sklearn   command line, studies, Python interface", 6.1),
    ("diagnosis/  interchange/   state diagnostics; other people's harnesses and formats", 0.5),
    ("runs/   run directory, checkpoints, trackers", -0.15),
    ("base/  machine/   errors, settings, files, console; devices, kernels, memory", -0.8),
]


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    """Draws one room."""
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0.06", facecolor=colour, edgecolor="0.45"
        )
    )


def main() -> None:
    """Draws the picture beside this file."""
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    axes = figure.add_subplot()
    places = {name: (x, y) for name, _, x, y, _ in WAY}
    for name, what, x, y, colour in WAY:
        box(axes, x, y, 2.0, 1.0, colour)
        axes.text(x + 1.0, y + 0.78, name, ha="center", va="center", weight="bold", fontsize=11)
        axes.text(x + 1.0, y + 0.33, what, ha="center", va="center", fontsize=8.5)
    for start, end in ARROWS:
        (x1, y1), (x2, y2) = places[start], places[end]
        if y1 == y2:
            right = x2 > x1
            tail, head = (
                (x1 + (2.08 if right else -0.08), y1 + 0.5),
                (x2 + (-0.1 if right else 2.1), y2 + 0.5),
            )
        else:
            tail, head = (
                (x1 + 1.0, y1 - 0.08 if y2 < y1 else y1 + 1.08),
                (x2 + 1.0, y2 + 1.1 if y2 < y1 else y2 - 0.1),
            )
        axes.annotate(
            "", head, tail, arrowprops={"arrowstyle": "-|>", "color": "0.25", "linewidth": 1.4}
        )
    for text, y in FLOORS:
        box(axes, 0.0, y, 12.4, 0.4, AROUND)
        axes.text(0.15, y + 0.2, text, va="center", fontsize=9.5)
    axes.text(
        0.0,
        4.95,
        "green: frozen    orange: trained    blue: text in, scores out",
        fontsize=9,
        color="0.3",
    )
    axes.set(xlim=(-0.2, 12.6), ylim=(-1.0, 6.7))
    axes.axis("off")
    figure.savefig(Path(__file__).with_name("map.png"), dpi=110)


if __name__ == "__main__":
    main()
