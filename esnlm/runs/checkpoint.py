"""Saves and restores checkpoints: Orbax writes the arrays, and a manifest has the sha256 of every file.

A checkpoint is a folder. A run has one for each saved step, `checkpoints/STEP/`, and one for its reservoir, `frozen/`:

    arrays/          the arrays, as Orbax's PyTreeCheckpointer writes them
    metadata.json    what the caller wants to remember: position in the data, seed, `"permanent": true`, ...
    manifest.json    size and sha256 of each file above, and the sha256 of this list itself

Orbax restores flipped bits without a word, so nothing is restored before every byte of it has been checked.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from esnlm.distributed import group
from esnlm.errors import InputError
from esnlm.io import sealed_folder
from esnlm.io.atomic import NewFolder, remove_abandoned, remove_folder
from esnlm.io.json_file import parse_json
from esnlm.io.sealed_folder import MANIFEST
from esnlm.warning import warn_caller

ARRAYS, METADATA = "arrays", "metadata.json"
PATIENCE = 30  # seconds that are left to Orbax's other writes when one of them has failed

Arrays = dict[str, Any]  # nested dicts with string keys; the leaves are arrays


def save(folder: Path, arrays: Arrays, metadata: dict[str, Any]) -> None:
    """Saves a checkpoint, all of it or nothing, whenever the process is killed.

    A second copy of the arrays is in memory meanwhile. A process saves one checkpoint at a time.

    Args:
        folder: Where to. A damaged checkpoint there is replaced; an intact one, or a folder of anything else, is not.
        arrays: Nested dicts of NumPy or JAX arrays, on any device and sharded or not, of any shape (0-d and zero-size
            too) and any numeric dtype. Keys are strings without a dot.
        metadata: Anything that JSON can hold.

    Raises:
        InputError: `folder` is taken or the disk refuses. Earlier checkpoints are untouched.
        TypeError: `arrays` could not be restored as they are, or `metadata` is not JSON.
    """
    folder = Path(folder).absolute()
    arrays = jax.tree.map(np.asarray, jax.device_get(arrays))  # no sharding is stored, so any machine can restore
    named = _named(arrays)
    if unsuitable := [name for name, array in named.items() if array.dtype.kind in "OSU"]:
        raise TypeError(f"{unsuitable[0]}: not a numeric array; put text and settings into the metadata")
    metadata_text = json.dumps(metadata, indent=1)
    size = sum(array.nbytes for array in named.values())
    _require_not_valuable(folder)
    require_free_space(folder, size)
    try:
        remove_abandoned(folder.parent)  # of any step
        with NewFolder(folder) as new:
            _require_file_size(new.path, size)
            with _quiet_orbax(), _open_orbax() as orbax:
                # Orbax refuses arrays of size zero: one zero stands in for each, and the manifest has the shape.
                orbax.save(new.path / ARRAYS, jax.tree.map(lambda a: a if a.size else np.zeros(1, a.dtype), arrays))
            (new.path / METADATA).write_text(metadata_text, encoding="utf-8")
            empty = {name: array.shape for name, array in named.items() if array.size == 0}
            sealed_folder.write_manifest(new.path, empty_arrays=empty)
            new.commit(replace=True)
    except (OSError, ValueError) as error:  # Orbax passes a failed write on as a ValueError
        raise InputError(
            f"{folder}: checkpoint not saved: {_reason(error, folder)}; {_mb(size)} needed, {_mb(_free(folder))} available: "
            "free some space, lift the limit or choose another run directory (earlier checkpoints are untouched)"
        ) from error


def verify(folder: Path) -> str | None:
    """Reads all of a checkpoint. Returns None where it is as it was saved, else one line: the bad file and why.

    Only files found by walking `folder` are opened, never a path that the manifest names, and links are not followed.
    """
    return sealed_folder.find_difference(Path(folder))


def restore(folder: Path) -> tuple[Arrays, dict[str, Any]]:
    """Verifies a checkpoint. Returns its (arrays, metadata): nested dicts of NumPy arrays with the dtypes saved.

    Raises:
        InputError: A file is damaged.
    """
    if problem := verify(folder):
        raise InputError(f"{folder}: damaged checkpoint: {problem}; use another step or a copy of this one")
    return _load(Path(folder))


def restore_latest(
    checkpoints: Path, warn: Callable[[str], Any] = warn_caller
) -> tuple[int, Arrays, dict[str, Any]] | None:
    """Returns the latest intact step as (step, arrays, metadata), or None where no step was saved yet.

    This is `latest_step` followed by `restore`, with each file verified once.
    """
    step = latest_step(checkpoints, warn)
    return None if step is None else (step, *_load(Path(checkpoints) / str(step)))


def latest_step(checkpoints: Path, warn: Callable[[str], Any] = warn_caller) -> int | None:
    """Returns the latest step that verifies, or None where no step was saved yet.

    Calls `warn` with one line for every later step that is passed over. The line names its bad file.

    Raises:
        InputError: Steps were saved, and none of them is intact.
    """
    problems = {}
    for step in reversed(all_steps(checkpoints)):
        problems[step] = verify(Path(checkpoints) / str(step))
        if problems[step] is None:
            return step
        warn(f"{Path(checkpoints) / str(step)}: damaged checkpoint, not used: {problems[step]}")
    if not problems:
        return None
    raise InputError(
        f"{checkpoints}: no intact checkpoint (step {max(problems)}: {problems[max(problems)]}); "
        "restore one from a copy, or delete this folder and the summary.json beside it to train from the start"
    )


def all_steps(checkpoints: Path) -> list[int]:
    """Returns the saved steps, ascending, intact or not: none of a missing folder. Other names are passed over."""
    if not Path(checkpoints).is_dir():
        return []
    names = (path.name for path in Path(checkpoints).iterdir() if path.is_dir())
    return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def prune(checkpoints: Path, keep: int = 2, spared: int | None = None) -> None:
    """Deletes the steps before the latest `keep` intact ones, except those saved with `"permanent": true` and `spared`.

    Damaged steps are not counted, so that they never push out a good one: the steps to be kept are verified first.
    A step whose metadata cannot be read is left, for it might be permanent.
    """
    if keep < 1:
        raise InputError(f"keep: {keep} checkpoints would leave nothing to resume from; give 1 or more")
    remove_abandoned(Path(checkpoints))
    found = all_steps(checkpoints)
    if len(found) <= keep:
        return
    good = 0
    for step in reversed(found):
        folder = Path(checkpoints) / str(step)
        if good < keep:
            good += verify(folder) is None
        elif step != spared and not _maybe_permanent(folder):
            remove_folder(folder)


def metadata(folder: Path) -> dict[str, Any]:
    """Returns the metadata of a checkpoint, not verified, or {} where there is none.

    Raises:
        InputError: It is no JSON object.
    """
    file = Path(folder) / METADATA
    try:
        found = parse_json(file.read_bytes()) if file.exists() else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{file}: damaged; restore it from a copy of the run")
    return found


def digest(arrays: Arrays) -> str:
    """Returns the sha256 of arrays with their names, dtypes and shapes. Equal arrays have equal digests."""
    whole = hashlib.sha256()
    for name, array in sorted(_named(jax.tree.map(np.asarray, arrays)).items()):
        whole.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return whole.hexdigest()


def require_free_space(folder: Path, bytes_needed: int) -> None:
    """Raises InputError unless the disk that holds `folder` (which need not exist yet) has `bytes_needed` free."""
    if (free := _free(folder)) < bytes_needed:
        missing = 100_000 * -(-(bytes_needed - free) // 100_000)  # rounded up, as it is shown: never 0.0 MB
        raise InputError(
            f"{folder}: {_mb(bytes_needed)} of disk needed and {_mb(free)} free; free {_mb(missing)} there or choose"
            " another folder"
        )


def _require_not_valuable(folder: Path) -> None:
    if not folder.exists():
        return
    ours = folder.is_dir() and {path.name for path in folder.iterdir()} <= {ARRAYS, METADATA, MANIFEST}
    if not ours or verify(folder) is None:
        raise InputError(f"{folder}: exists already; delete it or choose another folder for this checkpoint")


def _require_file_size(folder: Path, size: int) -> None:
    """Raises OSError where a limit on file sizes is below `size`. Orbax's writers would each print a traceback of it."""
    with open(folder / "size", "wb") as file:
        file.truncate(size)  # takes no room on the disk
    os.remove(file.name)


