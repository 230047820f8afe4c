"""A study of kind `grid`: every run of its file, one table; stopped and gone on with; and every mistake before the first run."""

import csv
import dataclasses
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from esnlm import config_io
from esnlm.errors import InputError
from esnlm.evaluate_run import evaluate_run
from esnlm.reporting.html import study as html_study
from esnlm.studies import grid, grid_plot, grid_table, shares, study
from esnlm.workflows.train import INTERRUPTED
from tests.studies.cells import grid_cell
from tests.studies.pool import PoolHere

STUDIES = Path(__file__).resolve().parents[2] / "configs" / "studies"
BASE = """
data: {kind: grammar, sentences: 100, validation_sentences: 20, pairs: 2}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}
"""
STUDY = """
kind: grid
note: Trend only.
base: base.yaml
runs: {grid: {model.reservoir.spectral_radius: [0.5, 0.9]}}
seeds: [0, 1]
reference:
  source: a paper
  cells:
    spectral_radius=0.9: {val_nll: [5.25, 0.125], blimp: 56}
    people: {blimp: [88.6, 0.2]}
"""


def write(folder, text=STUDY, name="radius"):
    folder.mkdir(exist_ok=True)
    (folder / "base.yaml").write_text(BASE)
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


def here(call, *arguments):
    """Calls in this process, which is quicker."""
    return call(*arguments) or 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Returns a study file and its folder when all is done."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "run_in_process", here)
        assert study.run_study(write(folder), folder / "out", command="the command") == 0
    return folder / "radius.yaml", folder / "out"


@pytest.fixture
def copying(finished, monkeypatch):
    """Runs that are copied from the finished study instead of being trained; [names of those that were asked for]."""
    asked = []

    def copy(call, *arguments):
        if call is not study.train_and_score:
            return here(call, *arguments)
        run = Path(arguments[0].run)
        asked.append(run.name)
        shutil.copytree(finished[1] / "runs" / run.name, run)
        return 0

    monkeypatch.setattr(study, "run_in_process", copy)
    return asked


def test_the_table_has_mean_and_standard_error_of_each_cell(finished):
    _, out = finished
    table = json.loads((out / "table.json").read_text())
    assert (table["study"], table["command"], table["note"]) == ("radius", "the command", "Trend only.")
    assert [cell["cell"] for cell in table["cells"]] == ["spectral_radius=0.5", "spectral_radius=0.9"]
    for cell in table["cells"]:
        runs = [
            json.loads((out / "runs" / f"{cell['cell']}-seed{seed}" / "summary.json").read_text()) for seed in (0, 1)
        ]
        assert [run["seed"] for run in runs] == [0, 1] and all(run["status"] == "finished" for run in runs)
        for name in (
            "trainable_params",
            "total_params",
            "train_nll",
            "val_nll",
            "val_bits_per_byte",
            "perplexity",
            "seconds",
        ):
            one, two = (run[name] for run in runs)
            # Of two values the standard deviation (n - 1) is |x - y| / sqrt 2, and sqrt n the same again.
            assert cell["means"][name] == {
                "mean": pytest.approx((one + two) / 2),
                "se": pytest.approx(abs(one - two) / 2),
                "n": 2,
            }
        scores = [
            json.loads((out / "runs" / run["run"] / "evaluation" / "blimp-paper.json").read_text())
            for run in cell["runs"]
        ]
        assert cell["means"]["blimp"]["mean"] == pytest.approx(
            sum(score["overall"]["accuracy"] for score in scores) / 2
        )


