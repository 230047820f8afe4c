"""Updates of a readout on precomputed features: in parts as in one piece, and where numbers stop
being finite."""

import dataclasses
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import esnlm
from esnlm.data.store import TokenStore
from esnlm.features import stream as streams
from esnlm.machine.compute import ComputeConfig
from esnlm.machine.mesh import Placement
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import batches, log
from esnlm.training.config import Experiment, TrainingConfig
from esnlm.training.inputs import PrecomputedInputs
from esnlm.training.optimizer import learning_rates, make_optimizer
from esnlm.training.update import Updates, make_step
from tests.training import small

V, N = 40, 32
POISON = V - 1  # a token whose features are not finite, in the one sentence that has it
RATE = TrainingConfig().learning_rate


def store(lengths, poisoned=None):
    """A store in memory: sentences of so many tokens, BOS and EOS among them; one of them may hold
    POISON."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(0).integers(1, POISON, offsets[-1])
    tokens[offsets[:-1]] = 0
    if poisoned is not None:
        tokens[offsets[poisoned] + 2] = POISON
    return TokenStore(
        Path(),
        {},
        tokens,
        offsets,
        np.array(lengths) - 2,
        np.array(lengths),
        np.zeros(len(lengths), int),
    )


def optimizer_of(experiment):
    return make_optimizer(experiment.training, experiment.model.linear_readout.scaling)


def start(experiment, params):
    """Returns trained arrays, which updates may overwrite, and the state of their optimizer."""
    params = jax.tree.map(jnp.array, params)
    return params, optimizer_of(experiment).init(params)


def open_updates(kind, model, experiment, text, epochs, **others):
    """Returns the updates of a model on one kind of inputs, as the training loop opens them."""
    training = experiment.training
    inputs = kind(
        model=model.for_device(experiment.compute),
        compute=experiment.compute,
        seed=experiment.seed,
        store=text,
        epochs=epochs,
        placement=Placement(None, V, V),
        **others,
    )
    rates = learning_rates(training, sum(len(epoch.updates) for epoch in epochs))
    return Updates(inputs, optimizer_of(experiment), rates, training.on_nonfinite)


def run_all(updates, params, state, epochs):
    """Runs every update of some epochs: (params, optimizer state, losses, applied)."""
    losses, applied = [], []
    for number, epoch in enumerate(epochs):
        for window in epoch.windows:
            updates.inputs.load_window(number, window)
            for u in range(len(window)):
                params, state, outcome = updates.run(params, state, u)
                losses.append(float(outcome.loss))
                applied.append(bool(outcome.applied))
    return params, state, losses, applied


def same_bits(one, two):
    """Says whether two trees have the same bits; a NaN is the same as a NaN."""
    return jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), one, two))


RESERVOIR = ReservoirConfig(state_size=N, mean_degree=5, activation="relu", input_connectivity=1.0)
MODEL = EchoStateConfig(reservoir=RESERVOIR, readout=ReadoutConfig(6))
LENGTHS = [
    11,
    9,
    13,
    10,
    12,
    9,
    13,
    12,
    10,
    11,
    13,
    12,
] * 2  # All updates have one size, which is compiled once.
UPDATES, BAD = 6, 2  # of four sentences each, and the one that is to fail
POISONED = batches.plan_epoch(np.array(LENGTHS), 0, 0, 4, 1).updates[BAD][1]


def poisoned_model():
    """A reservoir that POISON overflows."""
    arrays, _ = MODEL.initialize_frozen(V, 0)
    w_in = np.array(arrays["input"]["values"])
    w_in[:, POISON] = np.inf
    return MODEL.initialize(V, 0, arrays | {"input": {"values": w_in}})


def prepare(
    model, text, window_tokens=1000, chunk_tokens=1024, epochs=1, batch_slots=8, **training
):
    """Returns the updates of four sentences each, how they begin, and the epochs."""
    experiment = Experiment(
        model=MODEL,
        training=TrainingConfig(batch_size=4, **training),
        compute=ComputeConfig(
            kernel="csr",
            batch_slots=batch_slots,
            window_tokens=window_tokens,
            chunk_tokens=chunk_tokens,
        ),
    )
    plans = [
        batches.plan_epoch(text.lengths, 0, epoch, 4, window_tokens) for epoch in range(epochs)
    ]
    updates = open_updates(PrecomputedInputs, model, experiment, text, plans)
    return updates, start(experiment, model.params), plans


@pytest.mark.parametrize("sizes", [{"window_tokens": 20}, {"chunk_tokens": 16}], ids=str)
def test_an_update_in_parts_is_the_update_in_one_piece(sizes):
    """Larger than a window, down to a sentence a part, or than what has logits at once.

    In one piece, sentences share the row after their common first token; in parts of a window, each
    has it once more.
    """
    text = store(LENGTHS)
    model = MODEL.initialize(V, 0, MODEL.initialize_frozen(V, 0)[0])
    (whole, begin, epochs), (parts, again, small_epochs) = (
        prepare(model, text),
        prepare(model, text, **sizes),
    )
    assert (
        whole.inputs.shapes.most_first_targets == 3
        and epochs[0].predictions.min() > 20
        and len(epochs[0].windows) == 1
    )
    params, _, losses, _ = run_all(whole, *begin, epochs)
    other, _, other_losses, _ = run_all(parts, *again, small_epochs)
    # Sums in another order: a few roundings of each loss; Adam makes of a gradient's relative error
    # one of the step.
    np.testing.assert_allclose(other_losses, losses, rtol=1e-6)
    for name in params["readout"]:
        np.testing.assert_allclose(
            other["readout"][name], params["readout"][name], atol=len(losses) * RATE * 1e-3, rtol=0
        )


def test_the_first_update_waits_for_one_size_only(monkeypatch):
    monkeypatch.setitem(batches.COMPILATION, "cpu", 0)
    model = MODEL.initialize(V, 0, MODEL.initialize_frozen(V, 0)[0])
    updates, begin, epochs = prepare(model, store(LENGTHS + [30] * 8))
    assert len(updates.inputs.shapes.buckets) > 1
    updates.inputs.load_window(0, epochs[0].windows[0])
    updates.run(*begin, 0)
    assert updates._update._cache_size() == 1


def test_the_next_window_is_read_while_this_one_is_trained(monkeypatch):
    """In another thread, into the next epoch too, and nothing after the last window. The numbers
    are those of a run that waits."""
    text, model = store(LENGTHS), MODEL.initialize(V, 0, MODEL.initialize_frozen(V, 0)[0])
    found, read = [], batches.read_sentences

    def note(text, numbers):
        is_main = threading.current_thread() is threading.main_thread()
        found.append((numbers.tolist(), is_main))
        return read(text, numbers)

    monkeypatch.setattr(batches, "read_sentences", note)
    updates, begin, epochs = prepare(model, text, 60, epochs=2)
    params, state, losses, _ = run_all(updates, *begin, epochs)
    windows = [
        np.concatenate(epoch.updates[window.start : window.stop]).tolist()
        for epoch in epochs
        for window in epoch.windows
    ]
    assert len(windows) > 2
    assert found == [(windows[0], True), *((window, False) for window in windows[1:])]
    found.clear()
    waits, again, _ = prepare(model, text, 60, epochs=2)
    waits.inputs.following = {}
    *expected, expected_losses, _ = run_all(waits, *again, epochs)
    assert found == [(window, True) for window in windows]
    assert same_bits((params, state), tuple(expected)) and losses == expected_losses


@pytest.mark.parametrize("rate", [0.0, pytest.param(0.5, marks=pytest.mark.nightly)])
def test_a_window_in_parts_on_several_cores_has_the_same_bits(rate, monkeypatch):
    text, config = store(LENGTHS), dataclasses.replace(MODEL, dropout=rate)
    model = config.initialize(V, 0, config.initialize_frozen(V, 0)[0])
    monkeypatch.setattr(streams, "usable_cores", lambda: 3)
    whole, begin, epochs = prepare(model, text, 150, epochs=2, batch_slots=100)
    expected = run_all(whole, *begin, epochs)
    monkeypatch.setattr(streams, "MIN_PARALLEL_ROWS", 50)
    parts, again, _ = prepare(model, text, 150, epochs=2, batch_slots=100)
    found = run_all(parts, *again, epochs)
    assert same_bits(found, expected)
    assert whole.inputs.frozen_stream.parallel == 1 and len(parts.inputs.loaded.parts) == 3


def test_sentences_that_begin_differently_share_no_row():
    text = store(LENGTHS)
    text.tokens[text.offsets[3]] = 1
    updates, _, _ = prepare(MODEL.initialize(V, 0, MODEL.initialize_frozen(V, 0)[0]), text)
    assert updates.inputs.shapes.most_first_targets == 0


@pytest.mark.parametrize(
    "on_nonfinite, window_tokens",
    [("continue", 1000), pytest.param("skip", 1000, marks=pytest.mark.nightly), ("stop", 20)],
)
def test_an_update_that_is_not_finite(on_nonfinite, window_tokens):
    """It is applied, left out, or the last one that is looked at; the bits are those of a run
    without it."""
    text = store(LENGTHS, POISONED)
    updates, begin, epochs = prepare(
        poisoned_model(), text, window_tokens, on_nonfinite=on_nonfinite
    )
    assert len(epochs[0].windows) == (1 if window_tokens == 1000 else UPDATES)
    updates_again, again, _ = prepare(
        poisoned_model(), text, window_tokens, on_nonfinite=on_nonfinite
    )
    params, state, losses, applied = run_all(updates, *begin, epochs)
    assert not np.isfinite(losses[BAD]) and np.isfinite(losses[:BAD]).all()
    good = {
        "continue": range(UPDATES),
        "skip": [u for u in range(UPDATES) if u != BAD],
        "stop": range(BAD),
    }[on_nonfinite]
    assert applied == [u in good for u in range(UPDATES)]
    if on_nonfinite == "continue":
        assert all(np.isnan(array).all() for array in jax.tree.leaves(params))
        return
    for window in epochs[0].windows:
        updates_again.inputs.load_window(0, window)
        for u in [u for u in window if u in good]:
            *again, _ = updates_again.run(*again, u - window.start)
    assert same_bits((params, state), tuple(again))
    assert all(np.isfinite(array).all() for array in jax.tree.leaves(params))


@pytest.mark.parametrize(
    "on_nonfinite, moves", [("continue", True), ("skip", False), ("stop", False)]
)
@pytest.mark.parametrize("loss, slope", [(np.nan, 1.0), (2.0, -np.inf)])
def test_loss_and_gradient_must_both_be_finite(loss, slope, on_nonfinite, moves):
    params = {"w": jnp.arange(3.0), "bias": jnp.ones(2)}
    optimizer, rates = make_optimizer(TrainingConfig()), jnp.ones(1)
    state = optimizer.init(params)
    gradient = {"w": jnp.array([0.1, slope, 0.2]), "bias": jnp.ones(2)}
    step = make_step(optimizer, on_nonfinite)
    *after, active, outcome = step(
        params, state, jnp.bool(True), jnp.float32(loss), gradient, rates
    )
    assert outcome.applied == moves and active == (on_nonfinite != "stop")
    assert same_bits(tuple(after), (params, state)) != moves


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains, the gradient of update 17 (the fifth of the second epoch) not a number: (run
    directory, summary)."""
    load = PrecomputedInputs.load_window

    def load_and_spoil(self, number, window):
        load(self, number, window)
        if number == 1 and 4 in window:
            self.loaded.batches[4 - window.start][1].weights[:] = np.nan

    def train(on_nonfinite, ahead):
        monkeypatch.setattr(PrecomputedInputs, "load_window", load_and_spoil)
        monkeypatch.setattr(log, "FEWEST_AHEAD", ahead)
        monkeypatch.setattr(log, "MOST_AHEAD", ahead)
        every = ["--training.log_every", "2", "--training.checkpoint_every", "4"]
        run = small.train(tmp_path, "run", *every, "--training.on_nonfinite", on_nonfinite)
        return run, small.summary_of(run)

    return train


