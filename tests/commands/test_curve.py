"""`esnlm curve`, from the checkpoints to the figures, the page and the picture."""

import json
import math

import numpy as np
import pytest

import esnlm
from esnlm.base.files import write_json
from esnlm.data.store import open_store
from esnlm.evaluation import likelihood
from esnlm.models.ngrams import NgramModel
from esnlm.reports.learning_curve import first_ahead
from esnlm.training import batches, config_io
from esnlm.training.run import train_run
from tests.golden import small

SMALL = """
data: {kind: grammar, sentences: 300, validation_sentences: 60, pairs: 4}
model: {reservoir: {state_size: 32, mean_degree: 4}, readout: {rank: 4}}
training: {learning_rate: 0.02, epochs: 2, checkpoint_words: [800, 1600, 3200]}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "small.yaml").write_text(f"run: {folder / 'small'}\n{SMALL}")
    assert train_run(config_io.read(folder / "small.yaml")) == 0
    return folder / "small"


def draw(run, *words):
    """Runs the command on the run's validation text and returns its exit status."""
    return small.esnlm("curve", "--run", run, "--store", run / "stores" / "validation", *words)


@pytest.fixture(scope="module")
def curve(run):
    assert draw(run, "--data", run / "minimal_pairs", "--order", 3) == 0
    return json.loads((run / "evaluation" / "curve" / "curve.json").read_text())


def test_each_point_is_a_checkpoint_measured_as_by_the_other_commands(run, curve):
    validation = open_store(run / "stores" / "validation")
    # the first with 800, 1,600, 3,200 words, the last
    assert [point["step"] for point in curve["points"]] == [4, 7, 13, 20]
    first = curve["points"][0]
    loaded = esnlm.load(run, step=first["step"])
    expected = loaded.likelihood(validation)
    assert (first["nll"]["model"], first["nll_without_eos"]["model"]) == (
        expected.nll,
        expected.nll_without_eos,
    )
    pairs = [
        json.loads(line)
        for file in (run / "minimal_pairs").iterdir()
        for line in file.read_text().splitlines()
    ]
    good, bad = (
        loaded.log_probs([pair[side] for pair in pairs])
        for side in ("sentence_good", "sentence_bad")
    )
    accuracy = first["pairs"]["model"]["overall"]["accuracy"]
    assert accuracy == pytest.approx(100 * np.mean(good > bad))  # as many pairs in each paradigm


def test_n_gram_models_are_counted_on_what_the_run_has_read_by_then(run, curve):
    store, validation = (open_store(run / "stores" / name) for name in ("train", "validation"))
    config = esnlm.load(run).config
    plan = batches.plan_epoch(store.lengths, config.seed, 0, config.training.batch_size, 1)
    for point in curve["points"]:
        read = [store.sentence(i) for update in plan.updates[: point["step"]] for i in update]
        if len(read) < len(store):
            words = sum(
                int(store.words[i]) for update in plan.updates[: point["step"]] for i in update
            )
            assert point["words"] == words
        models = {"unigram": NgramModel.fit(read, store.tokenizer().vocab_size, 1)}
        for name, n in (("bigram", 2), ("3-gram", 3)):
            models[name] = NgramModel.fit(read, store.tokenizer().vocab_size, n)
        assert list(point["nll"]) == ["model", *models]
        for name, model in models.items():
            assert point["nll"][name] == pytest.approx(
                likelihood.of_ngrams(model, validation).nll, rel=1e-12
            )


def test_from_where_all_later_points_are_ahead():
    assert first_ahead([1, 2, 4], [True, True, True]) == 1
    assert first_ahead([1, 2, 4], [True, False, True]) == 4
    assert first_ahead([1, 2, 4], [True, True, False]) is None


def test_a_curve_goes_on_where_it_was_broken_off(run, curve, tmp_path, monkeypatch):
    out = tmp_path / "curve.json"
    words = ["--data", run / "minimal_pairs", "--order", 3, "--out", out]
    measured, measure = [], likelihood.of_ngrams

    def break_off(model, store):
        measured.append(model)
        if len(measured) == 8:  # the second n-gram model of the third checkpoint
            raise KeyboardInterrupt
        return measure(model, store)

    monkeypatch.setattr(likelihood, "of_ngrams", break_off)
    assert draw(run, *words) == 130
    broken_off = json.loads(out.read_text())
    assert broken_off["points"] == curve["points"][:2]
    broken_off["points"][0]["nll"]["model"] = 9.0  # is kept: no second measurement
    write_json(out, broken_off)
    assert draw(run, *words) == 0
    expected = [*broken_off["points"], *curve["points"][2:]]
    assert json.loads(out.read_text())["points"] == expected
    assert draw(run, *words, "--overwrite") == 0
    assert json.loads(out.read_text())["points"] == curve["points"]


def test_the_command_needs_no_minimal_pairs(run, tmp_path, capsys, rendered):
    out = tmp_path / "curve.json"
    words = ["--order", 2, "--out", out]
    assert draw(run, *words) == 0
    assert (
        "bigram" in capsys.readouterr().out
        and "minimal pairs" not in (tmp_path / "curve.md").read_text()
    )
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    # A diverged point is read back as a number.
    diverged = json.loads(out.read_text())
    diverged["points"][0]["nll"]["model"] = math.inf
    write_json(out, diverged)
    assert draw(run, *words) == 0 and "| inf |" in out.with_suffix(".md").read_text()
    # Figures of something else are not replaced unasked.
    out.write_text("{}")
    assert draw(run, *words) == 2 and str(out) in capsys.readouterr().err
    assert out.read_text() == "{}"
