"""The evaluation of runs that are small enough to check by hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.evaluation import conventions, minimal_pairs
from esnlm.evaluation.evaluate import evaluate
from esnlm.reports import blimp_report
from tests.evaluation.fake_run import fake_run

BOS, EOS = 1, 2


def says(table):
    """A model that gives a sentence the log-probability of the table, all of it at the last
    token."""

    def token_log_probs_of_ids(sequences):
        sentences = [
            "".join(chr(i) for i in ids if i not in (BOS, EOS)).strip() for ids in sequences
        ]
        return [
            np.append(np.zeros(len(ids) - 2), table[s])
            for ids, s in zip(sequences, sentences, strict=True)
        ]

    return token_log_probs_of_ids


def pair(uid, good, bad, phenomenon="binding", index=0):
    return minimal_pairs.Pair(uid, index, good, bad, phenomenon, "syntax", str(index))


def test_pairs_are_scored_by_paradigm_phenomenon_and_overall(tmp_path):
    pairs = [
        pair("case_1", "a", "b"),
        pair("case_1", "c", "d", index=1),
        pair("case_2", "b", "c"),
        pair("islands", "d", "a", "island_effects"),
    ]
    model = says({"a": -1.0, "b": -2.0, "c": -4.0, "d": -3.0})
    found = evaluate(fake_run(tmp_path, model), pairs)
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

    evaluate(
        fake_run(tmp_path, model), [pair("x", "aa", "b"), pair("x", "b", "b"), pair("x", "c", "aa")]
    )
    assert sorted(seen) == [(BOS, 97, 97, EOS), (BOS, 98, EOS), (BOS, 99, EOS)]


@pytest.mark.parametrize("scoring, accuracy", [("paper", 50), ("lm-eval", 100), ("babylm", 100)])
def test_ties_and_identical_pairs_are_apart_and_decided_by_the_convention(
    tmp_path, scoring, accuracy
):
    pairs = [
        pair("x", "ab", "ac"),
        pair("x", "ab", "ad"),
        pair("x", "ac", "ac"),
        pair("x", "ab", "ac"),
    ]
    model = says({"ab": -1.0, "ac": -2.0, "ad": -1.0} | {"b": -1.0, "c": -2.0, "d": -1.0})
    overall = evaluate(fake_run(tmp_path, model), pairs, scoring).result["overall"]
    assert overall["accuracy"] == accuracy
    assert overall["accuracy_ties_half"] == 75
    assert overall["accuracy_without_identical"] == pytest.approx({50: 200 / 3, 100: 100}[accuracy])
    assert (overall["ties"], overall["identical"]) == (1, 1)


def test_a_run_is_set_above_a_baseline_pair_by_pair(tmp_path):
    """Length is right, tied, wrong and right on pairs that the run has right, right, right and
    wrong."""
    pairs = [
        pair("a", "x", "xy"),
        pair("a", "u", "v", index=1),
        pair("a", "stu", "st", index=2),
        pair("a", "p", "pq", index=3),
    ]
    table = {"x": -1, "xy": -2, "u": -1, "v": -2, "stu": -1, "st": -2, "p": -2, "pq": -1}
    result = evaluate(fake_run(tmp_path, says(table)), pairs).result
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

    def by_first_token(sequences):
        return [np.append(np.zeros(len(ids) - 2), -float(ids[1])) for ids in sequences]

    bigram = SimpleNamespace(token_log_probs_of_ids=by_first_token)
    model = says({"ab": -1.0, "bb": -2.0, "abab": -1.0, "bbaa": -3.0})
    pairs = [pair("x", "ab", "bb"), pair("y", "abab", "bbaa")]
    run = fake_run(tmp_path, model, unigram)
    baselines = evaluate(run, pairs, baselines={"bigram": bigram}).result["baselines"]
    assert seen[0] == [BOS, 97, 98, EOS]
    assert list(baselines) == ["length", "unigram", "bigram"]
    assert baselines["unigram"]["paradigms"]["x"]["right"] == 1
    assert baselines["unigram"]["paradigms"]["y"]["ties"] == 1  # the same letters in another order
    assert baselines["bigram"]["overall"]["accuracy"] == 100


def test_log_probabilities_that_are_not_numbers_are_counted_and_leave_no_accuracy(tmp_path):
    pairs = [pair("x", "a", "b"), pair("y", "b", "c", "ellipsis"), pair("z", "d", "c", "ellipsis")]
    model = says({"a": np.nan, "b": -1.0, "c": -2.0, "d": -1.0})
    result = evaluate(fake_run(tmp_path, model), pairs).result
    assert result["status"] == "not defined"
    assert result["warnings"] == [
        "1 of 4 sentences have a log-probability that is not a number, in 1 of 3 paradigms: these,"
        " and all means over them, have no accuracy"
    ]
    assert result["overall"]["accuracy"] is result["paradigms"]["x"]["accuracy"] is None
    assert result["phenomena"]["ellipsis"]["accuracy"] == 100
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize("scoring", list(conventions.CONVENTIONS))
def test_a_collapsed_model_has_no_accuracy(tmp_path, scoring):
    pairs = [
        pair("x", "ab", "ba"),
        pair("x", "abc", "ab"),
        pair("y", "cb", "ac"),
        pair("y", "ab", "ab"),
    ]
    uniform = fake_run(
        tmp_path, lambda sequences: [np.full(len(ids) - 1, -np.log(128)) for ids in sequences]
    )
    result = evaluate(uniform, pairs, scoring).result
    assert result["status"] == "collapsed"
    assert result["warnings"] == [
        "2 of the 3 pairs of different sentences have equal log-probabilities: the model tells them"
        " apart by length alone or not at all, so there is no accuracy"
    ]
    for entry in (result["overall"], *result["phenomena"].values(), *result["paradigms"].values()):
        assert entry["accuracy"] is entry["interval"] is entry["accuracy_ties_half"] is None
    assert result["overall"]["ties"] == 2
    assert {entry["run_above"] for entry in result["baselines"].values()} == {None}


def choice(good, *bad, uid="sets", index=0):
    return minimal_pairs.Pair(uid, index, good, bad, "choice", "syntax", str(index))


def test_in_a_set_the_right_sentence_is_above_all_others(tmp_path):
    model = says({"a": -1.0, "b": -2.0, "c": -4.0, "d": -2.0})
    items = [
        choice("a", "b", "c"),
        choice("b", "c", "a"),
        choice("b", "d", "c"),
        choice("c", "c", "b"),
    ]
    found = evaluate(fake_run(tmp_path, model), items)
    assert found.outcome.tolist() == [1, 0, 0.5, 0]
    assert found.log_prob_bad.tolist() == [-2, -1, -2, -2]
    overall = found.result["overall"]
    assert (overall["accuracy"], overall["accuracy_ties_half"], overall["ties"]) == (25, 37.5, 1)
    assert found.result["chance"] == pytest.approx(100 / 3)
    # All sentences are equally long, and a coin that is thrown among three is right once in three.
    assert found.result["baselines"]["length"]["overall"]["accuracy"] == pytest.approx(100 / 3)
    assert found.details[1] == {
        "sentence_bad": "a",
        "sentences_bad": ["c", "a"],
        "log_probs_bad": [-4.0, -1.0],
    }


@pytest.mark.parametrize("normalize", ["tokens", "bytes"])
def test_accuracies_by_log_p_of_a_token_and_of_a_byte(tmp_path, normalize):
    """With log p = log of the length, and one of two tokens or bytes for a letter, all is known by
    hand."""
    table = {"ab": -2.0, "abcd": -3.0, "é": -1.4, "xyz": -2.0}
    pairs = [
        pair("x", "ab", "abcd"),
        pair("x", "abcd", "ab", index=1),
        pair("x", "é", "xyz", index=2),
    ]
    run = fake_run(tmp_path, says(table))
    with pytest.raises(InputError, match="^normalize is 'words': choose from none, tokens, bytes"):
        evaluate(run, pairs, normalize="words")
    assert "normalized" not in evaluate(run, pairs).result
    result = evaluate(
        run, pairs, "no-eos" if normalize == "tokens" else "paper", normalize=normalize
    ).result
    # Per token of "no-eos" -1, -0.75, -1.4, -0.67, as one id is one character; per byte -1, -0.75,
    # -0.7, -0.67.
    assert result["overall"]["accuracy"] == pytest.approx(200 / 3)
    assert result["normalized"]["by"] == normalize and result["normalized"]["overall"][
        "accuracy"
    ] == pytest.approx(100 / 3)
    assert f" | per {normalize[:-1]} | " in blimp_report.markdown(result)


def test_normalized_accuracies_are_those_of_lm_evaluation_harness(tmp_path):
    """Its own task on the same log-probabilities: acc, and acc_bytes, which is acc_norm for text in
    ASCII."""
    task = pytest.importorskip(
        "lm_eval.api.task", reason="needs lm-evaluation-harness: pip install -e '.[lm-eval]'"
    )
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdeé日"), rng.integers(1, 12))) for _ in range(400)]
    table = {word: -float(len(word) ** 0.7 * rng.integers(2, 9)) for word in words}
    docs = list(zip(words[::2], words[1::2], strict=True))
    harness = SimpleNamespace(
        config=SimpleNamespace(process_results=None),
        _metric_fn_list=dict.fromkeys(["acc", "acc_norm", "acc_bytes"]),
        OUTPUT_TYPE="multiple_choice",
        doc_to_choice=lambda doc: doc,
        doc_to_target=lambda doc: 0,
        multiple_input=False,
        multiple_target=False,
    )
    process = task.ConfigurableTask.process_results
    by_harness = [process(harness, doc, [(table[word], False) for word in doc]) for doc in docs]
    pairs = [pair("x", *doc, index=i) for i, doc in enumerate(docs)]
    found = evaluate(fake_run(tmp_path, says(table)), pairs, "lm-eval", normalize="bytes").result
    mean = {
        name: 100 * np.mean([each[name] for each in by_harness]) for name in ("acc", "acc_bytes")
    }
    assert found["overall"]["accuracy"] == pytest.approx(mean["acc"])
    assert (
        found["normalized"]["overall"]["accuracy"]
        == pytest.approx(mean["acc_bytes"])
        != pytest.approx(mean["acc"])
    )
    ascii_only = [i for i, doc in enumerate(docs) if "".join(doc).isascii()]
    assert ascii_only and all(
        by_harness[i]["acc_norm"] == by_harness[i]["acc_bytes"] for i in ascii_only
    )
