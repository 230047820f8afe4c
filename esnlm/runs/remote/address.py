"""What a URL names, and where its folder on this machine lies."""

import hashlib
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from esnlm.errors import InputError, require

SERVICES = {"s3": "s3fs", "gs": "gcsfs"}  # the package through which fsspec speaks to each
WORK = "ESNLM_WORK"  # the environment variable that names the folder of all working folders and copies


def is_url(place: str | Path) -> bool:
    """Returns whether a place is named by a URL, of a service that is known here or of any other.

    A `Path` of a URL has lost one of its slashes.
    """
    services = "|".join(SERVICES)
    return re.match(rf"[A-Za-z][A-Za-z0-9+.-]+://|({services}):/", str(place)) is not None


def full_name(place: str | Path) -> str:
    """Returns the name of a place that says where it is later, too: a URL with both its slashes, a path as it was given."""
    return parse(place).url if is_url(place) else str(place)


@dataclass(frozen=True)
class Address:
    """A place in a bucket: a run or a token store."""

    scheme: str
    path: str  # "bucket/runs/first"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.path}"

    @property
    def bucket(self) -> str:
        return self.path.partition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @cached_property
    def folder(self) -> Path:
        """What this machine keeps of the place: a folder with one in it to work in, one to read from, and notes."""
        readable = re.sub("[^A-Za-z0-9.]+", "-", f"{self.scheme}-{self.path}")[-80:]
        return _all_folders() / f"{readable}-{hashlib.sha256(self.url.encode()).hexdigest()[:8]}"

    @property
    def working_folder(self) -> Path:
        """Where the run is trained."""
        return self.folder / "work" / self.name

    @property
    def copy(self) -> Path:
        """Where it is read from. It may lack what was not needed yet."""
        return self.folder / "copy" / self.name


def parse(place: str | Path) -> Address:
    """Returns what a URL names.

    Raises:
        InputError: the service is unknown, or the URL does not name a folder of a bucket.
    """
    scheme, _, path = str(place).partition(":")
    path = path.strip("/")
    known = " and ".join(f"{scheme}://" for scheme in SERVICES)
    require(
        scheme in SERVICES, f"{place}: {scheme}:// is not known here; give a folder of this machine, or one of {known}"
    )
    parts = path.split("/")
    require(len(parts) > 1, f"{scheme}://{path}: names no folder; name one in the bucket, as in s3://bucket/runs/first")
    for part in parts:
        # Other characters are patterns, versions or escapes to one service or the other.
        plain = re.fullmatch(r"[\w.=@+,~ -]+", part) is not None and part not in (".", "..")
        require(plain, f"{scheme}://{path}: {part!r} is no name for a folder; use letters, digits and . _ - = + @")
    return Address(scheme, path)


def _all_folders() -> Path:
    if chosen := os.environ.get(WORK):
        return Path(chosen).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache") / "esnlm" / "cloud"
    except RuntimeError:
        raise InputError(
            f"there is no home folder to work in: name a folder in the environment variable {WORK}"
        ) from None
