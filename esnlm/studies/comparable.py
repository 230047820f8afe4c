"""The runs of one study are of one text and of one set of minimal pairs: others would stand in one table, or in one mean."""

from collections.abc import Iterable
from pathlib import Path

from esnlm.data.sources.base import DataSource
from esnlm.errors import require
from esnlm.reporting import blimp_report
from esnlm.runs.directory import RunDirectory


def require_texts(runs: Iterable[tuple[Path, DataSource]]) -> None:
    """Raises InputError where a finished run was trained or validated on other text than lies here now.

    Args:
        runs: run directories, and where the text of each comes from.
    """
    texts: dict[DataSource, dict[str, str | None]] = {}
    for run, data in runs:
        summary = RunDirectory(run).read_summary()
        known = (summary or {}).get("data_sha256")
        if not isinstance(known, dict):  # not finished, or of an earlier version
            continue
        if data not in texts:
            texts[data] = data.text_sha256() or {}
        for part, sha256 in texts[data].items():
            advice = "name the same stores, or another folder with --out"
            require(known.get(part) == sha256, f"{run}: was trained with another {part} text than lies here; {advice}")


def require_pairs(runs: Iterable[Path], digest: str, pairs: Path) -> None:
    """Raises InputError where a run was scored on other minimal pairs.

    Args:
        runs: run directories.
        digest: of the pairs (evaluation/minimal_pairs.py).
        pairs: where they lie.
    """
    for run in runs:
        scores = RunDirectory(run).evaluation / "blimp-paper.json"
        found = blimp_report.read(scores)["data"]["sha256"] if scores.exists() else digest
        advice = "give those, or another folder with --out"
        require(found == digest, f"{scores}: is of other minimal pairs than {pairs}: {advice}")
