"""A small reservoir and text for it, of which NumPy can know everything."""

import numpy as np

from esnlm.reservoir.functions import ACTIVATIONS, UPDATE_RULES
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir

V = 23
EPSILON = float(np.finfo(np.float32).eps)


def reservoir(**settings):
    return initialize_reservoir(
        ReservoirConfig(**{"state_size": 90, "mean_degree": 6.0} | settings), V, seed=1
    ).reservoir


def text(steps, slots, seed=0):
    """Tokens, (steps, slots)."""
    return np.random.default_rng(seed).integers(0, V, (steps, slots)).astype(np.int32)


def prepare(reservoir, activation="tanh", decay=1.0, rule="leaky_output"):
    """The reservoir for this device, with the time step of these settings."""
    for layer in reservoir.layers:
        layer.activation, layer.f, layer.decay = activation, ACTIVATIONS[activation], decay
        layer.update_rule, layer.rule = rule, UPDATE_RULES[rule]
    return reservoir.for_device()
