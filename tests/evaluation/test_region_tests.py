"""SyntaxGym's suites: read, scored by regions against the oracle's float64, and refused where something is missing."""

import json
import math

import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.evaluation.evaluate import evaluate
from esnlm.evaluation.minimal_pairs import load
from esnlm.evaluation.region_tests import outcome, read_suite, region_surprisals
from esnlm.evaluation.surprisal import tokens_of
from tests.evaluation import small_run
from tests.evaluation.fake_run import fake_run
from tests.evaluation.small_run import TOKENIZER, TOLERANCE, log_probs


def suite(*formulas, name="number", **conditions):
    """A suite of one item: its conditions are lists of the contents of regions."""
    regions = {
        name: [{"region_number": i, "content": content} for i, content in enumerate(contents, start=1)]
        for name, contents in conditions.items()
    }
    item = {"item_number": 4, "conditions": [{"condition_name": n, "regions": r} for n, r in regions.items()]}
    predictions = [{"type": "formula", "formula": each} for each in formulas]
    return {"meta": {"name": name, "metric": "sum"}, "predictions": predictions, "items": [item], "region_meta": {}}


def save(folder, tree, name="suite.json"):
    (folder / name).write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return folder / name


MATCH = {"match": ["The cats", "", "sleep", "."], "mismatch": ["The cat", "that", "sleep", "."]}


def test_a_suite_is_read(tmp_path):
    file = save(tmp_path, suite("(3;%mismatch%) > (3;%match%)", "(1;%match%) > 0", **MATCH))
    first, second = load(file)
    assert [(each.uid, each.number, each.phenomenon, each.pair_id) for each in (first, second)] == [
        ("number, prediction 1", 0, "number", "4"),
        ("number, prediction 2", 0, "number", "4"),
    ]
    match, mismatch = first.conditions.values()
    assert match.sentence == "The cats sleep ." and mismatch.sentence == "The cat that sleep ."
    assert {number: match.sentence[slice(*span)] for number, span in match.regions.items()} == {
        **{1: "The cats", 2: "", 3: "sleep", 4: "."}
    }
    (only,) = load(save(tmp_path, suite("(1;%a%) > 0", a=["The"])))
    assert only.uid == "number"


def test_a_byte_order_mark_is_no_matter(tmp_path):
    file = save(tmp_path, suite("(1;%a%) > 0", a=["x"]))
    plain = load(file)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load(file) == plain


def test_regions_have_the_sum_of_their_tokens(tmp_path):
    run = small_run.small_run()
    (test,) = read_suite(save(tmp_path, suite("(3;%match%) > 0", match=["The cats", "", "cat.", "sleep"])))
    condition = test.conditions["match"]
    ids = np.array([TOKENIZER.bos, *TOKENIZER.encode(condition.sentence), TOKENIZER.eos], np.int32)
    _, tokens = tokens_of(condition.sentence, ids, TOKENIZER, "paper")
    the, cats, cat, stop, sleep, _ = -log_probs(run, ids) / math.log(2)  # the last one, EOS, is in no region
    found = region_surprisals(condition, tokens, -run.token_log_probs_of([ids])[0][:-1].astype(np.float64))
    assert list(found) == [1, 2, 3, 4] and found[2] == 0.0
    np.testing.assert_allclose([found[1], found[3], found[4]], [the + cats, cat + stop, sleep], rtol=TOLERANCE)


def test_equal_values_tie(tmp_path):
    (test,) = read_suite(save(tmp_path, suite("(1;%a%) > (1;%b%)", a=["x"], b=["y"])))
    for a, b, expected in [(2.0, 1.0, 1.0), (1.0, 2.0, 0.0), (1.0, 1.0, 0.5), (math.inf, 1.0, 1.0)]:
        assert outcome(test, {"a": {1: a}, "b": {1: b}}) == expected
    assert math.isnan(outcome(test, {"a": {1: math.nan}, "b": {1: 1.0}}))


def test_a_formula_that_only_equal_values_make_fail_ties(tmp_path):
    """Of two comparisons both can be ties; then the formula is one tie. It is none where one of them is wrong."""
    both, either = (
        read_suite(save(tmp_path, suite(f"((1;%a%) > 2) {sign} ((1;%b%) > 2)", a=["x"], b=["y"])))[0] for sign in "&|"
    )
    for a, b, of_both, of_either in [(2, 2, 0.5, 0.5), (3, 2, 0.5, 1.0), (2, 1, 0.0, 0.5), (3, 3, 1.0, 1.0)]:
        surprisals = {"a": {1: float(a)}, "b": {1: float(b)}}
        assert (outcome(both, surprisals), outcome(either, surprisals)) == (of_both, of_either)


