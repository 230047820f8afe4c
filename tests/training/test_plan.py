"""What a run needs is known before it is begun."""

import re

import pytest

from esnlm import config_io
from esnlm.config import TrainingConfig
from esnlm.training import plan
from esnlm.workflows.train import train_run


def test_the_plan_counts_what_the_run_then_has(tmp_path, capsys):
    path = tmp_path / "small.yaml"
    path.write_text(
        f"run: {tmp_path / 'run'}\ndata: {{kind: grammar, sentences: 100, validation_sentences: 20, pairs: 2}}\n"
        "model: {reservoir: {state_size: 32, mean_degree: 4}, readout: {rank: 4}}"
    )
    experiment = config_io.read(path)
    assert plan.show(experiment) == 0
    planned = capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    train_run(experiment)
    trained = re.search(r"([\d,]+) trained of", capsys.readouterr().out)[1]
    assert re.search(rf"trained parameters +{trained}\b", planned)
    assert re.search(r"updates +4 of 32 sentences, by AdamW\b", planned)


@pytest.mark.parametrize(
    "model, kept, line",
    [
        ("family: esn", None, "about 30 s of processor time before the first update; not kept for the next start"),
        (
            "family: esn",
            "/cache",
            "about 30 s of processor time before the first update; kept in /cache for the next start",
        ),
        ("train_input: true", None, "a few seconds for each new size of a batch; not kept for the next start"),
    ],
)
def test_the_plan_names_the_compilation(model, kept, line, tmp_path, monkeypatch):
    path = tmp_path / "small.yaml"
    path.write_text(f"run: {tmp_path / 'run'}\ndata: {{kind: grammar, sentences: 100}}\nmodel: {{{model}}}")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    if kept:
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", kept)
    assert plan._compilation(config_io.read(path)) == line


@pytest.mark.parametrize("optimizer, name, arrays", [("adamw", "AdamW", 2), ("sgd", "SGD", 1)])
def test_the_plan_names_the_optimizer_and_counts_its_state(optimizer, name, arrays):
    fit = plan._gradient_fit(TrainingConfig(optimizer=optimizer), trainable=1000)
    assert (fit.name, fit.memory, fit.checkpoint_size) == (name, 4000 * (2 + arrays), 4000 * (1 + arrays))
    averaged = plan._gradient_fit(TrainingConfig(optimizer=optimizer, ema=0.9), trainable=1000)
    assert (averaged.memory - fit.memory, averaged.checkpoint_size - fit.checkpoint_size) == (4000, 4000)


def test_small_things_are_planned_in_megabytes():
    assert [plan._bytes(size) for size in (3_400, 2.5e7, 9.9e7, 1e8, 4e10)] == [
        *("0.0 MB", "25.0 MB", "99.0 MB"),
        *("0.10 GB", "40.00 GB"),
    ]
