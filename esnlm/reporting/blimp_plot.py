"""The plot of a minimal-pair report: the run's accuracies among its baselines and the published results."""

from esnlm.reporting import plots
from esnlm.reporting.blimp_text import entry_of, readable
from esnlm.reporting.plots import FAINT, INK

RUN = plots.COLOURS[0]
MOST_ROWS = 500  # BLiMP has 67 paradigms
ANCHORS = {  # label, marker, colour: cool and hollow, so that the run stands out
    "five_gram": ("5-gram", "^", "#9aa5b1"),
    "lstm": ("LSTM", "s", "#2a9d8f"),
    "transformer_xl": ("Transformer-XL", "v", "#7b5ea7"),
    "gpt2": ("GPT-2", "o", "#1f6fb2"),
    "human": ("people", "D", "#22262b"),
}
BASELINES = ("#e0a100", "#8c6d31", "#6b8e23")  # for the baselines, in turn


def plot(result: dict) -> tuple[bytes | None, str | None]:
    """Plots the result of an `Evaluation`: by phenomenon if it has BLiMP's anchors, else by paradigm.

    Returns:
        A PNG, or None, and then the line that says why there is no plot.
    """
    if result["overall"]["accuracy"] is None:
        return None, f"no plot: the accuracy is {result['status']}"
    level = "phenomena" if result["anchors"] else "paradigms"
    if len(result[level]) > MOST_ROWS:
        return None, f"no plot: {len(result[level]):,} {level}, and a picture has room for {MOST_ROWS}"
    names = ["overall", *sorted(result[level], key=lambda name: -result[level][name]["accuracy"])]
    made = plots.figure(9, 0.32 * len(names) + 1.9)
    if made is None:
        return None, f"no plot: {plots.NO_MATPLOTLIB}"
    figure, axes = made[0], made[1][0, 0]
    y = [0.0, *(0.4 + i for i in range(1, len(names)))]  # downwards
    axes.axhspan(-0.6, 0.6, color=FAINT, alpha=0.35, linewidth=0)
    axes.hlines(y, 0, 100, color=FAINT, linewidth=0.6, zorder=1)

    entries = [entry_of(result, level, name) for name in names]
    own = [entry["accuracy"] for entry in entries]
    shown = [*own, *(entry["interval"][0] for entry in entries)]
    for entry, height in zip(entries, y, strict=True):
        axes.plot(entry["interval"], [height, height], color=RUN, linewidth=2.2, marker="|", markersize=7, zorder=6)
        beside = {"transform": axes.get_yaxis_transform(), "va": "center", "color": RUN, "fontsize": 9}
        axes.text(1.01, height, f"{entry['accuracy']:.1f}", **beside)
    axes.scatter(own, y, s=40, color=RUN, zorder=7, label="this run, 95 % interval")
    chance = result.get("chance", 50)  # reports of pairs do not name it
    axes.axvline(chance, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2, label="chance")
    baselines = result["baselines"]
    for i, (name, baseline) in enumerate(baselines.items()):
        values = [entry_of(baseline, level, row)["accuracy"] for row in names]
        above = 0.24 * (i - (len(baselines) - 1) / 2)  # they often agree, and would hide each other
        style = {"marker": "|", "s": 40, "linewidth": 2.2, "color": BASELINES[i % len(BASELINES)]}
        axes.scatter(values, [height + above for height in y], **style, zorder=3, label=f"{name} only")
        shown += values
    for model, (label, marker, colour) in ANCHORS.items() if result["anchors"] else ():
        values = [entry_of(result["anchors"], level, row)[model] for row in names]
        style = {"marker": marker, "s": 34, "facecolor": "white", "edgecolor": colour, "linewidth": 1.3}
        axes.scatter(values, y, **style, zorder=4, label=label)
        shown += values

    # Positions can be read without a zero, so the axis begins at the ten below all that is shown, chance among it.
    axes.set_xlim(max(0, 10 * (min(min(shown) - 3, chance) // 10)), 100.8)
    axes.set_ylim(y[-1] + 0.7, -0.7)
    axes.set_yticks(y, [readable(name) for name in names], parse_math=False)
    axes.get_yticklabels()[0].set_fontweight("bold")
    tie = "half, in sets at most half" if result["data"].get("kinds", {}).get("sets") else "half"
    axes.set_xlabel(f"accuracy, % (in baselines a tie counts {tie})", color=INK)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    title = "BLiMP" if result["anchors"] else "Minimal pairs"
    title = f"{title}: {result['run']}, step {result['step']}, {result['scoring']['name']} scoring"
    figure.suptitle(title, x=0.02, ha="left", color=INK)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9, labelcolor=INK, handletextpad=0.3)
    return plots.png(figure), None
