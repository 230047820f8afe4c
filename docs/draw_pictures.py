"""Draws the pictures of the pages: docs/model.svg, docs/losses.svg, docs/sentence.svg and
docs/packing.svg.

python docs/draw_pictures.py

The losses are read from the tables in results/. The picture of a sentence is of a small model that
is trained for it, and the program's own layout draws the packing.
"""

import tempfile
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

import esnlm
from esnlm.features.batching import pack
from esnlm.reports.run_results import show_results
from esnlm.training import config_io
from esnlm.training.run import train_run

HERE = Path(__file__).parent
TEXT, FROZEN, TRAINED, LINE = "#dfe8f3", "#d8ecdc", "#fbe3c8", "0.3"
SMALL = """
data: {kind: grammar, sentences: 20000, validation_sentences: 100, pairs: 2}
model: {reservoir: {state_size: 128}, readout: {rank: 32}}
training: {learning_rate: 0.01}
"""


def box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    colour: str,
    title: str,
    *lines: str,
) -> None:
    """Draws a box with its name and what it does."""
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0.06", facecolor=colour, edgecolor=LINE
        )
    )
    axes.text(
        x + width / 2,
        y + height - 0.22,
        title,
        ha="center",
        va="center",
        weight="bold",
        fontsize=11,
    )
    for number, line in enumerate(lines):
        axes.text(
            x + width / 2,
            y + height - 0.55 - 0.28 * number,
            line,
            ha="center",
            va="center",
            fontsize=9,
        )


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], label: str = ""
) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": LINE, "linewidth": 1.4})
    axes.text(
        (start[0] + end[0]) / 2, start[1] + 0.16, label, ha="center", fontsize=10, style="italic"
    )


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """Returns a figure and axes without a frame, one inch a unit."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def draw_model() -> Figure:
    """Draws the network: tokens, the frozen reservoir, the trained readout, probabilities."""
    figure, axes = blank(9.6, 2.9)
    box(axes, 0.2, 0.9, 1.3, 1.0, TEXT, "token", '"cats"')
    box(axes, 2.6, 0.25, 2.6, 2.4, FROZEN, "reservoir")
    axes.text(3.9, 0.42, "random, never trained", ha="center", va="center", fontsize=9)
    rng = np.random.default_rng(4)
    units = np.stack([rng.uniform(2.85, 4.95, 16), rng.uniform(0.75, 2.1, 16)], axis=1)
    for here in range(16):
        for there in rng.choice(16, 2, replace=False):
            axes.plot(*units[[here, there]].T, color="0.6", linewidth=0.8, zorder=2)
    axes.scatter(units[:, 0], units[:, 1], s=55, color="#4f9a64", edgecolor="white", zorder=3)
    box(axes, 6.3, 0.9, 1.3, 1.0, TRAINED, "readout", "trained")
    for number, (word, probability) in enumerate(
        [("sleep", 0.42), ("that", 0.27), ("near", 0.15), ("sleeps", 0.02)]
    ):
        y = 1.95 - 0.36 * number
        axes.add_patch(Rectangle((8.55, y - 0.1), 1.9 * probability, 0.2, facecolor="#f0b26b"))
        axes.text(8.45, y, word, ha="right", va="center", fontsize=9)
    arrow(axes, (1.6, 1.4), (2.5, 1.4), "W_in")
    arrow(axes, (5.3, 1.4), (6.2, 1.4), "state h")
    arrow(axes, (7.7, 1.4), (7.95, 1.4))
    axes.text(8.7, 2.4, "next token", ha="center", fontsize=10, weight="bold")
    return figure


def column(page: str, heading: str) -> dict[int, float]:
    """Returns a column of a table by words of text, from a page of results/."""
    rows = [
        line.strip("| ").split(" | ")
        for line in (HERE.parent / "results" / page).read_text("utf-8").splitlines()
    ]
    first = next(number for number, row in enumerate(rows) if row[0] == "words" and heading in row)
    place, found = rows[first].index(heading), {}
    for row in rows[first + 2 :]:
        if len(row) != len(rows[first]):
            break
        words, unit = row[0].replace(",", ""), 1_000_000 if "million" in row[0] else 1
        found[int(words.split()[0]) * unit] = float(row[place].split()[0])
    return found


def draw_losses() -> Figure:
    """Draws the validation NLL of five models by the words that they were trained on."""
    lines = {
        "bigram model": (column("frontier.md", "bigram model"), "0.45"),
        "ESN, 4,096 units": (column("two_cores/ladder.md", "ESN 4,096"), "#b5651d"),
        "GPT-2, 4 layers": ({1_000_000: 5.379, 4_000_000: 4.755}, "#7a5195"),
        "LSTM, 512 units": (column("frontier.md", "LSTM-512"), "#2f6db3"),
        "deep readout": (column("frontier.md", "wide with bigrams"), "#2a8a57"),
    }
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, (losses, colour) in lines.items():
        axes.plot(
            list(losses), list(losses.values()), "o-", color=colour, linewidth=2, markersize=5
        )
        last = max(losses)
        axes.annotate(
            name,
            (last, losses[last]),
            (8, 0),
            textcoords="offset points",
            color=colour,
            va="center",
        )
    axes.set_xscale("log")
    axes.set_xticks([1e6, 2e6, 4e6, 8e6, 16e6, 25e6], ["1", "2", "4", "8", "16", "25"])
    axes.xaxis.minorticks_off()
    axes.set(
        xlim=(0.9e6, 45e6),
        xlabel="million words of training text",
        ylabel="validation NLL, nats a token",
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    return figure


def draw_sentence(run: esnlm.Run) -> Figure:
    """Draws the way of a sentence: words, ids, states, log-probabilities."""
    text = "The dog that the girls like sleeps."
    ids = [run.tokenizer.bos, *run.tokenizer.encode(text), run.tokenizer.eos]
    words = ["BOS", *[run.tokenizer.decode([each]).strip() for each in ids[1:-1]], "EOS"]
    (states,), (log_probs,) = run.states([text]), run.token_log_probs([text])
    figure = Figure(figsize=(9.6, 6.2), layout="constrained")
    rows = figure.subplots(4, 1, height_ratios=[0.5, 0.5, 3, 1.6], sharex=True)
    for axes, cells, colour in ((rows[0], words, TEXT), (rows[1], ids, TEXT)):
        for place, cell in enumerate(cells):
            axes.add_patch(
                Rectangle(
                    (place - 0.47, 0.1), 0.94, 0.8, facecolor=colour, edgecolor=LINE, linewidth=0.6
                )
            )
            axes.text(place, 0.5, str(cell), ha="center", va="center", fontsize=10)
        axes.set(ylim=(0, 1), yticks=[])
    rows[2].imshow(
        states[:, :48].T, aspect="auto", cmap="BrBG", vmin=-1, vmax=1, interpolation="nearest"
    )
    rows[2].set(yticks=[0, 47], yticklabels=["1", "48"])
    rows[3].bar(
        np.arange(1, len(words)),
        -log_probs / np.log(2),
        color="#f0b26b",
        edgecolor=LINE,
        linewidth=0.6,
    )
    rows[3].set(xlim=(-0.6, len(words) - 0.4), xticks=[])
    titles = [
        "1  text, split into tokens, framed by BOS and EOS",
        "2  token ids, as a token store holds them",
        "3  states: what 48 of the 128 units hold after each token (brown -1, green +1)",
        "4  surprisal of each token in bits: -log2 p(token | all before it)",
    ]
    for axes, title in zip(rows, titles, strict=True):
        axes.set_title(title, loc="left", fontsize=10.5)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return figure


def draw_packing() -> Figure:
    """Draws twelve sentences with padding, and as the program lays them out in batch slots."""
    lengths = np.array([12, 5, 9, 22, 7, 6, 14, 8, 5, 10, 18, 6])
    slots = 4
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    padded, packed = figure.subplots(1, 2, width_ratios=[1, 1.55], sharey=False)
    colours = matplotlib.colormaps["tab20"](np.arange(len(lengths)) / 20)
    for number, length in enumerate(lengths):
        y = len(lengths) - number - 1
        padded.add_patch(Rectangle((0, y), lengths.max(), 0.85, facecolor="0.93", edgecolor="none"))
        padded.add_patch(
            Rectangle((0, y), length, 0.85, facecolor=colours[number], edgecolor="none")
        )
    sentences = [np.full(length, number) for number, length in enumerate(lengths)]
    packed_steps, _ = pack(sentences, slots)
    steps, active = len(packed_steps.tokens), np.diff([*packed_steps.first_rows, lengths.sum()])
    for step in range(steps):
        for slot in range(slots):
            used = slot < active[step]
            colour = colours[packed_steps.tokens[step, slot]] if used else "0.93"
            packed.add_patch(
                Rectangle((step, slots - slot - 1), 1, 0.85, facecolor=colour, edgecolor="none")
            )
            if used and packed_steps.positions[step, slot] == 0:
                packed.plot(
                    [step, step],
                    [slots - slot - 1, slots - slot - 0.15],
                    color="black",
                    linewidth=1.5,
                )
    cells, total = len(lengths) * lengths.max(), lengths.sum()
    padded.set_title(f"padded: {cells} cells for {total} tokens", loc="left", fontsize=10.5)
    title = f"in {slots} batch slots: {slots * steps} cells for {total} tokens"
    packed.set_title(title, loc="left", fontsize=10.5)
    padded.set(
        xlim=(0, lengths.max()), ylim=(-0.2, len(lengths)), ylabel="sentences", xlabel="time step"
    )
    packed.set(xlim=(0, steps), ylim=(-0.1, slots), ylabel="batch slots")
    packed.set_xlabel("time step (a black line: a sentence begins, with a fresh state)")
    for axes in (padded, packed):
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    return figure


def trained() -> esnlm.Run:
    """Trains a small model for the picture of a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "small.yaml")
        file.write_text(f"run: {folder}/run\n{SMALL}", "utf-8")
        assert train_run(config_io.read(file), show_results=show_results) == 0
        return esnlm.load(Path(folder, "run"))


def main() -> None:
    """Draws all of them beside this file. The same packages give the same bytes."""
    matplotlib.rcParams |= {
        "svg.fonttype": "none",
        "svg.hashsalt": "esnlm",
        "font.family": "sans-serif",
    }
    figures = {
        "model": draw_model(),
        "losses": draw_losses(),
        "packing": draw_packing(),
        "sentence": draw_sentence(trained()),
    }
    for name, figure in figures.items():
        figure.savefig(HERE / f"{name}.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
