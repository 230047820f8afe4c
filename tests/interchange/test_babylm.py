"""BabyLM's sets and what the pipeline computes, a second time: plain loops over the equations in
float64, one text at a time."""

import math

import numpy as np
import pytest

import esnlm
from esnlm.base.errors import InputError
from esnlm.interchange import babylm
from esnlm.interchange.babylm import Item
from tests.evaluation.small_run import TOLERANCE
from tests.evaluation.small_run import log_probs as log_probs_of
from tests.interchange.babylm_files import write_data
from tests.interchange.small_runs import small_run


@pytest.fixture(scope="module")
def run():
    return esnlm.load(small_run())


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "full_eval")


# ---- the data ----


def test_each_set_says_what_is_chosen_and_what_of_it_is_scored(data):
    items = {
        name: babylm.read(name, data / name) for name in babylm.FOLDERS if (data / name).is_dir()
    }
    assert [item.uid for item in items["blimp_filtered"]] == ["passive_1", *["wh_island"] * 3]
    assert items["supplement_filtered"][0].uid == "turn_taking", (
        "a file without fields of BLiMP names the subset"
    )
    first = items["ewok_filtered"][0]
    assert first.sentences == ["the dogs run . dogs run .", "the dogs run . cats run ."], (
        "both after the first context"
    )
    assert first.names == first.completions == [" dogs run .", " cats run ."]
    assert [item.uid for item in items["entity_tracking"][:3]] == [
        "ambiref_0_ops",
        "ambiref_0_ops",
        "ambiref_1_ops",
    ]
    assert items["entity_tracking"][0].sentences[0] == "the box has the cat ."
    assert (
        items["wug_past_tense"][1].sentences == ["a wugged .", "a wug ."]
        and items["wug_past_tense"][1].ratio == 0.9
    )
    assert items["wug_adj_nominalization"][0].uid == "wug_adj"
    assert {item.uid for item in items["comps"]} == {
        "base",
        "wugs",
        "wugs_dist_before",
        "wugs_dist_in_between",
    }
    assert items["comps"][0].names == ["a dog sees the cats .", "a box sees the cats ."]
    assert items["comps"][0].completions == ["sees the cats .", "sees the cats ."]


def test_sets_are_found_by_their_folders(data):
    assert len(babylm.find_sets(data)) == 7
    assert list(babylm.find_sets(data, ["comps", "blimp_filtered"])) == ["blimp_filtered", "comps"]
    with pytest.raises(InputError, match="comsp"):
        babylm.find_sets(data, ["comsp"])


# ---- what is computed ----


def completion(run, text, end, bos):
    """The sum over all tokens but the first that reach into the end of a text, by characters as the
    pipeline counts them."""
    ids = run.tokenizer.encode(text)
    sequence = [run.tokenizer.bos] * bos + ids
    log_probs, total = log_probs_of(run, sequence) if len(sequence) > 1 else [], 0.0
    for i in range(len(ids)):
        characters = len(run.tokenizer.decode_bytes(ids[: i + 1]).decode(errors="ignore"))
        cut = run.tokenizer.decode_bytes(ids[: i + 1]) != text[:characters].encode()
        # part of a character reaches to its end
        if characters + cut > len(text) - len(end) and i + bos > 0:
            total += log_probs[i + bos - 1]
    return total


@pytest.mark.parametrize("bos", [False, True])
def test_a_completion_is_scored_given_the_text_before_it(run, bos):
    texts = [
        ("the cats sleep .", "the cats sleep ."),
        ("the cats sleep .", " sleep ."),
        ("the cats sleep .", "sleep ."),  # the token of a word begins with the space before it
        ("un café fête x", "fête x"),
        ("un café", "é"),
        ("a", "a"),
        ("", ""),
    ]
    found = babylm.completion_log_probs(run, texts, bos)
    np.testing.assert_allclose(
        found, [completion(run, *text, bos) for text in texts], rtol=TOLERANCE
    )


def test_the_most_probable_sentence_is_chosen_and_the_first_of_equal_ones():
    items = [
        Item("wug", [f"{i}a", f"{i}b"], ["a", "b"], [f"A{i}", f"B{i}"], ratio)
        for i, ratio in enumerate((0.1, 0.5, 0.9))
    ]
    predictions, found = babylm.choose("wug_adj", items, np.array([-1.0, -2, -3, -2, -5, -5]))
    entries = predictions["wug"]["predictions"]
    assert [(entry["id"], entry["pred"]) for entry in entries] == [
        ("wug_0", "A0"),
        ("wug_1", "B1"),
        ("wug_2", "A2"),
    ]
    np.testing.assert_allclose(
        [entry["prob"] for entry in entries], [1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0.5]
    )
    assert found["ties"] == 1 and found["scores"]["spearman"] == pytest.approx(-0.5)
    assert babylm.choose("wug_adj", items[:1], np.array([-1.0, -2]))[1]["scores"] == {
        "spearman": None
    }
    predictions, found = babylm.choose("blimp", items, np.array([-1.0, -2, -3, -2, -5, -5]))
    assert (
        found["subsets"] == {"wug": pytest.approx(200 / 3)}
        and "prob" not in predictions["wug"]["predictions"][0]
    )


def test_the_mean_of_entity_tracking_is_that_of_its_splits():
    uids = ["regular_0_ops", "regular_0_ops", "regular_1_ops", "ambiref_0_ops"]
    items = [Item(uid, ["a", "b"], ["a", "b"], ["a", "b"]) for uid in uids]
    _, found = babylm.choose("entity_tracking", items, np.array([1.0, 0, 0, 1, 1, 0, 0, 1]))
    assert found["subsets"] == {"regular_0_ops": 50, "regular_1_ops": 100, "ambiref_0_ops": 0}
    assert found["scores"] == {"accuracy": (75 + 0) / 2}
