"""Checkpoints: Orbax writes the arrays, and a manifest holds the sha256 of every file.

A checkpoint is a folder. A run has one for each saved step, `checkpoints/STEP/`, and one for its
reservoir, `frozen/`:

    arrays/          the arrays, written by Orbax's PyTreeCheckpointer
    metadata.json    the caller's values: position in the data, seed, `"permanent": true`, ...
    manifest.json    the sha256 of each file above, and of this list itself

Orbax restores flipped bits silently, so every byte is verified before anything is restored.
"""

import contextlib
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from esnlm.base import processes
from esnlm.base.errors import InputError, warn_caller
from esnlm.base.files import MANIFEST, Manifest, NewFolder, remove_abandoned, remove_folder
from esnlm.base.files import find_difference as verify

ARRAYS, METADATA = "arrays", "metadata.json"

Warn = Callable[[str], Any]  # takes a line
Arrays = dict[str, Any]  # nested dicts with string keys without a dot; the leaves are arrays


def save(folder: Path, arrays: Arrays, metadata: dict[str, Any]) -> None:
    """Saves a checkpoint completely or not at all, even if the process is killed.

    Replaces only a damaged one.
    """
    folder = Path(folder).absolute()
    # without sharding, so that any machine can restore
    arrays = jax.tree.map(np.asarray, jax.device_get(arrays))
    leaves = _by_name(arrays)
    size = sum(array.nbytes for array in leaves.values())
    if verify(folder) is None:
        raise InputError(
            f"{folder}: exists; delete it or choose another folder for this checkpoint"
        )
    check_free_space(folder, size)
    try:
        remove_abandoned(folder.parent)  # of any step
        with NewFolder(folder) as new:
            with _orbax() as orbax:
                # Orbax rejects arrays of size zero: they are saved as one zero, with their shape in
                # the manifest.
                orbax.save(
                    new.path / ARRAYS,
                    jax.tree.map(lambda a: a if a.size else np.zeros(1, a.dtype), arrays),
                )
            (new.path / METADATA).write_text(json.dumps(metadata, indent=1), encoding="utf-8")
            empty = {name: array.shape for name, array in leaves.items() if array.size == 0}
            Manifest(new.path / MANIFEST).add(new.path, empty_arrays=empty)
            new.commit(replace=True)
    except (OSError, ValueError) as error:  # Orbax reports a failed write as a ValueError
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0][:200]
        space = f"{_mb(size)} needed, {_mb(_free(folder))} available"
        raise InputError(
            f"{folder}: checkpoint not saved: {reason}; {space}; earlier ones are untouched"
        ) from error


def restore(folder: Path) -> tuple[Arrays, dict[str, Any]]:
    """Returns the (arrays, metadata) of a checkpoint. Raises InputError if a file is damaged."""
    if problem := verify(folder):
        raise InputError(
            f"{folder}: damaged checkpoint: {problem}; use another step or a copy of this one"
        )
    return _load(Path(folder))


def restore_latest(
    checkpoints: Path, warn: Warn = warn_caller
) -> tuple[int, Arrays, dict[str, Any]] | None:
    """Returns `latest_step` as (step, arrays, metadata); None if no step was saved yet."""
    step = latest_step(checkpoints, warn)
    return None if step is None else (step, *_load(Path(checkpoints) / str(step)))


def latest_step(checkpoints: Path, warn: Warn = warn_caller) -> int | None:
    """Returns the latest step that verifies, or None if no step was saved yet.

    Warns about each later, damaged step and names its bad file. Raises InputError if no saved step
    is intact.
    """
    steps = all_steps(checkpoints)
    for step in reversed(steps):
        folder = Path(checkpoints) / str(step)
        if (problem := verify(folder)) is None:
            return step
        warn(f"{folder}: damaged checkpoint, not used: {problem}")
    if not steps:
        return None
    raise InputError(
        f"{checkpoints}: no intact checkpoint; restore one, or delete this folder and summary.json"
    )


