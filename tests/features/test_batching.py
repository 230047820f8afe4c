"""Packed steps hold every token once with little padding, and groups keep to their size."""

import numpy as np
import pytest

from esnlm.features.batching import (
    assign_to_slots,
    group_by_tokens,
    pack,
    pack_batch,
    pack_prefix_tree,
    padded_size,
    read_by_tokens,
    split_evenly,
)

V = 30


def sentences(count, longest=40, vocab_size=V):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, longest, count)
    return [rng.integers(0, vocab_size, length).astype(np.int32) for length in lengths]


def test_windows_follow_each_other_and_keep_to_their_size():
    tokens = np.random.default_rng(0).integers(10, 400, 200)
    windows = list(group_by_tokens(tokens, 1000))
    assert [u for window in windows for u in window] == list(range(200))
    assert all(tokens[window].sum() <= 1000 for window in windows)
    assert all(
        tokens[one].sum() + tokens[two[0]] > 1000
        for one, two in zip(windows, windows[1:], strict=False)
    )


def test_an_update_larger_than_the_window_has_one_of_its_own():
    assert list(group_by_tokens([5, 50, 5], 10)) == [
        range(0, 1),
        range(1, 2),
        range(2, 3),
    ]


@pytest.mark.parametrize(
    ("per_doubling", "multiple", "sizes"),
    [
        (1, 1, [1, 2, 4, 4, 8, 8, 8, 8, 16]),
        (2, 1, [1, 2, 3, 4, 6, 6, 8, 8, 12]),
        (4, 4, [4, 4, 4, 4, 8, 8, 8, 8, 12]),
    ],
)
def test_padded_sizes_are_few(per_doubling, multiple, sizes):
    assert [padded_size(n, per_doubling, multiple) for n in range(1, 10)] == sizes


def test_groups_have_at_most_so_many_sequences():
    assert list(group_by_tokens([3] * 5, 100, max_sequences=2)) == [
        range(0, 2),
        range(2, 4),
        range(4, 5),
    ]
    assert list(group_by_tokens([], 100)) == []


def test_sequences_that_can_be_read_once_are_grouped_as_they_come():
    texts = sentences(50)
    groups = list(read_by_tokens(iter(texts), 100))
    assert list(map(len, groups)) == list(map(len, group_by_tokens(map(len, texts), 100)))
    assert [text for group in groups for text in group] == texts


def test_slots_are_of_nearly_equal_length_and_the_longest_comes_first():
    lengths = [len(text) for text in sentences(40)]
    slot_of, first_steps = assign_to_slots(lengths, 5)
    ends = np.bincount(slot_of, lengths)
    assert list(ends) == sorted(ends, reverse=True) and ends[0] - ends[-1] < 40
    for slot, part in enumerate(split_evenly(lengths, 5)):
        assert set(slot_of[part]) == {slot}
        assert list(first_steps[part]) == [0, *np.cumsum(np.take(lengths, part))[:-1]]


def test_a_packed_batch_holds_every_token_once():
    texts = sentences(20)
    corpus_positions = [1000 * s + np.arange(len(text)) for s, text in enumerate(texts)]
    batch, rows = pack_batch(texts, corpus_positions)
    for text, place, row in zip(texts, corpus_positions, rows, strict=True):
        assert np.array_equal(batch.tokens.ravel()[row], text)
        assert np.array_equal(batch.positions.ravel()[row], np.arange(len(text)))
        assert np.array_equal(batch.corpus_positions.ravel()[row], place)
        assert len(set(row % batch.tokens.shape[1])) == 1  # one slot
    everything = np.concatenate(rows)
    assert len(set(everything)) == len(everything)


def test_slots_are_shared_so_that_little_is_padding():
    texts = sentences(64)
    assert pack_batch(texts, texts)[0].tokens.size <= 1.25 * sum(map(len, texts))


def test_slots_hold_every_token_once_and_waste_little():
    texts = sentences(300)
    packed, rows = pack(texts, 8)
    tokens = sum(map(len, texts))
    assert sorted(np.concatenate(rows)) == list(range(tokens))
    # no slot is longer than the mean by more than the longest sentence
    assert len(packed.tokens) <= tokens / 8 + 40


def test_trees_hold_every_prefix_once():
    texts = sentences(60, vocab_size=3)
    _, rows = pack_prefix_tree(texts, 64)
    prefixes = {text[: t + 1].tobytes() for text in texts for t in range(len(text))}
    assert sorted(set(np.concatenate(rows))) == list(range(len(prefixes)))
    row_of = {}
    for text, row in zip(texts, rows, strict=True):
        for t in range(len(text)):
            assert row_of.setdefault(text[: t + 1].tobytes(), row[t]) == row[t]
