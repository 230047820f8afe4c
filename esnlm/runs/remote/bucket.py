"""The objects below a URL: listed, read, written and deleted through fsspec, with errors in one line.

Credentials, regions and endpoints are what s3fs and gcsfs find in the environment and in the user's own files. Both try
again where a request fails for a reason that may pass, so what is raised here has been tried several times.
"""

import contextlib
import errno
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from esnlm.errors import InputError
from esnlm.io.atomic import refusal, writing
from esnlm.runs.remote.address import SERVICES, Address

AT_ONCE = 8  # files that are on their way side by side
SMALL = 8 << 20  # bytes; a file of at most so many is read before it is sent, so that it cannot grow meanwhile
# The packages whose exceptions say that a service or the network refuses. Any other one is a fault of the program.
SERVICE_ERRORS = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "requests", "fsspec")


class CloudError(InputError):
    """A service or the network refuses; the same command may do later."""


class Entry(NamedTuple):
    """What a listing says of an object."""

    size: int  # bytes
    tag: str  # another one after each change of the content


class Bucket:
    """The objects below an address, named by their paths in there."""

    def __init__(self, address: Address) -> None:
        """
        Raises:
            InputError: the package for this service is not installed.
        """
        self.address = address
        package = SERVICES[address.scheme]
        try:
            importlib.import_module(package)
            import fsspec
        except ImportError:
            raise InputError(
                f"{address.url}: {package} is not installed, which reads and writes there: pip install {package}"
            ) from None
        # They log each failed try, some with its traceback. The last one is told below, in a line.
        for logger in (package, "google.auth"):
            logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
        with self._told():
            # A listing that was kept would not show what another machine wrote meanwhile.
            self._files: Any = fsspec.filesystem(address.scheme, use_listings_cache=False, skip_instance_cache=True)

    def entries(self, below: str = "") -> dict[str, Entry]:
        """Lists the objects by name, those of the folder `below` (with a slash at its end) or all.

        Raises:
            InputError: there is no such bucket, or an object has a name that no file can have.
        """
        with self._told():
            try:
                found = self._files.find(f"{self.address.path}/{below}".rstrip("/"), detail=True)
                if not found:  # Some services answer so for a bucket that is not there.
                    self._require_bucket()
            except FileNotFoundError:
                raise InputError(
                    f"{self.address.url}: there is no bucket {self.address.bucket!r}; make it first, or name another"
                ) from None
        entries = {}
        for path, info in found.items():
            name = path.removeprefix(f"{self.address.path}/")
            if name.endswith("/") or path == self.address.path or info["type"] != "file":
                continue  # what a console makes to show an empty folder
            parts = name.split("/")
            if name == path or not all(parts) or {".", ".."} & set(parts) or "\0" in name:
                raise InputError(
                    f"{self.address.scheme}://{path}: no name for a file; delete it, or name another place"
                )
            tag = next((info[key] for key in ("ETag", "etag", "md5Hash", "mtime") if info.get(key)), "")
            entries[name] = Entry(int(info["size"]), str(tag))
        return entries

    def read(self, name: str) -> bytes | None:
        """Returns the content of a small object, or None where there is none."""
        with self._told(name):
            try:
                return self._files.cat_file(self._path(name))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Writes a small object, or replaces it. A reader finds the old one or the new one."""
        with self._told(name):
            self._files.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Writes a small object unless there is one. Returns whether it did; of several that try, one does."""
        with self._told(name):
            try:
                self._files.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
            except Exception as error:
                if getattr(error, "code", None) in (412, "412"):  # as gcsfs has it
                    return False
                raise
            return True

    def upload(self, files: dict[str, Path], said: Callable[[str], None] | None = None) -> None:
        """Sends files, by the names that they get. Calls `said` with the name of each that has arrived.

        Raises:
            FileNotFoundError: a file is not there.
        """

        def send(name: str) -> None:
            file = files[name]
            if file.stat().st_size <= SMALL:
                self.write(name, file.read_bytes())
            else:
                with self._told(name):
                    self._files.put_file(str(file), self._path(name))
            if said is not None:
                said(name)

        self._side_by_side(send, files)

    def download(self, files: dict[str, Path]) -> None:
        """Fetches objects into files, each of them whole or not at all.

        Raises:
            InputError: an object is not there, or the disk refuses.
        """

        def fetch(name: str) -> None:
            file = files[name]
            hidden = file.with_name(f".{file.name}.fetched")
            with writing(file):
                file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with self._told(name):
                    try:
                        self._files.get_file(self._path(name), str(hidden))
                    except FileNotFoundError:
                        raise CloudError(
                            f"{self.address.url}/{name}: gone meanwhile; give the same command again"
                        ) from None
                with writing(file):
                    os.replace(hidden, file)
            finally:
                hidden.unlink(missing_ok=True)

        self._side_by_side(fetch, files)

    def delete(self, names: Iterable[str]) -> None:
        """Deletes objects; those that are not there are passed over."""

        def remove(name: str) -> None:
            with self._told(name), contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._path(name))

        self._side_by_side(remove, names)

    def _path(self, name: str) -> str:
        return f"{self.address.path}/{name}"

    def _require_bucket(self) -> None:
        """Raises FileNotFoundError where there is no such bucket."""
        self._files.ls(self.address.bucket, detail=False)

    def _side_by_side(self, work: Callable[[str], None], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            started = [threads.submit(work, name) for name in names]
            try:
                for each in started:
                    each.result()
            except BaseException:
                threads.shutdown(wait=True, cancel_futures=True)
                raise

    @contextlib.contextmanager
    def _told(self, name: str = "") -> Iterator[None]:
        """Turns what a service or the network says into an InputError of one line."""
        place = f"{self.address.url}/{name}" if name else self.address.url
        try:
            yield
        except (InputError, FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            raise CloudError(_line(error, place, self.address)) from error


def _line(error: Exception, place: str, address: Address) -> str:
    """Returns the line for an error of a service. Raises it where it is a fault of the program."""
    module, kind = type(error).__module__.partition(".")[0], type(error).__name__
    package = SERVICES[address.scheme]
    text = " ".join(str(error).split())[:300].rstrip(".") or kind
    if "Credential" in kind or "credential" in text.lower() or kind in ("ProfileNotFound", "RefreshError"):
        return f"{place}: no credentials ({text}); give them as {package} finds them (docs/cloud.md)"
    if isinstance(error, PermissionError) or getattr(error, "code", None) in (401, 403, "401", "403"):
        return f"{place}: not allowed ({text}); use credentials that may read and write there (docs/cloud.md)"
    if not isinstance(error, OSError | TimeoutError) and module not in SERVICE_ERRORS:
        raise error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # of this machine
        return refusal(error, address.folder)
    return f"{place}: not reached ({text}); see to the network and the endpoint, and give the same command again"
