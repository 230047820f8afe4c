"""Reads YAML; no key may stand twice in one section."""

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from esnlm.errors import InputError


def read_tree(file: Path, advice: str) -> Any:
    """Returns the value of a YAML file. Raises InputError if it is missing, with `advice`, or is not YAML."""
    try:
        return copy.deepcopy(_parse(file.read_bytes()))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}; {advice}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a YAML file: {' '.join(str(error).split())}") from None


@functools.lru_cache(maxsize=4096)  # A study reads the configurations of all its runs whenever one of them ends.
def _parse(content: bytes) -> Any:
    return yaml.load(content.decode(), _Loader)


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which YAML keeps the last: one of two learning rates would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            if key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands twice", key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)
