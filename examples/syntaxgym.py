"""Scores test suites of SyntaxGym (Gauthier et al. 2020) with a trained run.

    python examples/syntaxgym.py --run runs/first number_prep.json [MORE.json ...] \\
        [--scoring no-eos] [--out results.json]

A suite has items, an item has conditions (versions of one sentence), and a condition has numbered
regions. Its predictions are formulas over the surprisals of regions, in bits, with + and -, < > and
=, & and | (of equal precedence, from left to right), and brackets:

    (6;%mismatch%) > (6;%match%)
    ((7;%np_mismatch%) - (7;%np_match%)) + (6;%vp_mismatch%) > 0

`(6;%match%)` is the surprisal of region 6 in the condition `match`, and `(*;%match%)` that of all
regions. An item is right if the formula holds, and a tie if it fails only because two values are
equal. As in syntaxgym-core, regions are joined by one space, which belongs to the following region,
and `=` holds within 0.001 + 0.00001 x. Formulas are parsed, not run as code.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import esnlm
from esnlm.base.errors import InputError
from esnlm.base.files import write_json
from esnlm.evaluation.statistics import wilson
from esnlm.machine.process import exit_with

# of a region ("6", or "*" for all) and a condition, in bits
Surprisal = Callable[[str, str], float]

SYMBOL = re.compile(
    r"\s*(?:\(\s*(?P<region>\d+|\*)\s*;\s*%(?P<condition>[^%]*)%\s*\)|(?P<number>\d+\.?\d*|\.\d+)|(?P<mark>[-+<>=&|()\[\]]))\s*"
)
LEVELS = ("&|", "<>=", "+-")  # the operators, weakest first
# [ours] sums that differ by less than this share of their terms are equal: rounding decides nothing
ROUNDED = 1e-12


def holds(formula: str, surprisal: Surprisal, lenient: bool = False) -> bool:
    """Tells whether a formula holds; with `lenient`, < and > hold between equal values, too.

    Raises InputError if it cannot be read.
    """
    symbols, place = [], 0
    while place < len(formula):
        if (found := SYMBOL.match(formula, place)) is None:
            raise InputError(f"formula {formula!r} cannot be read at character {place + 1}")
        symbols.append(found)
        place = found.end()

    def mark() -> str:
        return (symbols[0]["mark"] or "region") if symbols else "end"

    def level(number: int) -> Any:
        """Returns the value from here to the next operator that binds less: a bool, or a sum and
        the size of its terms."""
        if number == len(LEVELS):
            return term()
        left = level(number + 1)
        while mark() in LEVELS[number]:
            operator = symbols.pop(0)["mark"]
            left = combine(operator, left, level(number + 1))
        return left

    def term() -> Any:
        if mark() in ("(", "["):
            symbols.pop(0)
            inside = level(0)
            if mark() not in (")", "]"):
                raise InputError(f"formula {formula!r}: a bracket is not closed")
            symbols.pop(0)
            return inside
        if mark() != "region":
            raise InputError(
                f"formula {formula!r}: {mark()!r} stands where a region or a number is wanted"
            )
        found = symbols.pop(0)
        value = (
            float(found["number"])
            if found["number"]
            else surprisal(found["region"], found["condition"])
        )
        return value, abs(value)

    def combine(operator: str, left: Any, right: Any) -> Any:
        if any(isinstance(side, bool) != (operator in LEVELS[0]) for side in (left, right)):
            raise InputError(f"formula {formula!r}: {operator} stands between what it cannot join")
        if operator in "&|":
            return left and right if operator == "&" else left or right
        (x, size_x), (y, size_y) = left, right
        if operator in "+-":
            return x + y if operator == "+" else x - y, size_x + size_y
        if operator == "=":
            return abs(x - y) <= 1e-3 + 1e-5 * abs(y)
        if x == y or abs(x - y) <= ROUNDED * (size_x + size_y):
            return lenient
        return x < y if operator == "<" else x > y

    value = level(0)
    if symbols or not isinstance(value, bool):
        raise InputError(
            f"formula {formula!r}:"
            f" {f'{mark()!r} is too much' if symbols else 'it compares nothing'}"
        )
    return value


def read_suite(file: Path) -> tuple[list[str], list[dict[str, dict[str, str]]]]:
    """Returns the formulas of a suite, and of each item {condition: {number of a region: its
    text}}.

    Raises InputError if it is no test suite, or a formula names a region that an item lacks.
    """
    try:
        suite = json.loads(file.read_text("utf-8-sig"))
        formulas = [prediction["formula"] for prediction in suite["predictions"]]
        items = [
            {
                condition["condition_name"]: {
                    str(region["region_number"]): " ".join(region["content"].split())
                    for region in condition["regions"]
                }
                for condition in item["conditions"]
            }
            for item in suite["items"]
        ]
        metric = suite["meta"].get("metric", "sum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{file}: not a test suite of SyntaxGym ({type(error).__name__}: {error})"
        ) from None
    if metric not in ("sum", ["sum"]):
        raise InputError(f"{file}: meta.metric is {metric!r}: only sum is known")
    for number, item in enumerate(items, start=1):
        for formula in formulas:
            try:
                holds(
                    formula,
                    _lookup({name: dict.fromkeys(regions, 0.0) for name, regions in item.items()}),
                )
            except KeyError as error:
                raise InputError(
                    f"{file}: item {number} lacks {error}, which {formula!r} names"
                ) from None
    return formulas, items


def score(run: Any, file: Path, scoring: str = "paper") -> list[dict[str, Any]]:
    """Returns the accuracy, in percent, of each prediction of a suite, and the outcome of each
    item: 1, 0.5 (a tie) or 0."""
    formulas, items = read_suite(file)
    conditions = [
        (i, name, regions) for i, item in enumerate(items) for name, regions in item.items()
    ]
    words = [[text for text in regions.values() if text] for _, _, regions in conditions]
    rows = run.surprisal(words, separator=" ", eos=False, scoring=scoring)
    bits = [{name: dict.fromkeys(regions, 0.0) for name, regions in item.items()} for item in items]
    for number, its_rows in groupby(rows, itemgetter("sentence")):
        i, name, regions = conditions[number]
        bits[i][name] |= zip(
            [key for key, text in regions.items() if text],
            [row["surprisal_bits"] for row in its_rows],
            strict=True,
        )
    if any(math.isnan(value) for item in bits for its in item.values() for value in its.values()):
        raise InputError(f"{file}: surprisals that are not numbers: the run has diverged")
    results = []
    for number, formula in enumerate(formulas, start=1):
        outcomes = [
            (
                1.0
                if holds(formula, _lookup(its))
                else 0.5
                if holds(formula, _lookup(its), lenient=True)
                else 0.0
            )
            for its in bits
        ]
        accuracy = 100 * outcomes.count(1.0) / len(outcomes)
        result = {
            "suite": file.stem,
            "prediction": number,
            "formula": formula,
            "items": len(outcomes),
        }
        results.append(
            result
            | {
                "accuracy": accuracy,
                "interval": wilson(accuracy, len(outcomes)),
                "outcomes": outcomes,
            }
        )
    return results


def _lookup(bits: dict[str, dict[str, float]]) -> Surprisal:
    return lambda region, condition: (
        sum(bits[condition].values()) if region == "*" else bits[condition][region]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", required=True, help="the run directory")
    parser.add_argument("suites", nargs="+", type=Path, metavar="SUITE.json")
    parser.add_argument("--scoring", default="paper", choices=("paper", "no-eos", "lm-eval"))
    parser.add_argument("--out", type=Path, help="write the results there, as JSON")
    options = parser.parse_args()
    run = esnlm.load(options.run)
    results = [result for suite in options.suites for result in score(run, suite, options.scoring)]
    for result in results:
        low, high = result["interval"]
        name = f"{result['suite']}, prediction {result['prediction']}"
        print(
            f"{name}: {result['accuracy']:.1f} % of {result['items']} items ({low:.1f} to"
            f" {high:.1f})"
        )
    if options.out is not None:
        write_json(options.out, results)


if __name__ == "__main__":
    sys.exit(exit_with(main))
