"""What has been measured, kept as it comes: the same study goes on where it was stopped, another does not write over it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.runs.atomic import write_file, writing
from esnlm.runs.json_file import parse_json, spell_nonfinite
from esnlm.training.summary import describe_device, versions


class Record:
    """KIND.json in a folder: `cells` by name and, at the end, a `report`, of a study with these settings."""

    def __init__(self, out: Path, settings, source: str):
        self.file = out / f"{settings.kind}.json"
        self.content = {
            "study": dataclasses.asdict(settings),
            "source": source,
            "versions": versions(),
            "device": describe_device(),
        }
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
        self.content["cells"], self.done = self._begun()

    @property
    def cells(self) -> dict[str, Any]:
        return self.content["cells"]

    def add(self, name: str, values: Any) -> None:
        """Keeps a cell."""
        self.cells[name] = spell_nonfinite(values)
        self._write()

    def finish(self, report: dict[str, Any], markdown: str, picture: bytes | None) -> None:
        """Writes KIND.md and KIND.png, and the report into KIND.json."""
        write_file(self.file.with_suffix(".md"), markdown)
        if picture is not None:
            write_file(self.file.with_suffix(".png"), picture)
        self.content["report"] = spell_nonfinite(report)
        self._write()

    def _write(self) -> None:
        write_file(self.file, json.dumps(self.content) + "\n")

    def _begun(self) -> tuple[dict[str, Any], bool]:
        if not self.file.exists():
            return {}, False
        try:
            found = parse_json(self.file.read_bytes())
            same, cells, done = (
                found["study"] == json.loads(json.dumps(self.content["study"])),
                found["cells"],
                "report" in found,
            )
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(
                f"{self.file}: unreadable or damaged; delete it, or name another folder with --out"
            ) from None
        if not same:
            raise InputError(
                f"{self.file}: holds the results of other settings; delete it, or name another folder with --out"
            )
        return cells, done
