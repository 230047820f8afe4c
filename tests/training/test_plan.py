"""What a run needs is known before it is begun."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import esnlm
from esnlm import config_io
from esnlm.config import TrainingConfig
from esnlm.errors import InputError
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.readout import linear
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import plan
from esnlm.trunk.gated_mlp import GatedMlpConfig
from esnlm.trunk.recent_tokens import RecentTokensConfig
from esnlm.trunk.trunk import TrunkConfig
from esnlm.workflows.train import train_run
from tests.parallel.test_many_devices import on_eight_devices


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


def test_the_plan_refuses_stores_that_a_training_would_refuse(tmp_path):
    """Before a job has waited in a queue for it."""
    esnlm.prepare(["the cats sleep . " * 3] * 4, tmp_path / "train", tokenizer="words")
    esnlm.prepare(["a dog barks ."] * 4, tmp_path / "other", tokenizer="words")
    path = tmp_path / "small.yaml"
    for validation, model, line in (
        ("none", "family: esn", "none"),
        ("other", "family: esn", "was made with tokenizer"),
        ("train", "family: gpt2, positions: 8, layers: 1, heads: 1, width: 8", "its longest sentence has 18 tokens"),
    ):
        data = f"kind: store, train: {tmp_path / 'train'}, validation: {tmp_path / validation}"
        path.write_text(f"run: {tmp_path / 'run'}\ndata: {{{data}}}\nmodel: {{{model}}}")
        with pytest.raises(InputError, match=line):
            plan.show(config_io.read(path))


@pytest.mark.parametrize(
    "model, kept, line",
    [
        (
            "family: esn",
            None,
            "up to about 32 s of processor time before the first update; not kept for the next start",
        ),
        (
            "family: esn",
            "/cache",
            "up to about 32 s of processor time before the first update; kept in /cache for the next start",
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


def test_the_memory_of_each_device_is_that_of_the_arrays_that_it_holds():
    told = on_eight_devices("tests.training.bytes_on_a_device")
    assert len(told) == 18
    assert {each["name"]: each["planned"] for each in told} == {each["name"]: each["found"] for each in told}


def test_small_things_are_planned_in_megabytes():
    assert [plan._bytes(size) for size in (3_400, 2.5e7, 9.9e7, 1e8, 4e10)] == [
        *("0.0 MB", "25.0 MB", "99.0 MB"),
        *("0.10 GB", "40.00 GB"),
    ]


@pytest.mark.parametrize(
    "readout",
    [
        TrunkConfig(rank=32),
        TrunkConfig(rank=32, normalize=True, gated_mlp=GatedMlpConfig(blocks=1, width=192)),
        TrunkConfig(rank=32, recent_tokens=RecentTokensConfig(count=2, width=64, decays=(0.6, 0.9))),
        TrunkConfig(rank=32, recent_tokens=RecentTokensConfig(count=2, width=32, tied=True, decays=(0.6, 0.9))),
        TrunkConfig(rank=32, counted="bigram"),
    ],
    ids=["linear", "mlp", "tokens", "tied", "counted"],
)
def test_the_memory_of_a_trunk_is_near_what_the_compiler_takes(readout):
    """The compiler uses memory twice where it can: it takes down to half. Small vectors, which the plan leaves out, are 3 %."""
    vocab_size, rows = 100, 4096
    config = DeepReadoutConfig(reservoir=ReservoirConfig(state_size=64), readout=readout)
    text = [np.random.default_rng(0).integers(0, vocab_size, 50)]
    model = config.initialize(vocab_size, 0, config.initialize_frozen(vocab_size, 0, text)[0])
    trunk, params, frozen = model.trunk, model.params, model.frozen_readout_arrays

    def loss(params, ahead, targets, weights):
        return linear.weighted_nll(params["readout"] | frozen, trunk(params, ahead), targets, weights, "float32")

    shapes = [((rows, config.ahead_size), jnp.float32), ((rows,), jnp.int32), ((rows,), jnp.float32)]
    arguments = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    compiled = jax.jit(jax.value_and_grad(loss)).lower(params, *arguments).compile()
    taken = compiled.memory_analysis().temp_size_in_bytes / 4 / rows  # numbers of a token
    planned = config.trunk_size(vocab_size) + 2 * vocab_size  # that of the trunk, and of the logits
    assert planned / 2 < taken < 1.1 * planned
