"""Writes files and folders so that a reader finds the old one or the new one, never a part of one.

This holds whenever the process is killed. What is written has a hidden name beside its target first,
`.NAME.partial-XXXXXXXX`, and takes the target's name when it is complete. Its writer holds a lock on it, which the
system releases when the process ends, however it ends. The next writer of the same target removes the partial files and
folders that nobody holds.
"""

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from esnlm.distributed import group
from esnlm.errors import InputError, require

# The errors of the system that the user can mend, and how. Any other one is a fault of the program.
ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space there, or choose another disk"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "choose a folder that you may write to, or change its rights"
    ),
    errno.EFBIG: "lift the limit on file sizes (ulimit -f), or choose another disk",
    errno.EIO: "the disk fails: choose another one",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit on open files (ulimit -n)"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "choose another place, or make the links anew",
}
# Those that the user can mend only where a path was given to write to. Elsewhere they are a fault of the program.
PATH_ADVICE = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "choose a folder that exists, or make it first"),
    errno.EISDIR: "name a file",
}


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a file, or replaces it, all or nothing.

    Raises:
        InputError: There is no room, no right to write there, or no such folder, or the path is a folder's. The old file
            is as it was.
        OSError: The system refuses for any other reason.
    """
    write_files({path: content})


def write_files(contents: Mapping[Path, str | bytes | None]) -> None:
    """Writes a group of files. Where the last one (such as a manifest) is there, the others are there too and belong to it.

    All contents are on the disk before the first file takes its name, and the files take their names in the order given.
    If the process is killed between two of these, then partial files are left, and `abandoned` finds them.

    Args:
        contents: The content of each file. None removes a file of this name.

    Raises:
        InputError: There is no room, no right to write there, or no such folder, or a path is a folder's. It names the
            path. The old files are as they were.
        OSError: The system refuses for any other reason.
    """
    assert group.writes(), f"{next(iter(contents))}: process 0 alone writes"
    partial: dict[Path, Path] = {}
    with contextlib.ExitStack() as stack:
        for path, content in contents.items():
            with writing(path):
                if path.is_dir() and not path.is_symlink():  # before any other file has taken its name
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                _require_plain(path)
                if content is not None:
                    partial[path], lock = _create(path, lambda hidden: hidden.touch(exist_ok=False))
                    stack.callback(_discard, partial[path], lock)
                    with open(partial[path], "wb") as file:
                        file.write(content.encode() if isinstance(content, str) else content)
                        file.flush()
                        os.fsync(file.fileno())
        _replace_all(list(contents), partial, stack)
        for path in contents:  # last, so that what a killed process left marks the group until it is complete
            remove_abandoned(path.parent, path.name)


def require_folders_above(path: Path) -> None:
    """Raises InputError where no folder can be made for `path`, because what would be a folder above it is a file."""
    for above in path.absolute().parents:
        if above.is_dir():
            return
        if os.path.lexists(above):
            raise InputError(f"{path}: {above.name} is a file, and no folder; name another place")


class NewFolder:
    """A folder that is written under a hidden name and takes its own name in `commit`, all or nothing.

    Without `commit`, leaving the `with` block removes what was written. An InputError that is raised inside names the
    target where it named the hidden folder.

    Example:
        with NewFolder(target) as new:
            (new.path / "file").write_text("content")
            new.commit()
    """

    def __init__(self, target: Path) -> None:
        """Makes the hidden folder, `path`, and the parents of the target. Raises OSError where it cannot be made."""
        assert group.writes(), f"{target}: process 0 alone writes"
        self.given, self.target = target, target.resolve()  # a link to a folder goes on pointing at it
        self.target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.target.parent, self.target.name)
        self.path, self._lock = _create(self.target, Path.mkdir)

    def __enter__(self) -> "NewFolder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        _discard(self.path, self._lock)
        self._lock = None
        if isinstance(error, InputError) and str(self.path) in str(error):
            raise InputError(str(error).replace(str(self.path), str(self.given))) from None

    def commit(self, replace: bool = False) -> None:
        """Gives the folder its name, once every byte of it is on the disk.

        An empty folder of that name is replaced.

        Args:
            replace: Whether to replace a folder that is not empty, too. It is moved aside first: a process that is
                killed at that very moment leaves neither the old folder nor the new one under the name.

        Raises:
            OSError: Something of that name exists, or the disk refuses.
        """
        for parent, _, names in os.walk(self.path, topdown=False):
            for name in (*names, ""):
                _sync(Path(parent, name))
        former = _hidden(self.target)
        replaced = replace and self.target.exists()
        if replaced:
            self.target.rename(former)
        try:
            self.path.rename(self.target)
            _sync(self.target.parent)
        except OSError:  # All is then as it was, so that the caller can try again.
            with contextlib.suppress(OSError):
                if not self.path.exists():
                    self.target.rename(self.path)
                if replaced:
                    former.rename(self.target)
            if self.path.exists():
                raise
            # The disk does not take the name back. All that is in the folder is on the disk, so it stays, whole.
        shutil.rmtree(former, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Removes a folder. It loses its name first, so that a killed process leaves no folder with files missing."""
    hidden = _hidden(folder)
    folder.rename(hidden)
    shutil.rmtree(hidden)


def abandoned(path: Path) -> list[Path]:
    """Returns what processes that have ended left of unfinished writes to `path`."""
    found = []
    for hidden in path.parent.glob(f".{glob.escape(path.name)}.partial-????????"):
        with _locked(hidden) as is_free:
            found += [hidden] if is_free else []
    return found


