"""Random numbers by name: every part of a run has its own stream.

A stream is a NumPy generator, seeded with the run's seed and the number of the stream. So changing
one part of a model does not change the random numbers of the others. All trained arrays of a deep
readout are one part: adding an n-gram table or a gated network redraws the arrays after it. The
numbers below define what a seed means: a number in use must never change, and a new part takes a
new number.

Measurements on a run are not part of it and have their own seed. A diagnosis also uses a stream, so
that the inputs of a reservoir are independent of its weights. Bootstraps need no stream.
"""

from enum import IntEnum

import numpy as np

from esnlm.base.errors import InputError, whole_number

# A seed with two 32-bit words would look like a one-word seed with a stream's number.
LARGEST_SEED = 2**32 - 1


class Stream(IntEnum):
    """The streams of a run, each with the number that seeds it."""

    # NumPy pads a seed with zeros, so [seed, 0] is the stream of `seed` alone. No other stream may
    # begin with 0.
    RECURRENT = 0  # W_rec: positions and values
    INPUT = 1  # W_in
    LEAK = 2  # the leaks a
    READOUT = 3  # A, B and b_out
    SENTENCE_ORDER = 4  # the order of the sentences in an epoch
    SPECTRAL_START = 5  # the start vector of the spectral radius
    WEIGHTS = 6  # the weights of an LSTM or a GPT-2
    DROPOUT = 7  # dropout masks (a JAX key)
    EMBEDDING = 8  # the frozen random embedding
    UPPER_LAYER = 9  # prefix of every stream of a layer above the first
    HELD_OUT = 10  # the sentences that a regression holds out
    SIGNAL_INPUT = 20  # W_in of a network for signals
    SIGNAL_FEEDBACK = 21  # W_back of a network for signals
    SIGNAL_NOISE = 22  # noise in the states of a network for signals
    SIGNAL_FEEDBACK_NOISE = 23  # noise on the taught feedback of a network for signals
    FEEDBACK = 24  # W_back of a language model with output feedback
    FEEDBACK_TABLES = 25  # B_u and B_y of a language model with output feedback
    MEMBER = 26  # prefix of the seed of each further reservoir of an ensemble
    # 27 to 29 belong to experiments/frozen_cells
    MEASUREMENT = 30  # draws of a diagnosis, whose seed is not the run's


def seed_sequence(seed: int, stream: int, *more: int, layer: int = 0) -> list[int]:
    """Returns the integers that seed a stream, for `numpy.random.default_rng`.

    Args:
        seed: the run's seed.
        stream: its name. A part outside the package takes a number of its own, from 1,000 on.
        more: further integers, such as the number of the epoch.
        layer: the layer of a stacked reservoir; 0 is the first.
    """
    prefix = [seed, int(Stream.UPPER_LAYER), layer] if layer else [seed]
    return [*prefix, int(stream), *more]


def check_seed(seed: int) -> None:
    """Raises InputError for a seed that new runs may not use."""
    whole_number("seed", seed, f"give a whole number from 0 to {LARGEST_SEED}")
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"seed is {seed}: it must be from 0 to {LARGEST_SEED}")


def generator(seed: int, stream: int, *more: int, layer: int = 0) -> np.random.Generator:
    """Returns the NumPy generator of a stream. The arguments are those of `seed_sequence`."""
    return np.random.default_rng(seed_sequence(seed, stream, *more, layer=layer))
