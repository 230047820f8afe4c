"""The files of a table of surprisals: where they go, in which form, and that they replace nothing unasked."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from esnlm.errors import InputError, require
from esnlm.io.atomic import followed, require_writable, write_files
from esnlm.io.console import say, tell
from esnlm.reporting import surprisal_plot
from esnlm.reporting.row_table import table_format, table_text


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """Where a table goes."""

    out: Path | None = None  # the table's file; None: the table is returned
    format: str | None = None  # "tsv", "csv" or "jsonl"; None: by the suffix of `out`
    plot: Path | None = None  # a PNG file to draw the surprisals in
    overwrite: bool = False  # whether to replace files

    def check(self) -> None:
        """Raises InputError where a name does not say what to write, nothing can be written there, or a file is not to be replaced."""
        table_format(self.out, self.format)
        require(
            self.plot is None or self.plot.suffix.lower() == ".png", f"{self.plot}: the plot's name must end in .png"
        )
        if self.out is not None and self.plot is not None:
            one = os.path.realpath(self.out) == os.path.realpath(self.plot)
            require(not one, f"{self.plot}: it is named for the table and for the plot; name two files")
        for file in (self.out, self.plot):
            if file is None:
                continue
            if file.exists() and not self.overwrite:
                raise InputError(f"{file}: exists: name another file, or replace it with --overwrite")
            require_writable(followed(file))

    def write(self, table: Sequence[dict], rows: Sequence[dict], title: str) -> str | None:
        """Writes the files and says so. Returns the text of the table where it goes to no file.

        Args:
            table: the rows of the table.
            rows: of `Run.surprisal`, to draw.
            title: of the plot.
        """
        text = table_text(table, table_format(self.out, self.format))
        contents: dict[Path, str | bytes] = {}
        if self.out is not None:
            contents[self.out] = text
        notes = []
        if self.plot is not None:
            picture, note = surprisal_plot.plot(rows, title)
            notes += [note] if note else []
            if picture is not None:
                contents[self.plot] = picture
        write_files({followed(file): content for file, content in contents.items()})
        written = [f"written: {', '.join(map(str, contents))}"] * bool(contents)
        if written or notes:
            (tell if notes else say)("; ".join([*written, *notes]))  # --quiet, too, says that there is no plot
        return text if self.out is None else None