def all_steps(checkpoints: Path) -> list[int]:
    """Returns the saved steps, ascending, intact or not; empty if the folder is missing."""
    names = [path.name for path in Path(checkpoints).glob("*") if path.is_dir()]
    return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def check_step(checkpoints: Path, step: int) -> None:
    """Raises InputError if a step was not saved."""
    steps = all_steps(checkpoints)
    if step not in steps:
        available = ", ".join(map(str, steps)) or "none"
        raise InputError(f"{checkpoints}: no checkpoint of step {step}; available: {available}")


def prune(checkpoints: Path, keep: int = 2, spared: int | None = None) -> None:
    """Deletes the steps before the latest `keep` intact ones.

    Spares those saved with `"permanent": true`, and `spared`. Verifies the steps to keep first, so
    that damaged steps never displace a good one.
    """
    remove_abandoned(Path(checkpoints))
    steps, good = all_steps(checkpoints), 0
    for step in reversed(steps) if len(steps) > keep else ():
        folder = Path(checkpoints) / str(step)
        if good < keep:
            good += verify(folder) is None
        elif step != spared:
            # With damaged metadata, the step may be permanent.
            with contextlib.suppress(InputError):
                if not metadata(folder).get("permanent", False):
                    remove_folder(folder)


def metadata(folder: Path) -> dict[str, Any]:
    """Returns the unverified metadata of a checkpoint, or {} if it has none."""
    file = Path(folder) / METADATA
    try:
        return json.loads(file.read_bytes()) if file.exists() else {}
    except ValueError:
        raise InputError(f"{file}: damaged; restore it from a copy of the run") from None


def words_by_step(checkpoints: Path, permanent: bool = False) -> dict[int, int]:
    """Returns the words of training text that each saved checkpoint of a run has read, by step.

    Leaves out checkpoints without this number, such as those of imported models. With `permanent`,
    returns only those that `training.checkpoint_words` keeps for good.
    """
    words = {}
    for step in all_steps(checkpoints):
        values = metadata(checkpoints / str(step))
        is_included = values.get("permanent") or not permanent
        if isinstance(values.get("words"), int) and is_included:
            words[step] = values["words"]
    return words


def digest(arrays: Arrays) -> str:
    """Returns the sha256 of arrays with their names, dtypes and shapes."""
    content = hashlib.sha256()
    for name, array in sorted(_by_name(jax.tree.map(np.asarray, arrays)).items()):
        content.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return content.hexdigest()


def check_free_space(folder: Path, bytes_needed: int) -> None:
    """Raises InputError unless the disk of `folder`, existing or not, has `bytes_needed` free."""
    if (free := _free(folder)) < bytes_needed:
        raise InputError(
            f"{folder}: {_mb(bytes_needed)} of disk needed, {_mb(free)} free; free some or move"
            " the run"
        )


def _load(folder: Path) -> tuple[Arrays, dict[str, Any]]:
    """Returns the (arrays, metadata) of a verified checkpoint."""
    empty = json.loads((folder / MANIFEST).read_bytes())["empty_arrays"]

    def with_shape(path: tuple, array: np.ndarray) -> np.ndarray:
        name = _name(path)
        return np.zeros(empty[name], array.dtype) if name in empty else array

    with _orbax() as orbax:
        arrays = orbax.restore(folder.absolute() / ARRAYS)
    return jax.tree_util.tree_map_with_path(with_shape, arrays), metadata(folder)


def _by_name(tree: Arrays) -> dict[str, Any]:
    """Flattens a tree of arrays to names: {"params.readout.a": leaf}."""
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


@contextlib.contextmanager
def _orbax() -> Iterator[ocp.Checkpointer]:
    """Yields Orbax's checkpointer without its log. It waits for no other process of the run."""
    process, logger = processes.index(), logging.getLogger("absl")
    alone = ocp.options.MultiprocessingOptions(
        primary_host=process, active_processes={process}, barrier_sync_key_prefix=f"esnlm{process}"
    )
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        # Compression would make saving three times slower and a float32 readout only 8 % smaller.
        handler = ocp.PyTreeCheckpointHandler(use_compression=False, multiprocessing_options=alone)
        with ocp.Checkpointer(handler, multiprocessing_options=alone) as orbax:
            yield orbax
    finally:
        logger.setLevel(level)


def _free(folder: Path) -> int:
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    return shutil.disk_usage(existing).free


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
