"""Checkpoints that are whole, proven, or not used: Orbax writes the arrays, a sha256 manifest vouches for every file.

A checkpoint is a folder; a run has one for each step, `checkpoints/STEP/`, and one for its reservoir, `frozen/`:

    arrays/          the arrays, as Orbax's PyTreeCheckpointer writes them
    metadata.json    what the caller wants to remember: position in the data, seed, `"permanent": true`, ...
    manifest.json    size and sha256 of each file above, and the sha256 of this list itself

Orbax restores flipped bits without a word, so nothing is loaded from here before every byte of it has been checked.
"""

import hashlib
import json
import logging
import math
import os
import re
import secrets
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from esnlm.errors import InputError
from esnlm.runs.atomic import alive, parse_json, sealed

ARRAYS, METADATA, MANIFEST = "arrays", "metadata.json", "manifest.json"
TEMPORARY = re.compile(r"\.tmp-checkpoint-(\d{1,9})-[0-9a-f]{8}")  # the number is its owner's process id

Arrays = dict[str, Any]  # nested dicts with string keys; the leaves are arrays


def save(folder: Path, arrays: Arrays, metadata: dict[str, Any]) -> None:
    """Write a checkpoint to `folder`, all of it or nothing, whenever the process is killed.

    `arrays` is nested dicts of NumPy or JAX arrays, on any device and sharded or not, of any shape (0-d and zero-size
    too) and any numeric dtype. Keys are strings without a dot. `metadata` is JSON.
    A damaged checkpoint at `folder` is replaced; an intact one, or a folder of anything else, is not.
    One save at a time in a process. Keeps a second copy of the arrays in memory while it writes.

    Raises InputError where `folder` is taken or the disk cannot take it (earlier checkpoints are untouched), and
    TypeError where `arrays` could not be restored as they are or `metadata` is not JSON.
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

    temporary = _temporary_beside(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale_temporaries(folder.parent)
        temporary.mkdir()
        _require_file_size(temporary, size)
        # Compression would take three times as long to save 8 % of a float32 readout.
        with _quiet_orbax(), ocp.PyTreeCheckpointer(use_compression=False) as orbax:
            # Orbax refuses arrays of size zero: one zero stands in for each, and the manifest has the shape.
            orbax.save(temporary / ARRAYS, jax.tree.map(lambda a: a if a.size else np.zeros(1, a.dtype), arrays))
        (temporary / METADATA).write_text(metadata_text, encoding="utf-8")
        sizes = dict(_sizes(temporary))
        digests = _digests(temporary, sizes)
        files = {name: {"size": sizes[name], "sha256": digests[name]} for name in sizes}
        empty = {name: array.shape for name, array in named.items() if array.size == 0}
        (temporary / MANIFEST).write_bytes(_manifest(files, empty))
        _sync_tree(temporary)
        if folder.exists():
            _remove(folder)
        temporary.rename(folder)
        _sync(folder.parent)
    except (OSError, ValueError) as error:  # Orbax passes a failed write on as a ValueError
        raise InputError(
            f"{folder}: checkpoint not saved: {_reason(error)}; {_mb(size)} needed, {_mb(_free(folder))} available: "
            "free some space, lift the limit or choose another run directory (earlier checkpoints are untouched)"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def verify(folder: Path) -> str | None:
    """None where every file of the checkpoint is as it was saved, else one line: the bad file and what is wrong.

    Reads all of it. Only files found by walking `folder` are opened, never a path that the manifest names, and
    links are not followed.
    """
    try:
        return _first_difference(Path(folder))
    except OSError as error:
        return f"{error.filename}: {error.strerror}"


def restore(folder: Path, template: Arrays | None = None) -> tuple[Arrays, dict[str, Any]]:
    """Verify a checkpoint and return its (arrays, metadata): nested dicts of NumPy arrays with the dtypes saved.

    `template`, where given, is a tree of anything with shape and dtype (jax.ShapeDtypeStruct will do) that the
    arrays must match in names, shapes and dtypes.

    Raises InputError where a file is damaged, or naming the first array that does not match.
    """
    if problem := verify(folder):
        raise InputError(f"{folder}: damaged checkpoint: {problem}; use another step or a copy of this one")
    return _load(Path(folder), template)


def restore_newest(
    checkpoints: Path, warn: Callable[[str], Any] = warnings.warn, template: Arrays | None = None
) -> tuple[int, Arrays, dict[str, Any]] | None:
    """The newest intact step as (step, arrays, metadata), or None where no step was saved yet.

    As `newest_good` followed by `restore`, verified once.
    """
    step = newest_good(checkpoints, warn)
    return None if step is None else (step, *_load(Path(checkpoints) / str(step), template))


def steps(checkpoints: Path) -> list[int]:
    """The steps saved in `checkpoints`, ascending, intact or not. Other names, and a missing folder, count for none."""
    if not Path(checkpoints).is_dir():
        return []
    names = (path.name for path in Path(checkpoints).iterdir() if path.is_dir())
    return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def newest_good(checkpoints: Path, warn: Callable[[str], Any] = warnings.warn) -> int | None:
    """The newest step that verifies, or None where no step was saved yet.

    Calls `warn` with one line for every newer step that is passed over, naming its bad file.
    Raises InputError where steps were saved and none of them is intact.
    """
    problems = {}
    for step in reversed(steps(checkpoints)):
        problems[step] = verify(Path(checkpoints) / str(step))
        if problems[step] is None:
            return step
        warn(f"{Path(checkpoints) / str(step)}: damaged checkpoint, not used: {problems[step]}")
    if not problems:
        return None
    raise InputError(
        f"{checkpoints}: no intact checkpoint (step {max(problems)}: {problems[max(problems)]}); "
        "restore one from a copy, or delete this folder to train from the start"
    )


def prune(checkpoints: Path, keep: int = 2) -> None:
    """Delete the steps older than the newest `keep` intact ones, except those saved with `"permanent": true`.

    Damaged steps are not counted, so that they never push out a good one: the steps to be kept are verified first.
    A step whose metadata cannot be read is left, for it might be permanent.
    """
    if keep < 1:
        raise InputError(f"keep: {keep} checkpoints would leave nothing to resume from; give 1 or more")
    if Path(checkpoints).is_dir():
        _remove_stale_temporaries(Path(checkpoints))
    found = steps(checkpoints)
    if len(found) <= keep:
        return
    good = 0
    for step in reversed(found):
        folder = Path(checkpoints) / str(step)
        if good < keep:
            good += verify(folder) is None
        elif not _maybe_permanent(folder):
            _remove(folder)


def metadata(folder: Path) -> dict[str, Any]:
    """The metadata of a checkpoint, empty where there is none; not verified."""
    file = Path(folder) / METADATA
    return json.loads(file.read_bytes()) if file.exists() else {}


def digest(arrays: Arrays) -> str:
    """sha256 of arrays with their names, dtypes and shapes: what is drawn again from the same seed has the same."""
    whole = hashlib.sha256()
    for name, array in sorted(_named(jax.tree.map(np.asarray, arrays)).items()):
        whole.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return whole.hexdigest()


def require_free_space(folder: Path, bytes_needed: int) -> None:
    """Raise InputError unless the disk that holds `folder` (which need not exist yet) has `bytes_needed` free."""
    if (free := _free(folder)) < bytes_needed:
        missing = 100_000 * -(-(bytes_needed - free) // 100_000)  # up, as it is shown: never 0.0 MB
        raise InputError(
            f"{folder}: {_mb(bytes_needed)} of disk needed and {_mb(free)} free; free {_mb(missing)} there or choose another folder"
        )


def _require_file_size(folder: Path, size: int) -> None:
    """A limit on file sizes shows itself here, in one error; Orbax's writers would each print a traceback of it."""
    with open(folder / "size", "wb") as file:
        file.truncate(size)  # takes no room on the disk
    os.remove(file.name)


