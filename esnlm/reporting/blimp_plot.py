"""One picture of a report: the run's accuracy by phenomenon, among its baselines and the published results.

matplotlib is optional; nothing here holds a figure of its own, all of it is in the report.
"""

from pathlib import Path
from typing import BinaryIO

INK, FAINT, RUN = "#22262b", "#c9ced6", "#c8102e"
ANCHORS = {  # label, marker, colour: cool and hollow, so that the run stands out
    "five_gram": ("5-gram", "^", "#9aa5b1"),
    "lstm": ("LSTM", "s", "#2a9d8f"),
    "transformer_xl": ("Transformer-XL", "v", "#7b5ea7"),
    "gpt2": ("GPT-2", "o", "#1f6fb2"),
    "human": ("people", "D", "#22262b"),
}
BASELINES = ["#e0a100", "#8c6d31", "#6b8e23"]  # one a baseline, again from the start after the last


def save(result: dict, path: str | Path | BinaryIO) -> str | None:
    """Draw a report (`minimal_pairs.evaluate(...).result`) to a PNG file.

    By phenomenon with BLiMP's anchors where the report has them, else by paradigm. Gives None, or the one line that
    says why there is no picture: no matplotlib, or no accuracy to draw.
    """
    if result["overall"]["accuracy"] is None:
        return f"no plot: the accuracy is {result['status']}"
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no plot: matplotlib is not installed (pip install matplotlib)"

    level = "phenomena" if result["anchors"] else "paradigms"
    names = sorted(result[level], key=lambda name: -result[level][name]["accuracy"])
    rows = {"overall": 0.0} | {name: 1.4 + i for i, name in enumerate(names)}  # y of each, downwards
    y = list(rows.values())

    def accuracies(report: dict) -> list[float]:
        return [(report["overall"] if row == "overall" else report[level][row])["accuracy"] for row in rows]

    def published(model: str) -> list[float]:
        anchors = result["anchors"]
        return [(anchors["overall"] if row == "overall" else anchors[level][row])[model] for row in rows]

    figure = Figure(figsize=(9, 0.32 * (len(names) + 1) + 1.9), layout="constrained")
    axes = figure.add_subplot()
    axes.axhspan(-0.6, 0.6, color=FAINT, alpha=0.35, linewidth=0)
    axes.hlines(y, 0, 100, color=FAINT, linewidth=0.6, zorder=1)

    own = accuracies(result)
    drawn = [own]
    for value, height, row in zip(own, y, rows):
        low, high = (result["overall"] if row == "overall" else result[level][row])["interval"]
        drawn.append([low])
        axes.plot([low, high], [height, height], color=RUN, linewidth=2.2, marker="|", markersize=7, zorder=6)
        beside = axes.get_yaxis_transform()
        axes.text(1.01, height, f"{value:.1f}", transform=beside, va="center", color=RUN, fontsize=9)
    axes.scatter(own, y, s=40, color=RUN, zorder=7, label="this run, 95 % interval")
    axes.axvline(50, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2, label="chance")
    baselines = result["baselines"]
    for i, (name, baseline) in enumerate(baselines.items()):
        drawn.append(accuracies(baseline))
        style = {"marker": "|", "s": 40, "linewidth": 2.2, "color": BASELINES[i % len(BASELINES)]}
        above = 0.24 * (i - (len(baselines) - 1) / 2)  # they often agree to the figure, and would hide each other
        axes.scatter(drawn[-1], [height + above for height in y], **style, zorder=3, label=f"{name} only")
    for model, (label, marker, colour) in ANCHORS.items() if result["anchors"] else ():
        drawn.append(published(model))
        style = {"marker": marker, "s": 34, "facecolor": "white", "edgecolor": colour, "linewidth": 1.3}
        axes.scatter(drawn[-1], y, **style, zorder=4, label=label)

    # A position needs no zero to be read, so the axis begins at the ten below whatever is drawn.
    axes.set_xlim(max(0, 10 * ((min(map(min, drawn)) - 3) // 10)), 100.8)
    axes.set_ylim(y[-1] + 0.7, -0.7)
    names = [row.replace("_", " ").replace("npi ", "NPI ") for row in rows]
    labels = ["".join(c if c.isprintable() else "?" for c in name) for name in names]  # no font draws the others
    axes.set_yticks(y, labels, parse_math=False)
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_xlabel("accuracy, % (in baselines a tie counts half)", color=INK)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    title = f"{result['run']}, step {result['step']}, {result['scoring']['name']} scoring"
    title = f"{'BLiMP' if result['anchors'] else 'Minimal pairs'}: {title}"
    figure.suptitle(title, x=0.02, ha="left", color=INK, parse_math=False)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9, labelcolor=INK, handletextpad=0.3)
    figure.savefig(path, dpi=160, format="png")
    return None
