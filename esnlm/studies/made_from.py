"""What the runs of a study were made from: text, vocabulary, epochs, learning rate, seeds and hours."""

from collections.abc import Mapping, Sequence
from typing import Any

# What is told of the runs of a study: the key of each, and its title.
FIGURES = {
    "words": "words",
    "vocab_size": "vocabulary",
    "epochs": "epochs",
    "learning_rate": "learning rate",
    "seed": "seeds",
}


def figures(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns {title: text} for each of FIGURES, the different values of all runs, and the hours of training in all.

    Args:
        runs: from `grid_table.read_measures`. A text is "" where no run has the figure.

    Example:
        >>> figures([{"words": 1000, "seed": 0, "seconds": 7200.0}])["hours of training"]
        '2.0'
    """
    found = {title: _join({run[key] for run in runs if run.get(key) is not None}) for key, title in FIGURES.items()}
    seconds = [float(run["seconds"]) for run in runs if run.get("seconds") is not None]
    return found | {"hours of training": f"{sum(seconds) / 3600:.1f}" if seconds else ""}


def sentence(runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures as one line, without those that no run has, and "" where there is no run."""
    known = [f"{title} {text}" for title, text in figures(runs).items() if text]
    return "; ".join(known).capitalize() + "." if known else ""


def _join(values: set[Any]) -> str:
    return ", ".join(f"{value:,}" if isinstance(value, int) else f"{value:.10g}" for value in sorted(values))
