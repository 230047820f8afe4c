"""A study of kind `grid`: every run of its file in one table, stopped and gone on with, and every
mistake before the first run."""

import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from esnlm.base.errors import InputError
from esnlm.evaluation.statistics import seed_interval
from esnlm.studies.pool import find_slots
from esnlm.studies.study import make_runs, read_study, run_study, take_lists

STUDY = """
kind: grid
note: Trend only.
base: base.yaml
runs: {grid: {model.reservoir.spectral_radius: [0.5, 0.9]}}
seeds: [0, 1, 2]
reference:
  source: a paper
  cells:
    spectral_radius=0.9: {val_nll: [5.25, 0.125], blimp: 56}
    people: {blimp: [88.6, 0.2]}
"""
TWO = STUDY.replace("seeds: [0, 1, 2]", "seeds: [0]")


def table_of(out):
    """Returns table.json without what a clock measured."""
    tree = json.loads((out / "table.json").read_text())
    for each in (each for cell in tree["cells"] for each in [*cell["runs"], cell["means"]]):
        del each["seconds"], each["tokens_per_second"]
    return tree


def test_the_table_has_mean_and_interval_of_each_cell_beside_published_values(
    write, asked, tmp_path, capsys
):
    file, out = write(STUDY), tmp_path / "out"
    assert run_study(file, out, command="the command") == 0 and len(asked) == 6
    tree = table_of(out)
    assert (tree["study"], tree["command"], tree["note"]) == (
        "radius",
        "the command",
        "Trend only.",
    )
    for cell in tree["cells"]:
        folders = [out / "runs" / run["run"] for run in cell["runs"]]
        losses = [
            json.loads((folder / "summary.json").read_text())["val_nll"] for folder in folders
        ]
        found = cell["means"]["val_nll"]
        assert found["mean"] == pytest.approx(sum(losses) / 3) and found["interval"] == list(
            seed_interval(losses)
        )
        scores = [
            json.loads((folder / "evaluation/blimp-paper.json").read_text()) for folder in folders
        ]
        assert [run["blimp"] for run in cell["runs"]] == [
            score["overall"]["accuracy"] for score in scores
        ]
    page = (out / "table.md").read_text()
    assert (
        capsys.readouterr().out.endswith(page)
        and "Published: a paper" in page
        and "Made by `the command`" in page
    )
    header, _, *rows = [
        [text.strip() for text in line.split("|")[1:-1]]
        for line in page.splitlines()
        if line[:1] == "|"
    ]
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(row[""], row["runs"]) for row in rows] == [
        ("spectral_radius=0.5", "3"),
        ("spectral_radius=0.9", "3"),
        ("people", "published only"),
    ]
    assert [row["val NLL, published"] for row in rows] == ["", "5.25 (0.125)", ""]
    assert (
        re.fullmatch(r"\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]", rows[0]["val NLL"])
        and "[" not in rows[0]["trained"]
    )
    assert (out / "table.png").exists()
    before = (out / "table.json").read_text()
    assert run_study(file, out, command="the command") == 0 and len(asked) == 6, (
        "nothing is trained again"
    )
    assert (out / "table.json").read_text() == before


def test_a_stopped_study_goes_on_and_a_failed_run_does_not_stop_the_others(
    write, asked, tmp_path, capsys
):
    file, names = write(TWO), ["spectral_radius=0.5-seed0", "spectral_radius=0.9-seed0"]
    asked.endings[names[0]] = "stopped"
    assert run_study(file, tmp_path / "out") == 75 and asked == names[:1]
    asked.endings[names[0]] = "failed"
    assert run_study(file, tmp_path / "out") == 2 and asked == names[:1] + names
    assert "| spectral_radius=0.5 | 0 of 1 |" in (tmp_path / "out" / "table.md").read_text()
    asked.endings.clear()
    assert run_study(file, tmp_path / "out") == 0 and asked[3:] == names[:1]


