"""Which sentences are trained on when."""

import itertools

import numpy as np
import pytest

from esnlm.training import batches


def plan(sentences=100, seed=0, epoch=0, batch_size=32, window_tokens=1000, order="shuffled"):
    lengths = np.random.default_rng(9).integers(6, 40, sentences)
    return lengths, batches.plan_epoch(lengths, seed, epoch, batch_size, window_tokens, order)


def some_sentences(predictions):
    """Sentences of so many predictions together, and rows of their features."""
    rng = np.random.default_rng(predictions)
    bounds = np.append(np.arange(0, predictions, 11), predictions)
    columns = rng.integers(0, 90, (3, predictions))
    split = [
        [column[first:last] for first, last in zip(bounds[:-1], bounds[1:], strict=True)]
        for column in columns
    ]
    return batches.Sentences(*split), np.split(rng.permutation(500)[:predictions], bounds[1:-1])


def test_an_epoch_has_every_sentence_once_and_keeps_the_last_partial_batch():
    lengths, epoch = plan()
    assert [len(update) for update in epoch.updates] == [32, 32, 32, 4]
    assert sorted(np.concatenate(epoch.updates)) == list(range(100))
    assert list(epoch.predictions) == [(lengths[update] - 1).sum() for update in epoch.updates]


def test_the_order_is_new_in_every_epoch_and_for_every_seed():
    orders = [
        np.concatenate(plan(seed=seed, epoch=epoch)[1].updates)
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert np.array_equal(orders[0], np.concatenate(plan()[1].updates))
    assert not any(np.array_equal(orders[i], orders[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_the_order_of_the_corpus_is_kept_where_it_is_asked_for():
    lengths, epoch = plan(seed=3, epoch=1, order="corpus")
    assert list(np.concatenate(epoch.updates)) == list(range(100))
    assert list(epoch.predictions) == [(lengths[update] - 1).sum() for update in epoch.updates]


def test_the_shapes_fit_every_update_of_a_run():
    epochs = [plan(sentences=2000, epoch=epoch)[1] for epoch in range(3)]
    updates = [
        (int(predictions), len(update))
        for epoch in epochs
        for predictions, update in zip(epoch.predictions, epoch.updates, strict=True)
    ]
    apart, shared = (batches.update_shapes(epochs, 1000, shared, 3000) for shared in (False, True))
    assert apart.buckets[-1] == batches.bucket_size(max(tokens for tokens, _ in updates))
    assert shared.buckets[-1] == batches.bucket_size(
        max(tokens - count + 1 for tokens, count in updates)
    )
    assert (apart.most_first_targets, shared.most_first_targets) == (0, 31)


def cost(buckets, rows, compilation):
    """What `choose_buckets` makes small: padded rows, and the compilation of each bucket in
    rows."""
    sizes = [(batches.bucket_size(count), times) for count, times in rows]
    padded = sum(times * (min(b for b in buckets if b >= size) - size) for size, times in sizes)
    return padded + compilation * len(buckets)


@pytest.mark.parametrize("compilation", [300, 100_000])
@pytest.mark.parametrize("seed", range(5))
def test_the_buckets_cost_least_of_all_choices(seed, compilation):
    rng = np.random.default_rng(seed)
    rows = list(
        zip(rng.integers(1, 200, 9).tolist(), rng.integers(1, 2000, 9).tolist(), strict=True)
    )
    sizes = sorted({batches.bucket_size(count) for count, _ in rows})
    choices = [
        (*some, sizes[-1])
        for k in range(len(sizes))
        for some in itertools.combinations(sizes[:-1], k)
    ]
    chosen = batches.choose_buckets(rows, compilation)
    assert chosen in choices and cost(chosen, rows, compilation) == pytest.approx(
        min(cost(choice, rows, compilation) for choice in choices), rel=1e-12
    )


def test_small_models_compile_few_programs(monkeypatch):
    """Compiling costs them more updates."""
    monkeypatch.setitem(batches.COMPILATION, "cpu", 3e11)
    epochs = [plan(sentences=5000)[1]]

    def buckets(trainable):
        rows = batches.compilation_rows(trainable, "cpu")
        return len(batches.update_shapes(epochs, 1000, False, rows).buckets)

    assert 1 == buckets(10**5) < buckets(10**8) < buckets(10**9)


def test_packed_targets_hold_every_prediction_and_weigh_it_equally():
    shapes = batches.UpdateShapes(buckets=(32, 96, 208), most_first_targets=0)
    for count, size in ((88, 96), (30, 32), (200, 208)):
        some, rows = some_sentences(count)
        packed = batches.pack_update(some, rows, shapes)
        real = packed.weights > 0
        assert len(real) == size and real.sum() == some.predictions()
        for found, parts in (
            (packed.rows, rows),
            (packed.targets, some.targets),
            (packed.corpus_positions, some.corpus_positions),
        ):
            assert list(found[real]) == list(np.concatenate(parts))
        assert set(packed.weights[real]) == {np.float32(1 / some.predictions())}


def test_packed_targets_have_the_row_after_bos_once():
    shapes = batches.UpdateShapes(buckets=(32, 96, 192), most_first_targets=20)
    # 8, 3 and 19 sentences: 81, 28 and 182 rows
    for count, size in ((88, 96), (30, 32), (200, 192)):
        some, rows = some_sentences(count)
        packed = batches.pack_update(some, rows, shapes)
        real, more = packed.weights > 0, packed.first_weights > 0
        found = sorted(
            [
                *zip(packed.rows[real], packed.targets[real], strict=False),
                *((packed.rows[0], target) for target in packed.first_targets[more]),
            ]
        )
        first, first_of_all = {row[0] for row in rows}, rows[0][0]
        one_first = [first_of_all if row in first else row for row in np.concatenate(rows)]
        assert len(packed.rows) == size
        assert found == sorted(zip(one_first, np.concatenate(some.targets), strict=False))
        assert {*packed.weights[real], *packed.first_weights[more]} == {
            np.float32(1 / some.predictions())
        }


def test_parts_are_whole_sentences_and_keep_to_their_size():
    some, _ = some_sentences(200)
    parts = batches.split_update(some, 50)
    assert all(part.predictions() <= 50 or len(part.inputs) == 1 for part in parts)
    for name in batches.Sentences._fields:
        assert np.array_equal(
            np.concatenate([array for part in parts for array in getattr(part, name)]),
            np.concatenate(getattr(some, name)),
        )
