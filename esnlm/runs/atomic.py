"""Files that are whole or not there, JSON that is read or refused, and errors that say what to free or change."""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esnlm.errors import InputError

# Where the person who called can mend it, and how. Any other error of the system is a fault of the program.
ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space there, or choose another disk"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "choose a folder that you may write to, or change its rights"
    ),
    errno.EFBIG: "lift the limit on file sizes (ulimit -f), or choose another disk",
    errno.EIO: "the disk fails: choose another one",
}


def refusal(error: OSError, file: Path | str) -> str:
    """One line: the file, what the system says, and what to free or change."""
    return f"{file}: {error.strerror}; {ADVICE[error.errno]}"


@contextlib.contextmanager
def writing(file: Path | str) -> Iterator[None]:
    """Want of room or of rights within it raises an InputError that names `file`."""
    try:
        yield
    except OSError as error:
        if error.errno not in ADVICE:
            raise
        raise InputError(refusal(error, file)) from None


def write_atomically(file: Path, content: str | bytes) -> None:
    """Writes a small file so that a reader sees the old one or the new one, never a part.

    Raises:
        InputError: no room, or no right to write there; the old file is as it was.
    """
    part = file.with_name(f".{file.name}.part")
    with writing(file):
        part.unlink(missing_ok=True)  # of a killed process; or a link, which "x" would not follow either
        try:
            with open(part, "xb") as handle:
                handle.write(content.encode() if isinstance(content, str) else content)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(part, file)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for anything that is none, however deep its brackets."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def alive(process: int) -> bool:
    """Whether there is a process of this id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def seal(content: dict[str, Any]) -> str:
    """The sha256 of a JSON object, but for the key "sha256", where the seal itself stands."""
    return hashlib.sha256(
        json.dumps({key: content[key] for key in content if key != "sha256"}, sort_keys=True).encode()
    ).hexdigest()


def sealed(content: dict[str, Any]) -> bytes:
    """A JSON object with the sha256 of its content. This is its only spelling: any other bytes are damaged ones."""
    return json.dumps(content | {"sha256": seal(content)}, sort_keys=True, indent=1).encode()


def unsealed(raw: bytes) -> dict[str, Any] | None:
    """The content of what `sealed` gave; None where a byte of it has changed."""
    try:
        content = parse_json(raw)
        del content["sha256"]
    except (ValueError, KeyError, TypeError):
        return None
    return content if sealed(content) == raw else None


def sha256(file: Path) -> str:
    """Hex digest of a file."""
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
