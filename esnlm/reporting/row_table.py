"""The one writer of tables for other programs: rows as TSV, CSV or JSON lines."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from esnlm.errors import InputError
from esnlm.io.json_file import spell_nonfinite

SEPARATORS = {"tsv": "\t", "csv": ","}
FORMATS = (*SEPARATORS, "jsonl")
DECIMALS = 6


def table_format(out: Path | None, asked: str | None) -> str:
    """Returns the format of a table: the one asked for, else that of the file's suffix, else TSV.

    Raises:
        InputError: the file has another suffix, and no format was asked for.
    """
    if asked is not None or out is None:
        return asked or "tsv"
    suffix = out.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"{out}: its name does not say which table to write: end it in .tsv, .csv or .jsonl, or give --format"
        )
    return suffix


def table_text(rows: Sequence[dict], kind: str) -> str:
    """Returns rows of the same keys as the text of a file.

    Args:
        rows: at least one; numbers that are no integers get six decimals.
        kind: one of FORMATS. TSV and CSV have a line of names first, and quotation marks around cells that need them.
    """
    if kind == "jsonl":
        rounded = [
            {name: round(value, DECIMALS) + 0.0 if isinstance(value, float) else value for name, value in row.items()}
            for row in rows
        ]
        return "".join(json.dumps(spell_nonfinite(row), ensure_ascii=False) + "\n" for row in rounded)
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=SEPARATORS[kind], lineterminator="\n")
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow(_cell(value) for value in row.values())
    return text.getvalue()


def _cell(value: object) -> object:
    return f"{round(value, DECIMALS) + 0.0:.{DECIMALS}f}" if isinstance(value, float) else value  # + 0.0: no -0.000000
