"""The last tokens travel as features."""

import jax.numpy as jnp
import numpy as np

from esnlm.features.recurrence import unroll
from esnlm.models.deep_readout import SideBySide
from esnlm.models.trunk import TokenHistory, ids_of
from tests import deep_oracle
from tests.models.running import features, in_two_steps

SENTENCE = [3, 0, 8191, 3, 2**24 - 2]  # up to the largest id whose successor is exact in float32


def test_the_last_tokens_are_features_and_ids_again():
    for run in (features, in_two_steps):
        found = run(TokenHistory(3), SENTENCE)
        np.testing.assert_array_equal(found, deep_oracle.history(SENTENCE, 3))
    expected = [[3, -1, -1], [0, 3, -1], [8191, 0, 3], [3, 8191, 0], [2**24 - 2, 3, 8191]]
    np.testing.assert_array_equal(ids_of(found), expected)


def test_sentences_that_follow_each_other_in_a_slot_do_not_see_each_other():
    tokens = jnp.array([*SENTENCE, *SENTENCE[::-1]])[:, None]
    positions = jnp.tile(jnp.arange(len(SENTENCE)), 2)[:, None]
    found = unroll(TokenHistory(3), tokens, positions)[1][:, 0]
    expected = [deep_oracle.history(sentence, 3) for sentence in (SENTENCE, SENTENCE[::-1])]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    end, first = unroll(TokenHistory(3), tokens[:4], positions[:4])
    # as pieces of a document are read
    _, rest = unroll(TokenHistory(3), tokens[4:], positions[4:], start=end)
    np.testing.assert_array_equal(np.concatenate([first, rest])[:, 0], found)


def test_cells_side_by_side_have_their_features_one_below_the_other():
    found = features(SideBySide([TokenHistory(1), TokenHistory(2)]), SENTENCE)
    np.testing.assert_array_equal(found, np.concatenate([found[:, 1:2], found[:, 1:]], axis=1))
    assert found.shape == (len(SENTENCE), 3)
