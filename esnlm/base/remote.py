"""Copies runs and token stores from the cloud (s3://, gs://) to a cache, and uploads runs.

fsspec connects to the services; s3fs and gcsfs find credentials, region and endpoint themselves
(docs/machines.md).
"""

import hashlib
import importlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from esnlm.base.console import info, warn
from esnlm.base.errors import InputError
from esnlm.base.files import MANIFEST, find_difference, write_json, writing

CACHE = "ESNLM_WORK"  # the environment variable for the folder of all copies
NOT_SENT = ("wandb/", ".")  # prefixes of names that are not uploaded
STEPS = ("checkpoints/", "sums/")  # a run's folders with a sealed folder for each step
TAGS = ("size", "ETag", "etag", "mtime", "created")  # the properties that reveal a changed object


def is_url(place: str | Path) -> bool:
    """Returns whether a place is a URL, also one that lost a slash as a `Path`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|(s3|gs):/", str(place)) is not None


def full_name(place: str | Path) -> str:
    """Returns a URL with both slashes, or a path unchanged."""
    return re.sub("^(s3|gs):/+", r"\1://", str(place))


def run_copy(
    place: str | Path, step: int | None = None, every_step: bool = False, untrained: bool = False
) -> Path:
    """Returns a run directory on this machine: `place` itself, or a current copy of the run at a
    URL.

    The copy has the checkpoint of `step`, all checkpoints, or none (`untrained`). By default it has
    the newest that verifies, with a warning for each damaged one.
    """
    if not is_url(place):
        return Path(place)
    bucket = _Bucket(place)
    if "config.yaml" not in bucket.files:
        raise InputError(
            f"{bucket.url}: not a run directory (no config.yaml); give one of `esnlm train`"
        )
    steps = [
        int(name.split("/")[1])
        for name in bucket.files
        if re.fullmatch(rf"{STEPS[0]}\d+/{MANIFEST}", name)
    ]
    if step is not None and step not in steps:
        available = ", ".join(map(str, sorted(steps))) or "none"
        raise InputError(
            f"{bucket.url}/checkpoints: no checkpoint of step {step}; available: {available}"
        )
    folder = bucket.fetch(
        [name for name in bucket.files if not name.startswith((*STEPS, *NOT_SENT))]
    )
    if untrained:
        return folder
    for number in sorted(steps, reverse=True) if step is None else [step]:
        checkpoint = f"{STEPS[0]}{number}"
        bucket.fetch([name for name in bucket.files if name.startswith(f"{checkpoint}/")])
        if not every_step:
            if (problem := find_difference(folder / checkpoint)) is None:
                break
            warn(f"{bucket.url}/{checkpoint}: damaged checkpoint, not used: {problem}")
    return folder


def store_copy(place: str | Path) -> Path:
    """Copies the token store at a URL to this machine and returns its folder. `open_store` verifies
    it."""
    bucket = _Bucket(place)
    return bucket.fetch(list(bucket.files))


class Upload:
    """Copies a run directory to a URL; each call uploads the changes since the last one.

    The manifest of a checkpoint is uploaded last, and a checkpoint without it is ignored, so the
    run at the URL is usable at any moment.
    """

    def __init__(self, folder: Path, url: str) -> None:
        """Raises InputError if the URL holds anything but this run, or cannot be reached."""
        if not is_url(url):
            raise InputError(f"{url}: not a URL; give one such as s3://bucket/runs/first")
        self._folder, self._bucket = folder, _Bucket(url)
        self._sent: dict[str, tuple[int, int]] = {}
        if self._bucket.files and not self._holds_this_run():
            raise InputError(
                f"{url}: holds another run or other files; name another URL with --upload, or copy"
                f" that run to {folder} to continue it"
            )

    def __call__(self, last: bool = False) -> None:
        """Uploads changes. Failure is a warning, or on the `last` call an InputError."""
        try:
            self._send()
        except (InputError, OSError) as error:
            if last:
                raise InputError(
                    f"{error}; {self._folder} is complete; the same command uploads the rest"
                ) from None
            warn(f"upload failed, training continues: {error}")

    def _holds_this_run(self) -> bool:
        config = self._folder / "config.yaml"
        return (
            config.name in self._bucket.files
            and config.is_file()
            and self._bucket.read(config.name) == config.read_bytes()
        )

    def _send(self) -> None:
        bucket, folder = self._bucket, self._folder
        local = {}  # size and time of change
        for path in folder.rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and not name.startswith(NOT_SENT) and "/." not in name:
                local[name] = path.stat().st_size, path.stat().st_mtime_ns
        changed = [name for name in local if local[name] != self._sent.get(name)]
        for part in range(4):
            bucket.upload(folder, [name for name in changed if _part(name) == part])
        removed = {*bucket.files, *self._sent} - local.keys()
        for name in sorted(removed, key=_part, reverse=True):  # manifests first
            if name.startswith(STEPS):
                bucket.remove(name)
        self._sent, bucket.files = local, {}


def _part(name: str) -> int:
    """Returns the turn of a file: 0 metrics etc., 1 checkpoints, 2 their manifests, 3 the rest."""
    if name in (MANIFEST, "summary.json"):
        return 3
    return 0 if "/" not in name else 2 if name.endswith(f"/{MANIFEST}") else 1


class _Bucket:
    """The files below a URL, by name."""

    def __init__(self, place: str | Path) -> None:
        self.url = full_name(place).rstrip("/")
        fsspec = self._call(importlib.import_module, "fsspec")
        self._fs, self._root = self._call(fsspec.url_to_fs, self.url, use_listings_cache=False)
        listing = self._call(self._fs.find, self._root, detail=True)
        self.files: dict[str, Any] = {
            path.removeprefix(self._root).lstrip("/"): info for path, info in listing.items()
        }

    def read(self, name: str) -> bytes:
        return self._call(self._fs.cat_file, f"{self._root}/{name}")

    def upload(self, folder: Path, names: list[str]) -> None:
        self._call(
            self._fs.put,
            [str(folder / name) for name in names],
            [f"{self._root}/{name}" for name in names],
        )

    def remove(self, name: str) -> None:
        self._call(self._fs.rm_file, f"{self._root}/{name}")

    def fetch(self, wanted: list[str]) -> Path:
        """Fetches the wanted files that are missing or outdated here, and returns their folder."""
        unique = (
            re.sub("[^A-Za-z0-9.]+", "-", self.url)[-80:]
            + hashlib.sha256(self.url.encode()).hexdigest()[:8]
        )
        place = (
            Path(os.environ.get(CACHE) or Path.home() / ".cache/esnlm/cloud").absolute() / unique
        )
        folder, record = place / self._root.rpartition("/")[2], place / "fetched.json"
        with writing(place), FileLock(place / ".lock"):
            before = json.loads(record.read_bytes()) if record.exists() else {}
            tags = {name: [str(info.get(tag)) for tag in TAGS] for name, info in self.files.items()}
            known = {
                name: tag
                for name, tag in before.items()
                if tags.get(name) == tag and (folder / name).is_file()
            }
            for name in before.keys() - known.keys():
                (folder / name).unlink(missing_ok=True)
            missing = [name for name in wanted if name not in known]
            if missing:
                size = sum(self.files[name]["size"] for name in missing)
                info(f"fetching {self.url}: {len(missing)} files, {size / 1e6:,.1f} MB")
                self._call(
                    self._fs.get,
                    [f"{self._root}/{name}" for name in missing],
                    [str(folder / name) for name in missing],
                )
                write_json(record, known | {name: tags[name] for name in missing})
        return folder

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Calls fsspec, whose services raise exceptions without a common class."""
        try:
            return function(*arguments, **options)
        except ImportError as error:
            raise InputError(
                f"{self.url}: {error}: pip install 'esnlm[s3]', or 'esnlm[gcs]' for gs://"
            ) from None
        except Exception as error:
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            advice = "check the address, the credentials (docs/machines.md) and the network"
            raise InputError(f"{self.url}: {what}; {advice}") from error
