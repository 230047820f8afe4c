"""Runs that another machine finished: a table of the same study tells them, and they count as done here."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from esnlm.compute import ComputeConfig
from esnlm.config import Experiment, TrainingConfig
from esnlm.data import prepare
from esnlm.data.sources.store import StoreData
from esnlm.errors import InputError
from esnlm.models.registry import MODELS
from esnlm.reporting.html import page
from esnlm.studies import elsewhere, grid, study
from esnlm.studies.grid_table import collect_cells
from esnlm.studies.study import read_study
from esnlm.training.settings import hash_settings

ROOT = Path(__file__).parents[2]
SENTENCES = "The cat sees a dog .\nThe dogs see the cat .\nA dog sleeps in the garden .\nThe cats sleep here today .\n"
BASE = """
data: {kind: store, train: TRAIN, validation: TRAIN}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
"""
STUDY = """
kind: grid
base: base.yaml
runs: {grid: {model.reservoir.spectral_radius: [0.5, 0.9]}}
seeds: [0]
"""


def write_text(folder, text):
    (folder / "text").write_text(text * 40)
    prepare.prepare([folder / "text"], folder / "store", tokenizer="train:280")
    return folder / "store"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Returns the folder of a study that is done: its file, text and table."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "base.yaml").write_text(BASE.replace("TRAIN", str(write_text(folder, SENTENCES))))
    (folder / "radius.yaml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "run_in_process", lambda call, *arguments: call(*arguments) or 0)
        assert study.run_study(folder / "radius.yaml", folder / "out", command="the command") == 0
    return folder


@pytest.fixture
def asked(monkeypatch):
    """Returns the names of the runs that a study here trains, which are not trained in truth."""
    names = []

    def note(call, *arguments):
        if call is study.train_and_score:
            names.append(arguments[0].run.rpartition("/")[2])
        return 0

    monkeypatch.setattr(study, "run_in_process", note)
    return names


def table_of(machine, tmp_path, change=lambda tree: None):
    """Returns a copy of the machine's table, after a change to its tree."""
    tree = json.loads((machine / "out" / "table.json").read_text())
    change(tree)
    (tmp_path / "other.json").write_text(json.dumps(tree))
    return tmp_path / "other.json"


def test_the_runs_of_the_table_count_as_done_and_stand_in_the_table_here(machine, tmp_path, asked):
    other = table_of(machine, tmp_path, lambda tree: tree["cells"].pop())  # of the two cells the first is done there
    assert study.run_study(machine / "radius.yaml", tmp_path / "here", finished=[other]) == 0
    assert asked == ["spectral_radius=0.9-seed0"]
    first, second = json.loads((tmp_path / "here" / "table.json").read_text())["cells"]
    assert first["runs"] == json.loads(other.read_text())["cells"][0]["runs"] and second["runs"] == []
    assert first["means"]["val_nll"]["n"] == 1


def test_a_loss_that_is_not_finite_is_read_as_one(machine, tmp_path, asked):
    other = table_of(machine, tmp_path, lambda tree: tree["cells"][0]["runs"][0].update(val_nll="inf"))
    assert study.run_study(machine / "radius.yaml", tmp_path / "here", finished=[other]) == 0
    first, _ = json.loads((tmp_path / "here" / "table.json").read_text())["cells"]
    assert first["means"]["val_nll"]["mean"] == "inf"


def test_the_hash_stays_when_esnlm_gets_another_setting():
    @dataclass(frozen=True)
    class LaterConfig(TrainingConfig):
        another_setting: int = 3

    now, later = Experiment(), Experiment(training=LaterConfig())
    assert hash_settings(later) == hash_settings(now)
    assert hash_settings(Experiment(training=LaterConfig(another_setting=4))) != hash_settings(now)


def test_the_hash_tells_families_apart_and_not_devices_or_places():
    assert len({hash_settings(Experiment(model=family())) for family in MODELS.values()}) == len(MODELS)
    device, place = ComputeConfig(kernel="csr", mesh={"data": 2}), StoreData(train="a")
    assert hash_settings(Experiment(data=place, compute=device, seed=3)) == hash_settings(
        Experiment(data=StoreData(train="b"), run="elsewhere")
    )


