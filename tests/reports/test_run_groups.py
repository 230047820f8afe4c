"""Which runs are one row: what they have in common, and what it is called."""

import pytest

from esnlm.machine.compute import ComputeConfig
from esnlm.reports import run_groups, run_table
from esnlm.training.config import ParentConfig, TrainingConfig


@pytest.mark.parametrize(
    "names, expected",
    [
        (["esn-seed0", "esn-seed10"], "esn (2 seeds)"),
        (["gpt2", "gpt2-seed1"], "gpt2 (2 seeds)"),
        (["seed0", "seed1"], "seed0 (2 seeds)"),
        (["esn-seed0"], "esn-seed0"),
    ],
)
def test_runs_of_several_seeds_have_the_name_that_stands_before_the_seed(names, expected):
    assert run_groups.name_group([{"run": name} for name in names]) == expected


def names_of_groups(*runs):
    groups = run_groups.group_by_seed([run_groups.identify(run) for run in runs])
    return [run_groups.name_group(group) for group in groups]


def test_seeds_of_another_precision_or_another_text_are_not_pooled(make_run):
    first = make_run("a-seed0", text="t")
    rounded = make_run("b-seed1", seed=1, text="t", compute=ComputeConfig(precision="bf16"))
    other_text = make_run("c-seed2", seed=2, text="u")
    assert names_of_groups(first, rounded, other_text) == ["a-seed0", "b-seed1", "c-seed2"]


def test_seeds_are_pooled_however_they_were_logged_and_saved(make_run):
    saved = TrainingConfig(checkpoint_words=(1000,), log_every=5)
    runs = [make_run("a-seed0", text="t"), make_run("a-seed1", seed=1, text="t", training=saved)]
    assert names_of_groups(*runs) == ["a (2 seeds)"]


def test_a_run_that_goes_on_from_another_is_no_seed_of_it(make_run):
    parents = [make_run("a-seed0"), make_run("a-seed1", seed=1)]
    on = [
        make_run(f"more-seed{i}", seed=i, parent=ParentConfig(run=str(parents[0]))) for i in (0, 1)
    ]
    assert (
        f"more-seed1 continues {parents[0]}: its words are counted since then"
        in run_table.report(on)
    )
    early = make_run("early", seed=2, parent=ParentConfig(run=str(parents[0]), step=5))
    assert names_of_groups(*parents, *on, early) == ["a (2 seeds)", "more (2 seeds)", "early"]


def test_one_seed_counts_once(make_run):
    assert names_of_groups(make_run("a"), make_run("b"), make_run("c", seed=1)) == [
        "a (2 seeds)",
        "b",
    ]
