"""eval_blimp.py: what it writes and where, what it prints, and what it refuses."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from esnlm import loaded_run
from esnlm.evaluation import conventions
from tests.evaluation.fake_run import fake_run

SCRIPT = Path(__file__).resolve().parents[2] / "eval_blimp.py"
spec = importlib.util.spec_from_file_location("eval_blimp", SCRIPT)
eval_blimp = importlib.util.module_from_spec(spec)
spec.loader.exec_module(eval_blimp)


def fake_load(directory, step=None, untrained=False):
    """A run of one id a character; trained, it prefers what is early in the alphabet, untrained, what is late."""

    def token_log_probs_of(sequences, progress):
        assert progress, "somebody is waiting at a terminal"
        return [(1 if untrained else -1) * np.asarray(ids[1:], np.float32) for ids in sequences]

    step = 0 if untrained else step or 100
    run = fake_run(Path(directory), token_log_probs_of, name=Path(directory).name, step=step)
    run.token_log_probs_of = token_log_probs_of
    return run


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run directory with four pairs of its own, two of them right once trained, one of twice the same."""
    monkeypatch.setattr(loaded_run, "load", fake_load)
    directory = tmp_path / "small"
    own = directory / "minimal_pairs"
    own.mkdir(parents=True)
    pairs = [{"sentence_good": good, "sentence_bad": bad, "UID": "alphabet"} for good, bad in ["ab", "cd", "fe", "gg"]]
    (own / "alphabet.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return directory


def call(*arguments):
    return eval_blimp.main([str(argument) for argument in arguments])


def refusal(capsys, *arguments):
    """The line that the command refuses with."""
    assert call(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.rstrip("\n")


def accuracy(path):
    return json.loads(path.read_text())["overall"]["accuracy"]


def test_a_run_is_scored_on_its_own_pairs(run, capsys):
    assert call("--run", run) == 0
    assert accuracy(run / "evaluation" / "blimp-paper.json") == 50
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("small, step 100: 4 minimal pairs, paper scoring\n")
    assert "accuracy 50.00 % [15.00, 85.00], one paradigm\n" in out
    names = [path.name for path in sorted((run / "evaluation").iterdir())]
    assert names == ["blimp-paper.json", "blimp-paper.md", "blimp-paper.pairs.jsonl"]


def test_the_report_names_its_command_versions_and_machine(run):
    call("--run", run, "--scoring", "lm-eval")
    provenance = json.loads((run / "evaluation" / "blimp-lm-eval.json").read_text())["provenance"]
    assert provenance["command"] == f"python eval_blimp.py --run {run} --scoring lm-eval"
    assert set(provenance["versions"]) == {"python", "esnlm", "jax", "numpy"}
    assert "cores" in provenance["machine"]


def test_other_data_and_another_file(run, tmp_path):
    data = tmp_path / "mine.jsonl"
    data.write_text(json.dumps({"sentence_good": "b", "sentence_bad": "a"}))
    call("--run", run, "--data", data, "--out", tmp_path / "results" / "mine.json")
    result = json.loads((tmp_path / "results" / "mine.json").read_text())
    assert list(result["paradigms"]) == ["mine"] and result["overall"]["accuracy"] == 0


def test_steps_and_the_untrained_model_have_reports_of_their_own(run):
    call("--run", run)
    call("--run", run, "--step", 50)
    call("--run", run, "--untrained")
    reports = {path.name: json.loads(path.read_text()) for path in (run / "evaluation").glob("*.json")}
    steps = {name: result["step"] for name, result in reports.items()}
    assert steps == {"blimp-paper.json": 100, "blimp-paper-step-50.json": 50, "blimp-paper-untrained.json": 0}
    assert reports["blimp-paper-untrained.json"]["overall"]["accuracy"] == 25


def test_scoring_the_same_again_is_no_conflict_and_gives_the_same_report(run):
    call("--run", run)
    files = [path for path in (run / "evaluation").iterdir() if path.suffix != ".png"]
    first = {path.name: path.read_bytes() for path in files}
    assert call("--run", run) == 0
    assert {path.name: path.read_bytes() for path in files} == first


def test_a_report_of_something_else_is_not_overwritten_unasked(run, tmp_path, capsys):
    call("--run", run)
    data = tmp_path / "mine.jsonl"
    data.write_text(json.dumps({"sentence_good": "b", "sentence_bad": "a"}))
    path = run / "evaluation" / "blimp-paper.json"
    before = path.read_bytes()
    capsys.readouterr()
    assert refusal(capsys, "--run", run, "--data", data) == (
        f"error: {path}: holds a report on another configuration, step, scoring or pairs: name another file with --out, or "
        "replace it with --overwrite"
    )
    assert path.read_bytes() == before
    assert call("--run", run, "--data", data, "--overwrite") == 0
    assert accuracy(path) == 0


def test_two_runs_are_compared_paired(run, capsys):
    call("--run", run, "--untrained")
    capsys.readouterr()
    other = run / "evaluation" / "blimp-paper-untrained.json"
    assert call("--run", run, "--compare", other) == 0
    out = capsys.readouterr().out
    assert "against small, step 0 (25.00 %): +25.00 points" in out
    assert "only this run right: 2 pairs, only the other: 1 (McNemar's exact test, pairs pooled: p = 1)" in out
    assert "(the same test at 5 %, after Holm's correction)" in out
    result = json.loads((run / "evaluation" / "blimp-paper.json").read_text())
    assert result["comparison"]["with"] == {"run": "small", "step": 0, "accuracy": 25}
    assert result["comparison"]["paradigms"]["alphabet"]["difference"] == 25
    assert "| alphabet | +25.0 | " in (run / "evaluation" / "blimp-paper.md").read_text()


def test_a_run_directory_stands_for_its_report_of_the_same_scoring(run, capsys):
    path = run / "evaluation" / "blimp-babylm.json"
    assert refusal(capsys, "--run", run, "--scoring", "babylm", "--compare", run) == (
        f"error: {path}: no such report; score that run first"
    )
    call("--run", run)
    assert call("--run", run, "--step", 5, "--compare", run) == 0
    assert "against small, step 100 (50.00 %): +0.00 points [0.00, 0.00]" in capsys.readouterr().out


def test_only_like_is_compared_with_like(run, tmp_path, capsys):
    call("--run", run, "--step", 5)
    other = run / "evaluation" / "blimp-paper-step-5.json"
    data = tmp_path / "mine.jsonl"
    data.write_text(json.dumps({"sentence_good": "b", "sentence_bad": "a"}))
    capsys.readouterr()
    assert refusal(capsys, "--run", run, "--scoring", "lm-eval", "--compare", other) == (
        f"error: {other}: scored as 'paper', this one as 'lm-eval': compare like with like"
    )
    assert refusal(capsys, "--run", run, "--data", data, "--compare", other) == (
        f"error: {other}: a report on other pairs: runs are compared on the same ones"
    )
    pairs = other.with_name("blimp-paper-step-5.pairs.jsonl")
    pairs.write_text(pairs.read_text().replace("true", "false"))
    assert refusal(capsys, "--run", run, "--compare", other) == (
        f"error: {pairs}: missing, or not the file {other.name} was written with: score that run again"
    )


def test_bad_input_is_one_line_and_status_2(run, tmp_path, capsys):
    bare = tmp_path / "bare"
    bare.mkdir()
    assert refusal(capsys, "--run", bare).startswith(f"error: {bare}: this run has no minimal pairs of its own")
    assert refusal(capsys, "--run", run, "--out", tmp_path / "a.txt").startswith(f"error: {tmp_path}/a.txt: ")
    assert not (run / "evaluation").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "the following arguments are required: --run"),
        (["--run", "r", "--step", "1", "--untrained"], "argument --untrained: not allowed with argument --step"),
        (["--run", "r", "--step", "last"], "argument --step: 'last' is not the number of an update, nor best"),
    ],
)
def test_bad_arguments_are_one_line_and_status_2(arguments, message, capsys):
    assert call(*arguments) == 2
    assert capsys.readouterr() == ("", f"error: {message} (see --help)\n")


