"""What differs between two run directories, two folders or two reports, apart from times."""

import json
from pathlib import Path
from typing import Any

from esnlm.runs import checkpoint

REPOSITORY = Path(__file__).resolve().parents[2]
# A time, a speed, memory, and a hash of lines that hold them.
TIMES = ("seconds", "tokens_per_second", "peak_memory_bytes")


def compare_runs(one: Path, other: Path) -> list[str]:
    """Returns what differs between two runs, one line each."""
    names = ["data.json", "unigram.npy", "tokenizer/ranks.tiktoken", "tokenizer/tokenizer.json"]
    found = compare_files(one, other, names)
    for folder in ("frozen", *(f"checkpoints/{step}" for step in checkpoint.all_steps(one / "checkpoints"))):
        if not (other / folder).exists():
            continue  # checkpoints are kept by age: which older one is there depends on where a run was stopped
        (arrays, metadata), (arrays_2, metadata_2) = (checkpoint.restore(run / folder) for run in (one, other))
        if checkpoint.digest(arrays) != checkpoint.digest(arrays_2) or timeless(metadata) != timeless(metadata_2):
            found.append(f"{other / folder}")
    if max(checkpoint.all_steps(one / "checkpoints")) != max(checkpoint.all_steps(other / "checkpoints")):
        found.append(f"{other}: last checkpoint")
    if _read_metrics(one) != _read_metrics(other):
        found.append(f"{other / 'metrics.jsonl'}")
    if read_summary(one) != read_summary(other):
        found.append(f"{other / 'summary.json'}")
    return found


def compare_files(one: Path, other: Path, names: list[str] | None = None) -> list[str]:
    """Returns the files that differ or are in one folder only: those of `names`, or all."""
    if names is None:
        files = {
            str(file.relative_to(folder)) for folder in (one, other) for file in folder.rglob("*") if file.is_file()
        }
        names = sorted(files)
    return [str(other / name) for name in names if _differ(one / name, other / name)]


def _differ(one: Path, other: Path) -> bool:
    return not (one.exists() and other.exists()) or one.read_bytes() != other.read_bytes()


def compare_reports(folder: Path) -> list[str]:
    """Returns what differs between once.json and killed.json, apart from the command, which names its own file."""
    one, other = (json.loads((folder / f"{name}.json").read_text()) for name in ("once", "killed"))
    for found in (one, other):
        del found["provenance"]["command"], found["pairs_file"]["name"], found["sha256"]
    found = [f"report: {key}" for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    left = [str(file) for file in folder.iterdir() if file.name.startswith(".")]
    return found + left + compare_files(folder / "once.pairs.jsonl", folder / "killed.pairs.jsonl", [""])


def read_summary(run: Path) -> dict[str, Any]:
    """Returns a run's summary without times."""
    return timeless(json.loads((run / "summary.json").read_text()))


def _read_metrics(run: Path) -> list[dict[str, Any]]:
    return [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def timeless(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values whose keys are not in TIMES."""
    return {key: value for key, value in values.items() if key not in TIMES}
