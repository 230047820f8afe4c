"""The table of several runs: one row a run, or one for all seeds of a model."""

import csv
import json

import numpy as np
import pytest

from esnlm import commands
from esnlm.base.files import seal
from esnlm.reports import run_table


def test_a_row_a_run(make_run):
    table = run_table.report([make_run("a", val_nll=5.25), make_run("b", val_nll=6.0, right=4)])
    lines = table.splitlines()
    assert lines[0].startswith(
        "| run | model | trained | all parameters | all entries | words | train NLL | val NLL |"
    )
    assert "| 1,200 | 3,000 |  | 100 | 5.750 | 5.250 |" in lines[2]
    assert [line.split(" | ")[3] for line in lines[-2:]] == ["100.00", "50.00"]
    assert "±" not in table


def test_runs_that_differ_in_their_seed_are_one_row_with_their_spread(make_run, tmp_path):
    runs = [make_run(f"esn-seed{i}", seed=i, val_nll=5 + i / 10, right=6 + i) for i in range(3)]
    table = run_table.report(
        [*runs, make_run("other", learning_rate=3e-3)], tmp_path / "table.csv", seeds=True
    )
    losses, scores = table.split("\n\n")[:2]
    assert [line.split(" | ")[0] for line in losses.splitlines()[2:]] == [
        "| esn (3 seeds)",
        "| other",
    ]
    # a count that is the same in all has no spread
    assert "| 5.100 ± 0.100 |" in losses and "| 1,200 |" in losses
    # 75, 87.5 and 100 %: mean 87.5, deviation 12.5, and t(0.975, 2 degrees) = 4.3027 for the
    # interval of the mean.
    half = 4.302653 * 12.5 / np.sqrt(3)
    assert f"| 87.50 ± 12.50 | {87.5 - half:.2f} - {87.5 + half:.2f} |" in scores
    assert table.splitlines()[-1] == run_table.SEEDS_NOTE

    [*seeds, other] = csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    assert [(row["run"], row["seed"]) for row in seeds] == [
        ("esn-seed0", "0"),
        ("esn-seed1", "1"),
        ("esn-seed2", "2"),
    ]
    assert [float(row["val NLL"]) for row in seeds] == [5.0, 5.1, 5.2] and other[
        "blimp-paper"
    ] == "100.0"
    assert [run["seed"] for run in json.loads((tmp_path / "table.json").read_text())] == [
        0,
        1,
        2,
        0,
    ]


def test_a_run_that_is_named_twice_counts_once(make_run, tmp_path, capsys):
    losses = [5.0, 5.1, 5.4]
    runs = [make_run(f"esn-seed{seed}", seed=seed, val_nll=nll) for seed, nll in enumerate(losses)]
    (tmp_path / "link").symlink_to(runs[1])
    names = [*runs, f"{runs[0]}/", tmp_path / "link", tmp_path / "esn-seed1" / ".." / "esn-seed2"]
    assert (
        commands.main(["report", *map(str, names), "--seeds", "--out", str(tmp_path / "table.csv")])
        == 0
    )
    rows = capsys.readouterr().out.partition("\n\n")[0].splitlines()[2:]
    assert len(rows) == 1 and rows[0].startswith("| esn (3 seeds) |")
    assert f"| {np.mean(losses):.3f} ± {np.std(losses, ddof=1):.3f} |" in rows[0]
    assert [
        row["seed"] for row in csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    ] == ["0", "1", "2"]


def test_accuracies_by_paradigm_with_a_column_a_model(make_run, tmp_path):
    runs = [
        make_run("a-0", right=6),
        make_run("a-1", seed=1, right=8),
        make_run("b", learning_rate=1e-2, right=4),
    ]
    table = run_table.report(runs, tmp_path / "table.md", seeds=True, by="paradigm")
    assert table.splitlines()[:5] == [
        "| paradigm | a-0 (2 seeds) | b |",
        "| --- | ---: | ---: |",
        "| one | 100.0 ± 0.0 | 100.0 |",
        "| two | 75.0 ± 35.4 | 0.0 |",
        "| overall | 87.5 ± 17.7 | 50.0 |",
    ]
    run_table.report(runs, tmp_path / "all_digits.csv", seeds=True, by="paradigm")
    rows = list(csv.DictReader((tmp_path / "all_digits.csv").read_text().splitlines()))
    assert [(row["run"], row["two"], row["overall"]) for row in rows] == [
        *(("a-0", "50.0", "75.0"), ("a-1", "100.0", "100.0"), ("b", "0.0", "50.0"))
    ]
    assert "| binding | 75.0 |" in run_table.report(runs[:1], by="phenomenon")


def test_a_report_without_an_accuracy_says_why(make_run):
    run = make_run("a")
    file = run / "evaluation" / "blimp-paper.json"
    report = json.loads(file.read_text())
    report |= {
        "status": "collapsed",
        "overall": report["overall"] | {"accuracy": None, "interval": None},
    }
    file.write_text(json.dumps(report | {"sha256": seal(report)}))
    assert " | collapsed |  |" in run_table.report([run])
    assert "| collapsed |  |" in run_table.report([run, make_run("b", seed=1)], seeds=True)


def test_a_diverged_run_has_its_row(make_run):
    run = make_run("a")
    file = run / "summary.json"
    file.write_text(
        json.dumps(
            json.loads(file.read_text())
            | {
                "status": "diverged",
                "val_nll": "nan",
                "train_nll": "inf",
            }
        )
    )
    assert "| 100 | inf | nan |" in run_table.report([run])


def change_summary(run, **figures):
    file = run / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | figures))
    return run


CPU = {"platform": "cpu", "kind": "cpu", "count": 1, "cores": 2}
GPU = {"platform": "gpu", "kind": "NVIDIA H200", "count": 1, "cores": 16}
NATS_PER_WORD = {"val_bits_per_byte": 1.25, "val_nats_per_word": 5.0}
NOTES = {
    "a: blimp-paper is from update": lambda run, _: change_summary(run, step=1007),
    "blimp-paper: not all runs were scored on the same pairs": lambda run, _: change_report(
        run, "data", sha256="0"
    ),
    "times are from different devices (NVIDIA H200 x 1, 16 cores and cpu x 1, 2 cores)": (
        lambda run, other: (
            change_summary(run, device=GPU),
            change_summary(other, device=CPU),
        )
    ),
    "not all runs were validated on the same sentences": lambda run, other: (
        change_summary(run, **NATS_PER_WORD),
        change_summary(other, **NATS_PER_WORD | {"val_nats_per_word": 5.5}),
    ),
    "the runs have different tokenizers": (
        lambda run, _: (run / "data.json").write_text('{"tokenizer": "bytes"}')
    ),
    "a diverged: an NLL is not finite": lambda run, _: change_summary(run, status="diverged"),
}


def change_report(run, part, **changed):
    file = run / "evaluation" / "blimp-paper.json"
    report = json.loads(file.read_text())
    report[part] |= changed
    file.write_text(json.dumps(report | {"sha256": seal(report)}))


@pytest.mark.parametrize("note", NOTES)
def test_a_figure_that_cannot_be_compared_has_a_note(make_run, note):
    runs = [make_run("a", text="t"), make_run("b", seed=1, text="t")]
    assert note not in run_table.report(runs)
    NOTES[note](*runs)
    assert f"\n\n{note}" in run_table.report(runs)
