"""Which sentences are trained on when."""

import numpy as np
import pytest

from esnlm.training import batches


def test_an_epoch_has_every_sentence_once_and_keeps_the_last_partial_batch():
    updates = batches.split_updates(batches.epoch_order(100, seed=0, epoch=0), 32)
    assert [len(update) for update in updates] == [32, 32, 32, 4]
    assert sorted(np.concatenate(updates)) == list(range(100))


def test_the_order_is_new_in_every_epoch_and_for_every_seed():
    orders = [batches.epoch_order(100, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    assert np.array_equal(orders[0], batches.epoch_order(100, 0, 0))
    assert not any(np.array_equal(orders[i], orders[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_windows_follow_each_other_and_keep_to_their_size():
    tokens = np.random.default_rng(0).integers(10, 400, 200)
    windows = batches.split_windows(tokens, 1000)
    assert [u for window in windows for u in window] == list(range(200))
    assert all(tokens[window].sum() <= 1000 for window in windows)
    assert all(tokens[one].sum() + tokens[two[0]] > 1000 for one, two in zip(windows, windows[1:]))


def test_an_update_larger_than_the_window_has_one_of_its_own():
    assert batches.split_windows(np.array([5, 50, 5]), 10) == [range(0, 1), range(1, 2), range(2, 3)]


@pytest.mark.parametrize("chunk_tokens", [1024, 40])
def test_a_pack_holds_every_prediction_and_weighs_it_equally(chunk_tokens):
    rows = [np.arange(10), np.arange(20, 65), np.arange(100, 133)]
    targets = [row * 2 for row in rows]
    packed = batches.pack(rows, targets, chunk_tokens)
    assert packed.rows.shape[1] <= chunk_tokens
    real = packed.weights > 0
    assert list(packed.rows[real]) == list(np.concatenate(rows))
    assert list(packed.targets[real]) == list(np.concatenate(targets))
    assert set(packed.weights[real]) == {np.float32(1 / 88)}


def test_packs_have_few_sizes_and_waste_little():
    sizes = {batches.pack_size(tokens) for tokens in range(512, 1024)}
    assert len(sizes) == 9
    assert all(tokens <= batches.pack_size(tokens) <= max(tokens * 1.125, tokens + 32) for tokens in range(1, 5000))
