"""The figures of runs: the title, the unit and the digits of each, and how it is written.

A figure has the name of its key in summary.json, in the file of `esnlm likelihood`, or in a study's
table.json.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

NATS = "nats per token"


class Figure(NamedTuple):
    """How a figure is named and written in tables, pages and plots."""

    title: str
    digits: int = 0
    unit: str = ""


FIGURES = {
    "trainable_params": Figure("trained"),
    "total_params": Figure("all parameters"),
    "total_entries": Figure("all entries"),  # including the zeros of sparse matrices
    "words": Figure("words"),
    "train_nll": Figure("train NLL", 3, NATS),
    "val_nll": Figure("val NLL", 3, NATS),
    "val_nll_without_eos": Figure("val NLL without EOS", 3, NATS),  # papers seldom say which
    "unigram model": Figure("unigram", 3, NATS),
    "bigram model": Figure("bigram", 3, NATS),
    "the grammar's entropy": Figure("true entropy", 3, NATS),
    "val_bits_per_byte": Figure("bits/byte", 3, "of the validation text"),
    "val_nats_per_word": Figure("nats/word", 3, "of the validation text"),
    "nll": Figure("NLL", 3, NATS),  # of any text
    "nll_without_eos": Figure("NLL without EOS", 3, NATS),
    "bits_per_byte": Figure("bits/byte", 3),
    "nats_per_word": Figure("nats/word", 3),
    "perplexity": Figure("perplexity", 2, "per token"),
    "blimp": Figure("minimal pairs, %", 2, "percent, mean over paradigms"),
    "accuracy": Figure("accuracy, %", 1, "%"),  # of a paradigm or a phenomenon
    "seconds": Figure("seconds"),
    "tokens_per_second": Figure("tokens/s"),
}


def titles(names: Sequence[str]) -> list[str]:
    """Returns the titles of figures, the header of a table."""
    return [FIGURES[name].title for name in names]


def format_figure(name: str, value: float | None) -> str:
    """Formats a figure with its digits: a very large loss by its magnitude, and None as ""."""
    if value is None:
        return ""
    digits = FIGURES[name].digits
    return f"{value:,.{digits}f}" if digits == 0 or abs(value) < 1e5 else f"{value:.2e}"


def format_mean(name: str, mean: Mapping[str, Any], as_interval: bool = False) -> str:
    """Formats a result of `mean_over_seeds` as "5.10 ± 0.10" or "5.10 [5, 5.2]", its interval.

    The deviation is that of one run. Figures that are equal in all runs have no spread.
    """
    text, interval = format_figure(name, mean["mean"]), mean["interval"] or (0, 0)
    if not mean["se"]:
        return text
    if as_interval:
        low, high = (format_figure(name, bound) for bound in interval)
        return f"{text} [{low}, {high}]" if low < high else text
    return f"{text} ± {format_figure(name, mean['se'] * mean['n'] ** 0.5)}"


def format_interval(interval: Sequence[float], digits: int = 1) -> str:
    """Formats the bounds of an interval, "61.2, 63.5"."""
    return ", ".join(f"{bound:.{digits}f}" for bound in interval)


def diagnosis_rows(figures: Mapping[str, Any]) -> dict[str, str]:
    """Returns the figures of `esnlm diagnose` as text, by row name."""
    theory, settings, saturated = figures["theory"], figures["settings"], figures["saturated"]
    kind, *others = settings["topology"].items()
    topology = [kind[1], *(f"{key} {value}" for key, value in others)]
    layers, linear = settings["layers"], theory["linear_radius"]
    curves = {
        name: figures[name.replace(" ", "_")] for name in ("state contraction", "input forgetting")
    }
    return {
        "topology": " ".join(topology),
        "update rule": settings["update_rule"].replace("_", " "),
        "units": f"{settings['state_size']:,}"
        + (f" in each of {layers} layers" if layers > 1 else ""),
        "connections": f"{figures['connections']:,}, at most {figures['longest_row']:,} per unit",
        "spectral radius of W_rec": f"{theory['radius']:.3f}",
        "largest singular value of W_rec": f"{theory['sigma_max']:.4g}",
        "radius of the linearisation at 0": "not known" if linear is None else f"{linear:.3f}",
        "tokens without a column in W_in": (
            f"{theory['empty_tokens']:,} of {figures['vocab_size']:,}"
        ),
        **{row: text for name, curve in curves.items() for row, text in _decay(name, curve)},
        "largest Lyapunov exponent": f"{figures['lyapunov_exponent']:+.3g} {NATS}",
        "saturated, |tanh| > 0.99": "no tanh" if saturated is None else f"{100 * saturated:.2g} %",
        "effective rank": _rank(figures["effective_rank"], figures["sampled_states"]),
        "memory capacity": _memory(figures["memory_capacity"], settings["state_size"] * layers),
    }


def _decay(name: str, curve: Any) -> list[tuple[str, str]]:
    """Returns the rows of a curve of distances, or of the reason why there is none."""
    rate = left = curve
    if not isinstance(curve, str):
        first, last = curve["fitted"]
        before = f"{curve['rate_before']:+.3g} before"
        rate = f"{curve['rate']:+.3g} (tokens {first} to {last}), {before}"
        left = f"{curve['left']:.2g} after {len(curve['distance']) - 1} tokens"
    return [(f"{name}, {NATS}", rate), (f"{name}, distance left", left)]


def _rank(rank: Any, states: int) -> str:
    return rank if isinstance(rank, str) else f"{rank:,.1f} of {states:,} states"


def _memory(memory: Any, units: int) -> str:
    if isinstance(memory, str):
        return memory
    text = f"{memory['total']:.1f} of {len(memory['by_delay'])} delays (sd {memory['sd']:.1f} over"
    text += f" {len(memory['totals'])} inputs; chance {memory['chance']:.2f})"
    if memory["samples"] < 8 * units:
        text += f"; too low, since {memory['samples']:,} samples are few for {units:,} units"
    return text