def test_a_page_of_the_study_has_its_table_and_the_runs_that_lie_here(machine, tmp_path):
    shutil.copytree(machine / "out", tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "runs" / "spectral_radius=0.9-seed0")
    page.write_page([tmp_path / "out"], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "spectral_radius=0.9" in text and "spectral_radius=0.5-seed0" in text
    assert "spectral_radius=0.9-seed0" not in text


def test_what_is_finished_here_counts_first(machine, tmp_path):
    other = table_of(machine, tmp_path, lambda tree: tree["cells"][0]["runs"][0].update(val_nll=99.0))
    plan = grid.parse_grid(read_study(machine / "radius.yaml") | {"out": str(machine / "out")}, machine / "radius.yaml")
    runs = grid.make_runs(plan)
    known = elsewhere.read([other], plan, runs)
    assert known[runs[0].directory]["val_nll"] == 99
    assert collect_cells(plan, runs, known)[0]["means"]["val_nll"]["mean"] < 99


def test_the_text_may_lie_elsewhere_but_must_be_the_same(machine, tmp_path, asked):
    moved = tmp_path / "moved"
    shutil.copytree(machine / "store", moved)
    there = [f"--data.train={moved}", f"--data.validation={moved}"]
    other = table_of(machine, tmp_path)
    assert study.run_study(machine / "radius.yaml", tmp_path / "same", overrides=there, finished=[other]) == 0
    assert asked == []

    (tmp_path / "another").mkdir()
    changed = write_text(tmp_path / "another", SENTENCES.replace("garden", "house"))
    with pytest.raises(InputError, match="spectral_radius=0.5, seed 0 was trained with another train text than lies"):
        study.run_study(
            machine / "radius.yaml",
            tmp_path / "other",
            overrides=[f"--data.train={changed}", f"--data.validation={changed}"],
            finished=[other],
        )
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("setting", ["--training.learning_rate=0.5", "--compute.precision=bf16"])
def test_other_settings_are_refused(machine, tmp_path, setting):
    with pytest.raises(InputError, match="other.json: spectral_radius=0.5, seed 0 was trained with other settings"):
        study.run_study(
            machine / "radius.yaml", tmp_path / "here", overrides=[setting], finished=[table_of(machine, tmp_path)]
        )


def test_settings_that_a_device_chooses_may_differ(machine, tmp_path, asked):
    other = table_of(machine, tmp_path)
    overrides = ["--compute.kernel=csr", "--training.log_every=7"]
    assert study.run_study(machine / "radius.yaml", tmp_path / "here", overrides=overrides, finished=[other]) == 0
    assert asked == []


def test_a_run_that_was_scored_on_no_pairs_is_not_done_where_pairs_are_given(machine, tmp_path, asked):
    pair = {"sentence_good": "The cat sees .", "sentence_bad": "The cat see .", "UID": "agreement"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair | {"field": "syntax", "linguistics_term": "agreement"}))
    other = table_of(machine, tmp_path)
    study.run_study(machine / "radius.yaml", tmp_path / "here", blimp=tmp_path / "pairs.jsonl", finished=[other])
    cells = json.loads((tmp_path / "here" / "table.json").read_text())["cells"]
    assert [cell["runs"] for cell in cells] == [[], []], "nor are its figures in the table"
    assert asked == ["spectral_radius=0.5-seed0", "spectral_radius=0.9-seed0"]


def test_accuracies_on_different_pairs_do_not_stand_side_by_side(machine, tmp_path, asked):
    def score(tree):
        for cell, digest in zip(tree["cells"], ("a", "b"), strict=True):
            cell["runs"][0].update(pairs_sha256=digest, blimp=60.0)

    other = table_of(machine, tmp_path, score)
    message = (
        "radius=0.9-seed0 was scored on other minimal pairs than spectral_radius=0.5-seed0: score both on the same"
    )
    with pytest.raises(InputError, match=message):
        study.run_study(machine / "radius.yaml", tmp_path / "here", finished=[other])
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *[(name, "float32") for name in ("bigrams", "rates", "sizes")],
        ("sizes_bf16", "bf16"),
        ("sizes_tf32", "tf32"),
        ("25M", "tf32"),
        ("falling", "bf16"),
        ("falling_float32", "float32"),
    ],
)
def test_the_tables_that_are_kept_are_of_the_studies_as_they_stand(name, precision):
    file = ROOT / "configs" / "studies" / "frontier" / f"{name.removesuffix(f'_{precision}')}.yaml"
    study_here = grid.parse_grid(read_study(file), file)
    compute = ComputeConfig(precision=precision)
    here = {run.cell: hash_settings(replace(run.experiment, compute=compute)) for run in grid.make_runs(study_here)}
    cells = json.loads((ROOT / "results" / "frontier" / f"{name}.json").read_text())["cells"]
    runs = [(cell["cell"], run["settings_sha256"]) for cell in cells for run in cell["runs"]]
    assert runs and all(here[cell] == settings for cell, settings in runs)


def test_runs_of_other_cells_are_left_out_in_so_many_words(machine, tmp_path, capsys, asked):
    more = table_of(machine, tmp_path, lambda tree: tree["cells"][0].update(cell="spectral_radius=0.7"))
    assert study.run_study(machine / "radius.yaml", tmp_path / "here", finished=[more]) == 0
    assert "left out, of no cell and seed of this study: 1 run" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree.update(study="leaks"), "a table of the study leaks, and this one is radius"),
        (lambda tree: tree.update(format="esnlm report"), "not the table of a grid"),
        (lambda tree: tree["cells"][0]["runs"][0].pop("seed"), "not the table of a grid"),
        (lambda tree: tree["cells"][0]["runs"][0].pop("settings_sha256"), "does not tell settings_sha256"),
    ],
)
def test_other_files_are_refused(machine, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        study.run_study(machine / "radius.yaml", tmp_path / "here", finished=[table_of(machine, tmp_path, change)])
    assert not (tmp_path / "here").exists()


def test_a_file_that_is_not_there_or_no_json_is_refused(machine, tmp_path):
    (tmp_path / "text.json").write_text("hello")
    for file, message in ((tmp_path / "nowhere.json", "cannot be read"), (tmp_path / "text.json", "no JSON")):
        with pytest.raises(InputError, match=message):
            study.run_study(machine / "radius.yaml", tmp_path / "here", finished=[file])