@pytest.mark.parametrize("scoring", ["paper", "lm-eval", "babylm"])
def test_a_suite_is_evaluated_beside_pairs_and_sets(tmp_path, scoring):
    """A model whose tokens cost their place in the alphabet: -(ord - 96) nats, and nothing before "a"."""

    def model(sequences):
        return [-np.maximum(0.0, np.array(ids[1:], float) - 96) for ids in sequences]

    run = fake_run(tmp_path, model, decode_bytes=lambda ids: "".join(map(chr, ids)).encode())
    file = save(
        tmp_path,
        suite("(2;%dear%) > (2;%cheap%)", "(2;%dear%) < (*;%cheap%)", dear=["ba", "zz"], cheap=["ba", "ac"]),
    )
    lines = [
        {"sentence_good": "a", "sentence_bad": ["b", "c", "d"]},
        {"sentence_good": "c", "sentence_bad": ["d", "b"]},
    ]
    (tmp_path / "sets.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"sentence_good": "ab", "sentence_bad": "az"}))
    found = evaluate(run, load([file, tmp_path / "sets.jsonl", tmp_path / "pairs.jsonl"]), scoring)
    outcomes = {f"{pair.uid} {pair.number}": value for pair, value in zip(found.pairs, found.outcome, strict=True)}
    first_scored = scoring != "babylm"
    assert outcomes == {
        "number, prediction 1 0": 1.0,
        "number, prediction 2 0": 0.0,
        "pairs 0": 1.0,
        "sets 0": 1.0 if first_scored else 0.5,  # a sentence of one token has nothing to score
        "sets 1": 0.0 if first_scored else 0.5,
    }
    assert found.result["data"]["kinds"] == {"pairs": 1, "sets": 2, "region_tests": 2}
    assert found.result["chance"] is None  # nobody knows how often a formula holds by chance
    bits = found.details[0]["surprisals_bits"]
    assert bits["dear"]["2"] == pytest.approx(52 / math.log(2)) and bits["cheap"]["2"] == pytest.approx(4 / math.log(2))
    assert bits["dear"]["1"] == pytest.approx((3 if first_scored else 1) / math.log(2))
    # A token costs one in the baseline of length, so that regions of as many tokens tie, and a tie counts half.
    assert found.result["baselines"]["length"]["paradigms"]["number, prediction 1"]["accuracy"] == 50


@pytest.mark.parametrize(
    "tree, line",
    [
        ("{", ": not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        (
            {"meta": {}, "predictions": []},
            ": not a test suite: it needs meta, predictions with formulas, and items with conditions and regions, as "
            "SyntaxGym's have them",
        ),
        (suite(a=["x"]), ": a test suite without predictions or without items"),
        (
            suite("(1;%a%) > 0", a=["x"]) | {"meta": {"metric": "mean"}},
            ': meta.metric is "mean": only sum is known',
        ),
        (
            suite("1 < 2", "(1;%a%) >", a=["x"]),
            ": predictions[1]: formula '(1;%a%) >' cannot be read at character 10: a region such as (6;%match%), a number or "
            "a bracket is wanted there",
        ),
        (
            suite("(1;%b%) > 0", a=["x"], c=["y"]),
            ": item 4: no condition 'b', which the formula names: it has a, c",
        ),
        (
            suite("(9;%a%) > 0", a=["x", "y"]),
            ": item 4, condition 'a': no region 9, which the formula names: it has 1, 2",
        ),
    ],
)
def test_what_is_no_suite_is_refused(tmp_path, tree, line):
    file = save(tmp_path, tree)
    with pytest.raises(InputError) as error:
        load(file)
    assert str(error.value) == f"{file}{line}"


def test_a_condition_that_stands_twice_is_refused(tmp_path):
    """Only the last of them would be read."""
    tree = suite("(1;%a%) > 0", a=["x"])
    tree["items"][0]["conditions"] *= 2
    with pytest.raises(InputError, match=r": item 4: condition 'a' stands twice; give each a name of its own$"):
        load(save(tmp_path, tree))


@pytest.mark.parametrize("change", [{"items": 3}, {"items": [[]]}, {"meta": None}, {"predictions": [{"formula": 1}]}])
def test_a_suite_of_another_form_is_refused(tmp_path, change):
    with pytest.raises(InputError, match="not a test suite"):
        load(save(tmp_path, suite("(1;%a%) > 0", a=["x"]) | change))
    with pytest.raises(InputError, match="not a test suite"):
        load(save(tmp_path, suite("(1;%a%) > 0", a=["\ud800"])))