def _first_difference(folder: Path) -> str | None:
    if not folder.is_dir():
        return "no such folder"
    found = dict(_sizes(folder))
    if not found:
        return "the folder is empty"
    if irregular := [name for name, size in found.items() if size is None]:
        return f"{min(irregular)}: not a plain file"
    if found.pop(MANIFEST, None) is None:
        return f"{MANIFEST}: missing"
    raw = (folder / MANIFEST).read_bytes()
    try:
        manifest = parse_json(raw)
        intact = raw == _manifest(manifest["files"], manifest["empty_arrays"])
        intact = intact and all(entry.keys() == {"size", "sha256"} for entry in manifest["files"].values())
    except (AttributeError, ValueError, KeyError, TypeError):
        intact = False
    if not intact:
        return f"{MANIFEST}: changed since it was saved"
    saved = manifest["files"]
    for name in sorted(saved.keys() | found.keys()):
        if name not in found:
            return f"{name}: missing"
        if name not in saved:
            return f"{name}: not part of this checkpoint"
        if found[name] != saved[name]["size"]:
            return f"{name}: {found[name]} bytes, {saved[name]['size']} were saved"
    digests = _digests(folder, found)
    changed = [name for name in sorted(found) if digests[name] != saved[name]["sha256"]]
    return f"{changed[0]}: changed since it was saved" if changed else None


