"""The folder of a study: whose it is, and which of several processes writes its table at a moment."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from esnlm.errors import InputError
from esnlm.io.json_file import parse_json, read_small

LOCK, LOCK_ALONE = ".lock", ".search.lock"


def require_own(folder: Path, study: str, kind: str = "grid") -> None:
    """Raises InputError where the folder of a study holds something else, such as a study of this name but of another kind."""
    if _is_other(folder, study, kind):
        if (folder / LOCK).exists():  # Another process of the same study may be at its first table.
            with held(folder):
                if not _is_other(folder, study, kind):
                    return
        message = f"holds something else than the {kind} {study}; choose another folder with --out"
        raise InputError(f"{folder}: {message}")


def make(folder: Path) -> None:
    """Makes the folder of a study. Raises InputError where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}; choose another folder with --out") from None


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds the folder of a study while its table is written, and waits while another process holds it.

    What is collected and written within it is therefore never older than what is there already.
    """
    with FileLock(folder / LOCK):
        yield


@contextlib.contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Holds the folder of a study for one process, until it ends.

    Raises:
        InputError: Another process holds it.
    """
    try:
        with FileLock(folder / LOCK_ALONE, blocking=False):
            yield
    except Timeout:
        message = "another process is at this search; wait for it, or choose another folder with --out"
        raise InputError(f"{folder}: {message}") from None


def _is_other(folder: Path, study: str, kind: str) -> bool:
    try:
        empty = not folder.exists() or all(path.name in (LOCK, LOCK_ALONE) for path in folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}; choose another folder with --out") from None
    return not empty and _read_name(folder / "table.json") != (study, kind)


def _read_name(table: Path) -> tuple[str, str] | None:
    """Returns name and kind of the study that made a table, or None for anything else."""
    try:
        tree = parse_json(read_small(table))
        return tree["study"], tree.get("kind", "grid")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
