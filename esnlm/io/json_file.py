"""Writes JSON with any float, and with a checksum that detects changed bytes."""

import hashlib
import json
from pathlib import Path
from typing import Any

from esnlm.io.atomic import write_file


def write_json(path: Path, value: Any) -> None:
    """Writes a value as an indented JSON file, atomically, with numbers as in `spell_nonfinite`."""
    write_file(path, json_text(value))


def json_text(value: Any) -> str:
    """Returns a value as indented JSON text, with numbers as in `spell_nonfinite`."""
    return json.dumps(spell_nonfinite(value), indent=1) + "\n"


def spell_nonfinite(value: Any) -> Any:
    """Returns a value for JSON, with the texts "inf", "-inf" and "nan" for numbers that JSON
    lacks."""
    return json.loads(json.dumps(value), parse_constant=lambda constant: str(float(constant)))


def seal(content: dict[str, Any]) -> str:
    """Returns the seal of a JSON object: the sha256 of its content without the key "sha256", which
    stores it."""
    unsealed = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(unsealed, sort_keys=True).encode()).hexdigest()


def add_seal(content: dict[str, Any]) -> bytes:
    """Returns the text of a JSON object with its seal. The text is unique: any other bytes mean
    damage."""
    return json.dumps(content | {"sha256": seal(content)}, sort_keys=True, indent=1).encode()


def remove_seal(text: bytes) -> dict[str, Any] | None:
    """Returns the content of a text from `add_seal`, or None if any byte has changed."""
    try:
        content = json.loads(text)
        del content["sha256"]
    except (ValueError, KeyError, TypeError):
        return None
    return content if add_seal(content) == text else None
