"""BabyLM's sets and what the pipeline computes, a second time: plain loops over the equations in float64, one text at a time."""

import json
import math

import numpy as np
import pytest

import esnlm
from esnlm.errors import InputError
from esnlm.interchange import babylm
from esnlm.interchange.babylm import Item
from tests import oracle
from tests.interchange.babylm_files import write_data
from tests.interchange.small_runs import small_run

TOLERANCE = 300 * float(np.finfo(np.float32).eps)  # as in tests/evaluation/test_scoring.py


@pytest.fixture(scope="module")
def run():
    return esnlm.load(small_run())


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "full_eval")


# ---- the data ----


def test_each_set_says_what_is_chosen_and_what_of_it_is_scored(data):
    items = {name: babylm.read(name, data / name) for name in babylm.FOLDERS if (data / name).is_dir()}
    assert [item.uid for item in items["blimp_filtered"]] == ["passive_1", *["wh_island"] * 3]
    assert items["supplement_filtered"][0].uid == "turn_taking", "a file without fields of BLiMP names the subset"
    first = items["ewok_filtered"][0]
    assert first.sentences == ["the dogs run . dogs run .", "the dogs run . cats run ."], "both after the first context"
    assert first.shown == first.completions == [" dogs run .", " cats run ."]
    assert [item.uid for item in items["entity_tracking"][:3]] == ["ambiref_0_ops", "ambiref_0_ops", "ambiref_1_ops"]
    assert items["entity_tracking"][0].sentences[0] == "the box has the cat ."
    assert items["wug_past_tense"][1].sentences == ["a wugged .", "a wug ."] and items["wug_past_tense"][1].ratio == 0.9
    assert items["wug_adj_nominalization"][0].uid == "wug_adj"
    assert {item.uid for item in items["comps"]} == {"base", "wugs", "wugs_dist_before", "wugs_dist_in_between"}
    assert items["comps"][0].shown == ["a dog sees the cats .", "a box sees the cats ."]
    assert items["comps"][0].completions == ["sees the cats .", "sees the cats ."]


def test_words_that_were_read_and_words_that_are_learnt(data):
    table = babylm.read("reading", data / "reading" / "reading_data.csv")
    assert len(table) == 72 and table["item"][0] == "None"
    assert table["prev_item"].isna().sum() == 24, "the first two words of each sentence have no context before"
    assert table["prev_word"][2] == table["word"][1] and table["word"][1].startswith(" "), "a space belongs to the word"
    assert table["RTfirstfix"].isna().sum() == 1 and table["prev_length"].isna().sum() == 12
    assert list(babylm.read("aoa", data / "aoa" / "cdi_childes.json")) == ["cats", "dog", "café"], "not the word I"


def test_sets_are_found_by_their_folders(data):
    assert len(babylm.find_sets(data)) == 9
    assert list(babylm.find_sets(data, ["aoa", "comps"])) == ["comps", "aoa"]
    (data / "aoa").rename(data / "cdi_childes")
    assert babylm.find_sets(data)["aoa"] == data / "cdi_childes" / "cdi_childes.json"
    with pytest.raises(InputError, match="comsp"):
        babylm.find_sets(data, ["comsp"])


# ---- what is computed ----


def token_log_probs(run, ids):
    reservoir = run.model.reservoir
    dense = reservoir.w_rec.todense(), reservoir.w_in.todense()
    readout = run.model.params["readout"]
    return oracle.token_log_probs(*dense, reservoir.leak, readout, ids) if len(ids) > 1 else np.empty(0)


def completion(run, text, end, bos):
    """The sum over all tokens but the first that reach into the end of a text, by characters as the pipeline counts them."""
    ids = run.tokenizer.encode(text)
    sequence = [run.tokenizer.bos] * bos + ids
    log_probs, total = token_log_probs(run, sequence), 0.0
    for i in range(len(ids)):
        characters = len(run.tokenizer.decode_bytes(ids[: i + 1]).decode(errors="ignore"))
        cut = run.tokenizer.decode_bytes(ids[: i + 1]) != text[:characters].encode()
        if characters + cut > len(text) - len(end) and i + bos > 0:  # part of a character reaches to its end
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
    np.testing.assert_allclose(found, [completion(run, *text, bos) for text in texts], rtol=TOLERANCE)


