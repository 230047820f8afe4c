"""What the sections of a run tell, and what they say where something is not there."""

import html
import re
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import esnlm
from esnlm.data.sources.given import GivenData
from esnlm.models.echo_state import EchoStateConfig
from esnlm.reporting.html.markup import Html, escape
from esnlm.reporting.html.material import Material
from esnlm.reporting.html.sections import (
    SECTIONS,
    commands,
    curves,
    diagnostics,
    minimal_pairs,
    samples,
    spectrum,
    wrong_pairs,
)
from esnlm.reservoir.functions import ACTIVATIONS
from esnlm.reservoir.topology.given import Given
from esnlm.reservoir.weights import ContinuousTime, ReservoirConfig, initialize_reservoir


@pytest.fixture(scope="module")
def full(full_run):
    return Material(full_run)


def text_of(shown):
    """Returns what a reader sees."""
    return html.unescape(re.sub("<[^>]*>", "", shown))


def test_sections_are_in_order_and_each_is_there(full):
    titles = [section.TITLE for section in SECTIONS if section.render(full) is not None]
    assert titles == [
        *("The model", "Losses", "Minimal pairs", "By paradigm", "Wrong by the largest margin"),
        *("State diagnostics", "Spectrum", "Samples", "How to make it again"),
    ]


def test_a_run_of_which_little_is_known(make_run):
    run = Material(make_run("a"))
    assert curves.render(run) is None, "there is no metrics.jsonl"
    assert text_of(diagnostics.render(run)).endswith(f" esnlm diagnose --run {run.path}")
    assert "more than 1,024 units are not computed" in spectrum.render(run)
    assert "is not loaded for a page" in samples.render(run)
    for file in run.directory.evaluation.iterdir():
        file.unlink()
    shown = minimal_pairs.render(Material(run.directory.path))
    assert text_of(shown) == f"Not scored yet. esnlm blimp --run {run.path} --data blimp"


