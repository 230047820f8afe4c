"""The commands as a person types them: results on stdout, one line and status 2 for a mistake."""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm import commands, config_io
from esnlm.commands import train
from esnlm.commands.base import find_config, shipped_configs
from esnlm.runs.directory import FORMAT, RunDirectory
from esnlm.workflows.train import train_run
from tests.terminal import in_pipe, in_terminal, python

ROOT = Path(__file__).parents[2]
SMALL = """
data: {kind: grammar, sentences: 200, validation_sentences: 50, pairs: 2}
model: {reservoir: {state_size: 32, mean_degree: 4}, readout: {rank: 4}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "small.yaml").write_text(f"run: {folder / 'small'}\n{SMALL}")
    train_run(config_io.read(folder / "small.yaml"))
    return folder / "small"


def command(*arguments, text=None):
    return subprocess.run(
        [sys.executable, "-m", "esnlm", *map(str, arguments)], input=text, capture_output=True, text=True
    )


def test_prepare_makes_a_store(tmp_path):
    (tmp_path / "text.txt").write_text("The cats sleep in the garden. The dog that the girls like barks.\n" * 20)
    done = command("prepare", "--input", tmp_path / "text.txt", "--out", tmp_path / "store", "--tokenizer", "train:280")
    assert (done.returncode, done.stdout) == (0, "")
    assert "40 sentences" in done.stderr
    assert "  sentences  punkt " in done.stderr  # trained on the text, or pretrained where the user's NLTK has it
    from esnlm.data.store import open_store

    assert len(open_store(tmp_path / "store")) == 40


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_an_option_of_several_values_may_be_given_again(name):
    """By its default argparse keeps the last one only: a part of the input would be left out without a word."""
    parser = argparse.ArgumentParser()
    importlib.import_module(commands.COMMANDS[name]).add_arguments(parser)
    several = [action for action in parser._actions if action.nargs == "+" and action.option_strings]
    for action in several:
        option = action.option_strings[0]
        alone = argparse.ArgumentParser()
        alone._add_action(action)
        action.required = False
        found = getattr(alone.parse_args([option, "a", "b", option, "c"]), action.dest)
        assert list(map(str, found)) == ["a", "b", "c"], option


def test_score_gives_a_line_for_each_line(run):
    sentences = ["The cats sleep.", "", "The cats sleeps."]
    done = command("score", "--run", run, text="".join(f"{sentence}\n" for sentence in sentences))
    assert done.returncode == 0
    scored = [line.split("\t") for line in done.stdout.splitlines()]
    assert [sentence for _, sentence in scored] == sentences
    expected = esnlm.load(run).log_probs(sentences)
    np.testing.assert_allclose([float(log_prob) for log_prob, _ in scored], expected, atol=1e-6)


def test_report_sets_runs_side_by_side(run, tmp_path):
    done = command("report", run, "--out", tmp_path / "table.md")
    assert done.returncode == 0
    assert done.stdout == (tmp_path / "table.md").read_text()
    assert "| small | ESN 32, rank 4 |" in done.stdout and (tmp_path / "table.json").exists()


def test_report_of_no_run(tmp_path):
    done = command("report", tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        f"error: {tmp_path}: no run here: name a folder that train.py made\n",
    )


def test_diagnose_a_run(run):
    done = command("diagnose", "--run", run)
    assert done.returncode == 0
    found = json.loads((run / "diagnostics" / "diagnostics.json").read_text())
    verdict = found["reservoirs"][0]["verdict"]
    assert verdict.startswith("The echo state property is undecided by theory: sigma_max(W) = ")
    assert f"small: {verdict}" in done.stdout.splitlines() and "radius of the linearisation at 0" in done.stdout
    assert "small: states and memory capacity" in done.stderr


def test_diagnose_takes_the_settings_of_a_configuration(run, tmp_path):
    settings = ["--model.reservoir.topology.kind", "ring", "--out", tmp_path / "out"]
    done = command("diagnose", "--config", run.parent / "small.yaml", *settings)
    assert done.returncode == 0
    found = json.loads((tmp_path / "out" / "diagnostics.json").read_text())
    assert found["reservoirs"][0]["settings"]["topology"] == {"kind": "ring"}
    assert found["command"].endswith(f"--model.reservoir.topology.kind ring --out {tmp_path / 'out'}")


@pytest.mark.parametrize("script, name", [("train.py", "train"), ("eval_blimp.py", "blimp")])
def test_a_script_is_a_command_under_another_name(script, name):
    def output(*words):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
        return done.returncode, done.stdout.partition("\n\n"), done.stderr

    status, (usage, _, text), errors = output(script, "--help")
    assert (status, errors) == (0, "") and usage.startswith(f"usage: python {script} [-h]")
    status, (usage, _, same), errors = output("-m", "esnlm", name, "--help")
    assert (status, errors, same) == (0, "", text) and usage.startswith(f"usage: python -m esnlm {name} [-h]")


def test_help_lists_the_commands_and_waits_for_nothing_heavy():
    program = """