def test_help_offers_every_convention_and_waits_for_nothing():
    code = f"""
import runpy, sys
sys.argv = ["eval_blimp.py", "--help"]
try:
    runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
except SystemExit as stop:
    assert stop.code == 0
assert not {{"jax", "numpy"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "{" + ",".join(conventions.CONVENTIONS) + "}" in done.stdout


def test_columns_of_a_table_are_named_on_the_command_line(run, tmp_path, capsys):
    table = tmp_path / "items.csv"
    table.write_text("kind,right,wrong,worse\nx,a,b,c\nx,c,b,d\ny,a,b,c\n")
    names = ["--good", "right", "--bad", "wrong", "worse", "--group", "kind"]
    assert call("--run", run, "--data", table, *names, "--out", tmp_path / "sets.json") == 0
    result = json.loads((tmp_path / "sets.json").read_text())
    assert {name: entry["accuracy"] for name, entry in result["paradigms"].items()} == {"x": 50, "y": 100}
    lines = [json.loads(line) for line in (tmp_path / "sets.pairs.jsonl").read_text().splitlines()]
    assert [(line["sentence_bad"], line["sentences_bad"], line["right"]) for line in lines] == [
        *(("b", ["b", "c"], True), ("b", ["b", "d"], False), ("b", ["b", "c"], True)),
    ]
    out = capsys.readouterr().out
    assert out.startswith("small, step 100: 3 sets of sentences, paper scoring\n") and "chance 33.33 %\n" in out
    assert call("--run", run, "--data", table, *names, "--compare", tmp_path / "sets.json") == 0
    capsys.readouterr()
    assert (
        refusal(capsys, "--run", run, *names)
        == "error: --good, --bad, --group, --phenomenon, --label: for pairs that --data names"
    )
