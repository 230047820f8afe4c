"""The losses of two runs on the same batches, by million words, against means that are worked out by hand."""

import json
import sys
from pathlib import Path

import pytest

from esnlm.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import batch_losses


def write(folder, losses, words=(400_000, 900_000, 1_500_000, 1_700_000)):
    folder.mkdir()
    lines = [
        {"step": 20 * i, "words": read, "tokens": 2 * read, "train_nll": loss, "tokens_per_second": 100.0}
        for i, (read, loss) in enumerate(zip(words, losses, strict=False), start=1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_means_since_the_million_before_as_far_as_both_runs_are(tmp_path):
    run, other = write(tmp_path / "a", [5, 4, 3, 2]), write(tmp_path / "b", [5.5, 4.1, 3.5])
    (row,) = batch_losses.by_million(run, other)
    assert row == pytest.approx(
        {"words": 900_000, "loss": 4.5, "loss_other": 4.8, "difference": 0.3, "standard_error": 0.2}
    )


def test_other_batches_are_refused(tmp_path):
    run, other = write(tmp_path / "a", [5, 4]), write(tmp_path / "b", [5, 4], words=(400_000, 950_000))
    with pytest.raises(InputError, match="were not logged after the same words"):
        batch_losses.by_million(run, other)
