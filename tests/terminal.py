"""A terminal of a given width, in which tests run a program."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
STYLES = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")


def python(*words: str | Path) -> list[str]:
    """Returns the command line of Python with these arguments."""
    return [sys.executable, *map(str, words)]


def in_terminal(command: Sequence[str], columns: int, variables: Mapping[str, str] | None = None) -> str:
    """Runs a program whose standard output and error are a terminal, and returns what it wrote there."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(command, stdout=inside, stderr=inside, cwd=ROOT, env=_environment(variables)) as process:
        os.close(inside)
        written = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # as Linux says that nobody writes there any more
                break
            if not part:
                break
            written += part
    os.close(terminal)
    assert process.returncode == 0, written
    return written.decode().replace("\r\n", "\n")


def in_pipe(command: Sequence[str], variables: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Runs a program whose standard output and error are pipes, and returns what it wrote there."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=_environment(variables))
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def _environment(variables: Mapping[str, str] | None) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in STYLES}
    return own | {"TERM": "xterm"} | dict(variables or {})
