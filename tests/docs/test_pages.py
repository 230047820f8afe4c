"""The commands that the pages name are there, with these options and settings."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from esnlm import commands
from esnlm.commands.base import Parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = {file.stem: file for file in PAGES}


def named(page: Path) -> list[str]:
    """Returns every command of esnlm on a page, in a block or within a line."""
    text = page.read_text()
    lines = [part for line in re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE) for part in line.split(" && ")]
    lines += [
        line.replace("\n", " ")
        for line in re.findall(r"(?<!`)`((?:esnlm|python -m esnlm|python (?:train|eval_blimp)\.py) [^`]+)`(?!`)", text)
    ]
    return [line for line in lines if words_of(line) and not re.search(r"\.\.\.|\[--|\bCOMMAND\b", line)]


def words_of(line: str) -> list[str] | None:
    """Returns the command of esnlm in a line and its arguments; None where another program is called."""
    for start, name in {
        "esnlm ": "",
        "python -m esnlm ": "",
        "python train.py": "train",
        "python eval_blimp.py": "blimp",
    }.items():
        if line.startswith(start):
            return [*([name] if name else []), *shlex.split(line.removeprefix(start), comments=True)]
    return None


@pytest.mark.parametrize("page", sorted(NAMES.keys() - {"errors"}))
def test_every_command_that_a_page_names_has_these_options(page):
    for line in named(NAMES[page]):
        name, *rest = words_of(line)
        if name in ("--help", "lm-eval"):  # whose options are the harness's own
            continue
        assert name in commands.COMMANDS, f"{page}: {line}"
        parser = Parser(name)
        importlib.import_module(commands.COMMANDS[name]).add_arguments(parser)
        known = {option for action in parser._actions for option in action.option_strings}
        settings = parser.get_default("overrides") is not None
        unknown = [word for word in rest if word.startswith("--") and word not in known]
        assert all(settings and is_setting(word) for word in unknown), f"{page}: {line}: {unknown}"


def is_setting(word: str) -> bool:
    """Says whether a word is --KEY of a setting that docs/settings.md has."""
    key = word.removeprefix("--")
    kinds = (
        "data.kind",
        "model.family",
        "training.kind",
        "model.reservoir.topology.kind",
        "model.reservoir.continuous",
    )
    return key in kinds or f"\n| `{key}` |" in NAMES["settings"].read_text()
