"""Lists on the command line, in place of those of a study's file."""

from pathlib import Path

import pytest

from esnlm.errors import InputError
from esnlm.studies import grid
from esnlm.studies.lists import replace_lists
from esnlm.studies.study import read_study

STUDIES = Path(__file__).resolve().parents[2] / "configs" / "studies"
SIZE = "model.reservoir.state_size"
TREE = {
    "base": "a.yaml",
    "runs": [{"grid": {SIZE: [1, 2], "training.epochs": [1]}}, {"cases": {"LSTM": {}}}],
    "seeds": [0],
}


@pytest.mark.parametrize("words", [[f"--{SIZE}", "[16, 32]"], [f"--{SIZE}=[16, 32]"]])
def test_a_list_replaces_the_values_of_an_axis(words):
    tree, others = replace_lists(TREE, ["--training.batch_size", "8", *words, "--seed", "[3, 4]"])
    assert tree["runs"] == [{"grid": {SIZE: [16, 32], "training.epochs": [1]}}, {"cases": {"LSTM": {}}}]
    assert (tree["seeds"], others) == ([3, 4], ["--training.batch_size", "8"])
    assert TREE["runs"][0]["grid"][SIZE] == [1, 2], "the study that was read is left as it is"


def test_values_keep_their_spelling_since_cells_are_named_by_it():
    tree = {"runs": {"grid": {"model.reservoir.leak_min": [0.0, 0.5], SIZE: [1, 2]}}}
    changed, _ = replace_lists(tree, ["--model.reservoir.leak_min", "[0, 0.5, 1]", f"--{SIZE}", "[4]"])
    mixed, _ = replace_lists({"runs": {"grid": {"a.leak": [0.25, 1]}}}, ["--a.leak", "[1, 0.25, 0]"])
    assert repr(mixed["runs"][0]["grid"]["a.leak"]) == "[1, 0.25, 0.0]"
    found = changed["runs"][0]["grid"]
    assert (repr(found["model.reservoir.leak_min"]), repr(found[SIZE])) == ("[0.0, 0.5, 1.0]", "[4]")


@pytest.mark.parametrize(
    "words",
    [
        [f"--{SIZE}", "16"],  # no list: make_runs says that the file sets it
        ["--seed", "3"],
        ["--tracking", "[csv]"],  # a list, but of no axis
        [f"--{SIZE}", "[16"],
        [f"--{SIZE}"],
        ["[16, 32]"],
    ],
)
def test_everything_else_is_left_to_the_configurations(words):
    assert replace_lists(TREE, words) == (TREE, words)


@pytest.mark.parametrize("runs", [None, 3, [3], {"grid": 3}, {"grid": None}, {"cases": {"a": {}}}])
def test_a_study_without_a_grid_is_left_as_it_is(runs):
    assert replace_lists({"runs": runs}, [f"--{SIZE}", "[1]"]) == ({"runs": runs}, [f"--{SIZE}", "[1]"])


@pytest.mark.parametrize("name", ["scale_table3", "dense_frozen_table1"])
def test_corpus_and_scale_of_a_table_of_the_papers_are_one_override_each(name):
    file = STUDIES / f"{name}.yaml"
    words = ["--data.train", "a", "--data.validation", "b", f"--{SIZE}", "[128, 256]", "--seed", "[0, 1, 2]"]
    tree, others = replace_lists(read_study(file), words)
    runs = grid.make_runs(grid.parse_grid(tree, file), others)
    sizes = {"scale_table3": 2, "dense_frozen_table1": 4}[name]
    assert len(runs) == (sizes + 2) * 3 and {(run.experiment.data.train, run.seed) for run in runs} == {
        ("a", seed) for seed in (0, 1, 2)
    }


def test_a_list_of_nothing_is_refused(tmp_path):
    (tmp_path / "a.yaml").touch()
    tree, _ = replace_lists(TREE, [f"--{SIZE}", "[]"])
    with pytest.raises(InputError, match=rf"runs.grid.{SIZE} is \[\]: it must be a list that is not empty"):
        grid.parse_grid(tree, tmp_path / "study.yaml")
