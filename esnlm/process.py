"""How a process of esnlm begins and ends: what it asks of the system, its exit status, and errors in one line on stderr.

Output that cannot be written (a closed pipe, a full disk, a stream that is closed from the start) does not end the work.
What cannot be shown is dropped, the command does the rest of its work, and its exit status says that output was lost. This
is one rule for all commands: for training, whose results are files, and for those whose results are lines. `esnlm score`
prints when everything is computed, so it has no work left to save when `head` closes the pipe.
"""

import contextlib
import errno
import os
import resource
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from esnlm import background, compilation_cache
from esnlm.allocator import keep_freed_memory
from esnlm.distributed import group
from esnlm.distributed.channel import STOPPED, ProcessEnded
from esnlm.errors import InputError
from esnlm.io.atomic import ADVICE, refusal
from esnlm.io.console import end_status, warn

OUTPUT_LOST = 74  # the exit status of a command that did its work and lost some of its output; EX_IOERR of sysexits.h
# A run is the same whatever else the environment is made for. The first value is JAX's own, the others mean the same.
JAX_DEFAULTS = {
    "JAX_ENABLE_X64": ("0", "f", "false", "n", "no", "off"),  # a run computes in float32
    "JAX_NUMPY_DTYPE_PROMOTION": ("standard",),
    "JAX_NUMPY_RANK_PROMOTION": ("allow",),
    "JAX_DEFAULT_PRNG_IMPL": ("threefry2x32",),  # dropout masks, which the next two change as well
    "JAX_THREEFRY_PARTITIONABLE": ("1", "t", "true", "y", "yes", "on"),
    "JAX_RANDOM_SEED_OFFSET": ("0",),
}
FEWEST_FILES, ENOUGH_FILES = 64, 1024  # open at once; saving a small checkpoint takes about 30


def exit_with(main: Callable[[], int | None]) -> int:
    """Runs a command and returns its exit status.

    The status is that of `main` (None counts as 0), or 2 after one line on stderr for an InputError, a full disk and the
    like, or too little memory, or 130 for Ctrl-C. Where it would be 0 and standard output or standard error did not take
    everything, it is OUTPUT_LOST. Where another process of the run ended first, it is the status of that one, or
    PROCESS_LOST.
    """
    return background.leave(_status(main))


def _status(main: Callable[[], int | None]) -> int:
    """Runs a command and returns the status that its process should end with."""
    keep_freed_memory()
    warnings.formatwarning = _spell_warning
    _fill_standard_files()
    with _lasting("stderr") as stderr:
        with _lasting("stdout") as stdout:
            status = _run(main)
        if stdout.refused is not None and stdout.refused.errno != errno.EPIPE:
            # A closed pipe needs no words: whoever reads with `head` has seen enough.
            warn(f"standard output: {stdout.refused.strerror}; what it did not take is lost")
    lost = stdout.refused is not None or stderr.refused is not None
    return status or (OUTPUT_LOST if lost else 0)


def _run(main: Callable[[], int | None]) -> int:
    """Calls a command, says what was wrong, and returns the status."""
    try:
        _allow_open_files()
        _keep_jax_defaults()
        compilation_cache.use()
        status = main() or 0
        group.finish()
        return status
    except SystemExit as end:  # of --help and wrong arguments
        return int(end.code or 0)
    except (InputError, ProcessEnded) as error:
        status, message = getattr(error, "status", 2), str(error)
    except OSError as error:  # raised where no file is named, for example by a result that cannot be written
        if error.errno not in ADVICE:
            if group.count() > 1:
                return _fault(error)
            raise
        status, message = 2, refusal(error, error.filename or "a file")
    except MemoryError as error:
        status, message = (
            2,
            f"not enough memory: {error or 'no more is given'}; ask for less (train.py --plan shows the need)",
        )
    except KeyboardInterrupt:
        return _end(130, "interrupted")
    except Exception as error:
        if not _is_loop_of_links(error):
            if group.count() > 1:
                return _fault(error)
            raise
        status, message = 2, f"{error}; {ADVICE[errno.ELOOP]}"
    end_status()
    print(f"error: {message}", file=sys.stderr)
    return _end(status, message)


