"""One update is AdamW on the mean NLL, as PyTorch documents it, in float64 NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from esnlm.machine.mesh import Placement
from esnlm.readout import linear
from esnlm.readout.linear import ReadoutConfig, readout_rates
from esnlm.training import batches, precomputed
from esnlm.training.config import TrainingConfig
from esnlm.training.optimizer import learning_rates, make_optimizer
from esnlm.training.update import in_chunks, loss_and_gradient, make_step
from tests import oracle

N, V = 30, 50


def start(rank=6):
    readout = linear.initialize(ReadoutConfig(rank), N, V, seed=0)
    return {
        "readout": {name: jnp.array(getattr(readout, name)[...]) for name in ("a", "b", "bias")}
    }


def problem():
    """Ten updates of 20 to 60 predictions, from one buffer of features."""
    rng = np.random.default_rng(0)
    counts = rng.integers(20, 60, 10)
    updates = [(rng.permutation(200)[:count], rng.integers(0, V, count)) for count in counts]
    return rng.normal(size=(200, N)).astype(np.float32), updates


def run(chunk_tokens=1024, shared=False):
    """Runs the ten updates: (params, losses).

    Args:
        shared: each update is eight sentences, whose first prediction is made from one row.
    """
    buffer, updates = problem()
    shapes = batches.UpdateShapes(buckets=(64,), most_first_targets=10 * shared)
    optimizer, rates, params = (
        make_optimizer(TrainingConfig()),
        learning_rates(TrainingConfig(), 10),
        start(),
    )
    step, placement = make_step(optimizer, "continue"), Placement(None, V, V)

    @jax.jit
    def update(params, state, batch):
        (loss, _), gradient = loss_and_gradient(
            params,
            {},
            batch._replace(inputs=jnp.asarray(buffer)),
            forward=partial(precomputed.forward, trunk=None, placement=placement),
            placement=placement,
            precision="float32",
            dropout_rate=0.0,
            chunk_tokens=chunk_tokens,
        )
        return step(params, state, True, loss, gradient, rates)

    state, losses, cut = optimizer.init(params), [], 8 if shared else 1
    for rows, targets in updates:
        rows, targets = np.array_split(rows, cut), np.array_split(targets, cut)
        packed = batches.pack_update(batches.Sentences(rows, targets, rows), rows, shapes)
        params, state, _, outcome = update(params, state, packed)
        losses.append(float(outcome.loss))
    return params["readout"], losses


@pytest.mark.parametrize("shared", [False, True], ids=["rows apart", "a row shared"])
@pytest.mark.parametrize("chunk_tokens", [1024, 24], ids=["whole", "in chunks"])
def test_ten_updates_follow_the_oracle(chunk_tokens, shared):
    params, losses = run(chunk_tokens, shared)
    expected = {name: np.asarray(array, np.float64) for name, array in start()["readout"].items()}
    adamw = oracle.AdamW(expected)
    buffer, updates = problem()
    for (rows, targets), loss in zip(updates, losses, strict=True):
        if shared:  # the first sentence's first row for that of all
            rows = np.concatenate(
                [np.append(rows[0], part[1:]) for part in np.array_split(rows, 8)]
            )
        expected_loss, gradient = oracle.mean_nll_and_gradient(
            expected, buffer[rows].astype(np.float64), targets
        )
        assert loss == pytest.approx(expected_loss, rel=1e-5)
        expected = adamw.step(expected, gradient)
    # Ten steps of at most 1e-3 each; Adam's ratio m / sqrt(v) turns a relative error e of the
    # gradient into one of e.
    for name in expected:
        np.testing.assert_allclose(params[name], expected[name], atol=1e-2 * 1e-3, rtol=0)


@pytest.mark.parametrize(
    ("size", "most", "rows"),
    [
        (48, 1024, 48),
        (48, 48, 48),
        (1040, 1024, 528),
        (1248, 1024, 624),
        (2064, 1024, 688),
        (48, 20, 16),
        (48, 10, 10),
    ],
)
def test_chunks_are_equal_and_as_short_as_they_can_be(size, most, rows):
    """In sixteens, where so many are allowed. Every row is in one of them, and what is added is
    padding."""
    seen = []

    def weigh(batch):
        seen.append(len(batch.rows))
        rows = batch.rows.astype(jnp.float32)
        return (batch.weights.sum(), None), {"x": batch.weights @ rows}

    numbers = np.arange(size, dtype=np.int32)
    targets = batches.Batch(
        numbers, numbers, np.ones(size, np.float32), numbers, numbers[:0], np.zeros(0, np.float32)
    )
    (count, _), found = in_chunks(weigh, targets, most, {"x": jnp.float32(0)})
    assert set(seen) == {rows} and count == size and found["x"] == numbers.sum()


def test_a_step_of_adamw_is_shorter_than_in_float64_by_what_the_references_say():
    """0.999 in float32 is 0.999000013, which makes the mean of the squared gradients larger by a
    share of 1.3e-5."""
    assert (1 - float(np.float32(0.999))) / 0.001 - 1 == pytest.approx(-1.29e-5, rel=0.01)
    config, steps = TrainingConfig(weight_decay=0.0), []
    optimizer, rates = make_optimizer(config), learning_rates(config, updates=10)
    gradients = np.random.default_rng(0).normal(size=(10, 400)).astype(np.float32)
    params = {"x": jnp.zeros(400)}
    state, adamw = optimizer.init(params), oracle.AdamW({"x": np.zeros(400)}, weight_decay=0.0)
    for gradient in gradients:
        step, state = optimizer.update({"x": jnp.asarray(gradient)}, state, params, rates=rates)
        expected = adamw.step({"x": np.zeros(400)}, {"x": gradient.astype(np.float64)})
        steps.append(np.median(np.asarray(step["x"], np.float64) / expected["x"]) - 1)
    assert steps[0] == pytest.approx(-6.6e-6, abs=0.1e-6)
    # the float32 of 0.999^t adds its own rounding
    assert min(steps) > -1.1e-5 and max(steps) < -3e-6


def test_schedules_and_warmup():
    def rates(**settings):
        return np.asarray(learning_rates(TrainingConfig(learning_rate=1.0, **settings), updates=10))

    np.testing.assert_allclose(rates(), 1.0)
    np.testing.assert_allclose(rates(schedule="linear"), 1 - np.arange(10) / 10, rtol=1e-6)
    np.testing.assert_allclose(
        rates(schedule="cosine"), (1 + np.cos(np.pi * np.arange(10) / 10)) / 2, rtol=1e-6
    )
    np.testing.assert_allclose(rates(warmup_updates=4)[:5], [0.25, 0.5, 0.75, 1, 1], rtol=1e-6)
    falling = [1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    np.testing.assert_allclose(rates(warmup_updates=4, schedule="linear")[3:], falling, rtol=1e-6)


def test_clipping_bounds_the_gradient_before_adam_sees_it():
    optimizer = make_optimizer(TrainingConfig(clip_norm=0.5, beta1=0.0))
    gradient = {"w": jnp.full(4, 10.0)}
    _, state = optimizer.update(gradient, optimizer.init(gradient), gradient, rates=jnp.ones(1))
    first_moment = next(leaf for leaf in jax.tree.leaves(state) if leaf.shape == (4,))
    assert np.linalg.norm(first_moment) == pytest.approx(0.5, rel=1e-6)


def torch_updates(optimizer, eta, decay, rates, readout, updates):
    """The readout after torch's optimizer saw each (features, targets), in float64, with a
    parameter group an array."""
    import torch

    theirs = {
        name: torch.tensor(np.asarray(array, np.float64), requires_grad=True)
        for name, array in readout.items()
    }
    groups = [{"params": [array], "lr": eta * rates[name]} for name, array in theirs.items()]
    if optimizer == "adamw":  # its decay is lr weight_decay
        for group, name in zip(groups, theirs, strict=True):
            group["weight_decay"] = decay / rates[name]
        method = torch.optim.AdamW(groups)
    else:
        method = torch.optim.SGD(groups, momentum=0.8)
    for features, targets in updates:
        logits = (
            torch.tensor(features, dtype=torch.float64) @ theirs["b"].T @ theirs["a"].T
            + theirs["bias"]
        )
        method.zero_grad()
        torch.nn.functional.cross_entropy(logits, torch.tensor(targets)).backward()
        if optimizer == "sgd":  # torch's own decay would pass through the momentum
            with torch.no_grad():
                for array in theirs.values():
                    array *= 1 - eta * decay
        method.step()
    return {name: array.detach().numpy() for name, array in theirs.items()}


@pytest.mark.parametrize(
    "optimizer, scaling",
    [
        *(("adamw", scaling) for scaling in ("none", "spectral", "dynamic")),
        ("sgd", "dynamic"),
        pytest.param("adamw", "ntp", marks=pytest.mark.nightly),
        *(
            pytest.param("sgd", scaling, marks=pytest.mark.nightly)
            for scaling in ("none", "ntp", "spectral")
        ),
    ],
)
def test_ten_updates_follow_torch_with_a_parameter_group_an_array(peer, optimizer, scaling):
    rank, eta, decay = 6, 1e-3 if scaling == "spectral" else 0.1, 0.05
    readout = linear.initialize(ReadoutConfig(rank, scaling), N, V, seed=0)
    names = ("a", "b", "bias")
    before = {name: jnp.array(getattr(readout, name)[...]) for name in names}
    rates = (
        dict.fromkeys(names, 1.0)
        if scaling == "none"
        else readout_rates(scaling, optimizer, N, rank, V)
    )
    config = TrainingConfig(
        optimizer=optimizer,
        learning_rate=eta,
        weight_decay=decay,
        **({"momentum": 0.8} if optimizer == "sgd" else {}),
    )
    ours, of_updates = make_optimizer(config, scaling), learning_rates(config, updates=10)
    params = {"readout": before}
    state = ours.init(params)

    @jax.jit
    def update(params, state, features, targets, weights):
        gradient = jax.grad(linear.weighted_nll)(
            params["readout"], features, targets, weights, "float32"
        )
        changes, state = ours.update({"readout": gradient}, state, params, rates=of_updates)
        return optax.apply_updates(params, changes), state

    buffer, updates = problem()
    for rows, targets in updates:
        features, padding = buffer[rows], (0, 64 - len(rows))
        weights = np.full(len(rows), 1 / len(rows), np.float32)
        params, state = update(
            params,
            state,
            np.pad(features, (padding, (0, 0))),
            np.pad(targets, padding),
            np.pad(weights, padding),
        )

    how = (
        optimizer,
        eta,
        decay,
        rates,
        before,
        [(buffer[rows], targets) for rows, targets in updates],
    )
    expected = peer(f"updates-{optimizer}-{scaling}", torch_updates, *how)
    for name in names:
        start, end = np.asarray(before[name], np.float64), expected[name]
        moved = np.abs(end - peer.sample(start)).max()
        # Ten float32 roundings of the array and of its steps, whose relative error is a gradient's,
        # some 1e-5.
        tolerance = 1e-4 * moved + 10 * np.finfo(np.float32).eps * np.abs(start).max()
        np.testing.assert_allclose(
            peer.sample(params["readout"][name]), end, atol=tolerance, rtol=0
        )


def test_the_state_of_adamw_is_as_it_always_was():
    """Checkpoints hold the parts of this state by their number: a chain of three, of which Adam's
    is the first."""
    params = start()
    found = make_optimizer(TrainingConfig()).init(params)
    expected = optax.adamw(optax.join_schedules([optax.constant_schedule(1.0)], [])).init(params)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
