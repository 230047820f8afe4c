"""Lists of a study file that the command line replaces: the values of an axis of its grid, and its seeds.

So the same file is a table of the papers at another scale, as in

    esnlm study FILE --model.reservoir.state_size '[256, 512]' --seed '[0, 1, 2]'
"""

from collections.abc import Sequence
from typing import Any

import yaml


def replace_lists(tree: dict[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Takes from `overrides` those that give a list for what the study's file lists.

    Args:
        tree: the content of a study file of kind `grid`, which is left as it is.
        overrides: `--section.key value` or `--section.key=value`.

    Returns:
        (the study with these lists in place of its own, the other overrides)
    """
    others, words = list[str](), list(overrides)
    while words:
        word = words.pop(0)
        key, equals, value = word.removeprefix("--").partition("=")
        value = value if equals else words[0] if words else ""
        values = _parse_list(value) if word.startswith("--") else None
        replaced = tree if values is None else _replace(tree, key, values)
        if replaced is tree:
            others.append(word)
            continue
        tree, words = replaced, words if equals else words[1:]
    return tree, others


def _replace(tree: dict[str, Any], key: str, values: list[Any]) -> dict[str, Any]:
    """Returns the study with other seeds, or other values of an axis; the same object where it lists no such thing."""
    if key == "seed":
        return tree | {"seeds": values}
    runs = tree.get("runs")
    blocks = runs if isinstance(runs, list) else [runs]
    grids = [block.get("grid") if isinstance(block, dict) else None for block in blocks]
    if not any(isinstance(grid, dict) and key in grid for grid in grids):
        return tree
    changed = [
        block | {"grid": grid | {key: _spelled_as(grid[key], values)}}
        if isinstance(grid, dict) and key in grid
        else block
        for block, grid in zip(blocks, grids, strict=True)
    ]
    return tree | {"runs": changed}


def _spelled_as(before: Any, values: list[Any]) -> list[Any]:
    """Returns values as a study spells equal ones, and others with a point where it has numbers with one.

    Cells are named by their values, and runs and published figures are found by these names.
    """
    known = {value: value for value in before if type(value) in (int, float)} if isinstance(before, list) else {}
    has_point = any(isinstance(value, float) for value in known.values())

    def spelled(value: Any) -> Any:
        if type(value) not in (int, float):
            return value
        return known.get(value, float(value) if has_point else value)

    return [spelled(value) for value in values]


def _parse_list(text: str) -> list[Any] | None:
    """Returns the list that a text is in YAML, or None."""
    try:
        value = yaml.safe_load(text) if text.startswith("[") else None
    except yaml.YAMLError:
        return None
    return value if isinstance(value, list) else None