def _is_loop_of_links(error: Exception) -> bool:
    """Returns whether `Path.resolve` has raised an error, as it does in Python 3.11 and 3.12 where links lead to each other."""
    return isinstance(error, RuntimeError) and str(error).startswith("Symlink loop from ")


def _end(status: int, message: str) -> int:
    """Returns the status of a command that failed, and lets the other processes of the run end, too."""
    if group.fail(status, message):
        background.leave_behind()  # JAX's own end would wait for the others
    return status


def _fault(error: Exception) -> int:
    """Shows an error that is a fault of the program, or the end of another process that was behind it."""
    if (cause := group.reason()) is None:
        end_status()
        traceback.print_exception(error)
        return _end(1, f"{type(error).__name__}: {error}".partition("\n")[0])
    end_status()
    if isinstance(cause, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
        return _end(STOPPED, "stopped")
    print(f"error: {cause}", file=sys.stderr)
    return _end(getattr(cause, "status", 2), str(cause))


def _spell_warning(message: Warning | str, *_: object, **__: object) -> str:
    """Returns what Python prints for a warning of the module `warnings`."""
    end_status()
    return f"warning: {message}\n"


def _fill_standard_files() -> None:
    """Opens /dev/null where standard input, output or error is closed.

    The next file to be opened would get its number otherwise, and what a C library says on standard error would go into
    a checkpoint.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)


def _allow_open_files() -> None:
    """Raises the limit on open files, as far as the system lets us, where it is low.

    Raises:
        InputError: it stays so low that not even Python's and JAX's own files could be opened.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < ENOUGH_FILES:
        enough = ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_FILES)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft < FEWEST_FILES:
            raise InputError(
                f"at most {soft} files may be open at once, and {FEWEST_FILES} are needed: raise the limit"
                f" (ulimit -n {ENOUGH_FILES})"
            )


def _keep_jax_defaults() -> None:
    """Takes back, before JAX reads them, settings with which it would refuse our programs or draw other numbers."""
    for name, defaults in JAX_DEFAULTS.items():
        if os.environ.get(name, defaults[0]).lower() not in defaults:
            warn(f"{name}={os.environ.pop(name)} is not used: esnlm computes with JAX's default, {defaults[0]}")


class LastingStream:
    """Standard output or standard error that takes whatever is written, and drops what the system refuses.

    What was refused may still be in Python's buffer. It is written with the next line where the system takes that one, as
    a disk does on which room was made.
    """

    def __init__(self, stream: TextIO | None) -> None:
        """
        Args:
            stream: None, as Python has it in sys.stdout where the stream is closed from the start: everything is refused.
        """
        self.refused: OSError | None = None  # by the system, the first time
        self._closed = stream is None
        self._stream = open(os.devnull, "w") if stream is None else stream  # noqa: SIM115  (`finish` closes it)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes a text; what the stream's encoding has no character for is written as an escape, such as \\xe9."""
        try:
            if self._closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            self.refused = self.refused or error
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self.refused = self.refused or error

    def finish(self) -> None:
        """Writes what is in Python's buffer, for the last time.

        Python would try it again when it exits, fail, complain about an ignored exception, and exit with status 120. So
        what is refused here goes to /dev/null.
        """
        if self._closed:
            self._stream.close()
            return
        try:
            self._stream.flush()
        except OSError as error:
            self.refused = self.refused or error
            with contextlib.suppress(OSError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._stream.fileno())
                os.close(null)
                self._stream.flush()


@contextlib.contextmanager
def _lasting(name: str) -> Iterator[LastingStream]:
    """Puts a LastingStream in the place of sys.stdout or sys.stderr, and takes it away at the end.

    Everything in Python that prints, warns or logs looks the stream up there, other packages too.
    """
    before = getattr(sys, name)
    stream = LastingStream(before)
    setattr(sys, name, stream)
    try:
        yield stream
    finally:
        stream.finish()
        setattr(sys, name, before)
