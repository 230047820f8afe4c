"""Formulas over the surprisals of regions, as SyntaxGym has them (Gauthier et al. 2020): parsed, and never run as code.

    formula     = comparison { ("&" | "|") comparison }           from left to right, both alike
    comparison  = sum ("<" | ">" | "=") sum   |   "(" formula ")"
    sum         = term { ("+" | "-") term }
    term        = region | number | "(" sum ")"
    region      = "(" number or * ";" "%" condition "%" ")"       (6;%match%); * is all regions

Square brackets stand for round ones too.
"""

import math
import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple, NoReturn

from esnlm.errors import InputError

RTOL, ATOL = 1e-5, 1e-3  # within which two surprisals are equal for "=", as in syntaxgym-core
# [ours] Within this share of their terms, two sums are equal for < and >: more than float64 rounds, and far less than a model does.
ROUNDED = 1e-12
MOST, DEEPEST = 400, 30  # symbols and brackets within each other: a formula is walked through by recursion
SYMBOL = re.compile(
    r"\s*(?:(?P<region>\(\s*(?P<number>\d{1,9}|\*)\s*;\s*%(?P<condition>[^%]*)%\s*\))|(?P<value>\d+(?:\.\d*)?|\.\d+)"
    r"|(?P<mark>[-+<>=&|()\[\]]))"
)
LEVELS = ("&|", "<>=", "+-")  # from what binds least


class Region(NamedTuple):
    """A region of a condition; `number` None stands for all of them."""

    condition: str
    number: int | None


class Operation(NamedTuple):
    """An operator between two parts of a formula."""

    operator: str
    left: "Node"
    right: "Node"


Node = Region | Operation | float


def parse(text: str) -> Operation:
    """Returns a formula as a tree of operations. Raises InputError, naming the character, where it is none."""
    symbols = list(_symbols(text))
    if len(symbols) > MOST:
        raise InputError(f"the formula has {len(symbols)} symbols: at most {MOST} are read")
    if max(accumulate((symbol.mark == "(") - (symbol.mark == ")") for symbol in symbols)) > DEEPEST:
        raise InputError(f"the formula has more than {DEEPEST} brackets within each other")
    node, rest = _parse_level(text, symbols, 0)
    if rest[0].mark != "end":
        _refuse(text, rest[0], "one of & | < > = + - or the end")
    if not _is_statement(node):
        raise InputError(f"formula {text!r} compares nothing: it needs one of < > =")
    assert isinstance(node, Operation)
    return node


def regions(node: Node) -> Iterator[Region]:
    """Yields the regions that a formula names."""
    if isinstance(node, Region):
        yield node
    elif isinstance(node, Operation):
        yield from regions(node.left)
        yield from regions(node.right)


def holds(node: Node, surprisal: Callable[[Region], float], lenient: bool = False) -> bool:
    """Tells whether a formula holds.

    Args:
        node: from `parse`.
        surprisal: the surprisal of a region.
        lenient: whether < and > hold between equal values too.
    """
    return bool(_value(node, surprisal, lenient))


class _Symbol(NamedTuple):
    mark: str  # an operator or bracket, "region", "value" or "end"
    node: Node | None
    place: int


def _symbols(text: str) -> Iterator[_Symbol]:
    place = 0
    while text[place:].strip():
        found = SYMBOL.match(text, place)
        if found is None:
            _refuse(text, _Symbol("", None, place), "a region such as (6;%match%), a number, an operator or a bracket")
        place = found.end()
        if found["region"]:
            number = None if found["number"] == "*" else int(found["number"])
            yield _Symbol("region", Region(found["condition"], number), found.start("region"))
        elif found["value"]:
            yield _Symbol("value", float(found["value"]), found.start("value"))
        else:
            yield _Symbol(found["mark"].replace("[", "(").replace("]", ")"), None, found.start("mark"))
    yield _Symbol("end", None, len(text))


def _parse_level(text: str, symbols: list[_Symbol], level: int) -> tuple[Node, list[_Symbol]]:
    """Returns the part of a formula that begins here and whose operators bind at least as LEVELS[level], and the rest."""
    if level == len(LEVELS):
        return _parse_term(text, symbols)
    left, rest = _parse_level(text, symbols, level + 1)
    while rest[0].mark in LEVELS[level]:
        operator = rest[0]
        right, rest = _parse_level(text, rest[1:], level + 1)
        statements = [_is_statement(left), _is_statement(right)]
        if statements != [level == 0] * 2:
            kinds = "comparisons" if level == 0 else "surprisals and numbers"
            _refuse(text, operator, f"{kinds} on both sides of {operator.mark}")
        left = Operation(operator.mark, left, right)
    return left, rest


def _parse_term(text: str, symbols: list[_Symbol]) -> tuple[Node, list[_Symbol]]:
    first, *rest = symbols
    if first.node is not None:
        return first.node, rest
    if first.mark != "(":
        _refuse(text, first, "a region such as (6;%match%), a number or a bracket")
    node, rest = _parse_level(text, rest, 0)
    if rest[0].mark != ")":
        _refuse(text, rest[0], "a closing bracket")
    return node, rest[1:]


def _is_statement(node: Node) -> bool:
    return isinstance(node, Operation) and node.operator in "&|<>="


def _value(node: Node, surprisal: Callable[[Region], float], lenient: bool) -> float:
    if isinstance(node, Region):
        return surprisal(node)
    if not isinstance(node, Operation):
        return node
    left, right = (_value(part, surprisal, lenient) for part in (node.left, node.right))
    match node.operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "&":
            return left and right
        case "|":
            return left or right
        case "=":
            return abs(left - right) <= ATOL + RTOL * abs(right)
    size = sum(abs(term) for term in _terms(node, surprisal))
    if left == right or (math.isfinite(size) and abs(left - right) <= ROUNDED * size):
        return lenient
    return left < right if node.operator == "<" else left > right


def _terms(node: Node, surprisal: Callable[[Region], float]) -> Iterator[float]:
    """Yields the surprisals and numbers of a comparison."""
    if isinstance(node, Operation):
        yield from _terms(node.left, surprisal)
        yield from _terms(node.right, surprisal)
    else:
        yield surprisal(node) if isinstance(node, Region) else node


def _refuse(text: str, symbol: _Symbol, wanted: str) -> NoReturn:
    place = symbol.place + len(text[symbol.place :]) - len(text[symbol.place :].lstrip())
    raise InputError(f"formula {text!r} cannot be read at character {place + 1}: {wanted} is wanted there")
