"""Formulas over regions: what they mean, and what is none. An oracle evaluates each formula as it is made."""

import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm.errors import InputError
from esnlm.evaluation import formula
from esnlm.evaluation.formula import Region, holds, parse, regions

SURPRISALS = {("a", 1): 3.0, ("a", 2): 5.5, ("b-x_1", 1): 3.0, ("b-x_1", 7): 8.25}
REGIONS = {f"({number};%{condition}%)": value for (condition, number), value in SURPRISALS.items()}


def value(region):
    if region.number is None:
        return sum(value for (condition, _), value in SURPRISALS.items() if condition == region.condition)
    return SURPRISALS[region.condition, region.number]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("(1;%a%) < (2;%a%)", True),
        ("(2;%a%)<(1;%a%)", False),
        ("(1;%a%) = (1;%b-x_1%)", True),
        ("(1;%a%) = 3.0009", True),  # within 0.001 + 0.00001 * 3.0009
        ("(1;%a%) = 3.002", False),
        ("(*;%a%) > 8.49 & (*;%a%) < 8.51", True),
        ("10 - 4 - 3 = 3", True),
        ("10 - (4 - 3) = 9", True),
        ("[ (1;%a%) < (2;%a%) ] & [ ( 7 ; %b-x_1% ) > 8 ]", True),
        ("((((1;%a%) - (2;%a%)) < 0))", True),
        ("1 < 2 | 1 < 2 & 2 < 1", False),  # & and | bind alike, from left to right
        (".5 + 0.5 > 0.", True),
    ],
)
def test_what_a_formula_means(text, expected):
    assert holds(parse(text), value) is expected


def numbers():
    atoms = st.sampled_from(sorted(REGIONS.items())) | st.sampled_from([("2", 2.0), ("0.25", 0.25)])

    def joined(parts):
        def join(left, mark, right):
            return f"({left[0]} {mark}{right[0]})", {"+": operator.add, "-": operator.sub}[mark](left[1], right[1])

        return st.builds(join, parts, st.sampled_from("+-"), parts)

    return st.recursive(atoms, joined, max_leaves=5)


def statements():
    def compare(left, mark, right):
        oracle = {"<": operator.lt, ">": operator.gt, "=": lambda x, y: abs(x - y) <= 1e-3 + 1e-5 * abs(y)}
        return f"{left[0]}{mark} {right[0]}", oracle[mark](left[1], right[1])

    def joined(parts):
        def join(left, mark, right):
            return f"[{left[0]}] {mark} ({right[0]})", left[1] and right[1] if mark == "&" else left[1] or right[1]

        return st.builds(join, parts, st.sampled_from("&|"), parts)

    return st.recursive(st.builds(compare, numbers(), st.sampled_from("<>="), numbers()), joined, max_leaves=5)


@given(statements())
def test_any_formula_has_the_value_of_its_parts(made):
    text, expected = made
    assert holds(parse(text), value) is bool(expected)
    assert {f"({number};%{condition}%)" for condition, number in regions(parse(text))} <= set(REGIONS)


def test_equal_values_are_above_and_below_each_other_where_one_is_lenient():
    for text in ("(1;%a%) > (1;%b-x_1%)", "(1;%a%) < 3"):
        assert not holds(parse(text), value) and holds(parse(text), value, lenient=True)


@pytest.mark.parametrize("lengths", [(3, 2, 2, 1), (4, 3, 2, 1), (2, 1, 3, 2), (5, 3, 3, 1)])
def test_sums_that_only_rounding_tells_apart_are_equal(lengths):
    """So many tokens of one nat each, in bits: the differences are the same number."""
    one, two, three, four = (tokens / math.log(2) for tokens in lengths)
    bits = {1: one, 2: two, 3: three, 4: four}
    for text in ("(1;%a%) - (2;%a%) > (3;%a%) - (4;%a%)", "(1;%a%) - (2;%a%) < (3;%a%) - (4;%a%)"):
        found = [holds(parse(text), lambda region: bits[region.number], lenient=lenient) for lenient in (False, True)]
        assert found == [False, True]
    more = bits | {1: one * (1 + 1e-9)}  # as different as no model in float32 can tell, and still told apart
    assert holds(parse("(1;%a%) - (2;%a%) > (3;%a%) - (4;%a%)"), lambda region: more[region.number])
    assert not holds(parse("(1;%a%) < 1 + (1;%a%)"), lambda region: math.inf), "inf is not below inf"


def test_the_regions_of_a_formula():
    assert list(regions(parse("(1;%a%) - (*;%b%) > 0"))) == [Region("a", 1), Region("b", None)]


TERM = "a region such as (6;%match%), a number or a bracket"


@pytest.mark.parametrize(
    "text, place, wanted",
    [
        ("", 1, TERM),
        ("(1;%a%) >", 10, TERM),
        ("(1;%a%) > > 2", 11, TERM),
        ("(1;%a%) > (2;%a%", 11, None),
        ("((1;%a%) > 2", 13, "a closing bracket"),
        ("(1;%a%) > 2)", 12, "one of & | < > = + - or the end"),
        ("(1;%a%) 2", 9, "one of & | < > = + - or the end"),
        ("1 < 2 < 3", 7, "surprisals and numbers on both sides of <"),
        ("(1 < 2) + 3 > 0", 9, "surprisals and numbers on both sides of +"),
        ("1 & 2", 3, "comparisons on both sides of &"),
        ("__import__('os').system('true') > 0", 1, "a region such as (6;%match%), a number, an operator or a bracket"),
        ("(1;%a%) * 2 > 0", 9, "a region such as (6;%match%), a number, an operator or a bracket"),
    ],
)
def test_what_is_no_formula_is_named_by_its_character(text, place, wanted):
    with pytest.raises(InputError) as error:
        parse(text)
    line = str(error.value)
    assert line.startswith(f"formula {text!r} cannot be read at character {place}") or wanted is None
    assert wanted is None or line.endswith(f": {wanted} is wanted there")


def test_what_compares_nothing_is_no_formula():
    with pytest.raises(InputError, match=r"formula '\(1;%a%\) \+ 2' compares nothing: it needs one of < > =$"):
        parse("(1;%a%) + 2")


def test_no_formula_takes_for_ever():
    for text, line in {
        "(" * 100_000: "the formula has 100001 symbols: at most 400 are read",
        "(" * 31 + "1 < 2" + ")" * 31: "the formula has more than 30 brackets within each other",
    }.items():
        with pytest.raises(InputError) as error:
            parse(text)
        assert str(error.value) == line
    assert holds(parse("+".join(["1"] * 199) + " = 199"), value)
    assert holds(parse("(" * 30 + "1 < 2" + ")" * 30), value)
    assert formula.MOST == 400
