"""The formats of BabyLM's evaluation data."""

import json

import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.interchange import babylm_data
from tests.interchange.babylm_files import write_data, write_lines


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "full_eval")


def test_each_set_says_what_is_chosen_and_what_of_it_is_scored(data):
    items = {name: babylm_data.read_items(data / name) for name in babylm_data.FOLDERS if (data / name).is_dir()}
    assert [item.uid for item in items["blimp_filtered"]] == ["passive_1", *["wh_island"] * 3]
    assert items["supplement_filtered"][0].uid == "turn_taking", "a file without fields of BLiMP names the subset"
    first = items["ewok_filtered"][0]
    assert first.sentences == ["the dogs run . dogs run .", "the dogs run . cats run ."], "both after the first context"
    assert first.shown == first.completions == [" dogs run .", " cats run ."]
    assert items["ewok_filtered"][1].sentences[0] == "the cats run . cats run ."
    assert [item.uid for item in items["entity_tracking"][:3]] == ["ambiref_0_ops", "ambiref_0_ops", "ambiref_1_ops"]
    assert items["entity_tracking"][0].sentences[0] == "the box has the cat ."
    assert items["wug_past_tense"][1].sentences == ["a wugged .", "a wug ."] and items["wug_past_tense"][1].ratio == 0.9
    assert items["wug_adj_nominalization"][0].uid == "wug_adj"
    assert {item.uid for item in items["comps"]} == {"base", "wugs", "wugs_dist_before", "wugs_dist_in_between"}
    assert items["comps"][0].shown == ["a dog sees the cats .", "a box sees the cats ."]
    assert items["comps"][0].completions == ["sees the cats .", "sees the cats ."]


def test_words_that_were_read(data):
    reading = babylm_data.read_reading(data / babylm_data.READING_FILE)
    assert len(reading.words) == len(reading.contexts) == 72
    assert reading.contexts[0] == "None" and reading.previous[0] is None
    assert reading.previous[1] is None, "the word before it has no context"
    assert reading.previous[2] == (reading.contexts[1], reading.words[1])
    assert reading.words[1].startswith(" "), "a space belongs to the word"
    assert np.isnan(reading.columns["RTfirstfix"]).sum() == 1 and np.isnan(reading.columns["prev_length"]).sum() == 12


def test_words_of_one_letter_have_no_age_of_acquisition(data):
    assert list(babylm_data.read_aoa(data / "aoa" / "cdi_childes.json")) == ["cats", "dog", "café"]


def test_sets_are_found_by_their_folders(data):
    assert len(babylm_data.find_sets(data)) == 9
    assert list(babylm_data.find_sets(data, ["aoa", "comps"])) == ["comps", "aoa"]
    (data / "aoa").rename(data / "cdi_childes")
    assert babylm_data.find_sets(data)["aoa"] == data / "cdi_childes" / "cdi_childes.json"


GOOD = {"sentence_good": "a", "sentence_bad": "b"}
WRONG = [
    ("blimp_filtered", {"sentence_good": "a"}, ":1: field 'sentence_bad' is missing"),
    ("blimp_filtered", GOOD | {"field": "x"}, ":1: field 'UID' is missing"),
    ("ewok_filtered", [1], ":1: a JSON list, not an object with Domain, Context1, Target1, Target2"),
    ("wug_past_tense", {"sentences": "a b", "ratio": 1}, "'sentences' has 1 parts: it must be two, with a tab between"),
    ("wug_past_tense", {"sentences": "a\tb", "ratio": "x"}, "field 'ratio' is missing or no number"),
    ("entity_tracking", {"input_prefix": "a", "options": "b"}, "field 'options' is missing, or no list of two"),
    ("entity_tracking", {"input_prefix": "a", "options": ["b", "c"]}, "field 'numops' is missing or no whole number"),
    ("comps", {"property_phrase": "a", "prefix_acceptable": 3}, "field 'prefix_acceptable' is 3, not a string"),
]


@pytest.mark.parametrize("name, record, line", WRONG)
def test_a_wrong_line_is_refused_with_its_place(tmp_path, name, record, line):
    write_lines(tmp_path / name / "some.jsonl", [record])
    with pytest.raises(InputError) as error:
        babylm_data.read_items(tmp_path / name)
    assert line in str(error.value) and "some.jsonl:1" in str(error.value)


def test_other_wrong_files_are_refused(data):
    (data / "comps" / "empty").mkdir()
    with pytest.raises(InputError, match="no .jsonl file in this folder"):
        (data / "blimp_fast").mkdir()
        babylm_data.read_items(data / "blimp_fast")
    file = data / babylm_data.READING_FILE
    text = file.read_text()
    for wrong, line in (
        (text.replace("prev_word", "other", 1), "column 'prev_word' is missing"),
        (text.replace("NA", "much", 1), "row 4: column 'RTfirstfix' is 'much', no number"),
        (
            "\n".join([*text.splitlines()[:9], text.splitlines()[9].partition(",")[0]]),
            "row 9: it ends before column 'word': copy",
        ),
        ("", "column 'item' is missing"),
    ):
        file.write_text(wrong)
        with pytest.raises(InputError, match=line):
            babylm_data.read_reading(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        babylm_data.read_reading(file)
    for content in (
        "[",
        json.dumps(["word"]),
        json.dumps({"word": [{"text": ""}]}),
        json.dumps({"word": [{"context": 1}]}),
    ):
        (data / "aoa" / "cdi_childes.json").write_text(content)
        with pytest.raises(InputError, match="cdi_childes.json: not "):
            babylm_data.read_aoa(data / "aoa" / "cdi_childes.json")
