"""A learning curve as a page, a picture and a table on the terminal."""

import math
from collections.abc import Iterator, Sequence

from esnlm.io.screen import Screen
from esnlm.reporting import plots
from esnlm.reporting.plots import FAINT, INK
from esnlm.reporting.tables import markdown_table

RUN = plots.COLOURS[0]
BASELINES = ("#9aa5b1", "#e0a100", "#1f6fb2", "#8c6d31")  # in the order of the n-gram models, then length alone
GOES_ON = "The run goes on from {parent}: words are those since then, and the n-gram models know nothing of what was read before."
ONE_POINT = "one point, for the run keeps one checkpoint only: train with training.checkpoint_words for a curve"
LENGTH = "length"  # the name of the baseline that sees nothing but how many tokens the two sentences have
ROOM = 0.14  # of the axis of a small picture, for the number below a point
COLUMNS = 4  # of small pictures, one a phenomenon
FAR = 1.0  # nats: a model whose NLL is nowhere so near to the run's is named, not drawn, so that the others can be told apart


def show(result: dict) -> None:
    """Prints the curve and from where on the run is ahead."""
    screen = Screen()
    screen.line(f"{result['run']}: NLL in nats per predicted token; accuracies of minimal pairs in percent")
    screen.table(_header(result), _rows(result), align="r")
    if result.get("parent"):
        screen.line(GOES_ON.format(**result))
    if len(result["points"]) == 1:
        screen.line(ONE_POINT)
        return
    screen.line()
    screen.line("ahead of each from so many words on, at every later checkpoint:")
    screen.table(["", *map(_baseline_title, _baselines(result))], _ahead_rows(result), align="lr")


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
        *markdown_table(_header(result), _rows(result), align="r"),
        *(["", GOES_ON.format(**result)] if result.get("parent") else []),
        *(["", f"Here is {ONE_POINT}"] if len(result["points"]) == 1 else []),
        "",
        "## From how many words on the run is ahead",
        "",
        "Ahead at this checkpoint and at every later one. In NLL: the lower figure, of one run on one text. In accuracy: the 95 %"
        " interval of the paired difference, over the choice of pairs, lies above zero. No interval here is over seeds.",
        "",
        *markdown_table(["", *map(_baseline_title, _baselines(result))], _ahead_rows(result), align="lr"),
    ]
    if pairs:
        header, rows = _phenomena(result)
        lines += ["", "## Accuracy by phenomenon", "", *markdown_table(header, rows, align="lr")]
    return "\n".join(lines) + "\n"


def first_ahead(words: Sequence[int], ahead: Sequence[bool | None]) -> int | None:
    """Returns from how many words on all of `ahead` is true; None where the last one is not.

    Example:
        >>> first_ahead([1, 2, 4, 8], [True, False, True, True])
        4
    """
    found = None
    for count, good in zip(reversed(words), reversed(ahead), strict=True):
        if not good:
            break
        found = count
    return found


# ---- the tables ----


def millions(words: int) -> str:
    """Returns a number of words in millions, or in thousands below one million; a small one as it is.

    Example:
        >>> millions(1_000_124), millions(300_122), millions(24_567_000), millions(32_250), millions(858)
        ('1.0M', '300k', '24.6M', '32.2k', '858')
    """
    if words < 10_000:
        return f"{words:,}"
    if words < 99_950:
        return f"{words / 1e3:.1f}k"
    return f"{words / 1e6:.1f}M" if words >= 999_500 else f"{words / 1e3:.0f}k"


def _ngrams(result: dict) -> list[str]:
    """Returns the names of the n-gram models."""
    return [name for name in result["points"][0]["nll"] if name != "model"]


def _baselines(result: dict) -> list[str]:
    """Returns the names of what guesses the pairs: the n-gram models, then length alone, which has no NLL."""
    return [*_ngrams(result), *([LENGTH] if result["pairs"] else [])]


def _baseline_title(name: str) -> str:
    return "length only" if name == LENGTH else name


def _header(result: dict) -> list[str]:
    names = _ngrams(result)
    header = ["words", "NLL", *names, "without EOS"]
    return header + (["accuracy", "95 %", *map(_baseline_title, _baselines(result))] if result["pairs"] else [])


def _rows(result: dict) -> Iterator[list[str]]:
    for point in result["points"]:
        row = [f"{point['words']:,}", *(f"{nll:.3f}" for nll in point["nll"].values())]
        row.append(f"{point['nll_without_eos']['model']:.3f}")
        if result["pairs"]:
            own = point["pairs"]["model"]["overall"]
            row += [_percent(own["accuracy"]), _interval(own["interval"])]
            row += [_percent(point["pairs"][name]["overall"]["accuracy"]) for name in _baselines(result)]
        yield row


def _ahead_rows(result: dict) -> Iterator[list[str]]:
    points = result["points"]
    words = [point["words"] for point in points]

    def cell(ahead: list[bool | None]) -> str:
        found = first_ahead(words, ahead)
        return f"not by {millions(words[-1])}" if found is None else millions(found)

    for title, figure in (("NLL", "nll"), ("NLL without EOS", "nll_without_eos")):
        yield [
            title,
            *(cell([point[figure]["model"] < point[figure][name] for point in points]) for name in _ngrams(result)),
            *(["-"] if result["pairs"] else []),
        ]
    if not result["pairs"]:
        return
    for title, place in _places(result):
        yield [title, *(cell([_above(point, name, place) for point in points]) for name in _baselines(result))]


