"""Streams of random numbers are named once, differ, and give what they gave when the papers' runs
were made."""

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.base.rng import Stream, check_seed, generator, seed_sequence


def test_no_two_streams_give_the_same_numbers():
    drawn = {tuple(generator(0, stream).integers(1 << 60, size=2)) for stream in Stream}
    drawn |= {tuple(generator(0, stream, layer=1).integers(1 << 60, size=2)) for stream in Stream}
    assert len(drawn) == 2 * len(Stream)


def test_the_numbers_in_use_never_change():
    """A seed in a paper must give the same model for ever."""
    fixed = (
        "RECURRENT INPUT LEAK READOUT SENTENCE_ORDER SPECTRAL_START WEIGHTS DROPOUT EMBEDDING"
        " UPPER_LAYER HELD_OUT"
    )
    assert [Stream[name] for name in fixed.split()] == list(range(11))
    signals = "SIGNAL_INPUT SIGNAL_FEEDBACK SIGNAL_NOISE FEEDBACK FEEDBACK_TABLES"
    assert [Stream[name] for name in signals.split()] == [20, 21, 22, 24, 25]
    assert seed_sequence(3, Stream.INPUT) == [3, 1]
    assert seed_sequence(3, Stream.RECURRENT, 5, layer=2) == [3, 9, 2, 0, 5]


def test_a_generator_is_seeded_with_its_sequence():
    expected = np.random.default_rng([3, 4, 7]).random(3)
    assert np.array_equal(generator(3, Stream.SENTENCE_ORDER, 7).random(3), expected)


@pytest.mark.parametrize("seed", [None, 1.5, -1])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InputError, match=f"seed is {seed}"):
        check_seed(seed)
    check_seed(np.int64(3))
