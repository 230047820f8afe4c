"""The average of the trained arrays, against a weighted mean in float64."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from esnlm.data.sources import CorpusSize
from esnlm.machine.mesh import Placement
from esnlm.models.echo_state import EchoStateConfig
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training.config import Experiment, TrainingConfig
from esnlm.training.gradient import GradientTrainer, saved_bytes
from esnlm.training.optimizer import learning_rates, make_optimizer
from esnlm.training.update import make_step


def train(config, updates):
    """Arrays after each update on random gradients, and the states of the optimizer."""
    rng = np.random.default_rng(0)
    params = {"readout": {"w": jnp.asarray(rng.normal(size=(5, 3)), jnp.float32)}}
    optimizer, rates = make_optimizer(config), learning_rates(config, updates)
    state, step = optimizer.init(params), jax.jit(make_step(optimizer, "continue"))
    trained, states = [], []
    for _ in range(updates):
        gradient = {"readout": {"w": jnp.asarray(rng.normal(size=(5, 3)), jnp.float32)}}
        params, state, _, _ = step(params, state, jnp.bool(True), jnp.float32(1), gradient, rates)
        trained.append(np.asarray(params["readout"]["w"]))
        states.append(state)
    return trained, states


@pytest.mark.parametrize("decay", [0.5, 0.9999])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_average_is_the_weighted_mean_of_the_arrays_so_far(decay, optimizer):
    trained, states = train(
        TrainingConfig(optimizer=optimizer, learning_rate=0.1, ema=decay), updates=10
    )
    for t, state in enumerate(states, start=1):
        weights = decay ** np.arange(t - 1, -1, -1.0)
        expected = np.average(np.float64(trained[:t]), axis=0, weights=weights)
        largest = np.abs(trained[:t]).max()
        # Each step rounds a few times, by half a unit of the largest array.
        np.testing.assert_allclose(
            state.average["readout"]["w"], expected, rtol=0, atol=2e-7 * t * largest
        )


@pytest.mark.parametrize(
    ("config", "arrays", "checkpoints"),
    [
        (TrainingConfig(ema=0.9), 4, 3),
        (TrainingConfig(checkpoint_words=(10, 20, 30), stop_after=2, keep_checkpoints=1), 3, 6),
    ],
)
def test_the_disk_must_have_room_for_all_that_is_saved(
    config, arrays, checkpoints, tmp_path, monkeypatch
):
    """What is trained, its moments and its average, in one checkpoint more than are kept; some
    counters beside them."""
    asked = []
    monkeypatch.setattr(checkpoint, "check_free_space", lambda _, size: asked.append(size))
    params = {"readout": {"w": jnp.zeros((500, 30))}}
    session = SimpleNamespace(
        settings=Experiment(training=config),
        directory=RunDirectory(tmp_path),
        placement=Placement(None, 500, 500),
        model=SimpleNamespace(params=params),
    )
    GradientTrainer(config, EchoStateConfig(), None, CorpusSize(10, 100, 500)).open(session)
    assert 0 <= asked[0] - checkpoints * arrays * 4 * 500 * 30 < 200
    planned = config.checkpoints_at_once * saved_bytes(config, 500 * 30)
    assert asked[0] == pytest.approx(planned, abs=200), "as the plan says"