def _places(result: dict) -> list[tuple[str, str | None]]:
    """Returns a title and the name of the phenomenon, None for all pairs."""
    names = sorted(result["points"][0]["pairs"]["model"]["phenomena"])
    return [("all minimal pairs", None), *((_title(name), name) for name in names)]


def _entry(tree: dict, place: str | None) -> dict:
    return tree["overall"] if place is None else tree["phenomena"][place]


def _above(point: dict, name: str, place: str | None) -> bool | None:
    """Tells whether the run's accuracy is above a baseline's; None where it has none."""
    above = _entry(point["pairs"][name], place).get("run_above")
    return None if above is None or point["pairs"]["status"] != "ok" else above["interval"][0] > 0


def _phenomena(result: dict) -> tuple[list[str], list[list[str]]]:
    points = result["points"]
    last, names = points[-1], _baselines(result)
    header = [
        "",
        *(millions(point["words"]) for point in points),
        *(f"{_baseline_title(name)}, last" for name in names),
    ]
    rows = [
        [
            title,
            *(_percent(_entry(point["pairs"]["model"], place)["accuracy"]) for point in points),
            *(_percent(_entry(last["pairs"][name], place)["accuracy"]) for name in names),
        ]
        for title, place in _places(result)
    ]
    return header, rows


def _title(phenomenon: str) -> str:
    return phenomenon.replace("_", " ").replace("npi ", "NPI ")


def _percent(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.1f}"


def _interval(interval: list[float] | None) -> str:
    return "-" if interval is None else f"{interval[0]:.1f} - {interval[1]:.1f}"


# ---- the picture ----


def plot(result: dict) -> tuple[bytes | None, str | None]:
    """Plots NLL and accuracy by words read, and the accuracy of each phenomenon in a small picture of its own.

    Returns:
        A PNG, or None, and then the line that says why there is no plot.
    """
    places = _places(result) if result["pairs"] else []
    panels = 1 + len(places)
    rows = -(-panels // COLUMNS)
    width, height = (11.0, 0.8 + 2.4 * rows) if places else (8.0, 4.0)
    made = plots.figure(width, height, rows, min(COLUMNS, panels), sharex=True)
    if made is None:
        return None, f"no plot: {plots.NO_MATPLOTLIB}"
    figure, axes = made
    points, names = result["points"], _baselines(result)
    words = [point["words"] / 1e6 for point in points]
    chance = points[-1]["pairs"].get("chance", 50) if places else None
    colours = dict(zip(names, BASELINES, strict=False))
    first, *others = axes.flat
    own_nll = [point["nll"]["model"] for point in points]
    ngrams = _ngrams(result)
    far = [name for name in ngrams if min(point["nll"][name] - point["nll"]["model"] for point in points) > FAR]
    for name in names:  # One that is far or has no NLL has a line without points, for the legend of the other pictures.
        heights = [point["nll"][name] if name in ngrams and name not in far else math.nan for point in points]
        first.plot(words, heights, color=colours[name], marker=".", label=_baseline_title(name))
    first.plot(words, own_nll, color=RUN, marker="o", markersize=4, label="this run")
    above = ", ".join(f"{name} {points[-1]['nll'][name]:.2f}" for name in far)
    first.set_title("NLL, nats per token" + f" ({above})" * bool(far), fontsize=9, color=INK)
    for axis, (title, place) in zip(others, places, strict=False):
        for name in names:
            heights = [_entry(point["pairs"][name], place)["accuracy"] for point in points]
            axis.plot(words, heights, color=colours[name], marker=".", linewidth=1)
        own = [_entry(point["pairs"]["model"], place) for point in points]
        defined = [(x, entry) for x, entry in zip(words, own, strict=True) if entry["accuracy"] is not None]
        if defined:
            at = [x for x, _ in defined]
            low, high = zip(*(entry["interval"] for _, entry in defined), strict=True)
            axis.fill_between(at, low, high, color=RUN, alpha=0.18, linewidth=0)
            axis.plot(at, [entry["accuracy"] for _, entry in defined], color=RUN, marker="o", markersize=4)
        if chance is not None:
            axis.axhline(chance, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axis.set_title(f"{title}, %", fontsize=9, color=INK)
    for axis in axes.flat:
        axis.set_xscale("log")
        axis.set_xticks(words, _numbers_below(words))
        axis.minorticks_off()
        axis.tick_params(labelsize=8, labelbottom=True)
        axis.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    for axis in list(axes.flat)[panels:]:
        axis.set_visible(False)
    figure.legend(
        *first.get_legend_handles_labels(), loc="outside lower center", ncols=len(names) + 1, frameon=False, fontsize=9
    )
    dashes = "" if chance is None else "; dashes: chance"
    figure.suptitle(f"{result['run']}, by million words read{dashes}", x=0.01, ha="left", fontsize=11, color=INK)
    return plots.png(figure), None


def _numbers_below(words: Sequence[float]) -> list[str]:
    """Returns what is written below each point, in millions of words: nothing where it would touch the number to the right.

    Example:
        >>> _numbers_below([1, 8, 9, 25])
        ['1', '', '9', '25']
    """
    room = ROOM * math.log(words[-1] / words[0])
    numbers: list[str] = []
    right = math.inf
    for x in reversed(words):
        if right - math.log(x) > room:
            numbers.append(f"{x:.3g}")
            right = math.log(x)
        else:
            numbers.append("")
    return numbers[::-1]
