"""The commands as a person types them: results on stdout, one line and status 2 for a mistake."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import esnlm
from esnlm import commands
from esnlm.base import versions
from esnlm.commands import train
from esnlm.commands.arguments import Parser, find_config, shipped_configs
from esnlm.runs.directory import FORMAT, RunDirectory
from tests.commands import arguments_of
from tests.golden import small

ROOT = Path(__file__).parents[2]


def test_score_gives_a_line_for_each_line(trained, tmp_path, capsys):
    sentences = ["The cats sleep.", "", "The cats sleeps."]
    (tmp_path / "text.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))
    run = trained("esn")
    capsys.readouterr()
    assert small.esnlm("score", "--run", run, "--input", tmp_path / "text.txt") == 0
    scored = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [sentence for _, sentence in scored] == sentences
    assert scored[1][0] == ""  # a blank line is no sentence
    expected = esnlm.load(run).log_probs(sentences[::2])
    np.testing.assert_allclose(
        [float(log_prob) for log_prob, _ in scored[::2]], expected, atol=1e-6
    )


def test_report_sets_runs_side_by_side(trained, tmp_path, capsys):
    runs = trained("esn"), trained("lstm")
    capsys.readouterr()
    assert small.esnlm("report", *runs, "--out", tmp_path / "table.md") == 0
    out = capsys.readouterr().out
    assert out == (tmp_path / "table.md").read_text() and (tmp_path / "table.json").exists()
    assert "| esn | ESN 24, rank 6 |" in out and "| lstm | " in out


def test_diagnose_a_run_or_the_settings_of_a_configuration(trained, tmp_path, capsys):
    run = small.copy(trained("esn"), tmp_path / "esn")
    assert small.esnlm("diagnose", "--run", run) == 0
    found = json.loads((run / "diagnostics" / "diagnostics.json").read_text())
    assert found["reservoirs"][0]["verdict"] in capsys.readouterr().out
    settings = ["--model.reservoir.topology.kind", "ring", "--out", tmp_path / "out"]
    assert small.esnlm("diagnose", "--config", trained("esn").with_suffix(".yaml"), *settings) == 0
    found = json.loads((tmp_path / "out" / "diagnostics.json").read_text())
    assert found["reservoirs"][0]["settings"]["topology"] == {"kind": "ring"}


def test_the_version_is_printed_with_what_a_report_of_a_bug_needs(capsys):
    assert commands.main(["--version"]) == 0
    assert capsys.readouterr().out == f"esnlm {versions.ESNLM}\n"
    assert commands.main(["--version", "--verbose"]) == 0
    first_words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"python", "esnlm", "jaxlib", "system", "devices", "cores"} <= set(first_words)


def test_a_plan_needs_no_store(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert commands.main(["train", "--config", "configs/laptop.yaml", "--plan"]) == 0
    printed = capsys.readouterr().out
    assert "10,426,240" in printed  # docs/models.md: 10.4 million with a vocabulary of 8,192
    assert "an example of a million words: there is no stores/train yet" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.parametrize("script, name", [("train.py", "train"), ("eval_blimp.py", "blimp")])
def test_a_script_is_a_command_under_another_name(script, name):
    def output(*words):
        done = subprocess.run(
            [sys.executable, *words, "--help"], capture_output=True, text=True, cwd=ROOT
        )
        return done.returncode, done.stdout.partition("\n\n")[2]

    assert output(script) == output("-m", "esnlm", name)


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
    assert all(f"  {name}" in done.stdout for name in commands.COMMANDS)


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_has_a_help(name, capsys):
    assert commands.main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: esnlm {name} ") and "--quiet" in text and "--verbose" in text


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_options_of_several_values_may_be_given_again(name):
    """By default argparse keeps the last one only: a part of the input would be left out without a
    word."""
    for argument in arguments_of(name):
        option = argument.names[0]
        if argument.description.get("nargs") == "+" and option.startswith("--"):
            parser = Parser(name)
            argument.add_to(parser)
            (values,) = vars(parser.parse_args([option, "a", "b", option, "c"])).values()
            assert list(map(str, values)) == ["a", "b", "c"], option


@pytest.mark.parametrize(
    "words",
    [
        *([], ["cook"], ["report"], ["--seed", "3"], ["report", "x", "--seed", "3"]),
        *(
            ["blimp"],
            ["blimp", "--run", "r", "--step", "1", "--untrained"],
            ["blimp", "--run", "r", "--step", "last"],
        ),
        # As of `--config "$CONFIG"` where the variable is not set: the quickstart would be trained.
        *(
            ["train", "--config", ""],
            ["blimp", "--run", "run", "--bad", "a", ""],
            ["score", "--run", "r", "--input", ""],
        ),
    ],
)
def test_wrong_arguments_are_one_line(words, capsys):
    assert commands.main(words) == 2
    out, errors = capsys.readouterr()
    assert out == "" and errors.startswith("error: ") and errors.count("\n") == 1


def test_a_configuration_that_is_not_in_the_working_folder_is_a_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config("configs/quickstart.yaml") == shipped_configs() / "quickstart.yaml"
    assert find_config("configs/none.yaml") == Path("configs/none.yaml")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "quickstart.yaml").write_text("seed: 1\n")
    assert find_config("configs/quickstart.yaml") == Path("configs/quickstart.yaml")


def test_a_run_goes_on_from_a_parent(tmp_path, monkeypatch):
    """What a parent says of its devices is not for the new run."""
    monkeypatch.chdir(tmp_path)
    Path("first").mkdir()
    RunDirectory(Path("first")).format.write_text(json.dumps({"format": FORMAT}))
    data = "data: {kind: grammar, sentences: 200, validation_sentences: 50}\n"
    Path("first/config.yaml").write_text(
        f"run: first\n{data}compute: {{mesh: {{data: 2, vocabulary: 1}}}}\n"
    )
    words = ["--from", "first", "--run", "second"]
    args, args.overrides = commands.parser_of("train", "esnlm train").parse_known_args(words)
    experiment = train.read_experiment(args)
    assert Path(experiment.parent.run) == Path("first") and experiment.run == "second"
    assert experiment.compute.mesh is None
