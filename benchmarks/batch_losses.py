"""How far runs are ahead of another on the very batches that all were trained on, by how many words they had read.

    python benchmarks/batch_losses.py RUN [RUN ..] OTHER --out results/frontier

A run logs the losses of its batches before it learns them. Runs that read the same sentences in the same order, which runs of one
seed do on one store, can so be compared batch by batch, while they train and where one of them was stopped. Writes
batch_losses.json and .md under --out: means over each million words of training text, in nats per predicted token, how far the last
run is behind each of the others, and the standard errors of these differences over the logged lines of that million. Another seed is
in no such error.
"""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import measure
import numpy as np

from esnlm.errors import require
from esnlm.io.json_file import parse_json
from esnlm.reporting.loss_plot import points
from esnlm.runs.directory import RunDirectory


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="two run directories or more; differences are the last one's loss less each of the others'",
    )
    args = parser.parse_args(arguments)
    record = measure.begin() | {"runs": [run.name for run in args.runs], "rows": by_million(args.runs)}
    head = ["million words", *record["runs"], *(f"lead of {name} (standard error)" for name in record["runs"][:-1])]
    rows = [
        [
            f"{row['words'] / 1e6:.1f}",
            *(f"{loss:.3f}" for loss in row["losses"]),
            *(
                f"{mean:.3f} ({error:.3f})"
                for mean, error in zip(row["differences"], row["standard_errors"], strict=True)
            ),
        ]
        for row in record["rows"]
    ]
    measure.write(args.out, "batch_losses", "Losses of runs on the same batches", measure.table(head, rows), record)
    return record


def by_million(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns the mean losses since the row before, over each million words that all runs have read.

    Args:
        runs: two run directories or more.

    Returns:
        Rows of `words`, which were read at its end, `losses`, one a run, and `differences` and `standard_errors`, of the last
        run's losses less those of each of the others.

    Raises:
        InputError: there is one run, one has no losses by words, or one did not read the same batches.
    """
    require(len(runs) > 1, f"{runs[0]}: one run; give another to compare it with")
    logged = [read_losses(run) for run in runs]
    last = logged[-1][:, 0]
    for run, its in zip(runs[:-1], logged, strict=False):
        words = its[:, 0]
        both = min(words[-1], last[-1])  # how far both runs are
        lines = max(np.count_nonzero(each <= both) for each in (words, last))
        enough = 10 * len(np.intersect1d(words, last)) >= 9 * lines  # a checkpoint may have a line more
        require(enough, f"{run} and {runs[-1]} were not logged after the same words: they read other batches")
    common = reduce(np.intersect1d, [its[:, 0] for its in logged])  # million words
    losses = np.array([its[np.searchsorted(its[:, 0], common), 1] for its in logged])  # (runs, lines)
    rows = []
    for number in range(int(np.ceil(common[-1]))):
        here = (number < common) & (common <= number + 1)
        if np.count_nonzero(here) < 2:
            continue
        differences = losses[-1, here] - losses[:-1, here]
        rows.append(
            {
                "words": float(1e6 * common[here][-1]),
                "losses": losses[:, here].mean(1).tolist(),
                "differences": differences.mean(1).tolist(),
                "standard_errors": (differences.std(1, ddof=1) / np.sqrt(differences.shape[1])).tolist(),
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