def test_the_processes_of_an_array_share_the_runs_and_the_plan_trains_nothing(
    write, asked, tmp_path, capsys
):
    file = write(TWO)
    assert (
        run_study(file, tmp_path / "out", only_plan=True) == 0 and not (tmp_path / "out").exists()
    )
    assert run_study(file, tmp_path / "out", part="1/2") == 0 and asked == [
        "spectral_radius=0.9-seed0"
    ]
    capsys.readouterr()
    assert run_study(file, tmp_path / "out", only_plan=True) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told[:2]] == ["to", "done"] and told[2].startswith(
        "1 of 2 runs are done"
    )
    assert run_study(file, tmp_path / "out", part="0/2") == 0 and len(asked) == 2
    assert [len(cell["runs"]) for cell in table_of(tmp_path / "out")["cells"]] == [1, 1]
    with pytest.raises(InputError, match="has runs of spectral_radius=0.5, which this grid lacks"):
        run_study(file, tmp_path / "out", overrides=["--model.reservoir.spectral_radius", "[0.9]"])


@pytest.mark.nightly
def test_given_pairs_are_scored_once_and_other_text_is_refused(write, asked, tmp_path):
    run_study(write(TWO), tmp_path / "out")
    made = tmp_path / "out" / "runs" / "spectral_radius=0.5-seed0"
    train = shutil.copytree(made / "stores" / "train", tmp_path / "train")
    file = write("{kind: grid, base: base.yaml, runs: {cases: {one: {}}}}", "scored")
    (tmp_path / "base.yaml").write_text(
        f"data: {{kind: store, train: {train}, validation: {made / 'stores' / 'validation'}}}\n"
        "model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}"
    )
    pairs = next((made / "minimal_pairs").glob("*.jsonl"))
    for blimp, expected in ((None, False), (pairs, True), (pairs, True)):
        before = len(asked)
        assert run_study(file, tmp_path / "scored", blimp=blimp) == 0
        [run] = table_of(tmp_path / "scored")["cells"][0]["runs"]
        assert (run["blimp"] is not None) == expected
    assert len(asked) == before, "scored once"
    shutil.rmtree(train)
    shutil.copytree(made / "stores" / "validation", train)
    with pytest.raises(InputError, match="one-seed0: was begun with another train text"):
        run_study(file, tmp_path / "scored", blimp=pairs)


def test_settings_and_lists_of_the_command_line(write):
    file = write(TWO)
    study = read_study(file)
    others = take_lists(
        study, ["--seed=[3, 4]", "--model.reservoir.spectral_radius=[0.90, 1.0]", "--data.pairs=4"]
    )
    runs = make_runs(study, file, Path("out"), others)
    assert [run.name for run in runs] == [
        f"spectral_radius={r}-seed{s}" for r in ("0.9", "1.0") for s in (3, 4)
    ]
    assert {run.experiment.data.pairs for run in runs} == {4} and runs[3].experiment.seed == 4
    with pytest.raises(InputError, match="command line: --.*radius.yaml sets it"):
        make_runs(study, file, Path("out"), ["--model.reservoir.spectral_radius=1"])


