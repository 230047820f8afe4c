"""A folder whose manifest has the size and the sha256 of every file in it, so that any change is found and named."""

import hashlib
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from esnlm.io.json_file import LARGEST, add_seal, read_small, remove_seal

MANIFEST = "manifest.json"


def write_manifest(folder: Path, **facts: Any) -> None:
    """Writes the manifest of all the files that are in a folder, and the facts into it."""
    found = sizes(folder)
    digests = _digests(folder, found)
    files = {name: {"size": found[name], "sha256": digests[name]} for name in found}
    (folder / MANIFEST).write_bytes(add_seal({"files": files} | facts))


def find_difference(folder: Path) -> str | None:
    """Reads all of a folder. Returns None where it is as `write_manifest` saw it, else a line: the bad file and why.

    Only files found by walking the folder are opened, never a path that the manifest names, and links are not followed.
    """
    try:
        return _find_difference(folder)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"


def sizes(folder: Path) -> dict[str, int]:
    """Returns the bytes of every file in a folder by its path in there; -1 for links, pipes and the like."""
    return dict(_walk(folder))


def _find_difference(folder: Path) -> str | None:
    if not folder.is_dir():
        return "no such folder"
    found = sizes(folder)
    if not found:
        return "the folder is empty"
    if irregular := [name for name, size in found.items() if size < 0]:
        return f"{min(irregular)}: not a plain file"
    size = found.pop(MANIFEST, None)
    if size is None:
        return f"{MANIFEST}: missing"
    if size > LARGEST:
        return f"{MANIFEST}: {size:,} bytes, and at most {LARGEST:,} are read"
    try:
        saved = (remove_seal(read_small(folder / MANIFEST)) or {})["files"]
        intact = all(entry.keys() == {"size", "sha256"} for entry in saved.values())
    except (AttributeError, KeyError, TypeError):
        intact = False
    if not intact:
        return f"{MANIFEST}: changed since it was saved"
    for name in sorted(saved.keys() | found.keys()):
        if name not in found:
            return f"{name}: missing"
        if name not in saved:
            return f"{name}: not part of this checkpoint"
        if found[name] != saved[name]["size"]:
            return f"{name}: {found[name]} bytes, {saved[name]['size']} were saved"
    digests = _digests(folder, found)
    changed = [name for name in sorted(found) if digests[name] != saved[name]["sha256"]]
    return f"{changed[0]}: changed since it was saved" if changed else None


def _walk(folder: Path | str, prefix: str = "") -> Iterator[tuple[str, int]]:
    for entry in os.scandir(folder):
        if entry.name == ".DS_Store" or entry.name.startswith("._"):
            continue  # macOS leaves these in folders that somebody looks at. Nothing here opens them.
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        else:
            status = entry.stat(follow_symlinks=False)
            yield prefix + entry.name, status.st_size if stat.S_ISREG(status.st_mode) else -1


def _digests(folder: Path, sizes: dict[str, int]) -> dict[str, str]:
    def digest(name: str) -> str:
        try:
            return file_sha256(folder / name)
        except OSError as error:
            error.filename = name  # a bad sector is reported without one
            raise

    largest_first = sorted(sizes, key=lambda name: sizes[name], reverse=True)
    with ThreadPoolExecutor(2) as threads:  # hashing releases the GIL
        return dict(zip(largest_first, threads.map(digest, largest_first), strict=True))


def file_sha256(path: Path) -> str:
    """Returns the sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
