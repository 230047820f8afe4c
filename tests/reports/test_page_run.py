"""What the sections of a run tell, and what they say if something is not there."""

import pytest

import esnlm
from esnlm.reports.page_run import (
    SAMPLES,
    SECTIONS,
    RunFiles,
    diagnostics,
    losses,
    minimal_pairs,
    samples,
    trained,
    worst,
)


@pytest.fixture(scope="module")
def full(full_run):
    return RunFiles(full_run)


def test_sections_are_in_order_and_each_is_there(full):
    assert [title for title, render in SECTIONS.items() if render(full)] == [
        *("The model", "Losses", "Minimal pairs", "By paradigm", "Wrong by the largest margin"),
        *("State diagnostics", "Samples", "How to make it again"),
    ]


def test_an_accuracy_says_of_how_many_pairs_it_is(full):
    [keys] = [each for each in trained(full) if each["kind"] == "keys"]
    assert keys["figures"][-1][2].endswith(f"{full.report['data']['pairs']:,} pairs")


def test_a_run_of_which_little_is_known(make_run):
    run = RunFiles(make_run("a"))
    assert losses(run) == [], "there is no metrics.jsonl"
    [missing] = diagnostics(run)
    assert missing["command"] == f"esnlm diagnose --run {run.path}"
    for file in run.directory.evaluation.iterdir():
        file.unlink()
    [missing] = minimal_pairs(RunFiles(run.directory.path))
    assert missing["command"] == f"esnlm blimp --run {run.path} --data blimp"


def test_samples_are_those_of_the_seed(full):
    loaded = esnlm.load(full.directory.path)
    assert samples(full)[0]["texts"][0] == loaded.generate(**SAMPLES)[0].strip()


def test_the_most_wrong_pairs():
    def line(uid, good, bad):
        return {
            "UID": uid,
            "log_prob_good": good,
            "log_prob_bad": bad,
            "right": bad < good,
            "tie": good == bad,
        }

    lines = [line("one", -5.0, -5.0 + i) for i in range(-3, 5)] + [
        line("two", -9.0, -6.5),
        line("two", -9.0, -9.0),
    ]
    assert [(each["UID"], margin) for margin, each in worst(lines)] == [
        ("one", 4.0),
        ("one", 3.0),
        ("two", 2.5),
    ]
