"""Reading pairs and scoring them, with runs small enough to check by hand, and BLiMP's own traps."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.evaluation import conventions, minimal_pairs
from tests.evaluation.fake_run import fake_run

BOS, EOS = 1, 2
ANCHORS_CSV = Path(minimal_pairs.__file__).with_name("anchors.csv")


def says(table):
    """A model that gives a sentence the log-probability of the table, all of it at the last token."""

    def token_log_probs_of(sequences):
        sentences = ["".join(chr(i) for i in ids if i not in (BOS, EOS)).strip() for ids in sequences]
        return [np.append(np.zeros(len(ids) - 2), table[s]) for ids, s in zip(sequences, sentences)]

    return token_log_probs_of


def pair(uid, good, bad, phenomenon="binding", index=0):
    return minimal_pairs.Pair(uid, index, good, bad, phenomenon, "syntax", str(index))


def write(path, *lines):
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


GOOD = {"sentence_good": "He left.", "sentence_bad": "Him left.", "UID": "case"}


# Reading


def test_a_folder_is_read_in_order_of_paradigms(tmp_path):
    full = {"linguistics_term": "binding", "field": "syntax", "pairID": "17"}
    write(tmp_path / "a.jsonl", GOOD | full, "\n", GOOD | {"sentence_bad": "Him go."} | full)
    write(tmp_path / "be.jsonl", {"sentence_good": "I am.", "sentence_bad": "I is."})
    write(tmp_path / "._a.jsonl", "what some archives leave behind")
    assert minimal_pairs.load(tmp_path) == [
        ("be", 0, "I am.", "I is.", "unknown", "unknown", "0"),
        ("case", 0, "He left.", "Him left.", "binding", "syntax", "17"),
        ("case", 1, "He left.", "Him go.", "binding", "syntax", "17"),
    ]


def test_the_digest_does_not_depend_on_how_pairs_are_spread_over_files(tmp_path):
    case, other = GOOD, GOOD | {"UID": "another"}
    one = minimal_pairs.load(write(tmp_path / "one.jsonl", case, other))
    two = minimal_pairs.load([write(tmp_path / "a.jsonl", case), write(tmp_path / "b.jsonl", other)])
    assert minimal_pairs.digest(one) == minimal_pairs.digest(two)
    assert minimal_pairs.digest(one) != minimal_pairs.digest(one[:1])


def test_only_a_newline_ends_a_line(tmp_path):
    sentence = "One\u2028line\x85of\x0btext."
    text = json.dumps(GOOD | {"sentence_good": sentence}, ensure_ascii=False)
    [found] = minimal_pairs.load(write(tmp_path / "a.jsonl", text))
    assert found.good == sentence


@pytest.mark.parametrize(
    "lines, message",
    [
        ([""], "a.jsonl: the file is empty: one JSON object a line is needed"),
        ([GOOD, "good, bad"], "a.jsonl:2: not JSON (Expecting value, column 1): one object a line"),
        (["[1]\n"], "a.jsonl:1: a JSON list, not an object with sentence_good, sentence_bad"),
        ([{"sentence_good": "a"}], "a.jsonl:1: field 'sentence_bad' is missing"),
        ([GOOD | {"sentence_good": 3}], "a.jsonl:1: field 'sentence_good' is 3, not a string"),
        ([GOOD | {"UID": None}], "a.jsonl:1: field 'UID' is null, not a string"),
        ([GOOD | {"field": ["syntax"]}], "a.jsonl:1: field 'field' is [\"syntax\"], not a string"),
        ([GOOD | {"UID": "\ud800"}], "a.jsonl:1: field 'UID' has half a surrogate pair, which is no text"),
        (
            [GOOD, GOOD | {"linguistics_term": "binding"}],
            "a.jsonl:2: field 'linguistics_term' is 'binding', and 'unknown' earlier for the same UID 'case': "
            "a paradigm belongs to one phenomenon",
        ),
    ],
)
def test_what_is_no_pair_is_named_by_line_and_field(tmp_path, lines, message):
    write(tmp_path / "a.jsonl", *lines)
    with pytest.raises(InputError) as error:
        minimal_pairs.load(tmp_path)
    assert str(error.value) == f"{tmp_path}/{message}"


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json.dumps(GOOD).encode() + b'\n{"UID": "\xff"}\n')
    with pytest.raises(InputError) as error:
        minimal_pairs.load(tmp_path)
    assert str(error.value) == f"{tmp_path}/a.jsonl:2: not UTF-8 (byte 9 of the line)"


def test_a_paradigm_in_two_files_is_refused(tmp_path):
    a, b = write(tmp_path / "a.jsonl", GOOD), write(tmp_path / "b.jsonl", GOOD)
    for files in ([a, b], [a, a]):
        with pytest.raises(InputError) as error:
            minimal_pairs.load(files)
        assert str(error.value) == f"{files[1]}:1: UID 'case' is also in {a}: give every paradigm once"


def test_nothing_to_read_is_named(tmp_path):
    for path, message in [
        (tmp_path, "no .jsonl file in this folder: give the folder that holds the pairs, or its files"),
        (tmp_path / "none", "no such file or folder of minimal pairs"),
    ]:
        with pytest.raises(InputError) as error:
            minimal_pairs.load(path)
        assert str(error.value) == f"{path}: {message}"


# Scoring


def test_pairs_are_scored_by_paradigm_phenomenon_and_overall(tmp_path):
    pairs = [
        pair("case_1", "a", "b"),
        pair("case_1", "c", "d", index=1),
        pair("case_2", "b", "c"),
        pair("islands", "d", "a", "island_effects"),
    ]
    model = says({"a": -1.0, "b": -2.0, "c": -4.0, "d": -3.0})
    found = minimal_pairs.evaluate(fake_run(tmp_path, model), pairs)
    accuracy = {name: entry["accuracy"] for name, entry in found.result["paradigms"].items()}
    assert accuracy == {"case_1": 50, "case_2": 100, "islands": 0}
    assert found.result["phenomena"]["binding"]["accuracy"] == 75
    assert found.result["overall"]["accuracy"] == 50
    assert found.log_prob_good.tolist() == [-1, -4, -2, -3]
    assert found.log_prob_bad.tolist() == [-2, -3, -4, -1]
    assert found.outcome.tolist() == [1, 0, 1, 0]
    assert found.result["status"] == "ok" and found.result["warnings"] == []


def test_each_distinct_sentence_is_scored_once(tmp_path):
    seen = []

    def model(sequences):
        seen.extend(tuple(ids.tolist()) for ids in sequences)
        return [np.full(len(ids) - 1, -1.0) for ids in sequences]

    minimal_pairs.evaluate(fake_run(tmp_path, model), [pair("x", "aa", "b"), pair("x", "b", "b"), pair("x", "c", "aa")])
    assert sorted(seen) == [(BOS, 97, 97, EOS), (BOS, 98, EOS), (BOS, 99, EOS)]


@pytest.mark.parametrize("scoring, accuracy", [("paper", 50), ("lm-eval", 100), ("babylm", 50)])
def test_ties_and_identical_pairs_are_apart_and_decided_by_the_convention(tmp_path, scoring, accuracy):
    pairs = [pair("x", "ab", "ac"), pair("x", "ab", "ad"), pair("x", "ac", "ac"), pair("x", "ab", "ac")]
    model = says({"ab": -1.0, "ac": -2.0, "ad": -1.0} | {"b": -1.0, "c": -2.0, "d": -1.0})
    overall = minimal_pairs.evaluate(fake_run(tmp_path, model), pairs, scoring).result["overall"]
    assert overall["accuracy"] == accuracy
    assert overall["accuracy_ties_half"] == 75
    assert overall["accuracy_without_identical"] == pytest.approx({50: 200 / 3, 100: 100}[accuracy])
    assert (overall["ties"], overall["identical"]) == (1, 1)


def test_length_prefers_fewer_tokens_and_ties_half(tmp_path):
    pairs = [pair("x", "a", "bb"), pair("x", "bb", "cc"), pair("x", "b", "cc"), pair("x", "bb", "a")]
    found = minimal_pairs.evaluate(fake_run(tmp_path, lambda s: [np.zeros(len(ids) - 1) for ids in s]), pairs)
    length = found.result["baselines"]["length"]["overall"]
    assert (length["right"], length["ties"], length["wrong"], length["accuracy"]) == (2, 1, 1, 62.5)
    assert found.tokens_good.tolist() == [3, 4, 3, 4]  # with BOS and EOS


def test_a_run_is_set_above_a_baseline_pair_by_pair(tmp_path):
    """Length is right, tied, wrong and right on pairs that the run has right, right, right and wrong."""
    pairs = [
        pair("a", "x", "xy"),
        pair("a", "u", "v", index=1),
        pair("a", "stu", "st", index=2),
        pair("a", "p", "pq", index=3),
    ]
    table = {"x": -1, "xy": -2, "u": -1, "v": -2, "stu": -1, "st": -2, "p": -2, "pq": -1}
    result = minimal_pairs.evaluate(fake_run(tmp_path, says(table)), pairs).result
    above = result["baselines"]["length"]["run_above"]["overall"]
    assert above["difference"] == pytest.approx(100 * (0 + 0.5 + 1 - 1) / 4)
    assert (above["only_this"], above["only_other"]) == (2, 1)
    assert above["interval"][0] <= above["difference"] <= above["interval"][1]


def test_baselines_are_scored_on_the_same_ids(tmp_path):
    frequency = {ord("a"): -0.1, ord("b"): -0.7, EOS: -0.3}
    seen = []

    def unigram(ids):
        seen.append(ids.tolist())
        return np.array([frequency[i] for i in ids[1:].tolist()])

    bigram = SimpleNamespace(token_log_probs=lambda ids: np.append(np.zeros(len(ids) - 2), -float(ids[1])))
    model = says({"ab": -1.0, "bb": -2.0, "abab": -1.0, "bbaa": -3.0})
    pairs = [pair("x", "ab", "bb"), pair("y", "abab", "bbaa")]
    run = fake_run(tmp_path, model, unigram)
    baselines = minimal_pairs.evaluate(run, pairs, baselines={"bigram": bigram}).result["baselines"]
    assert seen[0] == [BOS, 97, 98, EOS]
    assert list(baselines) == ["length", "unigram", "bigram"]
    assert baselines["unigram"]["paradigms"]["x"]["right"] == 1
    assert baselines["unigram"]["paradigms"]["y"]["ties"] == 1  # the same letters in another order
    assert baselines["bigram"]["overall"]["accuracy"] == 100


def test_log_probabilities_that_are_not_numbers_are_counted_and_leave_no_accuracy(tmp_path):
    pairs = [pair("x", "a", "b"), pair("y", "b", "c", "ellipsis"), pair("z", "d", "c", "ellipsis")]
    model = says({"a": np.nan, "b": -1.0, "c": -2.0, "d": -1.0})
    result = minimal_pairs.evaluate(fake_run(tmp_path, model), pairs).result
    assert result["status"] == "not defined"
    assert result["warnings"] == [
        "1 of 4 sentences have a log-probability that is not a number, in 1 of 3 paradigms: no accuracy is given for "
        "these, nor for a mean over them"
    ]
    assert result["overall"]["accuracy"] is result["paradigms"]["x"]["accuracy"] is None
    assert result["phenomena"]["ellipsis"]["accuracy"] == 100
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize("scoring", list(conventions.CONVENTIONS))
def test_a_collapsed_model_has_no_accuracy(tmp_path, scoring):
    pairs = [pair("x", "ab", "ba"), pair("x", "abc", "ab"), pair("y", "cb", "ac"), pair("y", "ab", "ab")]
    uniform = lambda sequences: [np.full(len(ids) - 1, -np.log(128)) for ids in sequences]
    result = minimal_pairs.evaluate(fake_run(tmp_path, uniform), pairs, scoring).result
    assert result["status"] == "collapsed"
    assert result["warnings"] == [
        "2 of the 3 pairs of different sentences have equal log-probabilities: the model tells them apart by nothing, "
        "or by length alone, and no accuracy is given"
    ]
    for entry in (result["overall"], *result["phenomena"].values(), *result["paradigms"].values()):
        assert entry["accuracy"] is entry["interval"] is entry["accuracy_ties_half"] is None
    assert result["overall"]["ties"] == 2


# BLiMP itself


@pytest.fixture(scope="module")
def blimp(blimp_dir):
    return minimal_pairs.load(blimp_dir)


def test_blimp_has_67_paradigms_12_phenomena_and_7_identical_pairs(blimp):
    size, identical, phenomena = {}, {}, {}
    for one in blimp:
        size[one.uid] = size.get(one.uid, 0) + 1
        phenomena.setdefault(one.phenomenon, set()).add(one.uid)
        if one.good == one.bad:
            identical[one.uid] = identical.get(one.uid, 0) + 1
    assert len(size) == 67 and set(size.values()) == {1000}
    assert identical == {"principle_A_case_2": 5, "passive_1": 2}
    assert len(phenomena) == 12 and len(phenomena["argument_structure"]) == 9
    assert {one.field for one in blimp} == {"morphology", "semantics", "syntax", "syntax/semantics"}


def test_anchors_are_of_the_same_paradigms_and_phenomena(blimp):
    phenomenon_of = {one.uid: one.phenomenon for one in blimp}
    anchors = minimal_pairs.anchors(phenomenon_of)
    published = {"five_gram": 61.2, "lstm": 69.8, "transformer_xl": 69.6, "gpt2": 83.0, "human": 88.6}
    assert {model: round(value, 1) for model, value in anchors["overall"].items()} == published
    rows = [line.split(",")[:2] for line in ANCHORS_CSV.read_text().splitlines()[2:]]
    assert dict(rows) == phenomenon_of


def test_a_part_of_blimp_is_set_beside_the_same_part_of_the_anchors():
    anchors = minimal_pairs.anchors({"ellipsis_n_bar_1": "ellipsis", "ellipsis_n_bar_2": "ellipsis"})
    assert anchors["overall"]["five_gram"] == anchors["phenomena"]["ellipsis"]["five_gram"] == (23.4 + 50.4) / 2
    assert anchors["paradigms"]["ellipsis_n_bar_1"]["human"] == 92
    assert minimal_pairs.anchors({"ellipsis_n_bar_1": "ellipsis", "my_own": "ellipsis"}) is None


@pytest.mark.slow
def test_length_alone_on_blimp(blimp, data):
    from esnlm.data.tokenizer import load_tokenizer

    gpt2 = load_tokenizer(data / "gpt2_bpe")
    good = np.array([len(ids) for ids in conventions.encode([one.good for one in blimp], gpt2, "paper")])
    bad = np.array([len(ids) for ids in conventions.encode([one.bad for one in blimp], gpt2, "paper")])
    assert (np.sum(good != bad), np.sum(good < bad)) == (8674, 5054)
