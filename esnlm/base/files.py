"""Writes files and folders atomically, JSON files, and manifests with checksums.

Readers see the old version or the new one, never a part: a new version is written under a hidden
name in the same folder, `.NAME.partial-XXXXXXXX`, and renamed when complete.
"""

import contextlib
import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from esnlm.base.errors import InputError


def write_file(path: Path, content: str | bytes) -> None:
    """Writes or replaces a file atomically. Raises InputError if it cannot be written."""
    write_files({path: content})


def write_files(contents: Mapping[Path, str | bytes | None]) -> None:
    """Writes files, and removes those whose content is None. Symbolic links are followed.

    All contents are on disk before the first file is renamed to its place, and the files are
    renamed in order. So if the last one is a new manifest, all files that it lists are there.
    Raises InputError if a file cannot be written.
    """
    partial: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            with writing(path):
                _require_file(path)
                if content is not None:
                    partial[path] = _hidden(path.resolve())
                    partial[path].write_bytes(
                        content.encode() if isinstance(content, str) else content
                    )
                    _sync(partial[path])
        for path in contents:
            with writing(path):
                if path in partial:
                    os.replace(partial[path], path.resolve())
                else:
                    path.unlink(missing_ok=True)
    finally:
        for hidden in partial.values():
            remove(hidden)


class NewFolder:
    """A folder that is written under a hidden name and renamed by `commit`.

    Leaving the `with` block without `commit` removes it. Only one process at a time may write a
    folder, since it also removes what unfinished writes have left.

    Example:
        with NewFolder(target) as new:
            (new.path / "file").write_text("content", "utf-8")
            new.commit()
    """

    def __init__(self, target: Path) -> None:
        """Makes the hidden folder, `path`, and the parents of the target."""
        self.target = target.resolve()  # keeps a symbolic link to a folder intact
        self.target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.target.parent, glob.escape(self.target.name))
        self.path = _hidden(self.target)
        self.path.mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        remove(self.path)

    def commit(self, replace: bool = False) -> None:
        """Renames the folder to its target, after syncing all files to disk.

        Replaces an existing folder if it is empty, or with `replace`. Raises OSError if the file
        system fails.
        """
        for parent, _, names in os.walk(self.path, topdown=False):
            for name in (*names, ""):
                _sync(Path(parent, name))
        former = _hidden(self.target)
        if replace and self.target.exists():
            self.target.rename(former)
        self.path.rename(self.target)
        _sync(self.target.parent)
        remove(former)


def remove_folder(folder: Path) -> None:
    """Removes a folder. It is renamed first, so that no part of it remains under its name."""
    hidden = _hidden(folder)
    folder.rename(hidden)
    shutil.rmtree(hidden)


def remove(path: Path) -> None:
    """Removes a file or folder if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def remove_abandoned(folder: Path, target: str = "*") -> None:
    """Removes the rests of unfinished writes in a folder, or of those to one target in it."""
    for hidden in folder.glob(f".{target}.partial-????????"):
        remove(hidden)


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Converts OSError to an InputError that names `path`."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror or error}; free some space, or choose another path"
        ) from None


def require_writable(file: Path, overwrite: bool = True) -> None:
    """Raises InputError if the file cannot be written. Call it before the work."""
    _require_file(file)
    if file.exists() and not overwrite:
        raise InputError(f"{file}: exists; name another file, or replace it with --overwrite")
    if not file.parent.is_dir():
        raise InputError(f"{file}: no such folder")
    if not os.access(file.parent, os.W_OK):
        raise InputError(f"{file}: the folder is not writable; choose another")


def _require_file(path: Path) -> None:
    """Rejects folders, and /dev/null or /dev/stdout, which renaming would replace by a file."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path}: {'a folder' if path.is_dir() else 'a device or a pipe'}; name a file"
        )


def _sync(path: Path) -> None:
    """Syncs a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial-{secrets.token_hex(4)}")


# ---- JSON ----


def write_json(path: Path, value: Any) -> None:
    """Writes a value as an indented JSON file, atomically, with numbers as in `spell_nonfinite`."""
    write_file(path, json_text(value))


def json_text(value: Any) -> str:
    """Returns a value as indented JSON text, with numbers as in `spell_nonfinite`."""
    return json.dumps(spell_nonfinite(value), indent=1) + "\n"


def spell_nonfinite(value: Any) -> Any:
    """Returns a value with "inf", "-inf" and "nan" in place of the numbers that JSON lacks."""
    return json.loads(json.dumps(value), parse_constant=lambda constant: str(float(constant)))


def seal(content: dict[str, Any]) -> str:
    """Returns the sha256 of a JSON object without its key "sha256", which stores it."""
    unsealed = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(unsealed, sort_keys=True).encode()).hexdigest()


def add_seal(content: dict[str, Any]) -> bytes:
    """Returns a JSON object with its seal, as its one text: any other bytes mean damage."""
    return json.dumps(content | {"sha256": seal(content)}, sort_keys=True, indent=1).encode()


def remove_seal(text: bytes) -> dict[str, Any] | None:
    """Returns the content of a text from `add_seal`, or None if any byte has changed."""
    try:
        content = json.loads(text)
        del content["sha256"]
    except (ValueError, KeyError, TypeError):
        return None
    return content if add_seal(content) == text else None


# ---- manifests ----

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """The sha256 of finished files: `{"files": {NAME: SHA256}, FACT: VALUE, "sha256": SEAL}`."""

    path: Path  # of the manifest itself, in that folder

    def read(self) -> dict[str, Any] | None:
        """Returns the content, or None without a manifest. Raises InputError if it is damaged."""
        if not self.path.exists():
            return None
        if (content := remove_seal(self.path.read_bytes())) is None:
            raise InputError(
                f"{self.path}: changed since it was written; restore it, or delete it to skip"
                " checks"
            )
        return content

    def add(self, *paths: Path, **facts: Any) -> None:
        """Records the sha256 of these files, and of all files in these folders, and JSON values."""
        known = self.read() or {}
        checksums = dict(known.get("files", {}))
        for path in paths:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    checksums[file.relative_to(self.path.parent).as_posix()] = file_sha256(file)
        write_file(self.path, add_seal(known | facts | {"files": checksums}))

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
    """Verifies a folder by its manifest. Returns a line that names a damaged file, or None."""
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
