"""Reads YAML in bounded time, or refuses it; no key may stand twice in one section."""

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from esnlm.errors import InputError
from esnlm.io.json_file import read_small

LARGEST_FILE = 64 << 10  # bytes: PyYAML takes a second for a few hundred thousand, even of comments
LARGEST = 10_000  # values in a file
DEEPEST = 50  # sections within sections: the time that PyYAML takes grows with the square of the depth


def read_tree(file: Path, advice: str) -> Any:
    """Returns the value of a YAML file.

    Args:
        file: The file.
        advice: What to do where there is no such file, for the error message.

    Raises:
        InputError: It cannot be read, is not YAML, is too large or too deep, or a key stands twice in one section.
    """
    try:
        content = read_small(file, LARGEST_FILE)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}; {advice}") from None
    try:
        return copy.deepcopy(_tree_of(content))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


@functools.lru_cache(maxsize=4096)  # A study reads the configurations of all its runs again whenever one of them ends.
def _tree_of(content: bytes) -> Any:
    """Returns the value of a YAML text, which the caller must not change. Raises InputError with a line that names no file."""
    try:
        text = content.decode()
        _require_bounded(text)
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        tree = None if node is None else loader.construct_document(node)
    except InputError:  # which is a ValueError
        raise
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date such as 2001-99-99
        raise InputError(f"not a YAML file: {' '.join(str(error).split())}") from None
    if not _is_small(tree):
        raise _too_many()
    _require_keys_once(node)
    return tree


def _require_bounded(text: str) -> None:
    """Raises InputError if there are too many values, and a YAMLError if sections lie too deep within each other."""
    values = depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        values += isinstance(event, yaml.NodeEvent)
        if values > LARGEST:
            raise _too_many()
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            line = event.start_mark.line + 1 if event.start_mark else "?"
            raise yaml.YAMLError(f"more than {DEEPEST} sections within each other, at line {line}")


def _too_many() -> InputError:
    return InputError(f"more than {LARGEST:,} values, aliases counted as often as they are used: not a configuration")


def _is_small(tree: Any) -> bool:
    """Returns whether a tree can be walked: the aliases of YAML can make one that has no end."""
    waiting, seen = [tree], 0
    while waiting and seen <= LARGEST:
        value, seen = waiting.pop(), seen + 1
        waiting += value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else []
    return seen <= LARGEST


def _require_keys_once(node: yaml.Node | None) -> None:
    """Raises InputError if a key stands twice. YAML itself would keep the last one: one of two learning rates is lost."""
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        for inner in child if isinstance(child, tuple) else (child,):
            _require_keys_once(inner)
    seen = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value in seen:
            line = key.start_mark.line + 1
            raise InputError(f"{key.value} stands twice in one section, at line {line}: leave one of them out")
        seen.add(key.value)
