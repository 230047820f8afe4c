"""How far one run is ahead of another on the very batches that both were trained on, by how many words they had read.

    python benchmarks/batch_losses.py RUN OTHER --out results/frontier

A run logs the losses of its batches before it learns them. Two runs that read the same sentences in the same order, which runs of
one seed do on one store, can so be compared batch by batch, while they train and where one of them was stopped. Writes
batch_losses.json and .md under --out: means over each million words of training text, in nats per predicted token, and the standard
error of their difference over the logged lines of that million. Another seed is in no such error.
"""

from pathlib import Path

import measure
import numpy as np

from esnlm.errors import require
from esnlm.reporting.loss_plot import points
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import parse_json


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument(
        "runs",
        type=Path,
        nargs=2,
        metavar="RUN",
        help="two run directories; what is shown is the second less the first",
    )
    args = parser.parse_args(arguments)
    record = measure.begin() | {"runs": [run.name for run in args.runs], "rows": by_million(*args.runs)}
    head = ["million words", *record["runs"], "difference", "standard error"]
    rows = [
        [f"{row['words'] / 1e6:.1f}", *(f"{value:.3f}" for value in list(row.values())[1:])] for row in record["rows"]
    ]
    measure.write(args.out, "batch_losses", "Losses of two runs on the same batches", measure.table(head, rows), record)
    return record


def by_million(run: Path, other: Path) -> list[dict[str, float]]:
    """Returns the mean losses since the row before, over each million words that both runs have read, and their difference.

    Raises:
        InputError: a run has no losses by words, or the two did not read the same batches.
    """
    (words, losses), (its_words, its_losses) = (read_losses(each).T for each in (run, other))
    common, here, there = np.intersect1d(words, its_words, return_indices=True)
    both = min(words[-1], its_words[-1])  # how far both runs are
    enough = 10 * len(common) >= 9 * np.count_nonzero(words <= both)  # a checkpoint may have a line more
    require(enough, f"{run} and {other} were not logged after the same words: they read other batches")
    words, losses, its_losses = common, losses[here], its_losses[there]
    rows = []
    for number in range(int(np.ceil(words[-1]))):
        here = (number < words) & (words <= number + 1)
        if np.count_nonzero(here) < 2:
            continue
        differences = its_losses[here] - losses[here]
        rows.append(
            {
                "words": float(1e6 * words[here][-1]),
                "loss": float(losses[here].mean()),
                "loss_other": float(its_losses[here].mean()),
                "difference": float(differences.mean()),
                "standard_error": float(differences.std(ddof=1) / np.sqrt(len(differences))),
            }
        )
    return rows


def read_losses(run: Path) -> np.ndarray:
    """Returns the losses that a run logged, (n, 2): millions of words that were read, and nats per predicted token.

    Raises:
        InputError: it logged none by words.
    """
    file = RunDirectory(run).metrics
    require(file.exists(), f"{file}: not there; give a run directory")
    whole = (
        file.read_text("utf-8").rpartition("\n")[0].splitlines()
    )  # a run that goes on may have written half of its last line
    lines = [line for line in map(parse_json, whole) if "train_nll" in line]
    found = points(lines, "train_nll", {line["step"]: line["words"] / 1e6 for line in lines if "words" in line})
    require(len(found) > 0, f"{file}: no losses by words")
    return found


if __name__ == "__main__":
    measure.as_command(main)