def _load(folder: Path) -> tuple[Arrays, dict[str, Any]]:
    """Returns the (arrays, metadata) of a checkpoint that has been verified."""
    arrays = _arrays(folder)
    try:
        return arrays, parse_json((folder / METADATA).read_bytes())
    except ValueError:
        raise _foreign(folder) from None


def _arrays(folder: Path) -> Arrays:
    path, empty = folder.absolute() / ARRAYS, parse_json((folder / MANIFEST).read_bytes()).get("empty_arrays")
    try:
        with _quiet_orbax(), _open_orbax() as orbax:
            stored = jax.tree.leaves(orbax.metadata(path).item_metadata.tree)
            size = sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in stored)
            if size > sum(sealed_folder.sizes(path).values()):
                raise ValueError  # Nothing is compressed: arrays larger than their files would fill the memory with zeros.
            arrays = orbax.restore(path)
        whole = all(isinstance(array, np.ndarray) for array in _named(arrays).values())
        whole = whole and not any(math.prod(shape) for shape in empty.values())
    except MemoryError:
        raise
    except Exception:  # The sums agree, so an enemy made these files. No list says what Orbax raises then.
        whole = False
    if not whole:
        raise _foreign(folder)
    return jax.tree_util.tree_map_with_path(
        lambda path, array: np.zeros(empty[_name(path)], array.dtype) if _name(path) in empty else array, arrays
    )


