"""Runs a cell token by token, as a test of its equations needs it."""

import jax.numpy as jnp
import numpy as np


def features(cell, sentence):
    """The features after each token of a sentence, (T, F), in the second of three slots, beside other sentences."""
    state, found = cell.initial_state(3), []
    for token in sentence:
        state = cell.step(state, jnp.array([0, token, 1], jnp.int32))
        found.append(np.asarray(cell.output(state))[:, 1])
    return np.array(found)


def in_two_steps(cell, sentence):
    """The same by `embed` and `advance`, as dropout and gradients need it."""
    state, found = cell.initial_state(1), []
    for token in sentence:
        state = cell.advance(state, cell.embed(jnp.array([token], jnp.int32)))
        found.append(np.asarray(cell.output(state))[:, 0])
    return np.array(found)