@pytest.mark.parametrize(
    "axis, values, repeated",
    [
        ("seeds", "[0, 1, 0, 1]", "0 and 0"),
        ("model.reservoir.spectral_radius", "[0.5, 0.9, 0.5]", "0.5 and 0.5"),
        ("model.reservoir.spectral_radius", "[1, 1.0]", "1 and 1.0"),
        ("training.learning_rate", "[1e-3, 0.001]", "1e-3 and 0.001"),
        ("model.reservoir.note", "['007', '7', '007']", "007 and 007"),
        ("model.reservoir.note", "['1_0', 10, true, 1, 1.0]", "1 and 1.0"),
        ("model.reservoir.layers", "[[1, 2], [1.0, 2.0]]", "[1, 2] and [1.0, 2.0]"),
        ("model.reservoir.topology.kind", "[ring, random, ring]", "ring and ring"),
    ],
)
def test_a_value_that_an_axis_has_twice_is_refused_in_the_file_and_on_the_command_line(
    write, axis, values, repeated
):
    rule = f"{repeated} are the same value, whose runs would count twice"
    text = f"seeds: {values}" if axis == "seeds" else f"runs: {{grid: {{{axis}: {values}}}}}"
    default = "" if axis != "seeds" else "runs: {}\n"
    with pytest.raises(
        InputError,
        match=re.escape(f"radius.yaml: {'' if axis == 'seeds' else 'runs.0.grid.'}{axis}: {rule}"),
    ):
        read_study(write(f"kind: grid\nbase: base.yaml\n{default}{text}\n"))
    key = "seed" if axis == "seeds" else axis
    study = read_study(write(f"kind: grid\nbase: base.yaml\nruns: {{grid: {{{axis}: [0.1]}}}}\n"))
    with pytest.raises(InputError, match=re.escape(f"command line: --{key}: {rule}")):
        take_lists(study, [f"--{key}={values}"])


def test_cases_meet_every_point_of_the_grid_and_a_block_may_have_another_base(write, tmp_path):
    (tmp_path / "lstm.yaml").write_text("{data: {sentences: 100}, model: {family: lstm, width: 8}}")
    file = write(
        "kind: grid\nbase: base.yaml\nruns:\n"
        "- cases: {ESN: {}, ESN+i: {model.train_input: true}}\n"
        "  grid: {model.reservoir.state_size: [16, 32], model.readout.rank: [null, 8]}\n"
        "- {base: lstm.yaml, cases: {LSTM: {}}}\n"
    )
    runs = make_runs(read_study(file), file, Path("out"))
    points = (
        "state_size=16,rank=null",
        "state_size=16,rank=8",
        "state_size=32,rank=null",
        "state_size=32,rank=8",
    )
    assert [run.cell for run in runs] == [
        f"{case},{point}" for case in ("ESN", "ESN+i") for point in points
    ] + ["LSTM"]
    assert [run.experiment.model.title for run in runs[3:5]] == [
        "ESN 32, rank 8",
        "ESN+i 16, full rank",
    ]
    assert runs[-1].experiment.model.family == "lstm"


@pytest.mark.nightly
def test_jobs_that_are_stopped_go_on_to_the_table_of_an_undisturbed_study(write, tmp_path):
    """Runs in processes of their own, one by one and two at once, stopped by SIGTERM and gone on
    with: bit for bit the same."""
    file = write(STUDY.replace("seeds: [0, 1, 2]", "seeds: [0, 1]"))
    (tmp_path / "base.yaml").write_text(
        (tmp_path / "base.yaml").read_text().replace("sentences: 100", "sentences: 20000")
    )
    command = [
        sys.executable,
        "-m",
        "esnlm",
        "study",
        str(file),
        "--training.checkpoint_every",
        "50",
    ]
    assert (
        subprocess.run([*command, "--out", str(tmp_path / "one")], capture_output=True).returncode
        == 0
    )
    command += ["--out", str(tmp_path / "two"), "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list((tmp_path / "two" / "runs").glob("*/checkpoints/*")):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 75 and b"stopped; the same command resumes" in errors
    assert subprocess.run(command, capture_output=True).returncode == 0
    one, two = table_of(tmp_path / "one"), table_of(tmp_path / "two")
    assert one["cells"] == two["cells"]


def test_an_interval_over_seeds_needs_three_and_is_students():
    from scipy import stats

    values = [5.0, 5.2, 5.1, 4.9]
    for level in (0.95, 0.99):
        expected = stats.ttest_1samp(values, 0).confidence_interval(level)
        assert seed_interval(values, level) == pytest.approx(tuple(expected), rel=1e-12)
    assert seed_interval(values[:2]) is None and seed_interval([5.0, math.inf, 5.1]) is None


def test_gpus_are_given_to_one_process_each(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert find_slots(None) == [{}]
    assert (
        find_slots("auto")
        == find_slots("7")
        == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "5"}]
    )
