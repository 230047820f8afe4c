"""Runs a cell token by token, as a test of its equations needs it."""

import jax
import jax.numpy as jnp
import numpy as np


def features(cell, sentence):
    """The features after each token of a sentence, (T, F), in the second of three slots, beside
    other sentences."""

    @jax.jit
    def read(state, tokens):
        state = cell.step(state, tokens)
        return state, cell.output(state)

    return _read(read, cell.initial_state(3), [[0, token, 1] for token in sentence])[:, :, 1]


def in_two_steps(cell, sentence):
    """The same by `embed` and `advance`, as dropout and gradients need it."""

    @jax.jit
    def read(state, tokens):
        state = cell.advance(state, cell.embed(tokens))
        return state, cell.output(state)

    return _read(read, cell.initial_state(1), [[token] for token in sentence])[:, :, 0]


def _read(read, state, steps):
    """The features of all slots after each step, (T, F, B)."""
    found = []
    for tokens in steps:
        state, output = read(state, jnp.array(tokens, jnp.int32))
        found.append(np.asarray(output))
    return np.array(found)
