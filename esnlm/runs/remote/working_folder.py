"""A run that is trained in a folder of this machine and kept in the cloud.

At the start the folder is brought to the newest state that is in the cloud, unless it is as new itself. While training goes
on, a thread sends what is saved; the training never waits for it. Before the process ends, the last state is sent.
"""

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from esnlm.errors import InputError
from esnlm.io import file_lock, sealed_folder
from esnlm.io.atomic import write_file, writing
from esnlm.io.console import say, tell, warn
from esnlm.io.sealed_folder import MANIFEST
from esnlm.runs.directory import ANOTHER
from esnlm.runs.remote import address
from esnlm.runs.remote.bucket import Bucket, Entry
from esnlm.runs.remote.copies import named, require_whole
from esnlm.runs.remote.lock import LOCK, Lock
from esnlm.runs.remote.mirror import (
    FROZEN,
    NOT_SENT,
    REPORTS,
    STEPS,
    Mirror,
    is_permanent,
    sealed_folders,
    step_folders,
    step_of,
)

NOT_UPLOADED = 69  # the exit status of a training whose last state is on this machine only; EX_UNAVAILABLE in C
LOOK, AT_LEAST = 5.0, 60.0  # seconds between looks for a new checkpoint, and between rounds without one
PATIENCE, PAUSE = 120.0, 5.0  # seconds of trying to send the last state, and between the tries
NOT_FETCHED = (*REPORTS, *NOT_SENT)  # which no training reads, but for reports on minimal pairs, which it might replace


def train_there(url: str, train: Callable[[Path], int]) -> int:
    """Calls `train` with the working folder of a run in the cloud, and keeps the two alike.

    Args:
        url: the run.
        train: trains in a run directory and returns the exit status.

    Returns:
        Its status, or NOT_UPLOADED where its last state could not be sent. The same call sends it then.

    Raises:
        InputError: the run in the cloud, or its lock, cannot be had. What `train` raises is raised, too.
    """
    place = address.parse(url)
    folder = place.working_folder
    bucket = Bucket(place)
    _require_run_or_nothing(bucket)
    with _held_here(place), named(folder, place.url):
        lock = Lock(bucket)
        with _told_to_wait() as wait, lock.held():
            mirror = Mirror(bucket, folder, place.folder / "outgoing")
            shutil.rmtree(place.folder / "outgoing", ignore_errors=True)
            _fetch(bucket, folder, mirror)
            sender = _Sender(mirror, lock, place.url)
            try:
                status = train(folder)
            except InputError:
                with wait():
                    sender.finish(folder, patience=0.0)
                raise
            except BaseException:
                sender.stop()
                raise
            with wait():
                if not sender.finish(folder, PATIENCE):
                    return NOT_UPLOADED
            say(f"{place.url} has everything")
            return status


class _Sender:
    """The thread that sends what is saved."""

    def __init__(self, mirror: Mirror, lock: Lock, url: str) -> None:
        self._mirror, self._lock, self._url = mirror, lock, url
        self._over = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after the round that is under way."""
        self._over.set()
        self._thread.join()

    def finish(self, folder: Path, patience: float) -> bool:
        """Sends the last state. Returns whether it has arrived; says where it has not.

        Args:
            folder: the working folder, for that line.
            patience: seconds of trying again.
        """
        problem = "another training has taken the run over"
        end = time.monotonic() + patience
        try:
            self.stop()
            while not self._lock.lost:
                try:
                    self._mirror.push()
                    return True
                except (InputError, OSError) as error:
                    problem = str(error)
                if time.monotonic() > end:
                    break
                time.sleep(PAUSE)
        except KeyboardInterrupt:
            problem = "stopped by Ctrl-C"
        warn(f"{self._url}: the last state is not in the cloud, but in {folder}: {problem}")
        return False

    def _run(self) -> None:
        last = time.monotonic()
        while not self._over.wait(LOOK):
            if self._lock.lost:
                return
            if not self._mirror.is_behind() and time.monotonic() - last < AT_LEAST:
                continue
            try:
                self._mirror.push()
            except (InputError, OSError) as error:
                if not self._failing:  # once an outage
                    warn(f"nothing is uploaded for now, and training goes on: {error}")
                self._failing = True
                continue
            if self._failing:
                tell(f"{self._url}: uploads go on")
            self._failing, last = False, time.monotonic()


@contextlib.contextmanager
def _held_here(place: address.Address) -> Iterator[None]:
    """Holds what this machine keeps of a run against a second training on this machine."""
    with writing(place.folder):
        place.folder.mkdir(parents=True, exist_ok=True)
        lock = open(place.folder / ".lock", "a")  # noqa: SIM115  (closed below)
    with lock:
        taken = f"{place.url}: another training on this machine is writing to this run; {ANOTHER}"
        file_lock.lock(lock, taken)  # Where there are no locks, the one in the cloud is left.
        yield


@contextlib.contextmanager
def _told_to_wait() -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Handles SIGTERM, outside of the training itself: at the start it ends the process, at the end it has to wait.

    Yields:
        What makes the block in which it has to wait.
    """
    waits = False

    def handle(*_: object) -> None:
        if not waits:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def wait() -> Iterator[None]:
        nonlocal waits
        waits = True
        yield

    if threading.current_thread() is not threading.main_thread():  # Only a main thread can handle signals.
        yield wait
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield wait
    finally:
        signal.signal(signal.SIGTERM, before)


