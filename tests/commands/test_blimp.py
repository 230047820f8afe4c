"""`esnlm blimp`: what it writes and where, and what it does not compare or write over."""

import json
from pathlib import Path

import numpy as np
import pytest

from esnlm import commands, loaded_run
from esnlm.models.ngrams import NgramModel
from tests.evaluation.fake_run import fake_run


def fake_load(directory, step=None, untrained=False):
    """A run of one id a character; trained, it prefers what is early in the alphabet, untrained,
    what is late."""

    def token_log_probs_of_ids(sequences, progress):
        return [(1 if untrained else -1) * np.asarray(ids[1:], np.float32) for ids in sequences]

    step = 0 if untrained else step or 100
    run = fake_run(Path(directory), token_log_probs_of_ids, name=Path(directory).name, step=step)
    run.token_log_probs_of_ids = token_log_probs_of_ids
    # stands for one
    run.bigram = lambda: NgramModel.from_counts(np.ones(run.tokenizer.vocab_size, int))
    return run


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run directory with four pairs of its own, two of them right once trained, one of twice the
    same."""
    monkeypatch.setattr(loaded_run, "load", fake_load)
    directory = tmp_path / "small"
    own = directory / "minimal_pairs"
    own.mkdir(parents=True)
    pairs = [
        {"sentence_good": good, "sentence_bad": bad, "UID": "alphabet"}
        for good, bad in ["ab", "cd", "fe", "gg"]
    ]
    (own / "alphabet.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return directory


@pytest.fixture
def mine(tmp_path):
    """A file with one pair, of which the trained run has the wrong one."""
    (tmp_path / "mine.jsonl").write_text(json.dumps({"sentence_good": "b", "sentence_bad": "a"}))
    return tmp_path / "mine.jsonl"


def call(*arguments):
    return commands.main(["blimp", *map(str, arguments)])


def accuracy(path):
    return json.loads(path.read_text())["overall"]["accuracy"]


def test_a_run_is_scored_on_its_own_pairs(run, capsys):
    assert call("--run", run) == 0
    out, err = capsys.readouterr()
    assert err == "" and "accuracy 50.00 % [15.00, 85.00]" in out
    folder = run / "evaluation"
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(files) == ["blimp-paper.json", "blimp-paper.md", "blimp-paper.pairs.jsonl"]
    # as at the end of training
    assert "bigram" in json.loads(files["blimp-paper.json"])["baselines"]
    provenance = json.loads(files["blimp-paper.json"])["provenance"]
    assert (
        provenance["versions"].keys() >= {"python", "esnlm", "jax", "numpy"}
        and "cores" in provenance["machine"]
    )
    assert call("--run", run) == 0, "the same again is no conflict"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def test_steps_and_the_untrained_model_have_reports_of_their_own(run):
    for which in ([], ["--step", 50], ["--untrained"]):
        assert call("--run", run, *which) == 0
    reports = {
        path.name: json.loads(path.read_text()) for path in (run / "evaluation").glob("*.json")
    }
    steps = {name: result["step"] for name, result in reports.items()}
    assert steps == {
        "blimp-paper.json": 100,
        "blimp-paper-step-50.json": 50,
        "blimp-paper-untrained.json": 0,
    }
    assert reports["blimp-paper-untrained.json"]["overall"]["accuracy"] == 25


def test_a_report_of_something_else_is_not_overwritten_unasked(run, mine):
    call("--run", run)
    path = run / "evaluation" / "blimp-paper.json"
    before = path.read_bytes()
    assert call("--run", run, "--data", mine) == 2
    assert path.read_bytes() == before
    assert call("--run", run, "--data", mine, "--overwrite") == 0
    assert accuracy(path) == 0


def test_a_report_is_not_replaced_by_one_that_lacks_its_results(run, capsys):
    call("--run", run, "--untrained")
    path, untrained = (
        run / "evaluation" / "blimp-paper.json",
        run / "evaluation" / "blimp-paper-untrained.json",
    )
    by_bytes, both = ["--normalize", "bytes"], ["--normalize", "bytes", "--compare", untrained]
    for words in ([], by_bytes, both, both):
        assert call("--run", run, *words) == 0
    before = path.read_bytes()
    for words, lost in (
        ([], "--normalize and another --compare"),
        (by_bytes, "--compare"),
        (["--normalize", "tokens", *both[2:]], "--normalize"),
    ):
        capsys.readouterr()
        assert call("--run", run, *words) == 2 and path.read_bytes() == before
        advice = "name another file with --out, or replace it with --overwrite"
        assert (
            capsys.readouterr().err
            == f"error: {path}: holds a report with another {lost}: {advice}\n"
        )
    assert call("--run", run, "--overwrite") == 0 and "normalized" not in json.loads(
        path.read_text()
    )


def test_two_runs_are_compared_paired(run, capsys):
    call("--run", run, "--untrained")
    other = run / "evaluation" / "blimp-paper-untrained.json"
    assert call("--run", run, "--compare", other) == 0
    out = capsys.readouterr().out
    assert "(25.00 %): +25.00 points" in out
    assert (
        "only this run right: 2 pairs, only the other: 1 (McNemar's exact test, pairs pooled: p"
        " = 1)" in out
    )
    result = json.loads((run / "evaluation" / "blimp-paper.json").read_text())
    assert result["comparison"]["with"] == {"run": "small", "step": 0, "accuracy": 25}
    assert result["comparison"]["paradigms"]["alphabet"]["difference"] == 25
    assert call("--run", run, "--step", 5, "--compare", run) == 0, (
        "a run directory stands for its report"
    )


def test_only_like_is_compared_with_like(run, mine, capsys):
    call("--run", run, "--step", 5)
    other = run / "evaluation" / "blimp-paper-step-5.json"
    capsys.readouterr()
    for words in (["--scoring", "lm-eval"], ["--data", mine]):
        assert call("--run", run, *words, "--compare", other) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(f"error: {other}: ") and err.count("\n") == 1
    pairs = other.with_name("blimp-paper-step-5.pairs.jsonl")
    pairs.write_text(pairs.read_text().replace("true", "false"))
    assert call("--run", run, "--compare", other) == 2
    assert capsys.readouterr().err.startswith(f"error: {pairs}: ")


def test_columns_of_a_table_are_named_on_the_command_line(run, tmp_path, capsys):
    table = tmp_path / "items.csv"
    table.write_text("kind,right,wrong,worse\nx,a,b,c\nx,c,b,d\ny,a,b,c\n")
    names = ["--good", "right", "--bad", "wrong", "worse", "--group", "kind"]
    assert call("--run", run, "--data", table, *names, "--out", tmp_path / "sets.json") == 0
    assert "chance 33.33 %" in capsys.readouterr().out
    result = json.loads((tmp_path / "sets.json").read_text())
    assert {name: entry["accuracy"] for name, entry in result["paradigms"].items()} == {
        "x": 50,
        "y": 100,
    }
    lines = [json.loads(line) for line in (tmp_path / "sets.pairs.jsonl").read_text().splitlines()]
    assert [(line["sentence_bad"], line["sentences_bad"], line["right"]) for line in lines] == [
        *(("b", ["b", "c"], True), ("b", ["b", "d"], False), ("b", ["b", "c"], True)),
    ]
