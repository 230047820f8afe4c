"""The commands in docs/cluster.md and in the examples beside it have arguments, settings and files that exist."""

import argparse
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from esnlm import config_io
from esnlm.commands import COMMANDS
from esnlm.commands.base import find_config

DOCS = Path(__file__).parents[2] / "docs"
FILES = [DOCS / "cluster.md", *sorted((DOCS / "cluster").iterdir())]


def commands(text):
    """The esnlm commands of a text, as (name, words): of shell scripts, of a Dockerfile and of blocks in Markdown."""
    text = text.replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if line.startswith("CMD "):
            found.append(json.loads(line.removeprefix("CMD ")))
        elif match := re.search(
            r"(?:python (train|eval_blimp)\.py|(?:bin/|/data:/data |^)esnlm (train|blimp)) (.*)", line
        ):
            name = match[2] or {"train": "train", "eval_blimp": "blimp"}[match[1]]
            found.append([name, *shlex.split(re.sub(r"\$\{?\w+\}?", "value", match[3].replace('"', "")))])
    return found


FOUND = [
    pytest.param(words, id=f"{file.name}-{n}") for file in FILES for n, words in enumerate(commands(file.read_text()))
]


@pytest.mark.parametrize("words", FOUND)
def test_its_arguments_and_settings_exist(words):
    name, *words = words
    command, parser = importlib.import_module(COMMANDS[name]), argparse.ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    options, settings = parser.parse_known_args(words)
    if name == "train":
        assert config_io.read(find_config(options.config), settings).run
    else:
        assert settings == []
