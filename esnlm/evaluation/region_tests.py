"""Items whose regions are compared: SyntaxGym's test suites (Gauthier et al. 2020), read from their JSON, and judged.

An item has conditions, versions of one sentence, each cut into numbered regions. A prediction is a formula over the surprisals
of regions, such as (6;%mismatch%) > (6;%match%).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.errors import InputError, require
from esnlm.evaluation import formula
from esnlm.evaluation.alignment import Span, owners
from esnlm.evaluation.surprisal import sum_nats
from esnlm.io.json_file import parse_json


class Condition(NamedTuple):
    """A sentence and the characters of its regions; one without words has none of them."""

    sentence: str
    regions: dict[int, Span]


class RegionTest(NamedTuple):
    """An item and a formula that should hold of it. Its first, second and last three fields are those of a Pair."""

    uid: str  # the paradigm: the suite, and the number of the prediction where there are several
    number: int  # in its paradigm, from 0
    conditions: dict[str, Condition]
    text: str  # of the formula
    formula: formula.Operation
    phenomenon: str  # the suite
    field: str
    pair_id: str  # the number of the item


def read_suite(file: Path) -> list[RegionTest]:
    """Reads a test suite.

    Region contents are joined by one space, and empty ones left out, as in syntaxgym-core. Each prediction is a paradigm
    of the phenomenon that has the suite's name.

    Raises:
        InputError: the file is not a test suite, a formula cannot be read, or it names a condition or region that an item
            lacks.
    """
    try:
        suite = parse_json(file.read_bytes().decode().removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 (byte {error.start})") from None
    except ValueError as error:
        raise InputError(f"{file}: not JSON ({error})") from None
    line = f"{file}: a JSON list, and no test suite: write pairs as one object a line, without brackets around them (.jsonl)"
    require(not isinstance(suite, list), line)
    twice: list[str] = []
    try:
        name, metric = suite["meta"].get("name") or file.stem, suite["meta"].get("metric", "sum")
        texts = [prediction["formula"] for prediction in suite["predictions"]]
        for item in suite["items"]:
            names = [each["condition_name"] for each in item["conditions"]]
            twice += [f"item {item['item_number']}: condition {each!r}" for each in names if names.count(each) > 1][:1]
        items = [
            (str(item["item_number"]), {each["condition_name"]: each["regions"] for each in item["conditions"]})
            for item in suite["items"]
        ]
        conditions = [{condition: _condition(regions) for condition, regions in its.items()} for _, its in items]
        if not all(isinstance(each, str) for each in [name, *texts, *(key for its in conditions for key in its)]):
            raise TypeError
        json.dumps(suite, ensure_ascii=False).encode()  # fails on half a surrogate pair, which is no text
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(
            f"{file}: not a test suite: it needs meta, predictions with formulas, and items with conditions and regions, as"
            " SyntaxGym's have them"
        ) from None
    if twice:
        raise InputError(f"{file}: {twice[0]} stands twice; give each a name of its own")
    require(metric in ("sum", ["sum"]), f"{file}: meta.metric is {json.dumps(metric)}: only sum is known")
    require(bool(texts and items), f"{file}: a test suite without predictions or without items")
    found = []
    for number, text in enumerate(texts):
        try:
            parsed = formula.parse(text)
        except InputError as error:
            raise InputError(f"{file}: predictions[{number}]: {error}") from None
        uid = name if len(texts) == 1 else f"{name}, prediction {number + 1}"
        for place, ((item, _), its) in enumerate(zip(items, conditions, strict=True)):
            _require_regions(f"{file}: item {item}", parsed, its)
            found.append(RegionTest(uid, place, its, text, parsed, name, "unknown", item))
    return found


def outcome(test: RegionTest, surprisals: Mapping[str, Mapping[int, float]]) -> float:
    """Returns 1 where the formula holds, 0.5 where it would hold if equal values counted as above and below each other, else 0.

    It is NaN where a surprisal is not a number.

    Args:
        test: the item and its formula.
        surprisals: of each condition's regions.
    """

    def surprisal(region: formula.Region) -> float:
        its = surprisals[region.condition]
        return math.fsum(its.values()) if region.number is None else its[region.number]

    values = [surprisal(region) for region in formula.regions(test.formula)]
    if any(math.isnan(value) or value == -math.inf for value in values):
        return math.nan
    if formula.holds(test.formula, surprisal):
        return 1.0
    return 0.5 if formula.holds(test.formula, surprisal, lenient=True) else 0.0


def region_surprisals(condition: Condition, tokens: list[Span], nats: np.ndarray) -> dict[int, float]:
    """Returns the surprisal of each region in bits: the sum over its tokens. The end of the sentence is in none.

    The space before a region belongs to it, as in syntaxgym-core.

    Args:
        condition: the sentence and its regions.
        tokens: the characters of each token of the sentence.
        nats: the surprisal of each token.
    """
    found = dict.fromkeys(condition.regions, 0.0)
    numbers = [number for number, (start, end) in condition.regions.items() if start < end]
    if not numbers:
        return found
    owner = np.array(owners(tokens, [condition.regions[number] for number in numbers]))
    for place, number in enumerate(numbers):
        found[number] = sum_nats(nats[owner == place]) / math.log(2)
    return found


def _condition(regions: list[dict[str, Any]]) -> Condition:
    sentence, spans = "", {}
    for region in regions:
        content, number = " ".join(region["content"].split()), int(region["region_number"])
        if number in spans:
            raise ValueError
        sentence += " " * bool(sentence and content)
        spans[number] = (len(sentence), len(sentence) + len(content))
        sentence += content
    return Condition(sentence, spans)


def _require_regions(where: str, parsed: formula.Operation, conditions: dict[str, Condition]) -> None:
    """Raises an InputError unless an item has the conditions and regions that a formula names."""
    for condition, number in formula.regions(parsed):
        require(
            condition in conditions,
            f"{where}: no condition {condition!r}, which the formula names: it has {', '.join(conditions)}",
        )
        its = conditions[condition].regions
        require(
            number is None or number in its,
            f"{where}, condition {condition!r}: no region {number}, which the formula names: it has {', '.join(map(str, its))}",
        )
