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


def test_means_since_the_million_before_as_far_as_all_runs_are(tmp_path):
    run, other = write(tmp_path / "a", [5, 4, 3, 2]), write(tmp_path / "b", [5.5, 4.1, 3.5])
    (row,) = batch_losses.by_million([run, other])
    assert row == {
        "words": pytest.approx(900_000),
        "losses": pytest.approx([4.5, 4.8]),
        "differences": pytest.approx([0.3]),
        "standard_errors": pytest.approx([0.2]),
    }
    third = write(tmp_path / "c", [6, 5, 4, 3])
    (row,) = batch_losses.by_million([run, other, third])
    assert row["losses"] == pytest.approx([4.5, 4.8, 5.5])
    assert row["differences"] == pytest.approx([1, 0.7])
    assert row["standard_errors"] == pytest.approx([0, 0.2])


def test_the_table_names_each_run(tmp_path):
    runs = [write(tmp_path / name, [5, 4 - i]) for i, name in enumerate("abc")]
    batch_losses.main([*map(str, runs), "--out", str(tmp_path)])
    head, _, row = (tmp_path / "batch_losses.md").read_text().splitlines()[2:5]
    assert head == "| million words | a | b | c | lead of a (standard error) | lead of b (standard error) |"
    assert row == "| 0.9 | 4.500 | 4.000 | 3.500 | -1.000 (1.000) | -0.500 (0.500) |"


def test_other_batches_are_refused(tmp_path):
    run, other = write(tmp_path / "a", [5, 4]), write(tmp_path / "b", [5, 4], words=(400_000, 950_000))
    with pytest.raises(InputError, match="b and .*a were not logged after the same words"):
        batch_losses.by_million([run, other, run])
    with pytest.raises(InputError, match="one run"):
        batch_losses.by_million([run])
