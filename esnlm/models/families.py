"""The model families, one line each, and what the loop, the scorer and `load` do with any of them.

A family is a module with a configuration class and

    draw_frozen(config, vocab_size, seed)         what is drawn once and never trained: (arrays, record), {} where nothing is
    untrained(config, vocab_size, seed, frozen)   the model as initialised
    readout(params)                               the arrays of the readout, for readout/linear.py
    expected_counts, actual_counts                parameters

A recurrent one offers `cell(frozen, params, precision)`, see features/recurrence.py; another `features`, as below. Its
model has `params` (the trained arrays, nested dicts), `with_params`, `arrays`, and `prepare`, which makes what is frozen
ready for a backend.
"""

from types import ModuleType

import jax
import numpy as np

from esnlm.compute import ComputeConfig
from esnlm.config import ModelConfig
from esnlm.features import dropout, recurrence
from esnlm.features.layout import PackedBatch
from esnlm.features.stream import FeatureStream
from esnlm.models import echo_state, gpt2, jaeger, lstm

FAMILIES = {"esn": echo_state, "lstm": lstm, "gpt2": gpt2, "jaeger": jaeger}


def of(config: ModelConfig) -> ModuleType:
    """The module of a configuration's family."""
    return FAMILIES[config.family]


def stream(config: ModelConfig, frozen, params: dict, compute: ComputeConfig):
    """Features of sentences with these trained arrays, without a gradient: a FeatureStream or what has its `read`."""
    family = of(config)
    if hasattr(family, "stream"):
        return family.stream(config, params, compute)
    cell = family.cell(frozen, params, compute.precision)
    return FeatureStream(cell, compute.batch_slots, compute.window_tokens, config.dropout)


def step_by_step(config: ModelConfig, frozen, params: dict, compute: ComputeConfig, slots: int):
    """A function from the tokens that each slot reads next, (slots,), to the features after them, (slots, F)."""
    family = of(config)
    if hasattr(family, "stream"):
        source, read = family.stream(config, params, compute), np.zeros((slots, 0), np.int32)

        def reread(tokens):
            nonlocal read
            read = np.column_stack([read, tokens])
            buffer, rows = source.read(list(read))
            return buffer[np.array([row[-1] for row in rows])]

        return reread
    cell = family.cell(frozen, params, compute.precision)
    state, step = cell.zeros(slots), jax.jit(lambda cell, state, tokens: cell.read(state, tokens))

    def advance(tokens):
        nonlocal state
        state = step(cell, state, tokens)
        return cell.output(state).T

    return advance


def features(
    config: ModelConfig, frozen, params: dict, batch: PackedBatch, key: jax.Array | None, precision: str
) -> jax.Array:
    """Features of a batch's tokens, (T * L, F), differentiable in params.

    Args:
        key: the epoch's, of dropout; None: nothing is dropped.
    """
    family, dropped = of(config), key is not None and config.dropout > 0
    keys = dropout.token_keys(key, batch.corpus_positions) if dropped else None
    if hasattr(family, "features"):
        return family.features(config, params, batch, keys, precision)
    cell = family.cell(frozen, params, precision)
    keep = dropout.mask(keys, dropout.INPUT, cell.input_size, config.dropout) if dropped else None
    return recurrence.unroll(cell, batch.tokens, batch.positions, keep).reshape(-1, cell.output_size)
