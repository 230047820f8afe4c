"""What lies where in a run directory, who may write there, and the number of its format."""

import contextlib
import errno
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from esnlm.distributed import group
from esnlm.errors import InputError
from esnlm.io.atomic import remove, writing
from esnlm.io.json_file import write_json
from esnlm.io.sealed_folder import Manifest
from esnlm.warning import warn_caller

FORMAT = 2  # of the run directories that this version writes and reads


@dataclass(frozen=True)
class Entry:
    """A file or folder of a run directory; read as an attribute of `RunDirectory` it is a path."""

    name: str  # with a slash at its end for a folder

    def __get__(self, directory: "RunDirectory", owner: type | None = None) -> Path:
        return directory.path / self.name


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run. A run directory moves to another machine and still loads. One of another format is refused."""

    path: Path
    upload: Callable[[], Any] | None = None  # is called after each checkpoint

    format = Entry("format.json")  # the number of the format, written before everything else
    config = Entry("config.yaml")  # as asked for, with what was chosen for the device filled in
    data = Entry("data.json")  # the sha256 of the token stores and of the tokenizer that the run was begun with
    tokenizer = Entry("tokenizer/")  # a copy of the token store's
    unigram = Entry("unigram.npy")  # how often each token is predicted in the training text, (V,) int64
    stores = Entry("stores/")  # token stores of a corpus that was generated for the run, or given in Python
    minimal_pairs = Entry("minimal_pairs/")  # of a corpus that was generated for the run
    frozen = Entry("frozen/")  # the reservoir, saved once as a checkpoint
    initial = Entry("initial/")  # the trained arrays that the run began from, if it goes on from another run
    checkpoints = Entry("checkpoints/")  # a folder for each saved step
    sums = Entry("sums/")  # of a regression that is under way, a folder for each saved step
    metrics = Entry("metrics.jsonl")  # a line for each logged step and for each validation
    tensorboard = Entry("tensorboard/")
    wandb_id = Entry("wandb.json")
    wandb = Entry("wandb/")
    mlflow_id = Entry("mlflow.json")
    summary = Entry("summary.json")  # the results, or the step at which training was interrupted
    profile = Entry("profile/")  # the traces that `train.py --profile` asked for
    plots = Entry("plots/")
    evaluation = Entry("evaluation/")
    diagnostics = Entry("diagnostics/")
    manifest_file = Entry("manifest.json")  # the sha256 of the files that no longer change
    lock = Entry(".lock")  # held by a training, so that a second one stays out

    def __post_init__(self) -> None:
        try:
            found = json.loads(self.format.read_bytes())["format"] if self.format.exists() else FORMAT
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self.format}: damaged; restore it from a copy of the run") from None
        if found != FORMAT:
            raise InputError(f"{self.path}: of format {found}, and this version reads format {FORMAT} only")

    @property
    def manifest(self) -> Manifest:
        """The content of manifest.json, to read, to add to and to check files against."""
        return Manifest(self.manifest_file)

    @property
    def initial_files(self) -> tuple[Path, ...]:
        """What is there before the first update and stays as it is."""
        return self.config, self.data, self.unigram, self.tokenizer, self.minimal_pairs

    def verify(self, *paths: Path, warn: Callable[[str], Any] = warn_caller) -> None:
        """Raises InputError if one of these files, or a file in these folders, is damaged. Warns if there is no manifest."""
        if self.manifest.read() is None and self.checkpoints.exists():
            warn(f"{self.manifest_file}: missing: the files of this run cannot be verified")
        if damage := self.manifest.find_damage(*paths):
            raise InputError(f"{damage[0]}; restore it from a copy of the run")

    def read_summary(self, warn: Callable[[str], Any] = warn_caller) -> dict[str, Any] | None:
        """Returns the summary of a run that came to its end, or None. Calls `warn` with a line if it is damaged."""
        if damage := self.manifest.find_damage(self.summary):
            warn(f"{damage[0]}; the command that made the run makes it again")
            return None
        known = self.manifest.read()
        if not self.summary.exists() or (known is not None and self.summary.name not in known["files"]):
            return None  # interrupted, or killed before the results were complete
        summary = json.loads(self.summary.read_bytes())
        return summary if summary["status"] in ("finished", "diverged") else None

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """Begins a run, or goes on with one that was begun.

        If a run fails to begin because of bad input, what it wrote is removed, and the corrected command starts afresh.
        """
        if not group.writes():
            yield
            return
        begun = any(each.exists() for each in (self.config, self.checkpoints, self.sums))
        self.claim()
        try:
            yield
        except InputError:
            if not begun:
                folders = self.stores, self.minimal_pairs, self.tokenizer, self.frozen, self.initial
                for path in (*folders, self.config, self.data, self.unigram, self.manifest_file, self.format):
                    remove(path)
            raise

    def claim(self) -> None:
        """Marks the folder as a run's, before anything else is written there. Raises InputError if it is another's."""
        self.require_own()
        if not self.config.exists():
            with writing(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.format, {"format": FORMAT})

    def require_own(self) -> None:
        """Raises InputError if the folder holds no run, but something of a name that a run would write over or remove."""
        if self.config.exists() or self.format.exists():
            return
        entries = [path for path in vars(RunDirectory).values() if isinstance(path, Entry) and path.name[0] != "."]
        if found := [entry.name.rstrip("/") for entry in entries if (self.path / entry.name).exists()]:
            raise InputError(f"{self.path}: no run directory, and it has {', '.join(found)}; name another with --run")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run directory against a second training. The lock goes with the process, however it ends."""
        if not group.writes():  # process 0 of this run holds it
            yield
            return
        self.require_own()
        lock = FileLock(self.lock)
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                raise InputError(f"{self.path}: another training is writing here; name another with --run") from None
            # filelock raises the first, and the system the second, on a file system that has no locks.
            except (NotImplementedError, OSError) as error:
                if getattr(error, "errno", errno.ENOLCK) != errno.ENOLCK:
                    raise
                warn_caller(f"{self.path}: no locks here: see to it that no other training writes there")
        try:
            yield
        finally:
            lock.release()
            if [path.name for path in self.path.iterdir()] == [self.lock.name]:  # A refused training leaves nothing.
                remove(self.path)
