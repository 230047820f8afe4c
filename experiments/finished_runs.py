"""The finished runs of a study."""

from pathlib import Path
from typing import Any

from esnlm.base.errors import InputError
from esnlm.runs.directory import RunDirectory


def finished_runs(folder: Path) -> dict[Path, dict[str, Any]]:
    """Returns the directories of the finished runs of a study, with their summaries.

    `folder` is the study's folder `runs`. An interrupted run has a summary, too, and is left out.
    """
    summaries = {path: RunDirectory(path).read_summary() for path in sorted(folder.glob("*/"))}
    found = {path: summary for path, summary in summaries.items() if summary is not None}
    if not found:
        raise InputError(f"{folder}: no finished run; name the folder `runs` of the study")
    return found