def _load(folder: Path, template: Arrays | None) -> tuple[Arrays, dict[str, Any]]:
    arrays = _arrays(folder)
    try:
        metadata = parse_json((folder / METADATA).read_bytes())
    except ValueError:
        raise _foreign(folder) from None
    if template is not None:
        _require_match(folder, _named(arrays), _named(template))
    return arrays, metadata


def _arrays(folder: Path) -> Arrays:
    path, empty = folder.absolute() / ARRAYS, json.loads((folder / MANIFEST).read_bytes())["empty_arrays"]
    try:
        with _quiet_orbax(), ocp.PyTreeCheckpointer() as orbax:
            stored = jax.tree.leaves(orbax.metadata(path).item_metadata.tree)
            size = sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in stored)
            # Nothing is compressed: arrays larger than their files would fill the memory with zeros.
            arrays = None if size > sum(size for _, size in _sizes(path)) else orbax.restore(path)
        whole = all(isinstance(array, np.ndarray) for array in _named(arrays).values())
        whole = whole and not any(math.prod(shape) for shape in empty.values())
    except Exception:  # the sums agree, so an enemy made these files; of what Orbax raises then there is no list
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


def _require_match(folder: Path, arrays: dict[str, Any], template: dict[str, Any]) -> None:
    saved = {name: f"{array.dtype} {tuple(array.shape)}" for name, array in arrays.items()}
    wanted = {name: f"{array.dtype} {tuple(array.shape)}" for name, array in template.items()}
    for name in sorted(saved.keys() | wanted.keys()):
        if saved.get(name) != wanted.get(name):
            raise InputError(
                f"{folder}: {name} is {saved.get(name, 'absent')} in the checkpoint and {wanted.get(name, 'absent')} "
                "in this configuration; use the configuration it was saved with"
            )


def _require_not_valuable(folder: Path) -> None:
    if not folder.exists():
        return
    ours = folder.is_dir() and {path.name for path in folder.iterdir()} <= {ARRAYS, METADATA, MANIFEST}
    if not ours or verify(folder) is None:
        raise InputError(f"{folder}: exists already; delete it or choose another folder for this checkpoint")


def _named(tree: Arrays) -> dict[str, Any]:
    """{"params.readout.a": leaf}. Orbax gives other containers and keys back changed, and "a.b" mixed up with a: b."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    for path, _ in leaves:
        for entry in path:
            key = getattr(entry, "key", None)
            if not isinstance(entry, jax.tree_util.DictKey) or not isinstance(key, str) or "." in key:
                raise TypeError(f"{jax.tree_util.keystr(path)}: use nested dicts with string keys without a dot")
    return {_name(path): leaf for path, leaf in leaves}


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _manifest(files: dict[str, Any], empty_arrays: dict[str, Any]) -> bytes:
    return sealed({"files": files, "empty_arrays": empty_arrays})


def _sizes(folder: Path | str, prefix: str = "") -> Iterator[tuple[str, int | None]]:
    """(path relative to `folder`, bytes) of everything in it but folders; None for links, pipes and the like."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _sizes(entry.path, f"{prefix}{entry.name}/")
        else:
            status = entry.stat(follow_symlinks=False)
            yield prefix + entry.name, status.st_size if stat.S_ISREG(status.st_mode) else None


def _digests(folder: Path, sizes: dict[str, int]) -> dict[str, str]:
    def digest(name: str) -> str:
        try:
            with open(folder / name, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            error.filename = name  # a bad sector is reported without one
            raise

    largest_first = sorted(sizes, key=sizes.get, reverse=True)
    with ThreadPoolExecutor(2) as threads:  # hashing releases the GIL
        return dict(zip(largest_first, threads.map(digest, largest_first)))


def _sync(path: Path | str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(os.path.join(parent, name))
        _sync(parent)


def _temporary_beside(folder: Path) -> Path:
    return folder.with_name(f".tmp-checkpoint-{os.getpid()}-{secrets.token_hex(4)}")


def _remove_stale_temporaries(parent: Path) -> None:
    for path in parent.iterdir():
        owner = TEMPORARY.fullmatch(path.name)
        # Our own id is stale too: a restarted container often gives a run the id of the one before.
        if owner and (int(owner[1]) == os.getpid() or not alive(int(owner[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Renamed first, so that a kill half-way leaves a temporary and no checkpoint with files missing."""
    temporary = _temporary_beside(folder)
    folder.rename(temporary)
    shutil.rmtree(temporary)


def _maybe_permanent(folder: Path) -> bool:
    try:
        return bool(parse_json((folder / METADATA).read_bytes()).get("permanent", False))
    except (OSError, ValueError, AttributeError):
        return True


@contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Orbax logs each step of a save, and a failure with its traceback, which is ours to report in one line."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
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
