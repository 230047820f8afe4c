"""Reads a file that is small by its nature, and refuses a large one before anything in it is parsed."""

from pathlib import Path

from esnlm.errors import require

LARGEST = 8 << 20  # bytes of a JSON file: a second to parse and to hash, whatever stands in it


def read_small(file: Path, largest: int = LARGEST, advice: str = "not a file of this kind") -> bytes:
    """Returns the bytes of a file.

    Args:
        file: The file. A device or a pipe will do, and is read only so far.
        largest: The most bytes that it may have.
        advice: The end of the line for a file that has more.

    Raises:
        InputError: It has more bytes.
        OSError: It cannot be read.
    """
    require_small(file, largest, advice)
    with open(file, "rb") as opened:
        content = opened.read(largest + 1)
    _require(file, len(content), largest, advice)
    return content


def require_small(file: Path, largest: int, advice: str = "not a file of this kind") -> None:
    """Raises InputError if a file has more bytes than `largest`, without opening it."""
    _require(file, file.stat().st_size, largest, advice)


def _require(file: Path, size: int, largest: int, advice: str) -> None:
    require(size <= largest, f"{file}: {size:,} bytes, and at most {largest:,} are read: {advice}")
