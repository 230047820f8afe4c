"""What a run needs is known before it is begun."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import esnlm
from esnlm import config_io
from esnlm.config import Experiment, TrainingConfig
from esnlm.errors import InputError
from esnlm.features.layout import pack_batch
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.gpt2 import GPT2Config
from esnlm.models.lstm import LstmConfig
from esnlm.readout import linear
from esnlm.regression.base import Fitter
from esnlm.regression.lms import LeastMeanSquares
from esnlm.regression.ridge import Ridge
from esnlm.regression.rls import RecursiveLeastSquares
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import batches, end_to_end, plan, readout_regression
from esnlm.trunk.gated_mlp import GatedMlpConfig
from esnlm.trunk.recent_tokens import RecentTokensConfig
from esnlm.trunk.trunk import TrunkConfig
from tests.training.small import read, summary_of, train


def test_the_plan_counts_what_the_run_then_has(tmp_path, capsys):
    assert plan.show(read(tmp_path, "run")) == 0
    planned = capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    trained = summary_of(train(tmp_path, "run"))["trainable_params"]
    assert re.search(rf"trained parameters +{trained:,}\b", planned)
    assert re.search(r"updates +24 of 8 sentences\b", planned)


def test_the_plan_refuses_stores_that_a_training_would_refuse(tmp_path):
    """Before a job has waited in a queue for it."""
    esnlm.prepare(["the cats sleep . " * 3] * 4, tmp_path / "train", tokenizer="words")
    esnlm.prepare(["a dog barks ."] * 4, tmp_path / "other", tokenizer="words")
    path = tmp_path / "small.yaml"
    for validation, model, line in (
        ("none", "family: esn", "none"),
        ("other", "family: esn", "tokenizer"),
        ("train", "family: gpt2, positions: 8, layers: 1, heads: 1, width: 8", "18 tokens"),
    ):
        data = f"kind: store, train: {tmp_path / 'train'}, validation: {tmp_path / validation}"
        path.write_text(f"run: {tmp_path / 'run'}\ndata: {{{data}}}\nmodel: {{{model}}}")
        with pytest.raises(InputError, match=line):
            plan.show(config_io.read(path))


@pytest.mark.parametrize("optimizer, arrays", [("adamw", 2), ("sgd", 1)])
def test_the_plan_counts_the_state_of_the_optimizer(optimizer, arrays):
    assert plan.optimizer_bytes(TrainingConfig(optimizer=optimizer), 1000) == (4000 * (2 + arrays), 4000 * (1 + arrays))
    averaged = plan.optimizer_bytes(TrainingConfig(optimizer=optimizer, ema=0.9), 1000)
    assert averaged == (4000 * (3 + arrays), 4000 * (2 + arrays))


@pytest.mark.parametrize("model", [EchoStateConfig(), LstmConfig()], ids=["esn", "lstm"])
def test_a_run_that_needs_a_byte_more_than_there_is_is_refused(model, monkeypatch):
    experiment = Experiment(model=model)
    needed = plan.memory(experiment, "cpu", vocab_size=5000)
    least = needed.trained + needed.frozen + (needed.features if model.ahead_size else 0)
    assert needed.trained == 16 * model.expected_counts(5000).trainable
    monkeypatch.setattr(plan, "device_memory", lambda: least)
    plan.require_memory(experiment, 5000)
    monkeypatch.setattr(plan, "device_memory", lambda: least - 1)
    with pytest.raises(InputError, match="memory"):
        plan.require_memory(experiment, 5000)
    monkeypatch.setenv("ESNLM_MEMORY_CHECK", "off")
    plan.require_memory(experiment, 5000)


def test_devices_of_a_mesh_share_what_is_trained_and_the_features():
    mesh = {"data": 2, "vocabulary": 4}
    each, alone = (plan.memory(Experiment(), "gpu", given, vocab_size=5000) for given in (mesh, plan.ONE_DEVICE))
    assert each.frozen == alone.frozen and each.logits == alone.logits / 4
    rows = 5120 // 4  # V is padded to a multiple of 128 x 4
    assert each.trained == 16 * (rows * 513 + 512 * 4096 // 8)


@pytest.mark.parametrize("kind", ["ridge", "rls", "lms"])
def test_the_disk_of_a_regression_has_room_for_its_sums_twice(kind, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(checkpoint, "require_free_space", lambda _, size: asked.append(size))
    experiment = config_io.from_dict(
        {
            "training": {"kind": kind},
            "model": {"reservoir": {"state_size": 40, "mean_degree": 4}, "readout": {"rank": None}},
        }
    )
    assert isinstance(experiment.training, Fitter)
    sums = experiment.training.start(40, 30)
    assert experiment.training.sums_size(40, 30) == sum(array.nbytes for array in sums.values())
    params = experiment.model.initialize(30, 0, experiment.model.initialize_frozen(30, 0)[0]).params
    readout_regression.open_state(experiment.training, params, 40, 30, RunDirectory(tmp_path))
    assert asked[0] == 2 * (experiment.training.sums_size(40, 30) + 4 * plan.trained_entries(experiment.model, 30))


def test_the_operations_of_a_regression():
    """A product of (a, b) with (b, c) has 2 a b c, and half of them where one triangle is enough."""
    f, v, n = 40, 30, 1000
    ridge, rls, lms = (Fitter_of() for Fitter_of in (Ridge, RecursiveLeastSquares, LeastMeanSquares))
    assert ridge.flops(f, v, n) == f * f * n + 9 * f**3 + 2 * (2 * v * f * f)
    assert rls.flops(f, v, n) == 2 * (2 * n * f * f) + 2 * v * f * f
    assert lms.flops(f, v, n) == 2 * (2 * n * f * v)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "readout",
    [
        TrunkConfig(rank=32, normalize=True, gated_mlp=GatedMlpConfig(blocks=1, width=192)),
        TrunkConfig(rank=32, recent_tokens=RecentTokensConfig(count=2, width=32, tied=True, decays=(0.6, 0.9))),
        TrunkConfig(rank=32, counted="bigram"),
    ],
    ids=["mlp", "tied", "counted"],
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
    planned = plan.trunk_size(config, vocab_size) + 2 * vocab_size  # that of the trunk, and of the logits
    assert planned / 2 < taken < 1.1 * planned


@pytest.mark.nightly
def test_the_memory_of_a_gpt2_counts_what_its_layers_keep_for_the_gradient():
    """Its activations, 24 numbers a unit and layer: a narrow one also has attention weights, which the plan leaves out."""
    vocab_size, sentences, length = 500, 32, 32
    config = GPT2Config(layers=4, heads=2, width=128, positions=64)
    model = config.initialize(vocab_size, 0, {})
    graphdef, *(_, frozen) = nnx.split(model, nnx.Param, ...)
    given = [np.zeros(length, np.int32)] * sentences
    whole = batches.Sentences(given, given, [np.arange(length, dtype=np.uint32)] * sentences)
    batch, rows = pack_batch(whole.inputs, whole.corpus_positions, sentences, 1)
    packed = batches.pack_targets(whole, rows, sentences * length, whole.predictions())
    gradient = jax.jit(partial(end_to_end.loss_and_gradient, graphdef))
    compiled = gradient.lower(frozen, model.params, batch, packed, jax.random.key(0)).compile()
    taken = compiled.memory_analysis().temp_size_in_bytes / 4 / (sentences * length)  # numbers of a token
    planned = plan.trunk_size(config, vocab_size) + 2 * vocab_size
    assert planned / 2 < taken < 2 * planned
