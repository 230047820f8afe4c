"""esnlm babylm: files where BabyLM's pipeline looks for them, for one checkpoint and for all at its
numbers of words."""

import json
import shutil

import numpy as np
import pytest

import esnlm
from esnlm.evaluation import minimal_pairs
from esnlm.runs import checkpoint
from tests.golden.small import esnlm as call
from tests.interchange.babylm_files import write_data
from tests.interchange.small_runs import small_run

FILES = [
    "blimp/blimp_filtered/predictions.json",
    "blimp/supplement_filtered/predictions.json",
    "ewok/ewok_filtered/predictions.json",
    "entity_tracking/entity_tracking/predictions.json",
    "wug_adj/wug_adj_nominalization/predictions.json",
    "wug_past/wug_past_tense/predictions.json",
    "comps/comps/predictions.json",
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small_run(), tmp_path / "run")
    write_data(tmp_path / "full_eval")
    return tmp_path


def score(*words):
    """Runs the command on the run and returns its exit status."""
    return call("babylm", "--run", "run", "--data", "full_eval", *words)


def save_at(run, step, words):
    """Saves the newest checkpoint once more, as if it had been saved at another step after so many
    words."""
    _, arrays, metadata = checkpoint.restore_latest(run / "checkpoints")
    checkpoint.save(
        run / "checkpoints" / str(step), arrays, metadata | {"words": words, "permanent": True}
    )


def test_all_sets_of_the_final_model(here):
    assert score("--out", "results", "--model-name", "esn") == 0
    causal = here / "results" / "esn" / "main" / "zero_shot" / "causal"
    written = sorted(
        file.relative_to(causal).as_posix() for file in causal.rglob("predictions.json")
    )
    assert written == sorted(FILES)
    blimp = json.loads((causal / FILES[0]).read_text())
    assert list(blimp) == ["passive_1", "wh_island"]
    entries = blimp["wh_island"]["predictions"]
    assert [entry["id"] for entry in entries] == ["wh_island_0", "wh_island_1", "wh_island_2"]
    assert entries[0]["pred"] in ("the cats sleep .", "the cats sleeps .")
    scores = json.loads((causal / "blimp" / "blimp_filtered" / "scores.json").read_text())
    right = sum(
        entry["pred"] == good
        for entry, good in zip(entries, ["the cats sleep .", "the dog sees it .", "a"], strict=True)
    )
    assert scores["subsets"]["wh_island"] == pytest.approx(100 * right / 3) and scores["ties"] == 1
    wug = json.loads((causal / "wug_past" / "wug_past_tense" / "predictions.json").read_text())
    assert 0 < wug["wug_past"]["predictions"][0]["prob"] < 1


def test_every_checkpoint_at_a_number_of_words(here):
    save_at(here / "run", 1000, 1_000_100)
    save_at(here / "run", 2000, 2_000_100)
    save_at(here / "run", 2500, 2_500_000)
    assert score("--sets", "blimp_filtered", "--checkpoints") == 0
    model = here / "run" / "evaluation" / "babylm" / "run"
    assert sorted(path.name for path in model.iterdir()) == ["chck_1M", "chck_2M"]
    scores = [json.loads(file.read_text()) for file in sorted(model.rglob("scores.json"))]
    assert [(each["revision"], each["step"]) for each in scores] == [
        ("chck_1M", 1000),
        ("chck_2M", 2000),
    ]


def test_with_bos_the_first_token_counts(here):
    words = ["--sets", "wug_adj_nominalization"]
    assert score(*words, "--out", "results-without", "--without-bos") == 0
    assert score(*words, "--out", "results") == 0
    without, with_bos = (
        next(here.glob(f"{out}/run/main/**/predictions.json")).read_text()
        for out in ("results-without", "results")
    )
    assert without != with_bos


def test_the_answers_are_those_of_the_scoring_convention(here):
    """As BabyLM's pipeline gives them with an exported run."""
    assert score("--sets", "blimp_filtered", "--out", "results") == 0
    (file,) = here.glob("results/run/main/**/scores.json")
    scores = json.loads(file.read_text())["scores"]
    pairs, run = minimal_pairs.load("full_eval/blimp_filtered"), esnlm.load("run")
    good, bad = (
        run.log_probs([getattr(pair, side) for pair in pairs], "babylm") for side in ("good", "bad")
    )
    by_subset = [
        np.mean((good >= bad)[rows]) for rows in minimal_pairs.indices_by_paradigm(pairs).values()
    ]
    assert scores["accuracy"] == pytest.approx(100 * np.mean(by_subset))


def test_nothing_is_written_if_a_file_is_damaged_or_predictions_are_there(here, capsys):
    words = ["--out", "results", "--sets", "blimp_filtered"]
    with open("full_eval/comps/comps_wugs.jsonl", "a") as file:
        file.write("{}\n")
    assert score(*words, "comps") == 2 and "comps_wugs.jsonl" in capsys.readouterr().err
    assert not (here / "results").exists()
    assert score(*words) == 0
    assert score(*words) == 2
    assert "blimp_filtered/predictions.json" in capsys.readouterr().err
    assert score(*words, "--overwrite") == 0