def test_the_most_probable_sentence_is_chosen_and_the_first_of_equal_ones():
    items = [
        Item("wug", [f"{i}a", f"{i}b"], ["a", "b"], [f"A{i}", f"B{i}"], ratio)
        for i, ratio in enumerate((0.1, 0.5, 0.9))
    ]
    predictions, found = babylm.choose("wug_adj", items, np.array([-1.0, -2, -3, -2, -5, -5]))
    entries = predictions["wug"]["predictions"]
    assert [(entry["id"], entry["pred"]) for entry in entries] == [("wug_0", "A0"), ("wug_1", "B1"), ("wug_2", "A2")]
    np.testing.assert_allclose([entry["prob"] for entry in entries], [1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0.5])
    assert found["ties"] == 1 and found["scores"]["spearman"] == pytest.approx(-0.5)
    assert babylm.choose("wug_adj", items[:1], np.array([-1.0, -2]))[1]["scores"] == {"spearman": None}
    predictions, found = babylm.choose("blimp", items, np.array([-1.0, -2, -3, -2, -5, -5]))
    assert found["subsets"] == {"wug": pytest.approx(200 / 3)} and "prob" not in predictions["wug"]["predictions"][0]


def test_the_mean_of_entity_tracking_is_that_of_its_splits():
    uids = ["regular_0_ops", "regular_0_ops", "regular_1_ops", "ambiref_0_ops"]
    items = [Item(uid, ["a", "b"], ["a", "b"], ["a", "b"]) for uid in uids]
    _, found = babylm.choose("entity_tracking", items, np.array([1.0, 0, 0, 1, 1, 0, 0, 1]))
    assert found["subsets"] == {"regular_0_ops": 50, "regular_1_ops": 100, "ambiref_0_ops": 0}
    assert found["scores"] == {"accuracy": (75 + 0) / 2}


@pytest.mark.parametrize("bos", [False, True])
def test_a_word_s_surprisal_is_the_sum_over_its_tokens(run, bos):
    words = [("the", " cats"), ("None", "the"), ("the cats", " qxz"), ("the", " café")]
    expected = []
    for context, word in words:
        total, text = 0.0, context
        for position, token in enumerate(run.tokenizer.encode(word)):
            piece = run.tokenizer.decode([token])
            target = token if position == 0 else run.tokenizer.encode(piece)[0]
            total -= token_log_probs(run, [run.tokenizer.bos] * bos + run.tokenizer.encode(text) + [target])[-1]
            text += piece
        expected.append(total)
    np.testing.assert_allclose(babylm.word_surprisals(run, words, bos), expected, rtol=TOLERANCE)


def test_reading_times_are_predicted_by_a_regression_with_and_without_surprisal(data):
    table = babylm.read("reading", data / "reading" / "reading_data.csv")
    rng = np.random.default_rng(1)
    surprisals, previous = rng.uniform(1, 9, len(table)), rng.uniform(1, 9, len(table))
    previous[table["prev_item"].isna()] = np.nan

    def gain(times, properties):
        """By the normal equations, of standardized columns."""
        use = np.isfinite(np.array([times, *properties])).all(axis=0)
        pairs = [a * b for i, a in enumerate(properties) for b in properties[i + 1 :]]
        r2 = []
        for columns in ([*properties, *pairs], [*properties, *pairs, surprisals]):
            x = np.array([np.asarray(column)[use] for column in columns]).T
            x = np.column_stack([(x - x.mean(0)) / x.std(0), np.ones(len(x))])
            fitted = x @ np.linalg.solve(x.T @ x, x.T @ np.asarray(times)[use])
            r2.append(np.var(fitted) / np.var(np.asarray(times)[use]))
        return 100 * (r2[1] - r2[0]) / (1 - r2[0])

    properties = [table["Subtlex_log10"], table["length"], table["context_length"]]
    found = babylm.reading_scores(table, surprisals, previous)
    eyes = [gain(table[name], properties) for name in babylm.EYE_TRACKING]
    np.testing.assert_allclose(found["eye_tracking"], np.mean(eyes), rtol=1e-9)
    paced = gain(table["self_paced_reading_time"], [*properties, table["prev_length"], previous])
    np.testing.assert_allclose(found["self_paced_reading"], paced, rtol=1e-9)


def test_surprisal_for_the_age_of_acquisition_is_that_of_the_word_after_one_space(run):
    entries = babylm.acquisition(run, "chck_2M", {"cats": ["I see the", "  all "], "café": [""]}, bos=False)
    texts = [("I see the cats", "cats"), ("all cats", "cats"), (" café", "café")]
    expected = [-completion(run, *text, False) for text in texts]
    np.testing.assert_allclose([entry["surprisal"] for entry in entries], expected, rtol=TOLERANCE)
    known = {"step": "chck_2M", "word_count": 2_000_000, "target_word": "cats", "context_id": 1, "context": "  all "}
    assert json.loads(json.dumps(entries[1])) == known | {"surprisal": entries[1]["surprisal"]}
