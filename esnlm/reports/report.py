"""Reports: the files of a result with its provenance, and tables in Markdown, CSV and TSV.

base/screen.py prints tables on the terminal.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from esnlm.base.errors import InputError
from esnlm.base.files import (
    json_text,
    require_writable,
    seal,
    spell_nonfinite,
    write_files,
    writing,
)
from esnlm.base.versions import provenance, versions
from esnlm.machine.compute import describe_device

Table: TypeAlias = tuple[list[str], list[list[str]]]  # header and rows


@dataclass(frozen=True)
class Report:
    """The files of a result: NAME.json, and beside it a page, NAME.md, and a picture, NAME.png.

    `command` is the command that made the result. The result of `measured` figures gets their
    `provenance`; otherwise, as in a table of runs, its parts have their own.
    """

    file: Path  # NAME.json
    command: str | None = None
    measured: bool = True

    def check(self, overwrite: bool = True) -> None:
        """Makes the folder. Raises InputError if the file cannot be written or may not be replaced.

        Call it before the work.
        """
        if self.file.suffix != ".json" or self.file.is_dir():
            raise InputError(f"{self.file}: the report must be a file whose name ends in .json")
        with writing(self.file.parent):
            self.file.parent.mkdir(parents=True, exist_ok=True)
        require_writable(self.file, overwrite)

    def write(
        self,
        result: Any,
        markdown: str | None = None,
        picture: bytes | None = None,
        others: Mapping[Path, str | bytes | None] | None = None,
        sealed: bool = False,
    ) -> str:
        """Writes the files, the JSON last, and returns the line to print.

        Args:
            result: a value for JSON. Gets the key `provenance` if measured, and with `sealed` the
                key `sha256`.
            others: further files and their contents.
        """
        files = {path: content for path, content in (others or {}).items() if content is not None}
        if self.measured:
            result["provenance"] = provenance(self.command) | {
                "versions": versions(),
                "device": describe_device(),
            }
            markdown = markdown and "\n".join([markdown, *_origin(result["provenance"]), ""])
        if sealed:
            result["sha256"] = seal(spell_nonfinite(result))
        if markdown is not None:
            files[self.file.with_suffix(".md")] = markdown
        if picture is not None:
            files[self.file.with_suffix(".png")] = picture
        with writing(self.file.parent):
            self.file.parent.mkdir(parents=True, exist_ok=True)
        write_files(files | {self.file: json_text(result)})
        names = ", ".join(path.name.removeprefix(self.file.stem) for path in files)
        return f"written: {self.file}" + (f" (and {names} beside it)" if names else "")


def _origin(provenance: Mapping[str, Any]) -> list[str]:
    """Returns the last lines of a page."""
    versions = ", ".join(f"{name} {number}" for name, number in provenance["versions"].items())
    lines = [f"- {name}: {provenance[name]}" for name in ("command", "machine")]
    return ["## Origin", "", *lines, f"- versions: {versions}"]


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], align: str = "l"
) -> list[str]:
    """Returns the lines of a Markdown table.

    Args:
        align: one letter per column, l (left) or r (right); the last letter applies to all further
            columns.
    """
    rule = ["---" if letter == "l" else "---:" for letter in align.ljust(len(header), align[-1])]
    lines = [[str(cell).replace("|", "&#124;") for cell in row] for row in (header, *rows)]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]


def csv_table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    separator: str = ",",
    quotes: bool = True,
) -> str:
    """Formats a table as CSV or TSV. Numbers keep all digits, and None becomes an empty cell.

    Without `quotes`, cells are written as they are; none may contain the separator or a line end.
    """
    text = io.StringIO(newline="")
    style: dict[str, Any] = {} if quotes else {"quoting": csv.QUOTE_NONE, "quotechar": None}
    csv.writer(text, delimiter=separator, lineterminator="\n", **style).writerows([header, *rows])
    return text.getvalue()
