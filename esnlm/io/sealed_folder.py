"""A folder whose manifest has the size and the sha256 of every file in it, so that any change is found and named."""

import hashlib
from pathlib import Path
from typing import Any

from esnlm.io.json_file import add_seal, remove_seal

MANIFEST = "manifest.json"


def write_manifest(folder: Path, **facts: Any) -> None:
    """Writes the manifest of the files that are in a folder, and facts into it."""
    (folder / MANIFEST).write_bytes(add_seal({"files": _entries(_files(folder))} | facts))


def find_difference(folder: Path) -> str | None:
    """Reads all of a folder. Returns None if it is as `write_manifest` saw it, else a line: the bad file and why."""
    if not folder.is_dir():
        return "no such folder"
    try:
        found = _files(folder)
        if MANIFEST not in found:
            return f"{MANIFEST}: missing"
        content = remove_seal(found.pop(MANIFEST).read_bytes())
        entries = _entries(found)
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    if content is None:
        return f"{MANIFEST}: changed since it was saved"
    saved = content["files"]
    for name in sorted(saved.keys() | entries.keys()):
        if entries.get(name) != saved.get(name):
            return f"{name}: {'changed since it was saved' if name in entries else 'missing'}"
    return None


def _files(folder: Path) -> dict[str, Path]:
    """Returns the files in a folder by their names there, without those that macOS adds to folders."""
    found = [path for path in folder.rglob("*") if not path.is_dir() and not path.name.startswith((".DS_Store", "._"))]
    return {path.relative_to(folder).as_posix(): path for path in found}


def _entries(files: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """Returns what a manifest says of each file."""
    return {name: {"size": path.stat().st_size, "sha256": file_sha256(path)} for name, path in files.items()}


def file_sha256(path: Path) -> str:
    """Returns the sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
