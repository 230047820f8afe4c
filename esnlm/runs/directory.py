"""The layout of a run directory, its lock, and its format number."""

import contextlib
import errno
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from esnlm.base import processes
from esnlm.base.errors import InputError, warn_caller
from esnlm.base.files import Manifest, remove, write_json, writing
from esnlm.base.versions import ESNLM, check_format

FORMAT = 2  # the format of run directories that this version writes and reads
FIRST: dict[str, Any] = {"format": 1}


@dataclass(frozen=True)
class Entry:
    """A file or folder of a run directory. As an attribute of a `RunDirectory`, it is a path."""

    name: str  # a folder's name ends in a slash

    def __get__(self, directory: "RunDirectory", owner: type | None = None) -> Path:
        return directory.path / self.name


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run, which load on any machine. Raises InputError for another format."""

    path: Path
    upload: Callable[[], Any] | None = None  # called after each checkpoint

    # the format number and the version that wrote it, before everything else
    format = Entry("format.json")
    config = Entry("config.yaml")  # the settings, including those chosen for the device
    data = Entry("data.json")  # the sha256 of the run's token stores and tokenizer
    tokenizer = Entry("tokenizer/")  # a copy of the token store's tokenizer
    # counts of each predicted token in the training text, (V,) int64
    unigram = Entry("unigram.npy")
    stores = Entry("stores/")  # token stores of a corpus generated for the run, or given in Python
    minimal_pairs = Entry("minimal_pairs/")  # of a corpus generated for the run
    frozen = Entry("frozen/")  # the reservoir, saved once as a checkpoint
    # the trained arrays that the run began from, if it continues another run
    initial = Entry("initial/")
    checkpoints = Entry("checkpoints/")  # a folder for each saved step
    sums = Entry("sums/")  # of a regression in progress, a folder for each saved step
    metrics = Entry("metrics.jsonl")  # a line for each logged step and for each validation
    tensorboard = Entry("tensorboard/")
    wandb_id = Entry("wandb.json")
    wandb = Entry("wandb/")
    mlflow_id = Entry("mlflow.json")
    summary = Entry("summary.json")  # the results, or the step at which training was interrupted
    profile = Entry("profile/")  # the traces of `train.py --profile`
    plots = Entry("plots/")
    evaluation = Entry("evaluation/")
    cache = Entry("cache/")  # the weights of a cache, a sealed file for each step
    diagnostics = Entry("diagnostics/")
    manifest_file = Entry("manifest.json")  # the sha256 of the files that no longer change
    lock = Entry(".lock")  # held during training, so that no second process trains here

    def __post_init__(self) -> None:
        if not (self.format.exists() or self.config.exists()):
            return
        try:
            # The first format had no such file.
            described = json.loads(self.format.read_bytes()) if self.format.exists() else FIRST
            number, writer = described["format"], described.get("esnlm")
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self.format}: damaged; restore it from a copy of the run") from None
        check_format(self.path, number, FORMAT, "train again, or use that version", writer)

    @property
    def manifest(self) -> Manifest:
        """The manifest.json of this run, to record and verify files."""
        return Manifest(self.manifest_file)

    @property
    def initial_files(self) -> tuple[Path, ...]:
        """The files written before the first update, which never change."""
        return self.config, self.data, self.unigram, self.tokenizer, self.minimal_pairs

    def verify(self, *paths: Path, warn: Callable[[str], Any] = warn_caller) -> None:
        """Raises InputError if a file of these paths is damaged. Warns without a manifest."""
        if self.manifest.read() is None and self.checkpoints.exists():
            warn(f"{self.manifest_file}: missing, so the files of this run cannot be verified")
        if damage := self.manifest.find_damage(*paths):
            raise InputError(f"{damage[0]}; restore it from a copy of the run")

    def read_summary(self, warn: Callable[[str], Any] = warn_caller) -> dict[str, Any] | None:
        """Returns the summary of a finished run, or None. Warns if it is damaged."""
        if damage := self.manifest.find_damage(self.summary):
            warn(f"{damage[0]}; the run's command makes it again")
            return None
        known = self.manifest.read()
        if not self.summary.exists() or (
            known is not None and self.summary.name not in known["files"]
        ):
            return None  # interrupted, or killed before the results were complete
        summary = json.loads(self.summary.read_bytes())
        return summary if summary["status"] in ("finished", "diverged") else None

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """Begins or resumes a run.

        Removes the files of a new run that bad input stops: the corrected command starts afresh.
        """
        if not processes.is_rank0():
            yield
            return
        begun = any(each.exists() for each in (self.config, self.checkpoints, self.sums))
        self.claim()
        try:
            yield
        except InputError:
            if not begun:
                folders = self.stores, self.frozen, self.initial
                for path in (*self.initial_files, *folders, self.manifest_file, self.format):
                    remove(path)
            raise

    def claim(self) -> None:
        """Marks the folder as a run, before anything else is written."""
        self.check_unused()
        if not self.config.exists():
            with writing(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.format, {"format": FORMAT, "esnlm": ESNLM})

    def check_unused(self) -> None:
        """Raises InputError if the folder is not a run but has files that a run would change."""
        if self.config.exists() or self.format.exists():
            return
        entries = [entry.name for entry in vars(RunDirectory).values() if isinstance(entry, Entry)]
        existing = [
            name.rstrip("/")
            for name in entries
            if name != self.lock.name and (self.path / name).exists()
        ]
        if existing:
            raise InputError(
                f"{self.path}: not a run directory, and has {', '.join(existing)}; name another"
                " with --run"
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the run directory against a second training. The lock ends with the process."""
        if not processes.is_rank0():  # process 0 of this run holds the lock
            yield
            return
        self.check_unused()
        lock = FileLock(self.lock)
        with writing(self.path):
            try:
                lock.acquire(blocking=False)  # makes the folder, too
            except Timeout:
                raise InputError(
                    f"{self.path}: another training is writing here; name another with --run"
                ) from None
            # On a file system without locks, filelock raises the first, and the system the second.
            except (NotImplementedError, OSError) as error:
                if getattr(error, "errno", errno.ENOLCK) != errno.ENOLCK:
                    raise
                warn_caller(
                    f"{self.path}: file system without locks: make sure that no other training"
                    " writes there"
                )
        try:
            yield
        finally:
            lock.release()
            # a rejected training leaves no files
            if [path.name for path in self.path.iterdir()] == [self.lock.name]:
                remove(self.path)
