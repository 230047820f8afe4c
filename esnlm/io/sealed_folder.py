"""A folder whose manifest has the size and the sha256 of every file in it, so that any change is found and named."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from esnlm.io.json_file import add_seal, remove_seal

MANIFEST = "manifest.json"


def write_manifest(folder: Path, **facts: Any) -> None:
    """Writes the manifest of the files that are in a folder, and facts into it."""
    files = _files(folder)
    digests = _digests(files)
    entries = {name: {"size": files[name].stat().st_size, "sha256": digests[name]} for name in files}
    (folder / MANIFEST).write_bytes(add_seal({"files": entries} | facts))


def find_difference(folder: Path) -> str | None:
    """Reads all of a folder. Returns None if it is as `write_manifest` saw it, else a line: the bad file and why."""
    try:
        return _find_difference(folder)
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"


def _find_difference(folder: Path) -> str | None:
    if not folder.is_dir():
        return "no such folder"
    found = _files(folder)
    if MANIFEST not in found:
        return f"{MANIFEST}: missing"
    content = remove_seal(found.pop(MANIFEST).read_bytes())
    if content is None:
        return f"{MANIFEST}: changed since it was saved"
    saved = content["files"]
    for name in sorted(saved.keys() | found.keys()):
        if name not in found:
            return f"{name}: missing"
        if name not in saved:
            return f"{name}: not part of this checkpoint"
        if (size := found[name].stat().st_size) != saved[name]["size"]:
            return f"{name}: {size} bytes, {saved[name]['size']} were saved"
    digests = _digests(found)
    changed = [name for name in sorted(found) if digests[name] != saved[name]["sha256"]]
    return f"{changed[0]}: changed since it was saved" if changed else None


def _files(folder: Path) -> dict[str, Path]:
    """Returns the files in a folder by their names there, without those that macOS adds to folders."""
    found = [path for path in folder.rglob("*") if not path.is_dir() and not path.name.startswith((".DS_Store", "._"))]
    return {path.relative_to(folder).as_posix(): path for path in found}


def _digests(files: dict[str, Path]) -> dict[str, str]:
    with ThreadPoolExecutor(2) as threads:  # hashing releases the GIL
        return dict(zip(files, threads.map(file_sha256, files.values()), strict=True))


def file_sha256(path: Path) -> str:
    """Returns the sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
