"""In which order the files of a working folder go up, so that the run in the cloud can be resumed at every moment.

An object appears whole, and a folder does not. So a checkpoint counts once its manifest.json is there, and that comes last:

1. plain files, metrics.jsonl among them, so that no checkpoint is without the lines before it;
2. the reservoir, and the checkpoints, newest first: their files, then their manifest.json;
3. the run's manifest.json, which was read before all of these; with the first one the run counts as begun;
4. deletions of checkpoints that are no longer needed: their manifest.json first.

The files of a checkpoint have links in a folder of their own while they go up. So the training may delete the checkpoint
meanwhile, and where checkpoints are saved faster than they go up, each one that was begun still arrives.
"""

import contextlib
import json
import os
import shutil
from pathlib import Path

from esnlm.io import sealed_folder
from esnlm.io.atomic import write_file
from esnlm.io.json_file import parse_json
from esnlm.io.sealed_folder import MANIFEST
from esnlm.runs.remote.bucket import Bucket, Entry

FROZEN, STEPS = "frozen/", ("checkpoints/", "sums/")  # of RunDirectory; in the latter a folder for each step
REPORTS = ("evaluation/", "diagnostics/", "plots/")  # what other commands make of a run, too
NOT_SENT = ("wandb/", ".")  # how names begin that stay on this machine


