"""Scripts that complete a command line, read by the shells themselves where they are installed."""

import shutil
import subprocess

import pytest

from esnlm import commands
from esnlm.config_io import setting_names


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Returns a function that writes the script for a shell into a file."""
    folder = tmp_path_factory.mktemp("completion")

    def write(shell, capsys):
        assert commands.main(["completion", shell]) == 0
        file = folder / shell
        file.write_text(capsys.readouterr().out)
        return file

    return write


CASES = [
    (["s"], {"score", "study"}),
    (["score", "--s"], {"--scoring", "--sentence", "--step"}),
    (["score", "--scoring", ""], {"paper", "no-eos", "lm-eval", "babylm"}),
    (["blimp", "--q"], {"--quiet"}),
    (["train", "--model.reservoir.s"], {"--model.reservoir.state_size", "--model.reservoir.spectral_radius"}),
    (["train", "--training.kind", "r"], {"ridge", "rls"}),
    (["completion", "f"], {"fish"}),
]
NAMES = [" ".join(words) for words, _ in CASES]


def asked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, **options)
    assert done.stderr == ""
    return {line.split("\t")[0].split(":")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("words, expected", CASES, ids=NAMES)
def test_bash(words, expected, script, capsys):
    program = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _esnlm; printf "%s\\n" "${COMPREPLY[@]}"'
    assert asked(["bash", "-c", program, str(script("bash", capsys)), "esnlm", *words]) == expected


@pytest.mark.parametrize("words, expected", CASES, ids=NAMES)
def test_fish(words, expected, script, capsys, tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("needs the shell fish: apt-get install fish, or brew install fish")
    program = f"source {script('fish', capsys)}; complete -C '{' '.join(['esnlm', *words])}'"
    assert asked(["fish", "--no-config", "-c", program]) == expected


@pytest.mark.parametrize("words, expected", CASES, ids=NAMES)
def test_zsh(words, expected, script, capsys):
    """Functions of the test stand in for those of zsh that filter and show what is offered."""
    if shutil.which("zsh") is None:
        pytest.skip("needs the shell zsh: apt-get install zsh, or brew install zsh")
    program = """
compdef() { }
_describe() { print -rl -- ${(P)2}; }
compadd() { shift; print -rl -- $@; }
source $0; words=("$@"); CURRENT=$#; _esnlm
"""
    offered = asked(["zsh", "-f", "-c", program, str(script("zsh", capsys)), "esnlm", *words])
    assert {word for word in offered if word.startswith(words[-1])} == expected


def test_files_are_left_to_the_shell(script, capsys):
    file = script("bash", capsys)
    program = 'source "$0"; COMP_WORDS=(esnlm score --run ""); COMP_CWORD=3; _esnlm; echo "${#COMPREPLY[@]}"'
    assert asked(["bash", "-c", program, str(file)]) == {"0"}
    assert "complete -o default" in file.read_text()


def test_every_command_and_every_setting_is_known(script, capsys):
    text = script("fish", capsys).read_text()
    for name in commands.COMMANDS:
        assert f"-f -a {name} -d " in text
    for name in setting_names():
        assert f"__fish_seen_subcommand_from train' -l {name} " in text
    assert {"run", "compute.kernel", "model.readout.rank", "data.train"} <= setting_names().keys()


def test_an_unknown_shell_is_one_line(capsys):
    assert commands.main(["completion", "sh"]) == 2
    assert capsys.readouterr().err.startswith("error: argument shell: invalid choice: 'sh'")
