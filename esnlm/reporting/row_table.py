"""Tables for other programs: rows as TSV, CSV or JSON lines, numbers with six decimals."""

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
    """Returns the format of a table: the one asked for, else that of the file's suffix, else TSV."""
    if asked is not None or out is None:
        return asked or "tsv"
    suffix = out.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(f"{out}: end the name in .tsv, .csv or .jsonl, or give --format")
    return suffix


def table_text(rows: Sequence[dict], kind: str) -> str:
    """Returns rows (at least one) of the same keys as the text of a file of one of FORMATS."""
    rounded = [{name: _rounded(value) for name, value in row.items()} for row in rows]
    if kind == "jsonl":
        return "".join(json.dumps(spell_nonfinite(row), ensure_ascii=False) + "\n" for row in rounded)
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=SEPARATORS[kind], lineterminator="\n")
    writer.writerow(rows[0])
    for row in rounded:
        writer.writerow(f"{cell:.{DECIMALS}f}" if isinstance(cell, float) else cell for cell in row.values())
    return text.getvalue()


def _rounded(value: object) -> object:
    return round(value, DECIMALS) + 0.0 if isinstance(value, float) else value  # + 0.0: no -0.000000