def test_a_run_that_skips_an_update_counts_it_and_goes_on(train, capsys):
    run, summary = train("skip", ahead=32)
    assert (summary["status"], summary["step"], summary["skipped_updates"]) == ("finished", 24, 1)
    losses = {line["step"]: line["train_nll"] for line in small.metrics(run) if "train_nll" in line}
    assert np.isfinite([*losses.values(), summary["val_nll"]]).all() and losses[24] < losses[2]
    # Each line is the mean of two updates, and that of 18 of one: the mean is over those that were
    # made.
    whole = sum(2 * losses[step] for step in (14, 16, 20, 22, 24)) + losses[18]
    assert summary["train_nll"] == pytest.approx(whole / 11, rel=1e-12)
    assert capsys.readouterr().err.count("warning: update 17: the loss is nan; ") == 1


def test_a_run_that_stops_ends_at_that_update_however_fast_it_was_and_resumes_there(train):
    """What it reports does not depend on how many updates happened to be under way, nor on being
    killed as it validates."""
    run, summary = train("stop", ahead=32)
    assert (summary["status"], summary["step"], summary["skipped_updates"]) == ("diverged", 17, 1)
    assert np.isfinite([summary["train_nll"], summary["val_nll"]]).all()
    stopped = esnlm.load(run)
    assert stopped.step == 17 and same_bits(
        stopped.model.params, esnlm.load(run, step=16).model.params
    )

    (run / "summary.json").unlink()
    _, again = train("stop", ahead=1)
    assert same_bits(esnlm.load(run).model.params, stopped.model.params)
    assert small.timeless(again) == small.timeless(summary)
