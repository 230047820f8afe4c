"""Runs and token stores in the cloud that are only read: fetched as far as they are needed, verified, and kept.

What was fetched once stays in a folder of this machine, and only what has changed is fetched again. Of a run that is the
small files, the reservoir and one checkpoint. The folder can be deleted at any time.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from esnlm.distributed import group
from esnlm.errors import InputError, require
from esnlm.io import file_lock, sealed_folder
from esnlm.io.atomic import NewFolder, remove_folder, write_file, writing
from esnlm.io.console import say
from esnlm.io.json_file import parse_json, remove_seal
from esnlm.io.sealed_folder import MANIFEST, file_sha256
from esnlm.runs.remote import address
from esnlm.runs.remote.address import Address, is_url
from esnlm.runs.remote.bucket import Bucket, Entry
from esnlm.runs.remote.lock import LOCK
from esnlm.runs.remote.mirror import FROZEN, NOT_SENT, STEPS, sealed_folders, step_of
from esnlm.warning import warn_caller

RESULTS = ("evaluation/", "diagnostics/")  # what is made of a run after its training
FOR_REPORTS = (*RESULTS, "plots/", "metrics.jsonl", "metrics.csv")  # what only tables and pages of runs read
NOTES = "fetched.json"  # what the cloud had when each file was fetched
LATER = ("metrics.jsonl", "summary.json")  # files that a manifest names and that may be newer than it


@contextlib.contextmanager
def run_copy(
    url: str | Path,
    step: int | None = None,
    untrained: bool = False,
    every_step: bool = False,
    results: bool = False,
    warn: Callable[[str], Any] = warn_caller,
) -> Iterator[Path]:
    """Yields a run directory on this machine with what is needed of a run in the cloud, as it is now.

    Errors that name the directory, in the block too, name the URL instead.

    Args:
        url: the run; a run directory of this machine is yielded as it is.
        step: the checkpoint of this step; None: the newest that verifies.
        untrained: whether no checkpoint is needed.
        every_step: whether all of them are.
        results: whether reports and losses are, too.
        warn: is called with a line for each damaged checkpoint that is passed over.

    Raises:
        InputError: there is no run, it is damaged, or it has no such checkpoint.
    """
    if not is_url(url):
        yield Path(url)
        return
    _require_writer(url)
    place = address.parse(url)
    folder = place.copy
    with named(folder, place.url):
        with _held(place):
            bucket = Bucket(place)
            entries = bucket.entries()
            if "config.yaml" not in entries:
                raise InputError(
                    f"{place.url}: not a run directory: it has no config.yaml; give one that train.py wrote"
                )
            _fetch_files(bucket, folder, entries, results)
            steps = {step_of(each): each for each in sealed_folders(entries) if each.startswith(STEPS[0])}
            _drop_old_steps(folder, set(steps))
            if FROZEN + MANIFEST in entries:
                _fetch_sealed(bucket, folder, FROZEN, entries)
            if every_step:
                for each in steps.values():
                    _fetch_sealed(bucket, folder, each, entries)
            elif step is not None:
                if step not in steps:
                    there = ", ".join(map(str, sorted(steps))) or "none"
                    raise InputError(f"{place.url}/checkpoints: no checkpoint of step {step}; there are: {there}")
                _fetch_sealed(bucket, folder, steps[step], entries)
            elif not untrained and steps:
                _fetch_newest(bucket, folder, steps, entries, warn)
        yield folder


def results_copy(place: str | Path) -> Path:
    """Returns a directory with a run's reports and losses, without its arrays; a place on this machine as it is."""
    with run_copy(place, untrained=True, results=True) as folder:
        return folder


def run_folder(place: str | Path) -> Path:
    """Returns a directory with a run's newest checkpoint, reports and losses; a place on this machine as it is."""
    with run_copy(place, results=True) as folder:
        return folder


def fetch_every_step(place: str | Path) -> None:
    """Fetches all checkpoints of a run in the cloud, for what is done with each of them."""
    with run_copy(place, every_step=True):
        pass


