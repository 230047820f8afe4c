"""Guarantee 6: dropout depends on seed, epoch and position in the corpus, and on nothing else.

What a seed's masks are is recorded with the losses of ESN+i (test_updates.py).

A text of one sentence again and again, and steps too small to move a weight: only masks make losses
differ.
"""

import json

import numpy as np
import pytest

from tests.golden import small

SENTENCE, COUNT = "The cats sleep in the garden.", 24
MODEL = small.MODELS["esn"] | {"dropout": 0.3}


@pytest.fixture(scope="module")
def repeated(stores, tmp_path_factory):
    """A store of one sentence, 24 times."""
    folder = tmp_path_factory.mktemp("repeated")
    (folder / "text.txt").write_text(f"{SENTENCE}\n" * COUNT)
    for name in ("train", "dev"):
        how = ("--tokenizer", stores / "train" / "tokenizer", "--sentences", "line", "--quiet")
        assert (
            small.esnlm("prepare", "--input", folder / "text.txt", "--out", folder / name, *how)
            == 0
        )
    return folder


@pytest.fixture(scope="module")
def losses(repeated, tmp_path_factory):
    """A function from settings to the loss of each update, (epochs, updates)."""

    def of(*settings, **training):
        run = tmp_path_factory.mktemp("dropout") / "run"
        training = {
            "learning_rate": 1e-30,
            "order": "corpus",
            "batch_size": 1,
            "checkpoint_every": 1000,
        } | training
        assert small.train(run, repeated, MODEL, *settings, **training) == 0
        found = np.array(small.losses(run)).reshape(2, -1)
        val = json.loads((run / "summary.json").read_text())["val_nll"]
        assert np.abs(found - val).min() > 1e-5, "validation has no dropout"
        return found

    return of


def test_masks_are_those_of_seed_epoch_and_position(losses):
    first = losses()
    assert first.shape == (2, COUNT)
    assert len(np.unique(first.round(5))) == 2 * COUNT, (
        "each place in the corpus and each epoch has masks of its own"
    )
    # Read in another order, four in an update, in other windows and slots, by another kernel, each
    # sentence keeps its masks.
    other = {"--compute.window_tokens": 30, "--compute.batch_slots": 3, "--compute.kernel": "bcoo"}
    found = losses(
        *(word for setting in other.items() for word in setting), order="shuffled", batch_size=4
    )
    orders = [np.random.default_rng([3, 4, epoch]).permutation(COUNT) for epoch in range(2)]
    expected = [
        first[epoch][order].reshape(-1, 4).mean(axis=1) for epoch, order in enumerate(orders)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
