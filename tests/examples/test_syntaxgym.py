"""The example that scores SyntaxGym's suites: formulas by hand, regions against the oracle's
float64."""

import json
import math

import numpy as np
import pytest

from esnlm.base.errors import InputError
from examples import syntaxgym
from examples.syntaxgym import holds
from tests.evaluation import small_run
from tests.evaluation.small_run import TOKENIZER, TOLERANCE, log_probs

BITS = {("1", "a"): 2.0, ("2", "a"): 3.0, ("*", "a"): 5.0, ("1", "b"): 2.0, ("2", "b"): 2.5}


def surprisal(region, condition):
    return BITS[region, condition]


@pytest.mark.parametrize(
    "formula, expected",
    [
        ("(2;%a%) > (2;%b%)", True),
        ("(1;%a%)<(1;%b%)", False),
        ("(*;%a%) = 5.0005", True),
        ("[(2;%a%) - (1;%a%)] + (1;%b%) > 2.9", True),
        ("(2;%a%) - (1;%a%) - 1 > .5", False),
        ("((2;%a%) > 2) & ((2;%b%) > 3)", False),
        ("(2;%a%) > 2 | (2;%b%) > 3 & (1;%a%) > 9", False),  # from left to right, alike
    ],
)
def test_formulas_are_read_as_by_hand(formula, expected):
    assert holds(formula, surprisal) == expected


def test_a_formula_that_only_equal_values_make_fail_is_a_tie():
    assert not holds("(1;%a%) > (1;%b%)", surprisal) and holds(
        "(1;%a%) > (1;%b%)", surprisal, lenient=True
    )
    assert not holds("(1;%a%) > (2;%a%)", surprisal, lenient=True)
    tenths = {"1": 0.1 + 0.2, "2": 0.3}  # which float64 has apart
    assert not holds("(1;%x%) > (2;%x%)", lambda region, _: tenths[region])


@pytest.mark.parametrize("formula", ["(1;%a%)", "(1;%a%) > 2)", "((1;%a%) > 2", "import os"])
def test_what_is_no_formula_is_refused(formula):
    with pytest.raises(InputError, match="formula"):
        holds(formula, surprisal)


def save(folder, *formulas, **conditions):
    """Saves a suite of one item: its conditions are lists of the contents of regions."""
    regions = [
        {
            "condition_name": name,
            "regions": [
                {"region_number": i, "content": content}
                for i, content in enumerate(contents, start=1)
            ],
        }
        for name, contents in conditions.items()
    ]
    tree = {
        "meta": {"name": "number", "metric": "sum"},
        "predictions": [{"formula": each} for each in formulas],
    }
    (folder / "number.json").write_text(
        json.dumps(tree | {"items": [{"item_number": 4, "conditions": regions}]})
    )
    return folder / "number.json"


def test_regions_have_the_sum_of_their_tokens(tmp_path):
    run = small_run.small_run()
    ids = np.array(
        [TOKENIZER.bos, *TOKENIZER.encode("The cats cat. sleep"), TOKENIZER.eos], np.int32
    )
    # the last one, EOS, is in no region
    the, cats, cat, stop, sleep, _ = -log_probs(run, ids) / math.log(2)
    sums = {1: the + cats, 2: 0.0, 3: cat + stop, 4: sleep}
    formulas = [
        f"({i};%match%) {sign} {abs(bits + step):.6f}"
        for i, bits in sums.items()
        for sign, step in (("<", 5e-3), (">", -5e-3))
    ]
    assert TOLERANCE * sum(sums.values()) < 5e-3
    file = save(tmp_path, *formulas, match=["The cats", "", "cat.", "sleep"])
    accuracies = [result["accuracy"] for result in syntaxgym.score(run, file)]
    assert accuracies == [
        100,
        100,
        100,
        0,
        100,
        100,
        100,
        100,
    ]  # the empty region has 0, which is not above 0.005
    assert {result["items"] for result in syntaxgym.score(run, file)} == {1}


def test_a_region_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="item 1"):
        syntaxgym.read_suite(save(tmp_path, "(3;%a%) > 0", a=["x", "y"]))