def store_copy(url: str | Path, anew: bool = False) -> Path:
    """Returns a folder on this machine with a token store of the cloud, fetched where it is not there as it is now.

    Args:
        url: the store.
        anew: whether to fetch it in any case, since the copy that is there is damaged.

    Raises:
        InputError: there is no store, or it is damaged.
    """
    place = address.parse(url)
    bucket = Bucket(place)
    entries = bucket.entries()
    manifest = bucket.read(MANIFEST) if MANIFEST in entries else None
    if manifest is None:
        raise InputError(f"{place.url}/{MANIFEST}: missing; not a token store: make one with python -m esnlm prepare")
    with named(place.copy, place.url), _held(place):
        here = place.copy / MANIFEST
        if not anew and here.is_file() and here.read_bytes() == manifest:
            return place.copy
        try:
            sums = dict(parse_json(manifest)["sha256"])
        except (ValueError, KeyError, TypeError):
            sums = {}  # The line for this is that of every store: whoever opens it tells.
        _require_writer(url)
        files = [name for name in entries if name in sums or name.startswith("tokenizer/")]
        size = sum(entries[name].size for name in files)
        say(f"fetching {place.url}: {size / 1e6:,.1f} MB")
        with writing(place.copy):
            new_folder = NewFolder(place.copy)
        with new_folder as new:
            bucket.download({name: new.path / name for name in files if name != MANIFEST})
            for name in sorted(sums.keys() - {MANIFEST}):
                file = new.path / name
                if not file.is_file() or file_sha256(file) != sums[name]:
                    wrong = "its sha256 differs" if file.is_file() else "missing"
                    raise InputError(
                        f"{place.url}/{name}: not as it was made ({wrong}); prepare the store again, or upload it again"
                    )
            write_file(new.path / MANIFEST, manifest)
            with writing(place.copy):
                new.commit(replace=True)
        return place.copy


@contextlib.contextmanager
def named(folder: Path, url: str) -> Iterator[None]:
    """Names the URL in errors that name its folder on this machine."""
    try:
        yield
    except InputError as error:
        if str(folder) not in str(error):
            raise
        raise InputError(str(error).replace(str(folder), url)) from None


def require_whole(folder: Path, manifest: bytes, url: str) -> None:
    """Raises InputError where a file that was fetched is not the one that the run's manifest names.

    Args:
        folder: where the files are.
        manifest: the manifest as it was read in the cloud.
        url: of the run, for the line.
    """
    if (content := remove_seal(manifest)) is None:
        raise InputError(f"{url}/{MANIFEST}: changed since it was written; restore it from a copy of the run")
    for name, sha256 in content.get("files", {}).items():
        if name in LATER:
            continue
        if not (folder / name).is_file():
            raise InputError(f"{url}/{name}: missing; restore it from a copy of the run")
        if file_sha256(folder / name) != sha256:
            raise InputError(f"{url}/{name}: changed since it was written; restore it from a copy of the run")


