"""The record of a study's measurements. The same study resumes from it; another study does not
overwrite it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from esnlm.base.errors import InputError
from esnlm.base.files import spell_nonfinite, write_file, write_files, writing
from esnlm.base.versions import versions
from esnlm.machine.compute import describe_device
from experiments.bottleneck.settings import CurvesSettings, OneStepSettings


class Record:
    """KIND.json in a folder: the settings of a study, its measured `cells` by name and, at the end,
    its `report`.

    `versions` and `device` are those of its first start; `went_on` lists others used for further
    cells.
    """

    def __init__(self, out: Path, settings: OneStepSettings | CurvesSettings, command: str):
        self.file = out / f"{settings.kind}.json"
        self.content: dict[str, Any] = {
            "study": dataclasses.asdict(settings),
            "command": command,
            "versions": versions(),
            "device": describe_device(),
        }
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
        self.content["cells"], self.done = self._read()

    @property
    def cells(self) -> dict[str, Any]:
        return self.content["cells"]

    def add(self, name: str, values: dict[str, Any]) -> None:
        """Adds a cell and writes the record."""
        self.cells[name] = spell_nonfinite(values)
        self._write()

    def finish(self, report: dict[str, Any], markdown: str, picture: bytes | None) -> None:
        """Writes KIND.md and KIND.png, and the report into KIND.json."""
        write_files(
            {self.file.with_suffix(".md"): markdown, self.file.with_suffix(".png"): picture}
        )
        self.content["report"] = spell_nonfinite(report)
        self._write()

    def _write(self) -> None:
        write_file(self.file, json.dumps(self.content) + "\n")

    def _read(self) -> tuple[dict[str, Any], bool]:
        """Returns the cells that an earlier run has measured, and whether it has finished."""
        if not self.file.exists():
            return {}, False
        try:
            found = json.loads(self.file.read_bytes())
            same = found["study"] == json.loads(json.dumps(self.content["study"]))
            cells, done = found["cells"], "report" in found
            problem = "" if same else "holds the results of other settings"
        except (OSError, ValueError, KeyError, TypeError):
            problem = "unreadable or damaged"
        if problem:
            raise InputError(
                f"{self.file}: {problem}; delete it, or name another folder with --out"
            )
        begun, here = (
            {key: each.get(key) for key in ("versions", "device")} for each in (found, self.content)
        )
        others = found.get("went_on", [])
        if here != begun and here not in others and not done:
            others = [*others, here]
        self.content |= (
            begun
            | ({"went_on": others} if others else {})
            | ({"report": found["report"]} if done else {})
        )
        return cells, done
