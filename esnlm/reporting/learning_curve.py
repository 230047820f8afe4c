"""A learning curve as a page, a picture and a table on the terminal."""

import math
from collections.abc import Sequence

from esnlm.io.screen import Screen
from esnlm.reporting import plots
from esnlm.reporting.blimp_text import entry_of, readable
from esnlm.reporting.plots import FAINT, INK
from esnlm.reporting.tables import markdown_table

RUN = plots.COLOURS[0]
BASELINES = ("#9aa5b1", "#e0a100", "#1f6fb2", "#8c6d31")  # in the order of the n-gram models, then length alone
GOES_ON = (
    "The run goes on from {}: words are those since then, and the n-gram models know nothing of what was read before."
)
ONE_POINT = (
    "There is one point, for the run keeps one checkpoint only: train with training.checkpoint_words for a curve."
)
LENGTH = "length"  # the baseline that sees nothing but how many tokens the two sentences have, and has no NLL
ROOM = 0.14  # of the axis of a small picture, for the number below a point
COLUMNS = 4  # of small pictures, one a phenomenon
FAR = 1.0  # nats: a model whose NLL is nowhere so near to the run's is named, not drawn, so that the others can be told apart


def show(result: dict) -> None:
    """Prints the curve and from where on the run is ahead."""
    screen = Screen()
    screen.line(f"{result['run']}: NLL in nats per predicted token; accuracies of minimal pairs in percent")
    screen.table(*_curve(result), align="r")
    for line in _notes(result):
        screen.line(line)
    if len(result["points"]) > 1:
        screen.line()
        screen.line("ahead of each from so many words on, at every later checkpoint:")
        screen.table(*_ahead(result), align="lr")


def markdown(result: dict) -> str:
    """Returns the page."""
    validation, pairs = result["validation"], result["pairs"]
    scored = f"; {pairs['pairs']:,} minimal pairs, convention {pairs['scoring']}" if pairs else ""
    length = " Length only takes the sentence of fewer tokens, and has no NLL." if pairs else ""
    lines = [
        f"# Learning curve of {result['run']}",
        "",
        f"NLL in nats per predicted token of {validation['path']} ({validation['words']:,} words, {validation['tokens']:,}"
        f" predicted tokens){scored}. The n-gram models (Witten-Bell; the unigram model adds one) are counted on the very"
        f" sentences that the run had read by then.{length}",
        "",
        *markdown_table(*_curve(result), align="r"),
        *(part for note in _notes(result) for part in ("", note)),
        "",
        "## From how many words on the run is ahead",
        "",
        "Ahead at this checkpoint and at every later one. In NLL: the lower figure, of one run on one text. In accuracy: the 95 %"
        " interval of the paired difference, over the choice of pairs, lies above zero. No interval here is over seeds.",
        "",
        *markdown_table(*_ahead(result), align="lr"),
    ]
    if pairs:
        lines += ["", "## Accuracy by phenomenon", "", *markdown_table(*_phenomena(result), align="lr")]
    return "\n".join(lines) + "\n"


def first_ahead(words: Sequence[int], ahead: Sequence[bool]) -> int | None:
    """Returns from how many words on all of `ahead` is true; None if the last one is not."""
    found = None
    for count, good in zip(reversed(words), reversed(ahead), strict=True):
        if not good:
            break
        found = count
    return found


def millions(words: int) -> str:
    """Returns a number of words in few letters: 858, 32.2k, 300k, 24.6M."""
    if words < 10_000:
        return f"{words:,}"
    if words < 99_950:
        return f"{words / 1e3:.1f}k"
    return f"{words / 1e6:.1f}M" if words >= 999_500 else f"{words / 1e3:.0f}k"


def _notes(result: dict) -> list[str]:
    goes_on = [GOES_ON.format(result["parent"])] if result.get("parent") else []
    return goes_on + ([ONE_POINT] if len(result["points"]) == 1 else [])


def _baselines(result: dict) -> dict[str, str]:
    """Returns the titles of what guesses the pairs, by name: the n-gram models, then length alone."""
    ngrams = [name for name in result["points"][0]["nll"] if name != "model"]
    return {name: name for name in ngrams} | ({LENGTH: "length only"} if result["pairs"] else {})


def _places(result: dict) -> list[str]:
    """Returns "overall" and the names of the phenomena; nothing without minimal pairs."""
    return ["overall", *sorted(result["points"][0]["pairs"]["model"]["phenomena"])] if result["pairs"] else []


def _title(place: str) -> str:
    return "all minimal pairs" if place == "overall" else readable(place)


def _at(point: dict, name: str, place: str) -> dict:
    """Returns the entry of the run ("model") or a baseline on all pairs or those of a phenomenon."""
    return entry_of(point["pairs"][name], "phenomena", place)