def _foreign(folder: Path) -> InputError:
    return InputError(
        f"{folder}: damaged checkpoint: its sums agree, but esnlm did not save it; use another step or a copy of this one"
    )


def _named(tree: Arrays) -> dict[str, Any]:
    """Returns {"params.readout.a": leaf}, a name for each array of a tree.

    Raises:
        TypeError: The tree has other containers or keys than dicts and strings without a dot. Orbax restores other
            containers and keys changed, and would take {"a.b": x} for {"a": {"b": x}}.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    for path, _ in leaves:
        for entry in path:
            key = getattr(entry, "key", None)
            if not isinstance(entry, jax.tree_util.DictKey) or not isinstance(key, str) or "." in key:
                raise TypeError(f"{jax.tree_util.keystr(path)}: use nested dicts with string keys without a dot")
    return {_name(path): leaf for path, leaf in leaves}


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _maybe_permanent(folder: Path) -> bool:
    try:
        return bool(parse_json((folder / METADATA).read_bytes()).get("permanent", False))
    except (OSError, ValueError, AttributeError):
        return True


def _open_orbax() -> ocp.Checkpointer:
    """Returns Orbax's checkpointer of one process, which waits for no other process of the run."""
    # Compression would take three times as long to save 8 % of a float32 readout.
    if group.count() == 1:
        return ocp.PyTreeCheckpointer(use_compression=False)
    here = group.index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix=f"esnlm{here}"
    )
    handler = ocp.PyTreeCheckpointHandler(use_compression=False, multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


@contextlib.contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Silences Orbax: it logs each step of a save, and a failure with its traceback, which we report in one line.

    Orbax writes arrays side by side. Where one write fails, it closes its event loops while the other writes go on, and
    each of these then prints that its loop is closed. Where a second write fails in the moment in which a loop ends, the
    loop prints that nobody asked for its exception. So here a loop waits for its tasks before it closes and prints
    nothing, and a block that failed waits for the threads that it began.
    """
    logger = logging.getLogger("absl")
    level, others, new_event_loop = logger.level, set(threading.enumerate()), asyncio.new_event_loop
    logger.setLevel(logging.CRITICAL + 1)
    asyncio.new_event_loop = _PatientLoop
    try:
        yield
    except BaseException:
        deadline = time.monotonic() + PATIENCE
        for thread in set(threading.enumerate()) - others:
            threading.Thread.join(thread, max(0.0, deadline - time.monotonic()))  # Orbax's own join raises
        raise
    finally:
        asyncio.new_event_loop = new_event_loop
        logger.setLevel(level)


class _PatientLoop(asyncio.SelectorEventLoop):
    """An event loop that waits for its tasks before it closes, and prints nothing."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Leaves out what asyncio would log: the first exception of a save is raised, the others say the same."""

    def close(self) -> None:
        tasks = set() if self.is_closed() else asyncio.all_tasks(self)
        if tasks:
            with contextlib.suppress(TimeoutError):
                self.run_until_complete(asyncio.wait_for(_all_done(tasks), PATIENCE))
        super().close()


async def _all_done(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _reason(error: Exception, folder: Path) -> str:
    """Returns what the system or Orbax says, in one short line, where `folder` was to be saved."""
    if isinstance(error, OSError):
        hidden = re.escape(f".{folder.name}.partial-") + "[0-9a-f]{8}"  # it is gone when the line is read
        file = re.sub(hidden, folder.name, str(error.filename or ""))
        return f"{error.strerror} ({file})" if file else str(error.strerror)
    if code := re.search(r"\[os_error_code='(\d+)'", str(error)):
        return os.strerror(int(code[1]))
    return str(error).partition("\n")[0][:200]


def _free(folder: Path) -> int:
    existing = Path(folder).absolute()
    while not existing.exists():
        existing = existing.parent
    return shutil.disk_usage(existing).free


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
