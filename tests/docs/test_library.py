"""The code of docs/library.md runs from top to bottom."""

import re
from pathlib import Path

import pytest

from esnlm.reservoir import functions
from esnlm.reservoir.topology import TOPOLOGIES

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text()
FOUND = re.finditer(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# with the page's line numbers
BLOCKS = ["\n" * PAGE[: block.start(1)].count("\n") + block.group(1) for block in FOUND]


@pytest.fixture
def forgets():
    """Forgets what the page registers."""
    known = functions.ACTIVATIONS, functions.UPDATE_RULES, TOPOLOGIES
    before = [set(names) for names in known]
    yield
    for names, there in zip(known, before, strict=True):
        for name in set(names) - there:
            del names[name]


@pytest.mark.nightly
def test_the_code_of_the_page_runs(tmp_path, monkeypatch, forgets):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        exec(compile(block, "docs/library.md", "exec"), names)
    assert names["network"][-1].reservoir_.state_size == 200
