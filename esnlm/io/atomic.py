"""Writes files and folders atomically: readers find the old version or the new one, never a part.

A new version is written under a hidden name beside its target, `.NAME.partial-XXXXXXXX`, and
renamed when complete.
"""

import contextlib
import glob
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from esnlm.errors import InputError


def write_file(path: Path, content: str | bytes) -> None:
    """Writes or replaces a file, completely or not at all. Raises InputError as `write_files`
    does."""
    write_files({path: content})


def write_files(contents: Mapping[Path, str | bytes | None]) -> None:
    """Writes files in order, and removes those whose content is None. Follows symbolic links and
    keeps them.

    If the last file (such as a manifest) exists, so do all others. Raises InputError if one cannot
    be written.
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
    """A folder that is written under a hidden name and renamed by `commit`, completely or not at
    all.

    Leaving the `with` block without `commit` removes it. Only one process at a time may write a
    folder, since it removes the rests of earlier, unfinished writes.

    Example:
        with NewFolder(target) as new:
            (new.path / "file").write_text("content", "utf-8")
            new.commit()
    """

    def __init__(self, target: Path) -> None:
        """Makes the hidden folder, `path`, and the parents of the target. Raises OSError if it
        cannot be made."""
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
    """Removes a folder, renaming it first, so that a killed process leaves no incomplete folder
    under its name."""
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
    """Raises InputError for a folder, and for /dev/null or /dev/stdout, which renaming would
    replace by a file."""
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
