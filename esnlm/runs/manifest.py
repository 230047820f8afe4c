"""manifest.json of a run directory: the sha256 of the files that no longer change, sealed with the sha256 of itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.io.atomic import write_file
from esnlm.io.json_file import add_seal, read_small, remove_seal
from esnlm.io.sealed_folder import file_sha256


@dataclass(frozen=True)
class Manifest:
    """The manifest of the files in a folder: `{"files": {NAME: SHA256}, FACT: VALUE, "sha256": SEAL}`."""

    path: Path  # of the manifest itself, in that folder

    def read(self) -> dict[str, Any] | None:
        """Returns what the manifest holds, or None where there is none, or no folder.

        Raises:
            InputError: It is damaged.
        """
        try:
            text = read_small(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if (content := remove_seal(text)) is None:
            raise InputError(
                f"{self.path}: changed since it was written; restore it from a copy of the run, or delete it to go on with"
                " files that are not verified"
            )
        return content

    def add(self, *paths: Path, **facts: Any) -> None:
        """Records the sha256 of files, and of all files in folders, and the facts.

        Args:
            paths: Files and folders; those that do not exist are left out.
            facts: Other values to remember, as JSON has them.
        """
        known = self.read() or {}
        expanded = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
        found = {
            file.relative_to(self.path.parent).as_posix(): file_sha256(file) for file in expanded if file.is_file()
        }
        write_file(self.path, add_seal(known | facts | {"files": known.get("files", {}) | found}))

    def find_damage(self, *paths: Path) -> list[str]:
        """Returns a line for each recorded file, among `paths` and in them, that is missing or has changed."""
        lines = []
        for name, expected in (self.read() or {"files": {}})["files"].items():
            file = self.path.parent / name
            if file in paths or any(path in file.parents for path in paths):
                if not file.is_file():
                    lines.append(f"{file}: missing")
                elif file_sha256(file) != expected:
                    lines.append(f"{file}: changed since it was written")
        return lines
