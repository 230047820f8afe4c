"""Runs a cell token by token, as a test of its equations needs it, and reads a model's layers."""

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.machine.compute import ComputeConfig


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


def layers_of(model, sentences):
    """All layers of a model after each token of each sentence: dicts of (T, size), read side by
    side in the reverse of their order."""
    compute = ComputeConfig(kernel="csr", batch_slots=16, window_tokens=64)
    sizes = dict(reversed(model.layer_sizes.items()))
    stream = model.for_device(compute).layer_stream(tuple(sizes), compute)
    buffer, rows = stream.read(sentences)
    assert buffer.shape[1] == sum(sizes.values())
    ends = np.cumsum(list(sizes.values()))[:-1]
    parts = [np.split(np.asarray(buffer)[row], ends, axis=1) for row in rows]
    return [dict(zip(sizes, part, strict=True)) for part in parts]