import atexit, sys
from esnlm import commands
atexit.register(lambda: print("heavy:", {"jax", "numpy"} & set(sys.modules)))
commands.main(["--help"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "heavy: set()" in done.stdout
    for name, module in commands.COMMANDS.items():
        first = importlib.import_module(module).__doc__.splitlines()[0]
        assert f"  {name}" in done.stdout and first in " ".join(done.stdout.split())


@pytest.mark.parametrize("words", [[], ["cook"], ["report"], ["--seed", "3"], ["report", "x", "--seed", "3"]])
def test_wrong_arguments_are_one_line(words, capsys):
    status = commands.main(words)
    out, errors = capsys.readouterr()
    assert (status, out) == (2, "")
    assert errors.startswith("error: ") and errors.endswith(" (see --help)\n") and errors.count("\n") == 1


def test_a_configuration_that_is_not_in_the_working_folder_is_a_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config("configs/quickstart.yaml") == shipped_configs() / "quickstart.yaml"
    assert find_config("configs/none.yaml") == Path("configs/none.yaml")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "quickstart.yaml").write_text("seed: 1\n")
    assert find_config("configs/quickstart.yaml") == Path("configs/quickstart.yaml")


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--config", ""],
        ["blimp", "--run", "run", "--compare", ""],
        ["blimp", "--run", "run", "--bad", "a", ""],
        ["score", "--run", "run", "--input", ""],
        ["babylm", "--run", "run", "--data", "full_eval", "--model-name", ""],
    ],
)
def test_an_empty_value_is_not_taken_for_the_default(words, capsys):
    """As of `--config "$CONFIG"` where the variable is not set: the quickstart would be trained."""
    assert commands.main(words) == 2
    assert capsys.readouterr().err.startswith("error: an argument is empty, as that of a variable that is not set")


def test_a_prompt_may_be_anything_and_a_text_may_have_any_name():
    other = os.fsdecode(b"l\xe4ufer")
    for prompt in ("", other):
        words = ["--run", "run", "--prompt", prompt]
        assert commands.parser_of("generate", "esnlm generate").parse_args(words).prompt == prompt
    words = ["--run", "run", "--input", other]
    assert commands.parser_of("score", "esnlm score").parse_args(words).input == Path(other)


@pytest.mark.parametrize("name", ["#1", "null", "~", "a #b", "first"])
def test_a_run_goes_on_from_a_parent_of_any_name(name, tmp_path, monkeypatch):
    """YAML takes some of these for null, and the run would begin anew. What a parent says of its devices is not for the new run."""
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    RunDirectory(Path(name)).format.write_text(json.dumps({"format": FORMAT}))
    Path(name, "config.yaml").write_text(f"run: first\n{SMALL}compute: {{mesh: {{data: 2, vocabulary: 1}}}}\n")
    words = ["--from", name, "--run", "second"]
    options, options.overrides = commands.parser_of("train", "esnlm train").parse_known_args(words)
    experiment = config_io.read_of_parent(*train._configuration(options))
    assert Path(experiment.parent.run) == Path(name) and experiment.run == "second"
    assert experiment.compute.mesh is None
    config_io.write(experiment, tmp_path / "second.yaml")
    assert config_io.read_begun(tmp_path / "second.yaml") == experiment


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_has_a_help_and_the_switches_of_what_is_said(name, capsys):
    assert commands.main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: esnlm {name} ") and "--quiet" in said and "--verbose" in said


@pytest.mark.nightly
def test_a_verbose_training_says_what_was_chosen_and_how_long_it_took(tmp_path):
    (tmp_path / "small.yaml").write_text(f"run: {tmp_path / 'small'}\n{SMALL}")
    out, told = in_pipe(python("train.py", "--config", tmp_path / "small.yaml", "--verbose"), {"COLUMNS": "40"})
    assert "\033" not in out + told and "\r" not in out + told
    assert f"run directory: {tmp_path / 'small'}" in out, "lines of a pipe are whole"
    for line in (r"computing on .*kernel \w+.*", r"python train\.py: \d+:\d\d"):
        assert re.search(rf"^{line}$", told, re.MULTILINE), line


def test_a_quiet_training_in_a_terminal_shows_its_results(tmp_path):
    (tmp_path / "small.yaml").write_text(f"run: {tmp_path / 'small'}\n{SMALL}")
    text = in_terminal(python("train.py", "--config", tmp_path / "small.yaml", "--quiet"), 80)
    lines = re.sub(r"\033\[\d*m", "", text).split("\n")
    assert "\r" not in text and lines[0].split()[:3] == ["nats", "per", "token"], "nothing but results"
    assert max(len(line.rstrip()) for line in lines if "run directory" not in line) <= 80