def test_a_model_that_cannot_be_loaded_leaves_a_line(full_run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(full_run, copy)
    shutil.rmtree(copy / "checkpoints")
    run = Material(copy)
    assert isinstance(run.loaded, Html) and "no checkpoint yet" in samples.render(run)
    assert "esnlm generate" in commands.render(Material(full_run)) and "esnlm generate" not in commands.render(run)


def test_a_run_of_what_was_given_in_python(make_run):
    """Its sentences are in its own token stores; a W_rec that was given is drawn by no seed."""
    run = Material(make_run("a", data=GivenData()))
    shown = text_of(commands.render(run))
    assert "its sentences were given in Python, and its stores are gone" in shown and "esnlm train" not in shown
    (run.directory.stores / "train").mkdir(parents=True)
    shown, stores = text_of(commands.render(run)), run.directory.stores
    assert f"--data.kind store --data.train {stores}/train --run again" in shown
    (run.directory.stores / "validation").mkdir()
    assert f" --data.validation {stores}/validation --run again" in text_of(commands.render(run))
    given = EchoStateConfig(reservoir=ReservoirConfig(topology=Given(nonzeros=4)))
    shown = text_of(commands.render(Material(make_run("b", model=given))))
    assert "its W_rec was given in Python" in shown and "esnlm train" not in shown


def test_a_page_of_many_runs_loads_none(full_run):
    run = Material(full_run)
    run.may_load = False
    assert "A page of this run alone has it" in samples.render(run)


def test_a_large_reservoir_shows_the_radii_that_are_known(full, monkeypatch):
    monkeypatch.setattr(spectrum, "MOST_UNITS", 23)
    known = full.diagnostics["reservoirs"][0]["theory"]
    shown = spectrum.render(full)
    for name in ("radius", "sigma_max", "linear_radius"):
        assert f'r="{known[name]:.4g}"' in shown
    assert "The eigenvalues of more than 23 units are not computed" in shown


def test_pairs_that_are_not_kept_leave_the_command_that_makes_them(make_run):
    run = Material(make_run("a", right=3))
    assert "nats</b> one" in wrong_pairs.render(run)
    run.report_file.with_suffix(".pairs.jsonl").unlink()
    run.release()
    assert text_of(wrong_pairs.render(run)).endswith(f" esnlm blimp --run {run.path}")


def test_samples_are_those_of_the_seed(full):
    shown = samples.render(full)
    first = full.loaded.generate(count=samples.COUNT, length=samples.LENGTH, seed=samples.SEED)[0]
    assert escape(first.strip()) in shown and f"seed {samples.SEED}" in shown
    assert samples.command(full) in text_of(commands.render(full))


def test_eigenvalues_with_one_leak(full):
    [layer] = full.loaded.model.reservoir.layers

    class OneLeak:
        stored_w_rec, leak, update_rule = layer.stored_w_rec, np.full(24, 0.3), "leaky_output"

    w, linear = spectrum.eigenvalues(OneLeak, decay=0.5)
    assert np.abs(w).max() == pytest.approx(0.99, rel=1e-5)
    # I - alpha a + a W has the eigenvalues 1 - alpha a + a lambda, where all leaks are a.
    expected = 1 - 0.5 * 0.3 + 0.3 * w
    assert np.abs(linear[:, None] - expected).min(axis=0) == pytest.approx(0, abs=1e-6)


def test_the_linearisation_is_named_as_it_is_drawn(make_run, monkeypatch):
    def shown(name, activation="tanh", **settings):
        reservoir = ReservoirConfig(state_size=12, mean_degree=3, activation=activation, **settings)
        run = Material(make_run(name, model=EchoStateConfig(reservoir=reservoir)))
        run.loaded = SimpleNamespace(model=SimpleNamespace(reservoir=initialize_reservoir(reservoir, 5, 0).reservoir))
        return text_of(spectrum.render(run))

    assert "count: I − diag(a) + diag(a) W_rec." in shown("a")
    assert "count: I − γ diag(a) + diag(a) W_rec, γ = 0.5." in shown("b", update_rule="euler_state", diffusion=0.5)
    in_time = {"continuous": ContinuousTime(decay=0.5)}
    assert "count: I − α diag(a) + diag(a) W_rec, α = 0.5." in shown("c", **in_time)
    monkeypatch.setitem(ACTIVATIONS, "logistic", jax.nn.sigmoid)
    own = shown("d", activation="logistic")
    assert "near the state 0 is not known of logistic under leaky_output" in own and "Linearisation" not in own


def test_eigenvalues_of_a_reservoir_that_shifts():
    """Near 0 a unit keeps what its neighbour had, so that the eigenvalues are not those of one without the shift."""
    drawn = esnlm.Reservoir.draw(12, inputs=1, mean_degree=3, leak=0.4, update_rule="residual_shift", seed=1)
    w = np.zeros((12, 12)) + drawn.w_rec
    _, linear = spectrum.eigenvalues(drawn.cell, decay=1.0)
    expected = np.linalg.eigvals(0.6 * np.roll(np.eye(12), 1, axis=0) + 0.4 * w)
    assert np.abs(linear[:, None] - expected).min(axis=0) == pytest.approx(0, abs=1e-6)


def test_the_most_wrong_pairs():
    def line(uid, good, bad):
        return {"UID": uid, "log_prob_good": good, "log_prob_bad": bad, "right": bad < good, "tie": good == bad}

    lines = [line("one", -5.0, -5.0 + i) for i in range(-3, 5)] + [line("two", -9.0, -6.5), line("two", -9.0, -9.0)]
    assert [(each["UID"], each["log_prob_bad"] - each["log_prob_good"]) for each in wrong_pairs.worst(lines)] == [
        ("one", 4.0),
        ("one", 3.0),
        ("two", 2.5),
    ]
    many = [line(f"{i}", -2.0, -1.0) for i in range(100)]
    assert len(wrong_pairs.worst(many)) == wrong_pairs.MOST
