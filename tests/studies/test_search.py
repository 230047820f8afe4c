"""A search: its trials are proposed, stopped and gone on with, given up and ranked, and its
mistakes are one line."""

import json

import pytest

from esnlm.studies import pool
from esnlm.studies.study import run_study
from esnlm.studies.study_file import MEASURES
from esnlm.training import config_io

SEARCH = """
kind: search
note: A note.
base: base.yaml
search:
  training.learning_rate: {low: 1e-4, high: 1.0e-1, log: true}
  model.reservoir.leak_min: {choices: [0, 0.5, 1]}
  model.reservoir.state_size: {low: 8, high: 16}
trials: 3
"""


def trials_of(out):
    """Returns {number: values}, in the order of the table."""
    return {
        trial["number"]: trial["values"]
        for trial in json.loads((out / "table.json").read_text())["trials"]
    }


@pytest.mark.nightly
def test_trials_are_ranked_and_the_best_settings_can_be_trained(write, asked, tmp_path, capsys):
    file, out = write(SEARCH, "find"), tmp_path / "out"
    assert run_study(file, out, command="the command") == 0 and asked == [
        "trial-0000",
        "trial-0001",
        "trial-0002",
    ]
    tree = json.loads((out / "table.json").read_text())
    losses = [trial["measures"]["val_nll"] for trial in tree["trials"]]
    assert losses == sorted(losses) and capsys.readouterr().out.endswith(
        (out / "table.md").read_text()
    )
    best = tree["trials"][0]
    assert all(
        type(trial["values"]["model.reservoir.state_size"]) is int for trial in tree["trials"]
    )
    found = config_io.read(out / "best.yaml")
    assert (found.training.learning_rate, found.run) == (
        best["values"]["training.learning_rate"],
        str(out / "best"),
    )
    assert f"| {best['run']} | finished |" in (out / "table.md").read_text()
    write(SEARCH.replace("trials: 3", "trials: 4"), "find")
    assert run_study(file, out) == 0 and asked[3:] == ["trial-0003"], "more trials are added"


@pytest.mark.nightly
def test_a_search_that_was_stopped_asks_for_the_same_trials(write, asked, tmp_path):
    file = write(SEARCH, "find")
    assert run_study(file, tmp_path / "whole") == 0
    asked.endings["trial-0001"] = "stopped"
    assert run_study(file, tmp_path / "part") == 75
    asked.endings.clear()
    assert run_study(file, tmp_path / "part") == 0
    assert trials_of(tmp_path / "part") == trials_of(tmp_path / "whole")


def test_the_trial_with_the_higher_losses_is_given_up(write, monkeypatch, tmp_path):

    def run(self, name, commands, slot, is_hopeless=lambda: False):
        number, directory = int(name[-4:]), tmp_path / "out" / "runs" / name
        directory.mkdir(parents=True)
        lines = [
            {"step": step, "train_nll": 9.0 if number == 6 else 5.0 + number / 100}
            for step in (3, 4, 5)
        ]
        (directory / "metrics.jsonl").write_text(
            "".join(f"{json.dumps(line)}\n" for line in lines) + '{"half'
        )
        return "given up" if is_hopeless() else "done"

    monkeypatch.setattr(pool.Pool, "run", run)
    figures = {"val_nll": 5.0, "status": "finished", "origin": "a CPU", "seed": 0, "seconds": 1.0}
    figures = dict.fromkeys(("run", "pairs_sha256", "data_sha256")) | figures
    monkeypatch.setattr(
        "esnlm.studies.search.read_run", lambda run, pairs: dict.fromkeys(MEASURES) | figures
    )
    text = SEARCH.replace("trials: 3", "trials: 7\npruner: median\nprune_by: train_nll")
    assert run_study(write(text, "find"), tmp_path / "out") == 0
    assert "| trial-0006 | given up after update 5 |" in (tmp_path / "out" / "table.md").read_text()
