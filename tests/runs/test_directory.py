"""The entries of a run directory: what is another's stays, and a start that fails leaves
nothing."""

from pathlib import Path

import pytest

from esnlm.base.errors import InputError
from esnlm.runs.directory import Entry, RunDirectory


@pytest.mark.parametrize("name", ["stores/train/tokens.bin", "manifest.json", "metrics.jsonl"])
def test_what_is_there_of_another_is_neither_written_over_nor_taken_back(tmp_path, name):
    theirs = tmp_path / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("of another")
    directory, first = RunDirectory(tmp_path), name.split("/")[0]
    for enter in (directory.begin, directory.locked):
        with pytest.raises(InputError, match=f"not a run directory, and has {first}"), enter():
            raise InputError("bad input")
    assert theirs.read_text() == "of another" and [path.name for path in tmp_path.iterdir()] == [
        first
    ]


def test_a_start_that_fails_leaves_nothing(tmp_path):
    directory = RunDirectory(tmp_path)
    with pytest.raises(InputError), directory.locked(), directory.begin():
        directory.config.write_text("run: x\n")
        directory.manifest.add(directory.config)
        directory.tokenizer.mkdir()
        raise InputError("bad data")
    assert not tmp_path.exists()


def test_the_page_lists_every_entry():
    page = (Path(__file__).parents[2] / "docs" / "how_it_works.md").read_text()
    for entry in vars(RunDirectory).values():
        if isinstance(entry, Entry) and entry.name != ".lock":
            assert f"`{entry.name}`" in page
