"""Reads a file of claims: what papers or others say, sentence by sentence, and how each sentence is tested on studies.

A claim has parts, each a sentence with one check. The checks are:

    falls: SELECTION               the measure falls from each cell to the next
    rises: SELECTION               it rises
    below: [SELECTION, SELECTION]  every cell of the first is below every cell of the second
    above: [SELECTION, SELECTION]
    under: {..., limit: L}         in every run of the selected cells the measure is finite and at most L
    over: {..., limit: L}          in every run it is above L, or not a finite number
    flat: {case: C, within: W}     all slopes of a case of a study of alignment lie between -W and W
    steep: {case: C, within: W}    none does

A SELECTION is `{cells: [NAME, ...]}`, or `{along: AXIS, case: C, from: X, to: Y}`: the cells of a study's grid that lie on
an axis, in the order of their values. A part without a check says in `why` where its claim is tested instead.
`paper` holds the paper's own numbers. It is left out where no paper says the sentence.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

from esnlm.errors import require
from esnlm.io.yaml_file import read_tree
from esnlm.studies.grid import MEASURES, require_known

CHECKS = ("falls", "rises", "below", "above", "under", "over", "flat", "steep")
PART_KEYS = ("says", "paper", "study", "measure", "why", *CHECKS)
SELECTION_KEYS = ("cells", "along", "case", "from", "to")


class Selection(NamedTuple):
    """Which cells of a study a sentence is about."""

    cells: tuple[str, ...]  # by name; () where they lie on an axis
    along: str
    case: str
    first: float  # value on the axis
    last: float


class Part(NamedTuple):
    """One sentence of a claim, and how it is tested."""

    says: str
    paper: str  # the paper's own numbers; "" where no paper says it
    study: str  # the name of its folder; "" without a check
    measure: str
    check: str  # of CHECKS, or ""
    selections: tuple[Selection, ...]
    case: str  # of flat and steep
    limit: float  # of under and over; of flat and steep the largest slope that counts as flat
    why: str  # it has no check


class Claim(NamedTuple):
    """What a paper says, or somebody else."""

    says: str
    source: str
    parts: tuple[Part, ...]


def read_claims(file: Path) -> list[Claim]:
    """Reads a file of kind `claims`.

    Raises:
        InputError: it is missing or not YAML, or something in it is not what it must be.
    """
    tree = read_tree(file, "name a file of claims, such as configs/studies/claims.yaml")
    kind = tree.get("kind") if isinstance(tree, dict) else None
    require(kind == "claims", f"{file}: kind is {kind!r}: a file of claims has kind: claims")
    require_known(file, "", tree, ("kind", "claims"))
    claims = tree.get("claims")
    require(isinstance(claims, list) and bool(claims), f"{file}: claims is {claims!r}: it must be a list of claims")
    return [_parse_claim(file, number, claim) for number, claim in enumerate(claims, start=1)]


def _parse_claim(file: Path, number: int, tree: Any) -> Claim:
    where = f"claims.{number}"
    require(isinstance(tree, dict), f"{file}: {where} is {tree!r}: it must hold claim, source and parts")
    require_known(file, f"{where}.", tree, ("claim", "source", "parts"))
    for key in ("claim", "source"):
        require(isinstance(tree.get(key), str), f"{file}: {where}.{key} is {tree.get(key)!r}: it must be a text")
    parts = tree.get("parts")
    right = isinstance(parts, list) and bool(parts)
    require(right, f"{file}: {where}.parts is {parts!r}: it must be a list of parts")
    return Claim(
        tree["claim"].strip(),
        tree["source"],
        tuple(_parse_part(file, f"{where}.parts.{i}", part) for i, part in enumerate(parts, start=1)),
    )


def _parse_part(file: Path, where: str, tree: Any) -> Part:
    require(isinstance(tree, dict), f"{file}: {where} is {tree!r}: it must hold says and a check")
    require_known(file, f"{where}.", tree, PART_KEYS)
    checks = [key for key in CHECKS if key in tree]
    message = f"it has {' and '.join(checks) or 'no check'}: give one of {', '.join(CHECKS)}, or why without one"
    require(len(checks) + ("why" in tree) == 1, f"{file}: {where}: {message}")
    check = checks[0] if checks else ""
    texts = ("says", *(("paper",) if "paper" in tree else ()), *(("study",) if check else ("why",)))
    for key in texts:
        require(isinstance(tree.get(key), str), f"{file}: {where}.{key} is {tree.get(key)!r}: it must be a text")
    of_slopes = check in ("flat", "steep")
    if check and not of_slopes:
        measure = tree.get("measure")
        require(
            isinstance(measure, str) and measure in MEASURES,
            f"{file}: {where}.measure is {measure!r}: choose from {', '.join(MEASURES)}",
        )
    value, where = tree.get(check), f"{where}.{check}"
    selections: tuple[Selection, ...] = ()
    if check in ("below", "above"):
        right = isinstance(value, list) and len(value) == 2
        require(right, f"{file}: {where} is {value!r}: it must be a list of two selections of cells")
        selections = tuple(_parse_selection(file, where, each) for each in value)
    elif check and not of_slopes:
        known = {key: each for key, each in value.items() if key != "limit"} if isinstance(value, dict) else value
        selections = (_parse_selection(file, where, known),)
    case, limit = "", 0.0
    if check in ("under", "over"):
        limit = _parse_number(file, f"{where}.limit", value.get("limit"))
    elif of_slopes:
        require(isinstance(value, dict), f"{file}: {where} is {value!r}: it must hold case and within")
        require_known(file, f"{where}.", value, ("case", "within"))
        case, limit = value.get("case"), _parse_number(file, f"{where}.within", value.get("within"))
        require(isinstance(case, str), f"{file}: {where}.case is {case!r}: it must be a text")
    return Part(
        says=tree["says"].strip(),
        paper=tree.get("paper", "").strip(),
        study=tree.get("study", "") if check else "",
        measure=tree.get("measure", ""),
        check=check,
        selections=selections,
        case=case,
        limit=limit,
        why=tree.get("why", "").strip(),
    )


def _parse_selection(file: Path, where: str, tree: Any) -> Selection:
    right = isinstance(tree, dict) and ("cells" in tree) != ("along" in tree)
    require(right, f"{file}: {where} is {tree!r}: it must hold cells, a list of names, or along, an axis")
    require_known(file, f"{where}.", tree, SELECTION_KEYS)
    cells = tree.get("cells", [])
    right = (
        isinstance(cells, list) and all(isinstance(name, str) for name in cells) and ("along" in tree or bool(cells))
    )
    require(right, f"{file}: {where}.cells is {cells!r}: it must be a list of names of cells")
    for key in ("case", "from", "to"):
        require(
            "along" in tree or key not in tree,
            f"{file}: {where}.{key}: it is of cells on an axis; leave it out beside cells",
        )
    for key in ("along", "case"):
        require(isinstance(tree.get(key, ""), str), f"{file}: {where}.{key} is {tree.get(key)!r}: it must be a text")
    bounds = (("from", -math.inf), ("to", math.inf))
    first, last = (_parse_number(file, f"{where}.{key}", tree[key]) if key in tree else no for key, no in bounds)
    return Selection(tuple(cells), tree.get("along", ""), tree.get("case", ""), first, last)


def _parse_number(file: Path, where: str, value: Any) -> float:
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    require(right, f"{file}: {where} is {value!r}: it must be a number")
    return value
