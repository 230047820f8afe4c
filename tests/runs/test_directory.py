"""The entries of a run directory, and the number of its format."""

import json
from pathlib import Path

import pytest

import esnlm
from esnlm.errors import InputError
from esnlm.runs.directory import FORMAT, Entry, RunDirectory


def test_an_entry_is_a_path_in_the_directory():
    directory = RunDirectory(Path("runs/a"))
    assert directory.config == Path("runs/a/config.yaml") and directory.frozen == Path("runs/a/frozen")


def begun(path, number=FORMAT):
    directory = RunDirectory(path)
    path.mkdir()
    with directory.begin():
        directory.config.write_text("run: x\n")
    directory.format.write_text(json.dumps({"format": number}))
    return path


def test_a_run_has_a_number_from_the_start(tmp_path):
    assert json.loads(RunDirectory(begun(tmp_path / "run")).format.read_text()) == {"format": FORMAT}


def test_what_a_run_without_its_configuration_has_stays_where_a_command_fails(tmp_path):
    directory = RunDirectory(begun(tmp_path / "run"))
    for folder in (directory.frozen, directory.checkpoints / "7"):
        folder.mkdir(parents=True)
    directory.config.unlink()
    with pytest.raises(InputError, match="bad input"), directory.begin():
        raise InputError("bad input")
    assert directory.frozen.exists() and directory.checkpoints.exists() and directory.format.exists()


@pytest.mark.parametrize(
    "name", ["stores/train/tokens.bin", "tokenizer/tokenizer.json", "manifest.json", "metrics.jsonl"]
)
def test_what_is_there_of_another_is_neither_written_over_nor_taken_back(tmp_path, name):
    theirs = tmp_path / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("of another")
    directory, first = RunDirectory(tmp_path), name.split("/")[0]
    for enter in (directory.begin, directory.locked):
        with (
            pytest.raises(InputError, match=f"no run directory, and it has {first}; name another with --run"),
            enter(),
        ):
            raise InputError("bad input")
    assert theirs.read_text() == "of another" and [path.name for path in tmp_path.iterdir()] == [first]


def test_a_file_in_its_place_is_one_line(tmp_path):
    (tmp_path / "run").write_text("mine")
    for begin in (RunDirectory(tmp_path / "run").claim, RunDirectory(tmp_path / "run").locked().__enter__):
        with pytest.raises(InputError, match="run: File exists"):
            begin()


def test_files_of_other_names_may_be_there(tmp_path):
    (tmp_path / "job.out").write_text("what a queue writes")
    with RunDirectory(tmp_path).locked():
        pass


def test_a_start_that_fails_leaves_nothing(tmp_path):
    directory = RunDirectory(tmp_path)
    with pytest.raises(InputError), directory.begin():
        directory.config.write_text("run: x\n")
        directory.manifest.add(directory.config)
        directory.tokenizer.mkdir()
        raise InputError("bad data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [1, 3])
def test_another_format_is_refused_in_a_line_that_names_both(tmp_path, number):
    run = begun(tmp_path / "run", number)
    for read in (RunDirectory, esnlm.load):
        with pytest.raises(InputError, match=f"^{run}: of format {number}, and .* reads format {FORMAT}"):
            read(run)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_damaged_number_is_refused(tmp_path, text):
    run = begun(tmp_path / "run")
    (run / "format.json").write_text(text)
    with pytest.raises(InputError, match=f"^{run}/format.json: damaged; restore it from a copy of the run$"):
        RunDirectory(run)


def test_the_page_lists_every_entry():
    page = (Path(__file__).parents[2] / "docs" / "how_it_works.md").read_text()
    for entry in vars(RunDirectory).values():
        if isinstance(entry, Entry) and entry.name != ".lock":
            assert f"`{entry.name}`" in page
