"""The growth of untrained states, beside esnlm's own states in float32."""

import sys
from pathlib import Path

import numpy as np
import pytest

import esnlm

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import largest_states


def test_largest_states_are_those_of_the_reservoir(monkeypatch):
    monkeypatch.setattr(largest_states, "UNITS", 16)
    monkeypatch.setattr(largest_states, "TOKENS", 40)
    found = largest_states.measure_states(1.2, 3, [4, 9])
    reservoir = esnlm.Reservoir.draw(
        16,
        vocabulary=40,
        connectivity=0.5,
        input_connectivity=1.0,
        spectral_radius=1.2,
        leak=0.8,
        activation="relu",
        seed=3,
    )
    tokens = np.random.default_rng([3, 1]).integers(40, size=(9, 32))
    states = np.stack(reservoir.states(list(tokens.T)))  # (B, T, N)
    assert found == [pytest.approx(np.abs(states[:, :length]).max(), rel=1e-5) for length in (4, 9)]