def test_the_page_shows_them_beside_the_published_values(finished):
    page = (finished[1] / "table.md").read_text()
    lines = page.splitlines()
    assert lines[0] == "# radius (out)" and lines[2] == "Trend only." and "Published: a paper" in lines
    assert (
        lines[4].startswith("Words ") and "; epochs 1; learning rate 0.001; seeds 0, 1; hours of training " in lines[4]
    )
    assert "Made by `the command`" in lines and "![radius (out)](table.png)" in lines
    header, _, *rows = [[text.strip() for text in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    table = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row[""] for row in table] == ["spectral_radius=0.5", "spectral_radius=0.9", "people"]
    assert [row["val NLL, published"] for row in table] == ["", "5.250 (0.125)", ""]
    assert [row["minimal pairs, %, published"] for row in table] == ["", "56.0", "88.6 (0.2)"]
    assert [row["runs"] for row in table] == ["2", "2", "published only"]
    means = json.loads((finished[1] / "table.json").read_text())["cells"][0]["means"]
    assert table[0]["val NLL"] == f"{means['val_nll']['mean']:.3f} ({means['val_nll']['se']:.3f})"
    assert table[0]["trained"] == f"{means['trainable_params']['mean']:,.0f}"  # the same in both runs


def test_minimal_pairs_stand_beside_length_and_word_frequency(finished):
    out = finished[1]
    reports = [json.loads(file.read_text()) for file in (out / "runs").glob("*/evaluation/blimp-paper.json")]
    length, unigram = (f"{reports[0]['baselines'][name]['overall']['accuracy']:.1f}" for name in ("length", "unigram"))
    line = (
        f"Minimal pairs: the convention paper. On the same pairs, in percent: length only {length}, a unigram model of"
    )
    assert line in (out / "table.md").read_text() and f"the training text {unigram}." in (out / "table.md").read_text()


def test_published_values_of_other_settings_are_told(finished, tmp_path):
    """The command line may change what a paper states; --stores and lists that replace a grid's do not."""
    its = grid.parse_grid(study.read_study(finished[0]), finished[0])
    given = [
        "--model.reservoir.state_size",
        "20",
        "--training.log_every",
        "7",
        "--training.epochs=2",
        "--training.batch_size",
        "32",
    ]
    changed = study._find_changed(its, grid.make_runs(its, given), given)
    assert changed == {"model.reservoir.state_size": "20", "training.epochs": "2"}, (
        "what decides nothing, or is as it was, is left out"
    )
    cells = json.loads((finished[1] / "table.json").read_text())["cells"]
    for given, told in ((changed, True), ({}, False)):
        page = grid_table.write_table(dataclasses.replace(its, out=tmp_path, changed=given), cells, "c", None)
        line = "The published values are of other settings: the command line changed them to model.reservoir.state_size 20, training.epochs 2."
        tree = json.loads((tmp_path / "table.json").read_text())
        for text in (page, (tmp_path / "table.tex").read_text(), str(html_study.render(tree))):
            assert (line in text) == told


def test_a_train_nll_of_a_part_of_an_epoch_is_left_out(finished, tmp_path):
    """But that of a run which diverged stands, as its other figures do."""
    run = finished[1] / "runs" / "spectral_radius=0.5-seed0"
    copied = shutil.copytree(run, tmp_path / "run")
    summary = json.loads((copied / "summary.json").read_text())
    (copied / "manifest.json").unlink()
    known = []
    for more in ({}, {"train_nll_of": "3 of 9"}, {"train_nll_of": "3 of 9", "status": "diverged"}):
        (copied / "summary.json").write_text(json.dumps(summary | more))
        experiment = config_io.read_begun(copied / "config.yaml")
        found = grid_table.read_measures(grid.GridRun("a", 0, dataclasses.replace(experiment, run=str(copied))))
        known.append(found["train_nll"])
    assert known == [summary["train_nll"], None, summary["train_nll"]]


def test_a_finished_study_is_shown_and_nothing_is_trained(finished, copying, capsys):
    file, out = finished
    before = (out / "table.json").read_text()
    assert study.run_study(file, out, command="the command") == 0
    assert copying == [] and (out / "table.json").read_text() == before
    assert capsys.readouterr().out == (out / "table.md").read_text()


def test_a_stopped_study_goes_on_where_it_stopped(finished, copying, monkeypatch, tmp_path, capsys):
    file, copy = write(tmp_path), study.run_in_process

    def stop_at_the_third(call, *arguments):
        return INTERRUPTED if call is study.train_and_score and len(copying) == 2 else copy(call, *arguments)

    monkeypatch.setattr(study, "run_in_process", stop_at_the_third)
    assert study.run_study(file, tmp_path / "out", command="the command") == INTERRUPTED
    told = capsys.readouterr().err
    assert re.search(r"run 3 of 4: spectral_radius=0.9-seed0, about \d+:\d\d left\n", told)
    assert told.endswith("stopped in spectral_radius=0.9-seed0; the same command goes on\n")
    assert "| spectral_radius=0.9 | 0 of 2 |" in (tmp_path / "out" / "table.md").read_text()
    monkeypatch.setattr(study, "run_in_process", copy)
    assert study.run_study(file, tmp_path / "out", command="the command") == 0
    assert copying == [f"spectral_radius={radius}-seed{seed}" for radius in (0.5, 0.9) for seed in (0, 1)]
    assert (tmp_path / "out" / "table.json").read_text() == (finished[1] / "table.json").read_text()


def test_a_run_that_is_killed_ends_the_study(copying, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(study, "run_in_process", lambda *_: -9)
    assert study.run_study(write(tmp_path), tmp_path / "out") == 1
    assert "spectral_radius=0.5-seed0 ended with status -9; the same command tries it again" in capsys.readouterr().err


def test_a_changed_study_is_refused_and_the_run_named(finished, copying):
    file, out = finished
    with pytest.raises(
        InputError,
        match="spectral_radius=0.5-seed0/config.yaml: the run was begun with .*training.epochs 1 -> 2\\);"
        " give the same settings and stores, or another folder with --out",
    ):
        study.run_study(file, out, overrides=["--training.epochs", "2"])
    assert copying == []


def test_the_plan_tells_what_is_done_and_trains_nothing(finished, copying, tmp_path, capsys):
    file, out = finished
    shutil.copytree(out, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "runs" / "spectral_radius=0.9-seed1")
    assert study.run_study(file, tmp_path / "out", only_plan=True) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told[:4]] == ["done", "done", "done", "to"]
    assert told[4].startswith("3 of 4 runs are done; the rest takes 0:0")
    assert study.run_study(file, tmp_path / "new", only_plan=True) == 0
    assert copying == [] and not (tmp_path / "new").exists()


def test_minimal_pairs_are_scored_once(finished, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(study, "run_in_process", here)
    run = finished[1] / "runs" / "spectral_radius=0.5-seed0"
    file = write(tmp_path, "{kind: grid, base: base.yaml, runs: {cases: {one: {}}}}")
    (tmp_path / "base.yaml").write_text(
        f"data: {{kind: store, train: {shutil.copytree(run / 'stores' / 'train', tmp_path / 'train')}, validation: {run / 'stores' / 'validation'}}}\n"
        "model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}"
    )
    pairs = next((run / "minimal_pairs").glob("*.jsonl"))
    assert study.run_study(file, tmp_path / "out") == 0
    capsys.readouterr()
    assert study.run_study(file, tmp_path / "out", blimp=pairs, only_plan=True) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.split() == ["score", "0:00", str(tmp_path / "out" / "runs" / "one-seed0")], "it is trained already"
    assert second.startswith("0 of 1 runs are done; the rest takes 0:00 at best")
    assert study.run_study(file, tmp_path / "out", blimp=pairs) == 0
    report = tmp_path / "out" / "runs" / "one-seed0" / "evaluation" / "blimp-paper.json"
    found, made = json.loads(report.read_text())["overall"]["accuracy"], report.stat().st_mtime_ns
    assert json.loads((tmp_path / "out" / "table.json").read_text())["cells"][0]["means"]["blimp"]["mean"] == found
    assert study.run_study(file, tmp_path / "out", blimp=pairs) == 0 and report.stat().st_mtime_ns == made
    stale = report.with_name("stale.json")
    evaluate_run(tmp_path / "out" / "runs" / "one-seed0", [pairs], out=stale, untrained=True)
    stale.replace(report)
    assert study.run_study(file, tmp_path / "out", blimp=pairs) == 0
    assert (
        json.loads(report.read_text())["step"] > 0 and json.loads(report.read_text())["overall"]["accuracy"] == found
    ), "what was scored at an earlier update is scored again"
    with pytest.raises(InputError, match="one-seed0/evaluation/blimp-paper.json: is of other minimal pairs than"):
        study.run_study(file, tmp_path / "out", blimp=run / "minimal_pairs")
    shutil.rmtree(tmp_path / "train")
    shutil.copytree(run / "stores" / "validation", tmp_path / "train")
    line = "one-seed0: was trained with another train text than lies here; name the same stores, or another folder"
    with pytest.raises(InputError, match=line):
        study.run_study(file, tmp_path / "out", blimp=pairs)


GRID = "{model.reservoir.spectral_radius: [0.5, 0.9]}"
REFERENCE = "kind: grid\nbase: base.yaml\nruns: {cases: {a: {}}}\nreference: {cells: {a: "


@pytest.mark.parametrize(
    "text, line",
    [
        ("[]", "kind is None: a study is one of grid, search, alignment, coordinate_check, exponents, training_curves"),
        ("kind: table", "kind is 'table': a study is one of"),
        ("kind: [", "not a YAML file"),
        ("kind: grid", "runs is missing: give grid, cases or both"),
        (f"kind: grid\nruns: {{grid: {GRID}}}", "base is None: name a configuration file"),
        (
            f"kind: grid\nbase: none.yaml\nruns: {{grid: {GRID}}}",
            "radius.yaml: base is none.yaml: there is no file .*none.yaml; name a",
        ),
        (
            f"kind: grid\nbase: base.yaml\nruns: {{grid: {GRID}}}\nseed: [0]",
            "unknown key seed: choose from kind, note, base",
        ),
        (
            f"kind: grid\nbase: base.yaml\nruns: {{grids: {GRID}}}",
            "unknown key runs.grids: choose from base, cases, grid",
        ),
        ("kind: grid\nbase: base.yaml\nruns: []", "runs is empty"),
        ("kind: grid\nbase: base.yaml\nruns: {grid: {}}", "runs.grid is {}: it must be a section that is not empty"),
        (
            "kind: grid\nbase: base.yaml\nruns: {grid: {seed: [1, 2]}}",
            "seed=1: seed is for seeds and out to give: leave it out",
        ),
        (
            "kind: grid\nbase: base.yaml\nruns: {grid: {model.dropout: []}}",
            r"runs.grid.model.dropout is \[\]: it must be a list that is not empty",
        ),
        (
            "kind: grid\nbase: base.yaml\nruns: {cases: {a: {model.size: 3}}}",
            "radius.yaml: a: model.size: esn has no such setting",
        ),
        (
            f"kind: grid\nbase: base.yaml\nruns: {{grid: {GRID}, cases: {{a: {GRID}}}}}",
            "stands in runs.grid and in runs.cases.a",
        ),
        ("kind: grid\nbase: base.yaml\nruns: {cases: {a/b: {}}}", "runs.cases.a/b: a case is a name"),
        (
            "kind: grid\nbase: base.yaml\nruns: {cases: {a: {}, a: {seed: 1}}}",
            "a stands twice in one section, at line 3",
        ),
        ("kind: grid\nbase: base.yaml\nruns: [{cases: {a: {}}}, {cases: {a: {}}}]", "two cells have the name a"),
        (
            "kind: grid\nbase: base.yaml\nruns: {grid: {training.epochs: [1]}}\ncolumns: [[val_nll]]",
            "columns is ..'val_nll'..: list some",
        ),
        (
            "kind: grid\nbase: base.yaml\nruns: {grid: {data.train: [2024-01-01]}}",
            "runs.grid.data.train: YAML reads 2024-01-01 as a date: put it in quotation marks",
        ),
        (
            "kind: grid\nbase: base.yaml\nruns: {cases: {a: {}, b: {training.epochs: 1}}}",
            "a and b are the same configuration",
        ),
        (
            "kind: grid\nbase: base.yaml\nruns: {grid: {model.dropout: [0, 0.0]}}",
            "dropout=0 and dropout=0.0 are the same configuration",
        ),
        *(
            (STUDY.replace("[0, 1]", seeds), "seeds is .*: it must be a list of different")
            for seeds in ("[]", "3", "[0, 0]", "[0.5]", "[true]", "[-1]")
        ),
        (f"{REFERENCE}{{nll: 3}}}}}}", "unknown key reference.cells.a.nll: choose from trainable_params"),
        (f"{REFERENCE}{{val_nll: [1, 2, 3]}}}}}}", "reference.cells.a.val_nll is .*: give a number"),
        (f"{REFERENCE}{{val_nll: .nan}}}}}}", "reference.cells.a.val_nll is nan: give a number"),
        ("kind: grid\nbase: base.yaml\nruns: {cases: {a: {}}}\ncolumns: [nll]", "columns is .*: list some of"),
        (
            f"kind: grid\nbase: base.yaml\nruns: {{cases: {{{'a' * 250}: {{}}}}}}",
            "too long for one: give its case a short name",
        ),
        (
            "kind: grid\nbase: base.yaml\nruns: {cases: {a: {}}}\nblimp: pairs",
            "pairs: no such file or folder of minimal pairs",
        ),
        (
            f"kind: grid\nbase: base.yaml\nruns: {{cases: {{a: {{}}}}}}\nblimp: {STUDIES}",
            "no file of pairs in this folder",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_line_and_leaves_nothing(text, line, copying, tmp_path):
    with pytest.raises(InputError, match=line) as caught:
        study.run_study(write(tmp_path, text), tmp_path / "out")
    assert "\n" not in str(caught.value) and copying == [] and not (tmp_path / "out").exists()


def test_all_configurations_are_checked_before_the_first_run(copying, tmp_path):
    file = write(tmp_path, STUDY.replace("0.9]", "-0.9]"))
    with pytest.raises(
        InputError,
        match=r"radius.yaml: spectral_radius=-0.9: model.reservoir.spectral_radius is -0.9: it must be above 0",
    ):
        study.run_study(file, tmp_path / "out")
    with pytest.raises(InputError, match="none"):
        study.run_study(
            write(tmp_path, STUDY.replace("grid: {", "grid: {data.kind: [store], data.train: [none], ")),
            tmp_path / "out",
        )
    assert copying == [] and not (tmp_path / "out").exists()


def test_settings_of_the_command_line_are_for_every_run(tmp_path):
    file = write(tmp_path)
    runs = grid.make_runs(grid.parse_grid(study.read_study(file), file), ["--data.pairs", "4", "--training.epochs=3"])
    assert [(run.experiment.data.pairs, run.experiment.training.epochs) for run in runs] == [(4, 3)] * 4
    assert [(run.experiment.model.reservoir.spectral_radius, run.experiment.seed) for run in runs] == [
        (0.5, 0),
        (0.5, 1),
        (0.9, 0),
        (0.9, 1),
    ]
    assert str(runs[3].directory) == "studies/radius/runs/spectral_radius=0.9-seed1"
    for setting in ("--model.reservoir.spectral_radius=1", "--seed", "--run"):
        with pytest.raises(InputError, match=f"command line: {setting.partition('=')[0]} is for .*radius.yaml to set"):
            grid.make_runs(grid.parse_grid(study.read_study(file), file), [setting, "3"])


def test_an_override_of_a_section_that_the_file_sets_a_part_of_is_refused(tmp_path):
    """It would replace what the grid sweeps, and the names of the runs would say something else."""
    file = write(
        tmp_path, "kind: grid\nbase: base.yaml\nruns: {grid: {model.reservoir.spectral_radius: [0.5, 0.9]}}", "radius"
    )
    its = grid.parse_grid(study.read_study(file), file)
    for setting in ("--model.reservoir={leak_min: 0.5}", "--model.reservoir.spectral_radius.x=1"):
        with pytest.raises(InputError, match="is for .*radius.yaml to set"):
            grid.make_runs(its, [setting])
    assert len(grid.make_runs(its, ["--model.reservoir.leak_min=0.5"])) == 2


def test_blocks_of_other_bases_have_cases_of_their_own(tmp_path):
    """Else both would be points of one line, and a claim about it would compare two models."""
    (tmp_path / "lstm.yaml").write_text("{data: {sentences: 100}, model: {family: lstm, width: 8}}")
    blocks = "[{base: base.yaml, grid: {training.epochs: [1, 2]}}, {base: lstm.yaml, grid: {training.epochs: [3, 4]}}]"
    file = write(tmp_path, f"kind: grid\nruns: {blocks}", "two")
    line = "two blocks without cases sweep training.epochs from different bases, .*base.yaml and .*lstm.yaml: give each a case of its own"
    with pytest.raises(InputError, match=line):
        grid.parse_grid(study.read_study(file), file)
    cases = "[{cases: {A: {seeds: 1}}, grid: {training.epochs: [1]}}, {cases: {A: {seeds: 2}}, grid: {training.epochs: [2]}}]"
    file = write(tmp_path, f"kind: grid\nbase: base.yaml\nruns: {cases}", "two")
    with pytest.raises(
        InputError, match="two blocks with the case A sweep training.epochs with different settings of the case"
    ):
        grid.parse_grid(study.read_study(file), file)
    apart = blocks.replace("training.epochs: [3, 4]", "training.batch_size: [3, 4]")
    file = write(tmp_path, f"kind: grid\nruns: {apart}", "two")
    assert len(grid.parse_grid(study.read_study(file), file).cells) == 4


def test_cases_meet_every_point_of_the_grid_and_a_block_may_have_another_base(tmp_path):
    (tmp_path / "lstm.yaml").write_text("{data: {sentences: 100}, model: {family: lstm, width: 8}}")
    file = write(
        tmp_path,
        "kind: grid\nbase: base.yaml\nruns:\n"
        "- cases: {ESN: {}, ESN+i: {model.train_input: true}}\n"
        "  grid: {model.reservoir.state_size: [16, 32], model.readout.rank: [null, 8]}\n"
        "- {base: lstm.yaml, cases: {LSTM: {}}}\n",
    )
    runs = grid.make_runs(grid.parse_grid(study.read_study(file), file))
    points = ("state_size=16,rank=null", "state_size=16,rank=8", "state_size=32,rank=null", "state_size=32,rank=8")
    assert [run.cell for run in runs] == [f"{case},{point}" for case in ("ESN", "ESN+i") for point in points] + ["LSTM"]
    assert [run.experiment.model.title for run in runs[3:6]] == [
        "ESN 32, rank 8",
        "ESN+i 16, full rank",
        "ESN+i 16, rank 8",
    ]
    assert runs[-1].experiment.model.family == "lstm" and all(run.seed == 0 for run in runs)


def test_the_grid_that_the_documentation_explains_is_one_and_every_key_of_it():
    page = (STUDIES.parents[1] / "docs" / "studies.md").read_text()
    section = page[page.index("\n## A grid\n") : page.index("\n## Runs side by side\n")]
    example = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    tree = yaml.safe_load(example)
    its = grid.parse_grid(tree, STUDIES / "documented.yaml")
    runs = grid.make_runs(its)
    assert (len(its.cells), len(runs)) == (9, 27) and "`log,state_size=512,learning_rate=0.003`" in section
    assert "log,state_size=512,learning_rate=0.003" in {cell.name for cell in its.cells}
    for key in [*grid.KEYS, *grid.MEASURES, "runs.cases", "runs.grid"]:
        assert key == "kind" or f"`{key}`" in section, key


def test_a_folder_of_something_else_is_refused(finished, copying, tmp_path):
    other = write(tmp_path, name="other")
    for out, holds in ((finished[1], "table.md"), (tmp_path, "base.yaml")):
        before = (out / holds).read_bytes()
        with pytest.raises(
            InputError, match="holds something else than the grid other; choose another folder with --out"
        ):
            study.run_study(other, out)
        assert (out / holds).read_bytes() == before
    with pytest.raises(InputError, match="base.yaml: cannot be read: Not a directory"):
        study.run_study(other, tmp_path / "base.yaml")


def test_a_generated_corpus_has_its_own_minimal_pairs(finished, copying, tmp_path):
    pairs = finished[1] / "runs" / "spectral_radius=0.5-seed0" / "minimal_pairs"
    with pytest.raises(InputError, match="generates its corpus and has minimal pairs of its own"):
        study.run_study(write(tmp_path), tmp_path / "out", blimp=pairs)


@pytest.fixture
def diverged(tmp_path):
    """A grid, and its cells of which one has runs that diverged."""
    (tmp_path / "out").mkdir()
    file = write(tmp_path)
    ok, blown = ("finished", {"val_nll": 5.0, "blimp": 57.0}), ("diverged", {"val_nll": 2.31e17, "blimp": 51.0})
    undefined = ("diverged", {"val_nll": math.inf, "blimp": None})
    cells = [
        grid_cell("spectral_radius=0.5", {"radius": 0.5}, [ok, ok]),
        grid_cell("spectral_radius=0.9", {"radius": 0.9}, [ok, blown, undefined]),
    ]
    return grid.parse_grid(study.read_study(file) | {"out": str(tmp_path / "out"), "seeds": [0, 1, 2]}, file), cells


def test_a_diverged_run_is_marked_and_left_out_of_nothing(diverged):
    its, cells = diverged
    assert cells[1]["means"]["val_nll"]["mean"] == math.inf and cells[1]["means"]["blimp"] == {
        "mean": 54.0,
        "se": pytest.approx(3.0),
        "n": 2,
    }
    page = grid_table.write_table(its, cells, "the command", None)
    line = next(line for line in page.splitlines() if line.startswith("| spectral_radius=0.9 |"))
    assert (
        line.startswith("| spectral_radius=0.9 | 3, 2 diverged |")
        and "| inf |" in line
        and "| 54.0 (3.0) of 2 |" in line
    )
    assert "| spectral_radius=0.5 | 2 of 3 |" in page
    assert "- spectral_radius=0.9-seed1: val NLL 2.31e+17, minimal pairs, % 51.000" in page
    assert "- spectral_radius=0.9-seed2: val NLL inf" in page
    found = json.loads((its.out / "table.json").read_text())["cells"][1]
    assert found["runs"][2]["val_nll"] == found["means"]["val_nll"]["mean"] == "inf"


def test_losses_on_other_text_or_tokens_are_told(diverged):
    its, cells = diverged
    runs = [run for cell in cells for run in cell["runs"]]

    def notes(part, *values):
        for run, value in zip(runs, values, strict=False):
            run["data_sha256"] = {"validation": "a", "tokenizer": "b"} | {part: value}
        return grid_table._notes(its, cells)

    others = notes("validation", "a", "c", "a", "c")  # each seed has a text of its own
    assert not any(note.startswith("The cells are") for note in others)
    assert any(
        note.startswith("The cells are validated on different text") for note in notes("validation", "a", "a", "d")
    )
    for run, validation in zip(runs, ("a", "a", "d"), strict=False):
        run["data_sha256"] = {"validation": validation, "tokenizer": validation}
    [line] = [note for note in grid_table._notes(its, cells) if note.startswith("The cells are")]
    assert "only bits per byte" in line, "other tokens of a text are not another text"


def test_a_study_is_written_to_this_machine(copying, tmp_path):
    with pytest.raises(InputError, match="radius.yaml: out is gs://bucket/x: a study is written to this machine only"):
        study.run_study(write(tmp_path, STUDY + "out: gs://bucket/x\n"))


def test_the_table_is_latex_and_csv_too(diverged):
    its, cells = diverged
    grid_table.write_table(its, cells, "the command", None)
    lines = (its.out / "table.tex").read_text().splitlines()
    assert lines[0] == "% radius (out). Mean over runs that differ in their seed (one standard error)."
    assert any(line.startswith("spectral\\_radius=0.9 & 3, 2 diverged & ") for line in lines)
    [first, second] = csv.DictReader((its.out / "table.csv").read_text().splitlines())
    assert (second["runs"], second["blimp"], second["blimp, n"]) == ("3", "54.0", "2")
    assert (first["cell"], first["radius"], first["runs"]) == ("spectral_radius=0.5", "0.5", "2")
    assert (first["val_nll"], first["val_nll, se"], second["blimp"]) == ("5.0", "0.0", "54.0")
    assert float(second["blimp, se"]) == pytest.approx(3)


def test_the_plot_has_what_is_finite(diverged, rendered):
    its, cells = diverged
    assert grid_plot.plot_grid(its, cells).startswith(b"\x89PNG")
    assert grid_plot.plot_grid(its, [grid_cell("a", {}, [("finished", {"val_nll": 5.0})])]) is None
    assert grid_plot.plot_grid(its, [grid_cell(name, {"radius": 0.5 + len(name)}, []) for name in ("a", "bb")]) is None


@pytest.mark.parametrize("kind", ["alignment", "coordinate_check", "exponents", "training_curves"])
def test_a_study_of_another_program_is_refused_with_its_command(kind, tmp_path):
    file = write(tmp_path, f"{{kind: {kind}, seeds: 3}}", "narrow")
    with pytest.raises(
        InputError, match=f"narrow.yaml: a study of kind {kind} is run by python -m experiments.bottleneck {file}$"
    ):
        study.run_study(file)


def test_runs_that_are_not_asked_for_any_more_are_told_of(tmp_path, capsys):
    """As where the command asks for fewer seeds than before: the means of the table are of fewer runs then."""
    file = write(tmp_path)
    its = dataclasses.replace(grid.parse_grid(study.read_study(file), file), out=tmp_path / "out")
    runs = grid.make_runs(its)
    for run in runs:
        run.directory.mkdir(parents=True)
        (run.directory / "summary.json").write_text("{}")
    study._tell_of_others(its, runs)
    assert capsys.readouterr().err == ""
    study._tell_of_others(its, runs[:-2])
    assert capsys.readouterr().err == (
        f"{its.out}: {runs[-2].directory.name} and 1 more run: of no cell and seed that is asked for now, so that the table leaves it out\n"
    )


def test_a_fresh_process_gives_its_status_and_passes_a_stop_on():
    assert study.run_in_process(int, "3") == 3
    before = signal.getsignal(signal.SIGTERM)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    began = time.monotonic()
    assert study.run_in_process(time.sleep, 300) == INTERRUPTED
    assert time.monotonic() - began < 200 and signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def pooling(copying, monkeypatch):
    """Jobs in this process, on a machine of four cores; [names of the runs that were asked for]."""

    def do(pool, job):
        return study.run_in_process(job.function, *job.arguments)

    monkeypatch.setattr(PoolHere, "do", do)
    monkeypatch.setattr(study, "Pool", PoolHere)
    monkeypatch.setattr(study, "find_devices", lambda: shares.Devices("cpu", 1))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    return copying


RUNS = [f"spectral_radius={radius}-seed{seed}" for radius in (0.5, 0.9) for seed in (0, 1)]


def test_jobs_make_the_same_table(finished, pooling, tmp_path, capsys):
    file = write(tmp_path)
    assert study.run_study(file, tmp_path / "out", command="the command", jobs=2) == 0
    assert sorted(pooling) == RUNS
    assert (tmp_path / "out" / "table.json").read_text() == (finished[1] / "table.json").read_text()
    printed, told = capsys.readouterr()
    assert printed == (tmp_path / "out" / "table.md").read_text()
    lines = told.splitlines()
    assert lines[0] == f"0 of 4 runs done, 2 under way: {RUNS[0]}, {RUNS[1]}"
    assert re.fullmatch(rf"1 of 4 runs done, 2 under way: {RUNS[1]}, {RUNS[2]}; about \d+:\d\d left", lines[1])
    assert study.run_study(file, tmp_path / "out", command="the command", jobs=2) == 0 and len(pooling) == 4


def test_a_run_that_fails_does_not_stop_the_others(pooling, monkeypatch, tmp_path, capsys):
    copy = study.run_in_process

    def fail_in_the_second(call, *arguments):
        is_second = call is study.train_and_score and Path(arguments[0].run).name == RUNS[1]
        return -9 if is_second else copy(call, *arguments)

    monkeypatch.setattr(study, "run_in_process", fail_in_the_second)
    file, out = write(tmp_path), tmp_path / "out"
    assert study.run_study(file, out, jobs="auto") == 1
    assert sorted(pooling) == [RUNS[0], *RUNS[2:]]
    printed, told = capsys.readouterr()
    reason = f"{RUNS[1]}: ended with status -9 ({out / 'logs' / RUNS[1]}.log)\n"
    assert printed == "" and told.endswith(f"1 of 4 runs failed; the same command tries them again:\n{reason}")
    assert told.count(reason) == 2 and "3 of 4 runs done, 1 failed, 0 under way" not in told
    monkeypatch.setattr(study, "run_in_process", copy)
    assert study.run_study(file, out, jobs="auto") == 0 and sorted(pooling) == RUNS


def test_a_pool_that_is_stopped_goes_on(pooling, monkeypatch, tmp_path, capsys):
    copy = study.run_in_process

    def stop_at_the_third(call, *arguments):
        if call is study.train_and_score and len(pooling) == 2:
            monkeypatch.setattr(PoolHere, "asked", True)
            return INTERRUPTED
        return copy(call, *arguments)

    monkeypatch.setattr(study, "run_in_process", stop_at_the_third)
    file, out = write(tmp_path), tmp_path / "out"
    assert study.run_study(file, out, jobs=2) == INTERRUPTED
    assert capsys.readouterr().err.endswith("\nstopped; the same command goes on\n")
    monkeypatch.setattr(PoolHere, "asked", False)
    monkeypatch.setattr(study, "run_in_process", copy)
    assert study.run_study(file, out, jobs=2) == 0 and sorted(pooling) == RUNS


def test_the_processes_of_an_array_share_the_runs(finished, copying, tmp_path):
    file, out = write(tmp_path), tmp_path / "out"
    assert study.run_study(file, out, command="the command", part=study.parse_part("1/3")) == 0
    assert copying == [RUNS[1]]
    assert "| spectral_radius=0.5 | 1 of 2 |" in (out / "table.md").read_text()
    for part in ("0/3", "2/3"):
        assert study.run_study(file, out, command="the command", part=study.parse_part(part)) == 0
    assert copying == [RUNS[1], RUNS[0], RUNS[3], RUNS[2]]
    assert (out / "table.json").read_text() == (finished[1] / "table.json").read_text()
    assert study.run_study(file, out, part=study.parse_part("4/5")) == 0, "more processes than runs"
    assert len(copying) == 4


def test_a_study_that_changes_between_the_processes_of_an_array_is_refused(finished, copying, tmp_path, capfd):
    """Each has runs of its own, and the mean over them would be of two settings."""
    file, out = write(tmp_path), tmp_path / "out"
    assert study.run_study(file, out, part=study.parse_part("0/2")) == 0
    before = (out / "table.json").read_text()
    base = file.parent / "base.yaml"
    base.write_text(base.read_text().replace("rank: 4", "rank: 8"))
    with pytest.raises(InputError, match="begun with another configuration"):
        study.run_study(file, out, part=study.parse_part("1/2"))
    assert (out / "table.json").read_text() == before


@pytest.mark.parametrize(
    "text, line",
    [
        ("8/8", r"--cell is 8/8: I is counted from 0 to 7 \(sbatch --array=0-7\)"),
        *(
            (text, f"--cell is {text}: give I/N, such as 0/8 for the first of 8 processes")
            for text in ("3", "0/0", "-1/8", "a/b", "1/2/3", "/", "²/3")
        ),
    ],
)
def test_no_part_of_an_array_is_refused(text, line):
    with pytest.raises(InputError, match=f"^{line}$"):
        study.parse_part(text)


@pytest.mark.slow
def test_processes_of_an_array_at_once_end_with_one_whole_table(finished, tmp_path):
    file, out = write(tmp_path), tmp_path / "out"
    command = [sys.executable, "-m", "esnlm", "study", str(file), "--out", str(out), "--cell"]
    processes = [
        subprocess.Popen([*command, f"{i}/2"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for i in range(2)
    ]
    for process in processes:
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0, told
    means = [
        [cell["means"]["val_nll"] for cell in json.loads((folder / "table.json").read_text())["cells"]]
        for folder in (out, finished[1])
    ]
    assert means[0] == means[1]


@pytest.mark.slow
def test_jobs_that_are_stopped_go_on_to_the_same_table(tmp_path):
    """The same shares, stopped or not, give the same bits."""
    file = write(tmp_path)
    tables = []
    for stopped in (True, False):
        out = tmp_path / f"out-{stopped}"
        command = [sys.executable, "-m", "esnlm", "study", str(file), "--out", str(out), "--jobs", "2"]
        if stopped:
            process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            while not list(out.glob("runs/*/config.yaml")):
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.002)
            process.send_signal(signal.SIGTERM)
            printed, told = process.communicate(timeout=300)
            assert (process.returncode, printed) == (75, "") and told.endswith("stopped; the same command goes on\n")
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        table = json.loads((out / "table.json").read_text())
        tables.append([cell["means"]["val_nll"] for cell in table["cells"]])
    assert tables[0] == tables[1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_stopped_goes_on_to_the_same_table(finished, tmp_path, number):
    file, out = write(tmp_path), tmp_path / "out"
    command = [sys.executable, "-m", "esnlm", "study", str(file), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not (out / "runs" / "spectral_radius=0.5-seed1" / "config.yaml").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    process.send_signal(number)
    printed, told = process.communicate(timeout=300)
    assert (process.returncode, printed) == (75, "") and told.endswith(
        "stopped in spectral_radius=0.5-seed1; the same command goes on\n"
    )
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "run 2 of 4" in done.stderr and "run 1 of 4" not in done.stderr
    assert done.stdout == (out / "table.md").read_text()
    tables = [json.loads((folder / "table.json").read_text()) for folder in (out, finished[1])]
    found, expected = ([cell["means"]["val_nll"] for cell in table["cells"]] for table in tables)
    assert found == expected


GRIDS = [file for file in sorted(STUDIES.rglob("*.yaml")) if yaml.safe_load(file.read_text())["kind"] == "grid"]


@pytest.mark.parametrize("file", GRIDS, ids=lambda file: str(file.relative_to(STUDIES)))
def test_every_grid_of_the_repository_can_be_run(file):
    its = grid.parse_grid(study.read_study(file), file)
    assert grid.make_runs(its)
    assert its.published.keys() - {cell.name for cell in its.cells} <= {"GPT-2, as released"}


@pytest.mark.parametrize(
    "name, table, cell",
    [
        ("scale_table3", "scale_table3", lambda row: f"state_size={row['state_size']}"),
        (
            "connectivity_table4",
            "scale_table4_connectivity",
            lambda row: f"connectivity={2.0 ** int(row['log2_connectivity'])}",
        ),
        ("leak_table5", "scale_table5_leak", lambda row: f"leak_min={row['leak_min']}"),
        ("dense_frozen_table1", "frozen_table1", lambda row: f"{row['model']},state_size={row['state_size']}"),
        ("radius_frozen_table2", "frozen_table2_radius", lambda row: f"spectral_radius={row['spectral_radius']}"),
        (
            "online_ppl_s3",
            "online_ppl",
            lambda row: f"D_emb_{row['embedding_dim']},spectral_radius={float(row['spectral_radius'])}",
        ),
    ],
)
def test_published_values_are_the_papers(papers_table, name, table, cell):
    """What stands in the study files stands so in the CSV files beside the data, and no row is missing."""
    other = {"GPT2 Scratch": "GPT-2", "LSTM": "LSTM", "GPT2 OpenAI": "GPT-2, as released"}
    expected = {
        other.get(row.get("model"), cell(row)): {
            measure: (float(row[measure]), float(row[f"{measure}_se"]) if row.get(f"{measure}_se") else None)
            for measure in ("train_nll", "val_nll", "blimp", "perplexity")
            if row.get(measure)
        }
        for row in papers_table(f"{table}.csv")
    }
    file = STUDIES / f"{name}.yaml"
    assert grid.parse_grid(study.read_study(file), file).published == expected


def test_a_grid_of_a_million_cells_is_refused_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "Cell", lambda *_: pytest.fail("made"))
    axes = {name: list(range(1, 101)) for name in ("training.epochs", "training.batch_size", "training.log_every")}
    tree = {"kind": "grid", "base": str(STUDIES.parent / "quickstart.yaml"), "runs": {"grid": axes}}
    with pytest.raises(InputError) as error:
        grid.parse_grid(tree, tmp_path / "study.yaml")
    assert (
        str(error.value) == f"{tmp_path}/study.yaml: 1,000,000 runs: a study has at most 1,000: divide it into several"
    )


def test_seeds_and_blocks_count_as_runs(tmp_path):
    block = {"cases": {f"a{i}": {"training.epochs": i} for i in range(1, 501)}}
    other = {"cases": {f"b{i}": {"training.batch_size": i} for i in range(1, 501)}}
    tree = {"kind": "grid", "base": str(STUDIES.parent / "quickstart.yaml"), "runs": [block, other]}
    assert len(grid.parse_grid(tree, tmp_path / "study.yaml").cells) == 1000
    with pytest.raises(InputError, match="study.yaml: 2,000 runs: a study has at most 1,000: divide it into several$"):
        grid.parse_grid(tree | {"seeds": [0, 1]}, tmp_path / "study.yaml")