class Mirror:
    """Sends what is new in a working folder, a round at a time."""

    def __init__(self, bucket: Bucket, folder: Path, outgoing: Path) -> None:
        """
        Args:
            bucket: where to.
            folder: the run directory on this machine.
            outgoing: a folder on the same disk, for links to what is on its way. Beside it lies outgoing.json, which says to the
                next training here which plain files were sent.
        """
        self._bucket, self._folder, self._outgoing = bucket, folder, outgoing
        self._record = outgoing.with_suffix(".json")
        self._recorded = self._read_record()
        self._sent: dict[str, tuple[int, int]] = {}  # the state of each plain file that is in the cloud as it is here
        self._sealed: set[str] = set()  # "checkpoints/20/", ... that are whole in the cloud and as they are here
        self._stale: set[str] = set()  # those that are in the cloud only
        self._manifest: bytes | None = None

    def compare(self, entries: dict[str, Entry], same: set[str], damaged: set[str]) -> None:
        """Learns what is in the cloud already.

        A report that an earlier training here has sent is not sent again as long as it is as it was then: another command may have
        replaced it there.

        Args:
            entries: the objects.
            same: names of plain files that were fetched from there.
            damaged: folders, such as "checkpoints/20/", that are there and not whole.
        """
        both = {name: _state(file) for name in entries if (file := self._folder / name).is_file()}
        self._sent = {name: state for name, state in both.items() if name in same or self.has_sent_report(name)}
        self._sealed, self._stale = set(), set()
        for each in sealed_folders(entries):
            here = self._folder / each / MANIFEST
            is_same = each not in damaged and here.is_file() and self._bucket.read(each + MANIFEST) == here.read_bytes()
            (self._sealed if is_same else self._stale).add(each)
        self._stale |= step_folders(entries) - self._sealed  # uploads that were cut short, too

    def has_sent_report(self, name: str) -> bool:
        """Tells whether a file is a report, here as an earlier training here has sent it."""
        file = self._folder / name
        return name.startswith(REPORTS) and file.is_file() and self._recorded.get(name) == _state(file)

    def is_behind(self) -> bool:
        """Returns whether a checkpoint has come or gone since the last round."""
        return self._begun() and self._local() != {each for each in self._sealed if each != FROZEN}

    def push(self) -> None:
        """Does one round. Returns where nothing has changed, or the run has not begun yet.

        Raises:
            InputError: the bucket cannot be written to; what was sent so far is of use, and the next round goes on.
        """
        if not self._begun():
            return
        manifest = (self._folder / MANIFEST).read_bytes()
        new = sorted(self._local() - self._sealed, key=_newest_first)
        if (self._folder / FROZEN / MANIFEST).is_file() and FROZEN not in self._sealed:
            new.insert(0, FROZEN)
        try:
            # Before the metrics are read: a checkpoint that is saved meanwhile has lines that they would lack. What the training
            # deletes from here on is there all the same.
            held = [each for each in new if _link(self._folder / each, self._outgoing / each)]
            self._push_plain_files()
            for each in held:
                self._push_sealed(each)
        finally:
            shutil.rmtree(self._outgoing, ignore_errors=True)
        if manifest != self._manifest:
            self._bucket.write(MANIFEST, manifest)
            self._manifest = manifest
        self._delete_old()

    def _begun(self) -> bool:
        return (self._folder / MANIFEST).is_file()

    def _local(self) -> set[str]:
        """Returns the sealed folders of the steps that are here."""
        found = set()
        for parent in STEPS:
            with contextlib.suppress(FileNotFoundError):
                names = os.listdir(self._folder / parent)
                found |= {f"{parent}{name}/" for name in names if name.isdecimal()}
        return {each for each in found if (self._folder / each / MANIFEST).is_file()}

    def _push_plain_files(self) -> None:
        here: dict[str, tuple[int, int]] = {}
        for top in self._folder.iterdir():
            if top.name == MANIFEST or f"{top.name}/".startswith((FROZEN, *STEPS, *NOT_SENT)):
                continue
            names = [f"{top.name}/{name}" for name in sealed_folder.sizes(top)] if top.is_dir() else [top.name]
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # a tracker may have removed it meanwhile
                    if "/." not in name:
                        here[name] = _state(self._folder / name)
        new = [name for name, state in here.items() if self._sent.get(name) != state]
        # The first object says whose folder this is, for a process that is killed right after it.
        for part in (["format.json"] if "format.json" in new else [], [name for name in new if name != "format.json"]):
            self._bucket.upload(
                {name: self._folder / name for name in part}, lambda name: self._sent.update({name: here[name]})
            )
        gone = {name for name in self._sent.keys() - here.keys() if not name.startswith(REPORTS)}
        self._bucket.delete(gone)
        for name in gone:
            del self._sent[name]
        if self._sent != self._recorded:
            write_file(self._record, json.dumps(self._sent))
            self._recorded = dict(self._sent)

    def _read_record(self) -> dict[str, tuple[int, int]]:
        """Returns what `_sent` was when an earlier training here ended; empty where that is not known."""
        try:
            return {name: tuple(state) for name, state in parse_json(self._record.read_bytes()).items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def _push_sealed(self, each: str) -> None:
        """Sends a folder that has a manifest, which comes last, from the links that are held of it."""
        # What an upload that was cut short, or another training, has left under this name would be part of it.
        self._delete_folder(each)
        self._stale.discard(each)
        names = [each + name for name in sealed_folder.sizes(self._outgoing / each)]
        last = each + MANIFEST
        self._bucket.upload({name: self._outgoing / name for name in names if name != last})
        self._bucket.upload({last: self._outgoing / last})
        self._sealed.add(each)

    def _delete_old(self) -> None:
        """Deletes the checkpoints that are not here any more, unless they were kept for good."""
        local = self._local()
        if not local & self._sealed:
            return  # Nothing here takes their place.
        for each in sorted((self._sealed | self._stale) - local - {FROZEN}):
            if each in self._sealed or not is_permanent(self._bucket, each):
                self._delete_folder(each)
                self._sealed.discard(each)
            self._stale.discard(each)

    def _delete_folder(self, each: str) -> None:
        names = self._bucket.entries(each)
        self._bucket.delete(name for name in names if name == each + MANIFEST)
        self._bucket.delete(name for name in names if name != each + MANIFEST)


def sealed_folders(entries: dict[str, Entry]) -> set[str]:
    """Returns the folders with a manifest: "frozen/", "checkpoints/20/", ..."""
    found = {each for each in step_folders(entries) if each + MANIFEST in entries}
    return found | ({FROZEN} if FROZEN + MANIFEST in entries else set())


def step_folders(entries: dict[str, Entry]) -> set[str]:
    """Returns the folders of steps, with a manifest or without."""
    parts = [name.split("/") for name in entries if name.startswith(STEPS)]
    return {f"{part[0]}/{part[1]}/" for part in parts if len(part) > 2 and part[1].isdecimal()}


def step_of(each: str) -> int:
    """Returns the step of "checkpoints/20/"."""
    return int(each.split("/")[1])


def _newest_first(each: str) -> tuple[int, str]:
    return -step_of(each), each


def is_permanent(bucket: Bucket, each: str) -> bool:
    """Returns whether a checkpoint in the cloud is to be kept for good, or might be, as far as its metadata can be read."""
    if not each.startswith(STEPS[0]):
        return False
    try:
        return bool(parse_json(bucket.read(f"{each}metadata.json") or b"{}").get("permanent", False))
    except (ValueError, AttributeError):
        return True


def _state(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _link(folder: Path, target: Path) -> bool:
    """Makes a second folder of the same files. Returns whether all of them were there to the end."""
    shutil.rmtree(target, ignore_errors=True)
    try:
        for name in sealed_folder.sizes(folder):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(folder / name, target / name)
            except FileNotFoundError:
                raise
            except OSError:  # a file system without links
                shutil.copyfile(folder / name, target / name)
    except FileNotFoundError:
        return False
    return (target / MANIFEST).is_file() and folder.is_dir()