def remove_abandoned(parent: Path, name: str | None = None) -> None:
    """Removes what processes that have ended left of unfinished writes in a folder.

    Args:
        parent: The folder.
        name: The name of the file or folder that was to be written; None stands for any.
    """
    for hidden in parent.glob(f".{'*' if name is None else glob.escape(name)}.partial-????????"):
        with _locked(hidden) as is_free:
            if is_free:
                _discard(hidden, None)


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turns the system's errors that the user can mend into an InputError that names `path`. Others are raised as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in ADVICE | PATH_ADVICE:
            raise
        raise InputError(refusal(error, path)) from None


def require_writable(file: Path) -> None:
    """Raises InputError where no file of this name can be written, so that it is known before the work is done."""
    with writing(file):
        _require_findable(file)
        require(not file.is_dir(), f"{file}: a folder; name a file")
        require(file.parent.is_dir(), f"{file}: no such folder; choose a folder that exists, or make it first")
        _require_plain(file)
        require(os.access(file.parent, os.W_OK), f"{file}: the folder cannot be written to; choose another")
        _require_short(file)


def followed(path: Path) -> Path:
    """Returns what a link leads to, for a file that the user named, so that the link stays; any other path as it is.

    `write_file` itself replaces links: those in a folder that came from elsewhere may lead to any file of the user's.

    Raises:
        InputError: links lead to each other, or to a device or a pipe.
    """
    with writing(path):
        _require_findable(path)
        if not path.is_symlink():
            return path
        _require_plain(path)
        target = Path(os.path.realpath(path))
        if target.is_symlink():  # there is no end
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return target


def _require_findable(path: Path) -> None:
    """Raises OSError for a name that is too long, or links that lead to each other: from Python 3.14 on is_dir and the like say False."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()


def _require_short(file: Path) -> None:
    """Raises InputError where the name is allowed, and the longer one under which the file is written first is not."""
    hidden = _hidden(file)
    try:
        hidden.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        more = len(hidden.name) - len(file.name)
        line = f"while it is written, the file has a name of {more} more characters, which is too long"
        raise InputError(f"{file}: {line}; choose a shorter name") from None


def _require_plain(path: Path) -> None:
    """Raises InputError for a device or a pipe, which would lose its name to a file, as /dev/null would, or /dev/stdout."""
    leads_away = path.is_symlink() and os.readlink(path).startswith("/proc/")
    require(
        not leads_away and (path.is_file() or path.is_dir() or not path.exists()),
        f"{path}: a device or a pipe; name a file",
    )


def refusal(error: OSError, path: Path | str) -> str:
    """Returns one line: the file, what the system says, and what to free or change."""
    return f"{path}: {error.strerror}; {(ADVICE | PATH_ADVICE)[error.errno or 0]}"


def _replace_all(paths: list[Path], partial: Mapping[Path, Path], stack: contextlib.ExitStack) -> None:
    """Lets the partial files take their names, and removes the other paths. Where one refuses, all are as they were."""
    former: dict[Path, Path | None] = {}  # the old files, under hidden names too; None where there was none
    for path in paths[:-1]:  # Nothing comes after the last one that could still fail.
        hidden = former[path] = _hidden(path) if os.path.lexists(path) else None
        if hidden is not None:
            stack.callback(_discard, hidden, None)
            with contextlib.suppress(OSError):  # a file system without links: the new file then stays
                os.link(path, hidden, follow_symlinks=False)
    done: list[Path] = []
    try:
        for path in paths:
            with writing(path):
                if path in partial:
                    os.replace(partial[path], path)
                else:
                    path.unlink(missing_ok=True)
            done.append(path)
    except Exception:
        for path in done:
            with contextlib.suppress(OSError):
                if (hidden := former[path]) is not None:
                    os.replace(hidden, path)
                else:
                    path.unlink()
        raise


def _hidden(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial-{secrets.token_hex(4)}")


def _create(target: Path, make: Callable[[Path], object]) -> tuple[Path, int | None]:
    """Makes a hidden sibling of `target` and locks it. Returns its path and the lock (None: there are no locks here)."""
    while True:
        hidden = _hidden(target)
        make(hidden)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = _lock(hidden)
            if lock is None or hidden.exists():
                return hidden, lock
            os.close(lock)
        # Another process saw it before it was locked, took it for an abandoned one, and removes it.


def _lock(path: Path) -> int | None:
    """Locks a file or folder. Returns the descriptor, or None where the file system has no locks.

    Raises:
        BlockingIOError: Another one holds the lock.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return descriptor


@contextlib.contextmanager
def _locked(hidden: Path) -> Iterator[bool]:
    """Yields whether nobody holds a hidden file or folder. Nobody takes it meanwhile. A link is never held."""
    try:
        lock = None if hidden.is_symlink() else _lock(hidden)
    except OSError:
        yield False
        return
    try:
        yield lock is not None or hidden.is_symlink()
    finally:
        if lock is not None:
            os.close(lock)


def _discard(hidden: Path, lock: int | None) -> None:
    """Removes a hidden file or folder, where it still is, and gives back its lock."""
    if hidden.is_dir() and not hidden.is_symlink():
        shutil.rmtree(hidden, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            hidden.unlink()
    if lock is not None:
        os.close(lock)


def _sync(path: Path) -> None:
    """Waits until a file or the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
