"""--quiet and --verbose, the same in every command."""

import re
from pathlib import Path

import pytest

from esnlm import commands
from esnlm.commands import COMMANDS, parser_of
from esnlm.commands.base import take_level
from esnlm.io.console import Level
from tests.terminal import in_pipe, in_terminal, python

SMALL = """
run: {run}
data: {{kind: grammar, sentences: 100, validation_sentences: 20, pairs: 2}}
model: {{reservoir: {{state_size: 16, mean_degree: 4}}, readout: {{rank: 4}}}}
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_switches(name, capsys):
    said = parser_of(name, "esnlm").format_help()
    assert "--quiet" in said and "--verbose" in said


def test_both_are_one_too_many(capsys):
    assert commands.main(["report", "x", "--quiet", "--verbose"]) == 2
    said = "error: argument --verbose: not allowed with argument --quiet (see --help)\n"
    assert capsys.readouterr().err == said


def test_they_are_no_options_of_the_work():
    parser = parser_of("report", "esnlm")
    for words, level in (([], Level.USUAL), (["--quiet"], Level.QUIET), (["--verbose"], Level.VERBOSE)):
        options = parser.parse_args(["x", *words])
        assert take_level(options) == level
        assert not {"quiet", "verbose"} & vars(options).keys()


def write_config(folder: Path, run: str) -> Path:
    (folder / f"{run}.yaml").write_text(SMALL.format(run=folder / run))
    return folder / f"{run}.yaml"


def test_a_quiet_training_on_a_narrow_terminal_shows_its_results(tmp_path):
    text = in_terminal(python("train.py", "--config", write_config(tmp_path, "quiet"), "--quiet"), 40)
    lines = re.sub(r"\033\[\d*m", "", text).split("\n")
    assert "\r" not in text and lines[0].split() == ["nats", "per", "token"], "nothing but results"
    assert max(len(line.rstrip()) for line in lines if "run directory" not in line) <= 40
    assert any(re.match(r"validation +\d\.\d{4}$", line.rstrip()) for line in lines)


def test_a_verbose_training_says_what_was_chosen_and_how_long_it_took(tmp_path):
    out, told = in_pipe(
        python("train.py", "--config", write_config(tmp_path, "verbose"), "--verbose"), {"COLUMNS": "40"}
    )
    assert "\033" not in out + told and "\r" not in out + told
    assert f"run directory: {tmp_path / 'verbose'}" in out, "lines of a pipe are whole"
    for line in (
        r"computing on .*kernel \w+.*",
        r"opening the text: \d+\.\d s",
        r"saving the checkpoint: \d+\.\d s",
        r"python train\.py: \d+:\d\d, \d+ programs compiled or read in \d+\.\d s",
    ):
        assert re.search(rf"^{line}$", told, re.MULTILINE), line
