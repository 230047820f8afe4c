"""The published accuracies of BLiMP, as a whole and in part."""

from pathlib import Path

from esnlm.evaluation import anchors, minimal_pairs

ANCHORS_CSV = Path(anchors.__file__).with_name("anchors.csv")


def test_anchors_are_of_the_same_paradigms_and_phenomena(blimp_dir):
    phenomenon_of = {one.uid: one.phenomenon for one in minimal_pairs.load(blimp_dir)}
    found = anchors.anchors(phenomenon_of)
    published = {"five_gram": 61.2, "lstm": 69.8, "transformer_xl": 69.6, "gpt2": 83.0, "human": 88.6}
    assert {model: round(value, 1) for model, value in found["overall"].items()} == published
    rows = [line.split(",")[:2] for line in ANCHORS_CSV.read_text().splitlines()[2:]]
    assert dict(rows) == phenomenon_of


def test_a_part_of_blimp_is_set_beside_the_same_part_of_the_anchors():
    found = anchors.anchors({"ellipsis_n_bar_1": "ellipsis", "ellipsis_n_bar_2": "ellipsis"})
    assert found["overall"]["five_gram"] == found["phenomena"]["ellipsis"]["five_gram"] == (23.4 + 50.4) / 2
    assert found["paradigms"]["ellipsis_n_bar_1"]["human"] == 92
    assert anchors.anchors({"ellipsis_n_bar_1": "ellipsis", "my_own": "ellipsis"}) is None
