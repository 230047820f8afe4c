"""The finished runs of a study."""

import sys
from pathlib import Path
from typing import Any

from esnlm.base.errors import InputError
from esnlm.runs.directory import RunDirectory


def finished_runs(folder: Path) -> dict[Path, dict[str, Any]]:
    """Returns the directories of the finished runs of a study, with their summaries.

    `folder` is the study's folder `runs`. Interrupted and diverged runs are left out.
    """
    found = {}
    for path in sorted(folder.glob("*/")):
        summary = RunDirectory(path).read_summary()
        if summary is not None and summary["status"] == "finished":
            found[path] = summary
        elif summary is not None:
            print(f"{path}: left out, as it {summary['status']}", file=sys.stderr)
    if not found:
        raise InputError(f"{folder}: no finished run; name the folder `runs` of the study")
    return found


def split_name(name: str) -> tuple[str, int]:
    """Returns the model and the seed of a run of a study, from the name of its directory."""
    model, _, seed = name.rpartition("-seed")
    return model, int(seed)
