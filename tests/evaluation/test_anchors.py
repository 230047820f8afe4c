"""The published accuracies of BLiMP, as a whole and in part."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from esnlm.evaluation import evaluate, minimal_pairs

ROOT = Path(__file__).parents[2]
ANCHORS_CSV = Path(evaluate.__file__).with_name("anchors.csv")


@pytest.fixture(scope="module")
def blimp(blimp_dir):
    return minimal_pairs.load(blimp_dir)


def test_anchors_are_of_the_same_paradigms_and_phenomena(blimp):
    found = evaluate.anchors(blimp)
    published = {
        "five_gram": 61.2,
        "lstm": 69.8,
        "transformer_xl": 69.6,
        "gpt2": 83.0,
        "human": 88.6,
    }
    assert {model: round(value, 1) for model, value in found["overall"].items()} == published
    rows = [line.split(",")[:2] for line in ANCHORS_CSV.read_text().splitlines()[2:]]
    assert dict(rows) == {pair.uid: pair.phenomenon for pair in blimp}


def test_the_shipped_checksums_are_those_of_blimp(blimp_dir):
    checksums = runpy.run_path(str(ROOT / "docs" / "write_blimp_pairs.py"))["checksums"](blimp_dir)
    np.testing.assert_array_equal(evaluate.official_checksums(), checksums)


def test_a_sample_of_blimp_is_shown_with_the_anchors_of_its_paradigms(blimp):
    """The pairs decide, whatever they are called: figures of ellipsis_n_bar_1 and _2 from
    anchors.csv."""
    sample = [pair for pair in blimp if pair.uid.startswith("ellipsis_n_bar")][::100]
    renamed = [
        pair._replace(uid=pair.uid.replace("ellipsis_n_bar", "own"), phenomenon="ellipses")
        for pair in sample
    ]
    found = evaluate.anchors(renamed)
    assert (
        found["overall"]["five_gram"]
        == found["phenomena"]["ellipses"]["five_gram"]
        == (23.4 + 50.4) / 2
    )
    assert found["paradigms"]["own_1"]["human"] == 92


def test_other_pairs_have_no_anchors_whatever_they_are_called(blimp):
    turkish = minimal_pairs.Pair(
        "transitive", 0, "Terfi aldim.", "Terfi aldi.", "argument_structure", "syntax", "0"
    )
    official = [pair for pair in blimp if pair.uid == "transitive"][:9]
    assert evaluate.anchors(official) is not None
    for pairs in (
        [turkish],
        [*official, turkish],
        [official[0]._replace(good=official[0].bad, bad=official[0].good)],
    ):
        assert evaluate.anchors(pairs) is None
    # Pairs of several of BLiMP's paradigms in one paradigm, as a whole phenomenon is.
    assert evaluate.anchors([pair._replace(uid="all") for pair in blimp[::1000]]) is None
