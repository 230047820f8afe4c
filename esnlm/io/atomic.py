"""Writes files and folders so that a reader finds the old one or the new one, never a part of one.

What is written first has a hidden name beside its target, `.NAME.partial-XXXXXXXX`, and takes the target's name when it is
complete.
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
    """Writes a file, or replaces it, all or nothing. Raises InputError as `write_files` does."""
    write_files({path: content})


def write_files(contents: Mapping[Path, str | bytes | None]) -> None:
    """Writes a group of files in their order, and removes those whose content is None. Links stay and are followed.

    If the last one (such as a manifest) is there, the others are, too. Raises InputError if one cannot be written.
    """
    partial: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            with writing(path):
                _require_file(path)
                if content is not None:
                    partial[path] = _hidden(path.resolve())
                    partial[path].write_bytes(content.encode() if isinstance(content, str) else content)
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
    """A folder that is written under a hidden name and takes its own name in `commit`, all or nothing.

    Leaving the `with` block without `commit` removes it. One process at a time may write a folder: what it finds of an
    unfinished one is removed.

    Example:
        with NewFolder(target) as new:
            (new.path / "file").write_text("content")
            new.commit()
    """

    def __init__(self, target: Path) -> None:
        """Makes the hidden folder, `path`, and the parents of the target. Raises OSError if it cannot be made."""
        self.target = target.resolve()  # a link to a folder goes on pointing at it
        self.target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.target.parent, glob.escape(self.target.name))
        self.path = _hidden(self.target)
        self.path.mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        remove(self.path)

    def commit(self, replace: bool = False) -> None:
        """Gives the folder its name, once every byte of it is on the disk.

        An empty folder of that name is replaced, and with `replace` any other. Raises OSError if the disk refuses.
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
    """Removes a folder. It loses its name first, so that a killed process leaves no folder with files missing."""
    hidden = _hidden(folder)
    folder.rename(hidden)
    shutil.rmtree(hidden)


def remove(path: Path) -> None:
    """Removes a file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def remove_abandoned(folder: Path, target: str = "*") -> None:
    """Removes what is left of unfinished writes in a folder, or of those to one target in it."""
    for hidden in folder.glob(f".{target}.partial-????????"):
        remove(hidden)


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turns the system's errors into an InputError that names `path`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; free some space, or choose another place") from None


def require_writable(file: Path, overwrite: bool = True) -> None:
    """Raises InputError if no file of this name can be written, before the work for it is done."""
    _require_file(file)
    if file.exists() and not overwrite:
        raise InputError(f"{file}: exists; name another file, or replace it with --overwrite")
    if not file.parent.is_dir():
        raise InputError(f"{file}: no such folder")
    if not os.access(file.parent, os.W_OK):
        raise InputError(f"{file}: the folder cannot be written to; choose another")


def _require_file(path: Path) -> None:
    """Raises InputError for a folder, and for /dev/null or /dev/stdout, which would lose its name to a file."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: {'a folder' if path.is_dir() else 'a device or a pipe'}; name a file")


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial-{secrets.token_hex(4)}")
