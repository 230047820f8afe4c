"""The runs of one study are of one text and of one set of minimal pairs: others would stand in one table, or in one mean."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from esnlm.data.sources.base import DataSource
from esnlm.errors import require
from esnlm.reporting import blimp_report
from esnlm.runs.directory import RunDirectory


class Texts:
    """The texts that lie here, each read once."""

    def __init__(self) -> None:
        self._sha256: dict[DataSource, dict[str, str | None]] = {}

    def find_other(self, known: Mapping[str, str | None], data: DataSource) -> str | None:
        """Returns "train" or "validation" where this text is another one than a run was made from, else None.

        Args:
            known: the sha256 of each text that the run was made from.
            data: where its text comes from.
        """
        if data not in self._sha256:
            self._sha256[data] = data.text_sha256() or {}
        return next((part for part, sha256 in self._sha256[data].items() if known.get(part) != sha256), None)


def require_texts(runs: Iterable[tuple[Path, DataSource]]) -> None:
    """Raises InputError where a finished run was trained or validated on other text than lies here now.

    Args:
        runs: run directories, and where the text of each comes from.
    """
    texts = Texts()
    for run, data in runs:
        known = (RunDirectory(run).read_summary() or {}).get("data_sha256")
        if isinstance(known, dict):  # else it is not finished, or of an earlier version
            other = texts.find_other(known, data)
            advice = "name the same stores, or another folder with --out"
            require(other is None, f"{run}: was trained with another {other} text than lies here; {advice}")


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
        advice = (
            f"name the pairs of that report, or score the run again: esnlm blimp --run {run} --data {pairs} --overwrite"
        )
        require(found == digest, f"{scores}: is of other minimal pairs than {pairs}: {advice}")
