"""Minimal pairs: read from files, checked, and grouped by paradigm.

BLiMP (Warstadt et al. 2020) is 67 files of 1,000 pairs, one JSON object a line: `sentence_good`, `sentence_bad` and
`UID`, the name of the paradigm. Any pairs of this form will do.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esnlm.errors import InputError
from esnlm.runs.json_file import parse_json


class Pair(NamedTuple):
    """Two sentences of which a model should find the first more probable."""

    uid: str  # the paradigm
    number: int  # in its paradigm, from 0
    good: str
    bad: str
    phenomenon: str
    field: str  # of linguistics
    pair_id: str


def load(data: str | Path | Sequence[str | Path]) -> list[Pair]:
    """Reads pairs, sorted by paradigm and in the order of their file within a paradigm.

    A missing `UID` is the file's stem; a missing `linguistics_term` (the phenomenon) or `field` is "unknown".

    Args:
        data: JSONL files and folders; of a folder, all its *.jsonl files.

    Raises:
        InputError: something is not a pair (the message has file, line and field), a paradigm is in two files or under
            two phenomena, or a file or folder is empty.
    """
    paths = [data] if isinstance(data, str | Path) else data
    files = [file for path in paths for file in _files(Path(path))]
    pairs: list[Pair] = []
    home: dict[str, tuple[int, str]] = {}  # paradigm -> (number of its file, its phenomenon)
    size: Counter[str] = Counter()
    for number, file in enumerate(files):
        for where, record in records(file):
            uid = text_of(record, "UID", where, default=file.stem)
            phenomenon = text_of(record, "linguistics_term", where, default="unknown")
            if phenomenon == "s-selection":  # so two official files say; Warstadt et al. 2020 count them here
                phenomenon = "argument_structure"
            first_number, first_phenomenon = home.setdefault(uid, (number, phenomenon))
            if first_number != number:
                raise InputError(f"{where}: UID {uid!r} is also in {files[first_number]}: give every paradigm once")
            if first_phenomenon != phenomenon:
                raise InputError(
                    f"{where}: field 'linguistics_term' is {phenomenon!r}, and {first_phenomenon!r} earlier for the "
                    f"same UID {uid!r}: a paradigm belongs to one phenomenon"
                )
            pair = Pair(
                uid=uid,
                number=size[uid],
                good=text_of(record, "sentence_good", where),
                bad=text_of(record, "sentence_bad", where),
                phenomenon=phenomenon,
                field=text_of(record, "field", where, default="unknown").replace(
                    "syntax_semantics", "syntax/semantics"
                ),
                pair_id=str(record.get("pairID", size[uid])),
            )
            pairs.append(pair)
            size[uid] += 1
    return sorted(pairs, key=lambda pair: pair.uid)


def rows_by_paradigm(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """Returns the pairs of each paradigm, as indices into `pairs`."""
    rows: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        rows.setdefault(pair.uid, []).append(i)
    return {uid: np.array(indices) for uid, indices in rows.items()}


def digest(pairs: Sequence[Pair]) -> str:
    """Returns the sha256 of the paradigms and sentences, which does not depend on how they are spread over files."""
    content = hashlib.sha256()
    for pair in pairs:
        content.update(json.dumps([pair.uid, pair.good, pair.bad]).encode() + b"\n")
    return content.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: no such file or folder of minimal pairs")
    files = sorted(file for file in path.glob("*.jsonl") if not file.name.startswith("."))
    if not files:
        raise InputError(f"{path}: no .jsonl file in this folder: give the folder that holds the pairs, or its files")
    return files


def records(file: Path, needed: str = "sentence_good, sentence_bad") -> Iterator[tuple[str, dict]]:
    """Yields "file:line" and the object of each line. Only \\n ends a line: a sentence may hold other separators.

    Args:
        file: JSONL.
        needed: the names of the fields that an object should have, for the message where a line holds something else.

    Raises:
        InputError: the file is empty, or a line is no JSON object.
    """
    empty = True
    for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        empty, where = False, f"{file}:{number}"
        try:
            record = parse_json(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: not UTF-8 (byte {error.start} of the line)") from None
        except json.JSONDecodeError as error:
            raise InputError(f"{where}: not JSON ({error.msg}, column {error.colno}): one object a line") from None
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error}): one object a line") from None
        if not isinstance(record, dict):
            raise InputError(f"{where}: a JSON {type(record).__name__}, not an object with {needed}")
        yield where, record
    if empty:
        raise InputError(f"{file}: the file is empty: one JSON object a line is needed")


def text_of(record: dict, field: str, where: str, default: str | None = None) -> str:
    """Returns a field that holds text. Raises InputError where it is missing, or is no text."""
    if field not in record and default is not None:
        return default
    if field not in record:
        raise InputError(f"{where}: field {field!r} is missing")
    value = record[field]
    if not isinstance(value, str):
        raise InputError(f"{where}: field {field!r} is {json.dumps(value)}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where}: field {field!r} has half a surrogate pair, which is no text") from None
    return value