def _curve(result: dict) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the table with a row a point."""
    baselines = _baselines(result)
    header = ["words", "NLL", *(name for name in baselines if name != LENGTH), "without EOS"]
    rows = []
    for point in result["points"]:
        losses = [*point["nll"].values(), point["nll_without_eos"]["model"]]
        row = [f"{point['words']:,}", *(f"{nll:.3f}" for nll in losses)]
        if result["pairs"]:
            own = _at(point, "model", "overall")
            interval = "-" if own["interval"] is None else "{:.1f} - {:.1f}".format(*own["interval"])
            row += [_percent(own), interval, *(_percent(_at(point, name, "overall")) for name in baselines)]
        rows.append(row)
    return header + (["accuracy", "95 %", *baselines.values()] if result["pairs"] else []), rows


def _ahead(result: dict) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the table that says from how many words on the run is ahead."""
    points, baselines = result["points"], _baselines(result)
    words = [point["words"] for point in points]

    def cell(ahead: list[bool]) -> str:
        found = first_ahead(words, ahead)
        return f"not by {millions(words[-1])}" if found is None else millions(found)

    def is_above(point: dict, name: str, place: str) -> bool:
        above = _at(point, name, place).get("run_above")
        return above is not None and point["pairs"]["status"] == "ok" and above["interval"][0] > 0

    rows = []
    for title, key in (("NLL", "nll"), ("NLL without EOS", "nll_without_eos")):
        its = {name: [p[key]["model"] < p[key][name] for p in points] for name in baselines if name != LENGTH}
        rows.append([title, *(cell(its[name]) if name in its else "-" for name in baselines)])
    for place in _places(result):
        rows.append([_title(place), *(cell([is_above(point, name, place) for point in points]) for name in baselines)])
    return ["", *baselines.values()], rows


def _phenomena(result: dict) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the table of accuracies by phenomenon."""
    points, baselines = result["points"], _baselines(result)
    header = ["", *(millions(point["words"]) for point in points), *(f"{name}, last" for name in baselines.values())]
    rows = [
        [
            _title(place),
            *(_percent(_at(point, "model", place)) for point in points),
            *(_percent(_at(points[-1], name, place)) for name in baselines),
        ]
        for place in _places(result)
    ]
    return header, rows


def _percent(entry: dict) -> str:
    return "-" if entry["accuracy"] is None else f"{entry['accuracy']:.1f}"


def plot(result: dict) -> tuple[bytes | None, str | None]:
    """Plots NLL and accuracy by words read, and the accuracy of each phenomenon in a small picture of its own.

    Returns:
        A PNG, or None, and then why there is no plot.
    """
    points, baselines, places = result["points"], _baselines(result), _places(result)
    panels = 1 + len(places)
    rows = -(-panels // COLUMNS)
    width, height = (11.0, 0.8 + 2.4 * rows) if places else (8.0, 4.0)
    made = plots.figure(width, height, rows, min(COLUMNS, panels), sharex=True)
    if made is None:
        return None, f"no plot: {plots.NO_MATPLOTLIB}"
    figure, axes = made
    words = [point["words"] / 1e6 for point in points]
    first, *others = axes.flat
    losses = {name: [point["nll"].get(name, math.nan) for point in points] for name in ("model", *baselines)}
    gaps = {name: min(a - b for a, b in zip(nll, losses["model"], strict=True)) for name, nll in losses.items()}
    far = [name for name, gap in gaps.items() if gap > FAR]
    colours = dict(zip(baselines, BASELINES, strict=False))
    for (
        name,
        title,
    ) in baselines.items():  # One that is far has a line without points, for the legend of the other pictures.
        nll = [math.nan] * len(points) if name in far else losses[name]
        first.plot(words, nll, color=colours[name], marker=".", label=title)
    first.plot(words, losses["model"], color=RUN, marker="o", markersize=4, label="this run")
    above = f" ({', '.join(f'{name} {losses[name][-1]:.2f}' for name in far)})" if far else ""
    first.set_title(f"NLL, nats per token{above}", fontsize=9, color=INK)
    chance = points[-1]["pairs"].get("chance", 50) if places else None
    for axis, place in zip(others, places, strict=False):
        for name in baselines:
            accuracies = [_at(point, name, place)["accuracy"] for point in points]
            axis.plot(words, accuracies, color=colours[name], marker=".", linewidth=1)
        own = {x: _at(point, "model", place) for x, point in zip(words, points, strict=True)}
        own = {x: entry for x, entry in own.items() if entry["accuracy"] is not None}
        if own:
            low, high = zip(*(entry["interval"] for entry in own.values()), strict=True)
            axis.fill_between(list(own), low, high, color=RUN, alpha=0.18, linewidth=0)
            axis.plot(list(own), [entry["accuracy"] for entry in own.values()], color=RUN, marker="o", markersize=4)
        if chance is not None:
            axis.axhline(chance, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axis.set_title(f"{_title(place)}, %", fontsize=9, color=INK)
    for axis in axes.flat:
        axis.set_xscale("log")
        axis.set_xticks(words, _numbers_below(words))
        axis.minorticks_off()
        axis.tick_params(labelsize=8, labelbottom=True)
        axis.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    for axis in list(axes.flat)[panels:]:
        axis.set_visible(False)
    handles = first.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(baselines) + 1, frameon=False, fontsize=9)
    dashes = "" if chance is None else "; dashes: chance"
    figure.suptitle(f"{result['run']}, by million words read{dashes}", x=0.01, ha="left", fontsize=11, color=INK)
    return plots.png(figure), None


def _numbers_below(words: Sequence[float]) -> list[str]:
    """Returns what is written below each point: nothing if it would touch the number to the right."""
    numbers: list[str] = []
    right = math.inf
    for x in reversed(words):
        fits = right - math.log(x) > ROOM * math.log(words[-1] / words[0])
        numbers.append(f"{x:.3g}" if fits else "")
        right = math.log(x) if fits else right
    return numbers[::-1]
