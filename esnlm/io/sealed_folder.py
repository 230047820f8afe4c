"""A manifest with the sha256 of the files in a folder, which detects and names changed files."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.io.atomic import write_file
from esnlm.io.json_file import add_seal, remove_seal

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """The sha256 of the files that no longer change: `{"files": {NAME: SHA256}, FACT: VALUE,
    "sha256": SEAL}`."""

    path: Path  # of the manifest itself, in that folder

    def read(self) -> dict[str, Any] | None:
        """Returns the content of the manifest, or None if it is missing. Raises InputError if it is
        damaged."""
        if not self.path.exists():
            return None
        if (content := remove_seal(self.path.read_bytes())) is None:
            raise InputError(
                f"{self.path}: changed since it was written; restore it, or delete it to skip"
                " checks"
            )
        return content

    def add(self, *paths: Path, **facts: Any) -> None:
        """Records the sha256 of these files and of the files in these folders, if they exist, and
        JSON values."""
        known = self.read() or {}
        files = [
            file
            for path in paths
            for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        ]
        found = {
            file.relative_to(self.path.parent).as_posix(): file_sha256(file)
            for file in files
            if file.is_file()
        }
        write_file(self.path, add_seal(known | facts | {"files": known.get("files", {}) | found}))

    def find_damage(self, *paths: Path) -> list[str]:
        """Returns a line for each recorded file in `paths` that is missing or has changed."""
        lines = []
        for name, expected in (self.read() or {"files": {}})["files"].items():
            file = self.path.parent / name
            if not {file, *file.parents}.isdisjoint(paths):
                if not file.is_file():
                    lines.append(f"{file}: missing")
                elif file_sha256(file) != (
                    expected if isinstance(expected, str) else expected["sha256"]
                ):
                    lines.append(f"{file}: changed since it was written")
        return lines


def find_difference(folder: Path) -> str | None:
    """Verifies a folder. Returns None if all files match its manifest, else a line with the bad
    file and the reason."""
    if not folder.is_dir():
        return "no such folder"
    manifest = Manifest(folder / MANIFEST)
    try:
        damage = (
            manifest.find_damage(folder)
            if manifest.path.exists()
            else [f"{manifest.path}: missing"]
        )
    except InputError:
        return f"{MANIFEST}: changed since it was written"
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    return damage[0].removeprefix(f"{folder}/") if damage else None


def file_sha256(path: Path) -> str:
    """Returns the sha256 of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
