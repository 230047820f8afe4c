"""Reads YAML, and rejects duplicate keys in a section."""

from pathlib import Path
from typing import Any

import yaml

from esnlm.base.errors import InputError


def read_tree(file: Path, advice: str) -> Any:
    """Returns the value of a YAML file. Raises InputError, with `advice` for a missing file."""
    try:
        return yaml.load(file.read_bytes().decode(), _Loader)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}; {advice}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a YAML file: {' '.join(str(error).split())}") from None


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Rejects duplicate keys: YAML would silently keep the last, such as of two learning rates."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            if key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} stands twice", key.start_mark
                )
            keys.add(key.value)
        return super().construct_mapping(node, deep)
