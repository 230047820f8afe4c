"""Files that are whole or not there."""

import os
from pathlib import Path


def write_atomically(file: Path, content: str | bytes) -> None:
    """Writes a small file so that a reader sees the old one or the new one, never a part."""
    part = file.with_name(f".{file.name}.part")
    with open(part, "wb") as handle:
        handle.write(content.encode() if isinstance(content, str) else content)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(part, file)