def _require_run_or_nothing(bucket: Bucket) -> None:
    """Raises InputError where something else than a run is at a URL, before anything is written there."""
    names = bucket.entries().keys() - {LOCK}
    if names and "format.json" not in names:
        raise InputError(
            f"{bucket.address.url}: holds other files ({min(names)}) and no run; choose another run with --run"
        )


def _fetch(bucket: Bucket, folder: Path, mirror: Mirror) -> None:
    """Brings the working folder to the newest state in the cloud, unless it is as new itself."""
    entries = bucket.entries()
    if MANIFEST not in entries:  # Nothing was begun there.
        mirror.compare(entries, set(), set())
        return
    has_run = (folder / MANIFEST).is_file()
    if has_run:
        _require_same_run(bucket, folder)
    scores = {name for name in entries if name.startswith("evaluation/") and name.endswith(".json")}
    scores = {name for name in scores if not (folder / name).exists() or mirror.has_sent_report(name)}
    bucket.download({name: folder / name for name in scores})
    wanted = _wanted_steps(bucket, entries)
    if has_run and _newest_good(folder) >= max(map(step_of, wanted), default=-1):
        mirror.compare(entries, scores, set())
        return

    say(f"fetching {bucket.address.url}")
    with writing(folder):
        (folder / MANIFEST).unlink(missing_ok=True)  # It comes last: a folder without one is fetched again.
        for parent in STEPS:
            shutil.rmtree(folder / parent, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    manifest = bucket.read(MANIFEST) or b""
    plain = {
        name for name in entries if name not in (MANIFEST, LOCK) and not name.startswith((FROZEN, *STEPS, *NOT_FETCHED))
    }
    inside = {name for name in entries if name.startswith((FROZEN, *wanted))}
    bucket.download({name: folder / name for name in plain | inside})
    require_whole(folder, manifest, bucket.address.url)
    damaged = {
        each for each in sealed_folders(entries) & {FROZEN, *wanted} if sealed_folder.find_difference(folder / each)
    }
    mirror.compare(entries, plain | scores, damaged)
    write_file(folder / MANIFEST, manifest)


def _require_same_run(bucket: Bucket, folder: Path) -> None:
    """Raises InputError where the folder on this machine is of another run than the one in the cloud."""
    for name in ("config.yaml", "data.json"):
        there = bucket.read(name)
        if there is not None and (folder / name).is_file() and there != (folder / name).read_bytes():
            raise InputError(
                f"{bucket.address.url}: another run than the one that this machine has worked at ({name} differs); if that one"
                f" is of no use any more, delete {folder.parent}"
            )


def _wanted_steps(bucket: Bucket, entries: dict[str, Entry]) -> set[str]:
    """Returns the folders of the steps that a training goes on from: all but those kept for good, and the newest one."""
    steps = sealed_folders(entries) & step_folders(entries)
    newest = max(steps, key=lambda each: (step_of(each), each), default=None)
    return {each for each in steps if each == newest or not is_permanent(bucket, each)}


def _newest_good(folder: Path) -> int:
    """Returns the newest step on this machine whose folder is as it was saved, or -1."""
    found = [path for parent in STEPS for path in (folder / parent).glob("*") if path.name.isdecimal()]
    for path in sorted(found, key=lambda path: int(path.name), reverse=True):
        if sealed_folder.find_difference(path) is None:
            return int(path.name)
    return -1
