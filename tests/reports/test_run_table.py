"""The table of several runs: one row a run, or one for all seeds of a model."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from esnlm import commands
from esnlm.base.files import seal
from esnlm.machine.compute import ComputeConfig
from esnlm.reports import run_table
from esnlm.training.config import ParentConfig, TrainingConfig


def rows_of(make_table, runs, *how, seeds=False):
    """Returns the rows of a table of runs, each as {title: cell}."""
    groups = run_table.make_groups([run_table.read_record(run) for run in runs], seeds)
    header, rows = make_table(groups, *how)
    return [dict(zip(header, row, strict=True)) for row in rows]


def read_csv(file):
    return list(csv.DictReader(file.read_text().splitlines()))


def test_a_row_a_run(make_run):
    runs = [make_run("a", val_nll=5.25), make_run("b", val_nll=6.0, right=4)]
    first, second = rows_of(run_table.loss_table, runs)
    assert (first["trained"], first["all parameters"], first["words"]) == ("1,200", "3,000", "100")
    assert (first["train NLL"], first["val NLL"], second["val NLL"]) == (
        *("5.750", "5.250", "6.000"),
    )
    assert first["all entries"] == "", "unknown"
    scores = rows_of(run_table.score_table, runs)
    assert [row["accuracy, %"] for row in scores] == ["100.00", "50.00"]
    text = run_table.make_tables(runs)
    assert "| 5.750 | 5.250 |" in text and "| 50.00 |" in text and "±" not in text


def test_runs_that_differ_in_their_seed_are_one_row_with_their_spread(make_run, tmp_path):
    runs = [make_run(f"esn-seed{i}", seed=i, val_nll=5 + i / 10, right=6 + i) for i in range(3)]
    runs.append(make_run("other", learning_rate=3e-3))
    esn, other = rows_of(run_table.loss_table, runs, seeds=True)
    assert (esn["run"], other["run"]) == ("esn (3 seeds)", "other")
    # a count that is the same in all has no spread
    assert (esn["val NLL"], esn["trained"]) == ("5.100 ± 0.100", "1,200")
    # 75, 87.5 and 100 %: mean 87.5, deviation 12.5, and t(0.975, 2 degrees) = 4.3027 for the
    # interval of the mean.
    half = 4.302653 * 12.5 / np.sqrt(3)
    score, _ = rows_of(run_table.score_table, runs, seeds=True)
    assert (score["accuracy, %"], score["95 %"]) == (
        "87.50 ± 12.50",
        f"{87.5 - half:.2f}, {87.5 + half:.2f}",
    )
    text = run_table.make_tables(runs, tmp_path / "table.csv", seeds=True)
    assert text.endswith(f"{run_table.SEEDS_NOTE}\n")

    [*seeds, other] = read_csv(tmp_path / "table.csv")
    assert [(row["run"], row["seed"]) for row in seeds] == [
        ("esn-seed0", "0"),
        ("esn-seed1", "1"),
        ("esn-seed2", "2"),
    ]
    assert [float(row["val_nll"]) for row in seeds] == [5.0, 5.1, 5.2]
    assert other["blimp-paper"] == "100.0"
    written = json.loads((tmp_path / "table.json").read_text())
    assert [run["seed"] for run in written["runs"]] == [0, 1, 2, 0]


def test_a_run_that_is_named_twice_counts_once(make_run, tmp_path, capsys):
    losses = [5.0, 5.1, 5.4]
    runs = [make_run(f"esn-seed{seed}", seed=seed, val_nll=nll) for seed, nll in enumerate(losses)]
    (tmp_path / "link").symlink_to(runs[1])
    names = [*runs, f"{runs[0]}/", tmp_path / "link", tmp_path / "esn-seed1" / ".." / "esn-seed2"]
    words = ["report", *map(str, names), "--seeds", "--out", str(tmp_path / "table.csv")]
    assert commands.main(words) == 0
    text = capsys.readouterr().out
    assert "| esn (3 seeds) |" in text
    assert f"| {np.mean(losses):.3f} ± {np.std(losses, ddof=1):.3f} |" in text
    assert [row["seed"] for row in read_csv(tmp_path / "table.csv")] == ["0", "1", "2"]


def test_accuracies_by_paradigm_with_a_column_a_model(make_run, tmp_path):
    runs = [
        make_run("a-0", right=6),
        make_run("a-1", seed=1, right=8),
        make_run("b", learning_rate=1e-2, right=4),
    ]
    by = ("paradigm", "blimp-paper")
    assert rows_of(run_table.accuracy_table, runs, *by, seeds=True) == [
        {"paradigm": "one", "a-0 (2 seeds)": "100.0", "b": "100.0"},
        {"paradigm": "two", "a-0 (2 seeds)": "75.0 ± 35.4", "b": "0.0"},
        {"paradigm": "overall", "a-0 (2 seeds)": "87.5 ± 17.7", "b": "50.0"},
    ]
    run_table.make_tables(runs, tmp_path / "all_digits.csv", seeds=True, by="paradigm")
    assert [
        (row["run"], row["two"], row["overall"]) for row in read_csv(tmp_path / "all_digits.csv")
    ] == [("a-0", "50.0", "75.0"), ("a-1", "100.0", "100.0"), ("b", "0.0", "50.0")]
    assert "| binding | 75.0 |" in run_table.make_tables(runs[:1], by="phenomenon")


def test_a_report_without_an_accuracy_says_why(make_run):
    run = make_run("a")
    file = run / "evaluation" / "blimp-paper.json"
    report = json.loads(file.read_text())
    report |= {
        "status": "collapsed",
        "overall": report["overall"] | {"accuracy": None, "interval": None},
    }
    file.write_text(json.dumps(report | {"sha256": seal(report)}))
    assert " | collapsed |  |" in run_table.make_tables([run])
    assert "| collapsed |  |" in run_table.make_tables([run, make_run("b", seed=1)], seeds=True)


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
    assert "| 100 | inf | nan |" in run_table.make_tables([run])


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
    assert note not in run_table.make_tables(runs)
    NOTES[note](*runs)
    assert f"\n\n{note}" in run_table.make_tables(runs)


@pytest.mark.parametrize(
    "names, expected",
    [
        (["esn-seed0", "esn-seed10"], "esn (2 seeds)"),
        (["gpt2", "gpt2-seed1"], "gpt2 (2 seeds)"),
        (["seed0", "seed1"], "seed0 (2 seeds)"),
        (["esn-seed0"], "esn-seed0"),
    ],
)
def test_runs_of_several_seeds_have_the_name_that_stands_before_the_seed(names, expected):
    assert run_table.name_group([SimpleNamespace(run=name) for name in names]) == expected


def names_of_groups(*runs):
    groups = run_table.make_groups([run_table.identify(run) for run in runs], by_seed=True)
    return [run_table.name_group(group) for group in groups]


def test_seeds_of_another_precision_or_another_text_are_not_pooled(make_run):
    first = make_run("a-seed0", text="t")
    rounded = make_run("b-seed1", seed=1, text="t", compute=ComputeConfig(precision="bf16"))
    other_text = make_run("c-seed2", seed=2, text="u")
    assert names_of_groups(first, rounded, other_text) == ["a-seed0", "b-seed1", "c-seed2"]


def test_seeds_are_pooled_however_they_were_logged_and_saved(make_run):
    saved = TrainingConfig(checkpoint_words=(1000,), log_every=5)
    runs = [make_run("a-seed0", text="t"), make_run("a-seed1", seed=1, text="t", training=saved)]
    assert names_of_groups(*runs) == ["a (2 seeds)"]


def test_a_run_that_goes_on_from_another_is_no_seed_of_it(make_run):
    parents = [make_run("a-seed0"), make_run("a-seed1", seed=1)]
    on = [
        make_run(f"more-seed{i}", seed=i, parent=ParentConfig(run=str(parents[0]))) for i in (0, 1)
    ]
    assert (
        f"more-seed1 continues {parents[0]}: its words are counted since then"
        in run_table.make_tables(on)
    )
    early = make_run("early", seed=2, parent=ParentConfig(run=str(parents[0]), step=5))
    assert names_of_groups(*parents, *on, early) == ["a (2 seeds)", "more (2 seeds)", "early"]


def test_one_seed_counts_once(make_run):
    assert names_of_groups(make_run("a"), make_run("b"), make_run("c", seed=1)) == [
        "a (2 seeds)",
        "b",
    ]