def read_notes(place: Address) -> dict[str, list[Any]]:
    """Returns, for each file of a copy, what the cloud had when the two were last alike: [tag, size, time of the file]."""
    try:
        found = parse_json((place.folder / NOTES).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_notes(place: Address, notes: dict[str, list[Any]]) -> None:
    """Keeps what `read_notes` returns."""
    write_file(place.folder / NOTES, json.dumps(notes))


def note(entry: Entry, file: Path) -> list[Any]:
    """Returns what is kept of a file that is the same here and in the cloud."""
    status = file.stat()
    return [entry.tag, status.st_size, status.st_mtime_ns]


def _require_writer(url: str | Path) -> None:
    """Raises InputError in all of several processes but the first one, which alone writes files."""
    line = f"{url}: of several processes the first one alone can fetch it; copy it to a folder that all see, and name that one"
    require(group.writes(), line)


def is_noted(file: Path, noted: list[Any] | None) -> bool:
    """Tells whether a file is there, as it was when its note was taken."""
    if noted is None or not file.is_file():
        return False
    status = file.stat()
    return noted[1:] == [status.st_size, status.st_mtime_ns]


@contextlib.contextmanager
def _held(place: Address) -> Iterator[None]:
    """Holds the copies of a place, so that two processes of this machine do not fetch the same at once."""
    with writing(place.folder):
        place.folder.mkdir(parents=True, exist_ok=True)
        lock = open(place.folder / ".copy.lock", "a")  # noqa: SIM115  (closed below)
    with lock:
        file_lock.lock(lock)
        yield


def _fetch_files(bucket: Bucket, folder: Path, entries: dict[str, Entry], results: bool) -> None:
    """Fetches the plain files of a run that are not here as they are there, and verifies them."""
    place = bucket.address
    left_out = (FROZEN, *STEPS, "tensorboard/", *NOT_SENT, *(() if results else FOR_REPORTS))
    wanted = [name for name in entries if name not in (MANIFEST, LOCK) and not name.startswith(left_out)]
    notes = read_notes(place)
    # It is read before what it names, as it is written after it.
    manifest = bucket.read(MANIFEST) if MANIFEST in entries else None
    new = [name for name in wanted if notes.get(name, [None])[0] != entries[name].tag or not (folder / name).is_file()]
    bucket.download({name: folder / name for name in new})
    if manifest is None:
        (folder / MANIFEST).unlink(missing_ok=True)
    else:
        _retry_damaged(bucket, folder, manifest, set(wanted) - set(new))
        write_file(folder / MANIFEST, manifest)
    gone = notes.keys() - entries.keys()  # A report that was deleted there is none of the run any more.
    for name in gone:
        if is_noted(folder / name, notes[name]):  # else it was made here since then, and its upload failed
            (folder / name).unlink()
    kept_notes = {name: known for name, known in notes.items() if name not in gone}
    write_notes(place, kept_notes | {name: note(entries[name], folder / name) for name in new})


def _retry_damaged(bucket: Bucket, folder: Path, manifest: bytes, kept: set[str]) -> None:
    """Verifies the files of a copy. Those that were kept from before are fetched again first, where they are damaged."""
    try:
        require_whole(folder, manifest, bucket.address.url)
    except InputError:
        bucket.download({name: folder / name for name in kept})
        require_whole(folder, manifest, bucket.address.url)


def _drop_old_steps(folder: Path, steps: set[int]) -> None:
    """Removes the checkpoints of a copy that are not in the cloud any more."""
    parent = folder / STEPS[0]
    for path in parent.iterdir() if parent.is_dir() else ():
        if path.name.isdecimal() and int(path.name) not in steps:
            remove_folder(path)


def _fetch_newest(
    bucket: Bucket, folder: Path, steps: dict[int, str], entries: dict[str, Entry], warn: Callable[[str], Any]
) -> None:
    """Fetches the newest checkpoint that verifies.

    Raises:
        InputError: none does.
    """
    problem = None
    for step in sorted(steps, reverse=True):
        problem = _fetch_sealed(bucket, folder, steps[step], entries, required=False)
        if problem is None:
            return
        warn(f"{bucket.address.url}/{steps[step].rstrip('/')}: damaged checkpoint, not used: {problem}")
    raise InputError(
        f"{bucket.address.url}/checkpoints: no intact checkpoint (step {min(steps)}: {problem}); restore one from a copy"
    )


def _fetch_sealed(
    bucket: Bucket, folder: Path, each: str, entries: dict[str, Entry], required: bool = True
) -> str | None:
    """Fetches a folder with a manifest unless it is here. Returns what is wrong with it, or None.

    Raises:
        InputError: it is damaged, and `required`.
    """
    here = folder / each
    is_whole = (here / MANIFEST).is_file() and sealed_folder.find_difference(here) is None
    if is_whole and (here / MANIFEST).read_bytes() == bucket.read(each + MANIFEST):
        return None
    names = [name for name in entries if name.startswith(each)]
    say(f"fetching {bucket.address.url}/{each.rstrip('/')}: {sum(entries[name].size for name in names) / 1e6:,.1f} MB")
    with writing(here):
        new_folder = NewFolder(here)
    with new_folder as new:
        bucket.download({name: new.path / name.removeprefix(each) for name in names})
        problem = sealed_folder.find_difference(new.path)
        if problem is None:
            with writing(here):
                new.commit(replace=True)
            return None
    shutil.rmtree(here, ignore_errors=True)
    if required:
        raise InputError(
            f"{bucket.address.url}/{each.rstrip('/')}: damaged checkpoint: {problem}; use another step or a copy of this one"
        )
    return problem
