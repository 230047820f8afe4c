"""Reads minimal pairs and sets of sentences from files, checks them, and groups them by paradigm.

BLiMP (Warstadt et al. 2020) has 67 files of 1,000 pairs, one JSON object per line: `sentence_good`,
`sentence_bad` and `UID`, the name of the paradigm. docs/minimal_pairs.md describes the other
formats: tables, sets of more than two sentences, text files with a label before each sentence, and
Zorro's text files. All may be compressed.
"""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.data.tables import read_table
from esnlm.data.text_files import kind_of, parse_json_lines, read_text, without_compression

# A folder's files of one kind are read: the first of these that it contains.
SUFFIXES = (".jsonl", ".tsv", ".csv", ".json", ".txt")

# Labels of sentences, in lower case.
GOOD_LABELS = (
    "true", "1", "1.0", "1,0", "good", "correct", "right", "ok", "grammatical", "acceptable", "yes",
)  # fmt: skip
BAD_LABELS = (
    "false", "0", "0.0", "0,0", "bad", "incorrect", "wrong", "*", "ungrammatical", "unacceptable",
    "no",
)  # fmt: skip
LABELS = dict.fromkeys(GOOD_LABELS, True) | dict.fromkeys(BAD_LABELS, False)
LABELS_ARE = (
    "labels are true and false, 1 and 0, good and bad, right and wrong, ok and *, "
    "(in)correct, (un)grammatical or (un)acceptable"
)


UNKNOWN = "unknown"  # a phenomenon or field that is missing
BAD = "bad"  # the field of the wrong sentences of a labelled table


class Columns(NamedTuple):
    """The columns of a table, or fields of a JSON object, that form a pair, in any
    capitalization."""

    good: str = "sentence_good"
    # several columns, or a list in one: a set of more than two sentences
    bad: tuple[str, ...] = ("sentence_bad",)
    # the paradigm; None: "UID", "paradigm", or the file's name if there is neither
    group: str | None = None
    phenomenon: str | None = None  # None: "linguistics_term", or "phenomenon" if there is none
    # For tables with one sentence per row, in the column `good`: its grammaticality, and its pair's
    # number or name in the paradigm.
    label: str | None = None
    pair: str | None = None


class Pair(NamedTuple):
    """A sentence that should be more probable than another one, or than each of several."""

    uid: str  # the paradigm
    number: int  # in its paradigm, from 0
    good: str
    bad: str | tuple[str, ...]  # a tuple in a set of more than two sentences
    phenomenon: str
    field: str  # of linguistics
    pair_id: str


def load(data: str | Path | Sequence[str | Path], columns: Columns | None = None) -> list[Pair]:
    """Reads pairs and sets, sorted by paradigm, and in file order within a paradigm.

    The paradigm defaults to the file's stem; a missing or empty `linguistics_term` (the phenomenon)
    or `field` is "unknown".

    Args:
        data: files, folders, and FOLDER/NAME for one paradigm, phenomenon (as BLiMP names it) or
            field in a folder. The suffix of a file gives its format: .tsv and .csv are tables; .txt
            has pairs of lines, with a label and a tab before each sentence or in Zorro's order; all
            others are JSON lines. A .txt file whose first line is a JSON object also holds JSON
            lines. Each format may be compressed (.jsonl.gz).
        columns: the names of columns and JSON fields; None: those of BLiMP.

    Raises:
        InputError: an item is not a pair, or a paradigm is in two files or under two phenomena.
    """
    columns = columns or Columns()
    paths = [Path(data)] if isinstance(data, str | Path) else list(map(Path, data))
    items: list[Pair] = []
    # paradigm -> the number of its path, its file, its phenomenon
    sources: dict[str, tuple[int, Path, str]] = {}
    sizes: Counter[str] = Counter()
    for number, path in enumerate(paths):
        files, name = _files(path)
        before = len(items)
        for file in files:
            for where, item in _pairs(file, columns):
                uid = item.uid
                names = map(_plain, (uid, item.phenomenon, item.field))
                if name is not None and _plain(name) not in names:
                    continue
                source = sources.setdefault(uid, (number, file, item.phenomenon))
                if source[:2] != (number, file):
                    raise InputError(
                        f"{where}: UID {uid!r} is also in {source[1]}: give each paradigm once"
                    )
                if source[2] != item.phenomenon:
                    advice = "" if columns.group else "name the column of the paradigm with --group"
                    raise InputError(
                        f"{where}: the phenomenon is {item.phenomenon!r}, and {source[2]!r} earlier"
                        f" for UID {uid!r}{advice and ': '}{advice}"
                    )
                index = sizes[uid]
                items.append(item._replace(number=index, pair_id=item.pair_id or str(index)))
                sizes[uid] += 1
        if len(items) == before:
            raise InputError(
                f"{path}: {path.parent} has no paradigm, phenomenon or field of this name"
            )
    return sorted(items, key=lambda item: item.uid)


def indices_by_paradigm(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """Returns the indices of the pairs of each paradigm."""
    indices: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        indices.setdefault(pair.uid, []).append(i)
    return {uid: np.array(members) for uid, members in indices.items()}


def wrong_of(pair: Pair) -> tuple[str, ...]:
    """Returns the sentences that should be less probable."""
    return (pair.bad,) if isinstance(pair.bad, str) else pair.bad


def sentences_of(pair: Pair) -> tuple[str, ...]:
    """Returns all sentences of a pair or set."""
    return (pair.good, *wrong_of(pair))


def digest(items: Sequence[Pair]) -> str:
    """Returns the sha256 of the paradigms and sentences, however they are divided into files."""
    content = hashlib.sha256()
    for item in items:
        content.update(json.dumps([item.uid, item.good, item.bad]).encode() + b"\n")
    return content.hexdigest()


@cache
def _plain(name: str) -> str:
    """Returns the letters and digits of a name in lower case, for comparison."""
    return "".join(character for character in name.lower() if character.isalnum())


def _files(path: Path) -> tuple[list[Path], str | None]:
    """Returns the files of a path, and the name of the items to select from them; None: all."""
    if path.is_file():
        return [path], None
    # A bare NAME is a missing file, not a selection from the files of the working directory.
    is_name = not path.is_dir() and kind_of(path) not in SUFFIXES and path.name != str(path)
    folder = path.parent if is_name else path
    members = sorted(folder.glob("[!.]*")) if folder.is_dir() else []
    for suffix in SUFFIXES:
        if files := [file for file in members if kind_of(file) == suffix]:
            return files, path.name if is_name else None
    raise InputError(f"{path}: no such file or folder of minimal pairs ({', '.join(SUFFIXES)})")


# ---- a file becomes records, with the numbers of their lines; a record becomes a pair ----

Records = Iterator[tuple[int, dict]]


def _pairs(file: Path, columns: Columns) -> Iterator[tuple[str, Pair]]:
    """Yields "file:line" and each pair of a file, not yet numbered."""
    kind = kind_of(file)
    if kind in (".tsv", ".csv"):
        records = _table_rows(file, columns)
    else:
        text = read_text(file)
        lines = text.split("\n")  # str.splitlines would also split at other separators
        if kind == ".txt" and not text.lstrip().startswith('{"'):
            records, columns = _pairs_of_lines(file, lines), Columns()
        else:
            if not text.strip():
                raise InputError(f"{file}: the file is empty; give one JSON object per line")
            records = parse_json_lines(file, lines)
    if columns.label is not None:
        records = _grouped_by_label(file, records, columns)
        columns = columns._replace(bad=(BAD,))
    for line, record in records:
        where = f"{file}:{line}"
        yield where, _pair(record, where, file, columns)


def _table_rows(file: Path, columns: Columns) -> Records:
    """Returns the rows of a table, which must have all columns."""
    table = read_table(file)
    bad = columns.bad if columns.label is None else (columns.label, columns.pair)
    for name in (columns.good, *bad, columns.group, columns.phenomenon):
        if name is not None:
            # raises if the table lacks this column
            table.texts(_spelled(name, table.rows[0]), several_lines=True)
    return zip(table.lines, table.rows, strict=True)


def _pairs_of_lines(file: Path, lines: Sequence[str]) -> Records:
    """Yields the pairs of a text file, two lines each.

    A label and a tab before each sentence mark the grammatical one (Linzen's group, CLAMS). Without
    labels it is the second, as in Zorro (Huebner et al. 2021), whose files are called
    PHENOMENON-PARADIGM.txt.
    """
    lines = "\n".join(line.strip() for line in lines).rstrip("\n").split("\n")
    if len(lines) % 2 or not all(lines):
        raise InputError(
            f"{file}: give two lines per pair, the ungrammatical sentence first, without blank"
            " lines"
        )
    phenomenon = without_compression(file).stem.rpartition("-")[0]
    for i in range(0, len(lines), 2):
        bad, good = lines[i : i + 2]
        if "\t" in bad or "\t" in good:
            (first, _, bad), (second, _, good) = bad.partition("\t"), good.partition("\t")
            labels = _is_good(first), _is_good(second)
            if sorted(labels, key=str) != [False, True]:
                raise InputError(
                    f"{file}:{i + 1}: {first!r} and {second!r} are before the tabs: {LABELS_ARE}"
                )
            bad, good = (good, bad) if labels[0] else (bad, good)
        yield i + 1, {"sentence_good": good, "sentence_bad": bad, "phenomenon": phenomenon}


def _grouped_by_label(file: Path, records: Records, columns: Columns) -> Records:
    """Yields the pairs and sets of a table with one labelled sentence per row."""
    label, pair = str(columns.label), str(columns.pair)
    # By paradigm and pair: the row of each sentence, and whether it is grammatical.
    rows_of_pair: dict[tuple[str, str], list[tuple[int, bool, dict]]] = {}
    for line, record in records:
        where = f"{file}:{line}"
        is_good = _is_good(_value(record, label))
        if is_good is None:
            raise InputError(f"{where}: {label} is {_value(record, label)!r}: {LABELS_ARE}")
        pair_id = _value(record, pair)
        if pair_id is None or not str(pair_id).strip():
            raise InputError(f"{where}: {pair} is empty: give the pair's number or name")
        key = _uid(record, where, file, columns), str(pair_id)
        rows_of_pair.setdefault(key, []).append((line, is_good, record))
    restart = "" if columns.group else f"; if {pair} starts again in each paradigm, give --group"
    for (_, pair_id), rows in rows_of_pair.items():
        where = f"{file}:{rows[0][0]}"
        good = [(line, record) for line, is_good, record in rows if is_good]
        bad = [_value(record, columns.good) for _, is_good, record in rows if not is_good]
        if len(good) != 1 or not bad:
            raise InputError(
                f"{where}: {pair} {pair_id} has {len(good)} good and {len(bad)} bad: give one good,"
                f" one or more bad{restart}"
            )
        phenomena = sorted({_phenomenon(record, columns) for *_, record in rows} - {UNKNOWN})
        if len(phenomena) > 1:
            raise InputError(
                f"{where}: {pair} {pair_id} is in the phenomena {' and '.join(phenomena)}: give one"
                f"{restart}"
            )
        ((line, record),) = good
        found_in = {columns.phenomenon or "linguistics_term": "".join(phenomena)}
        yield line, record | found_in | {BAD: bad, "pairID": pair_id}


def _pair(record: dict, where: str, file: Path, columns: Columns) -> Pair:
    uid = _uid(record, where, file, columns)
    good = _text(_value(record, columns.good), columns.good, where)
    bad: list[str] = []
    for name in columns.bad:
        value = _value(record, name)
        values = value if isinstance(value, list) and value else [value]
        bad += [_text(each, name, where) for each in values]
    bad = list(dict.fromkeys(bad))  # A table may repeat a sentence to fill its columns.
    for sentence in bad:
        _check_alike(sentence, good, where)
    field = str(_value(record, "field") or "").strip() or UNKNOWN
    pair_id = _value(record, "pairID")
    return Pair(
        uid,
        number=0,
        good=good,
        bad=bad[0] if len(bad) == 1 else tuple(bad),
        phenomenon=_phenomenon(record, columns),
        field=field.replace("syntax_semantics", "syntax/semantics"),
        pair_id="" if pair_id is None else str(pair_id),
    )


def _uid(record: dict, where: str, file: Path, columns: Columns) -> str:
    # `uid` in other capitals is often the id of a row.
    defaults = ("UID", _spelled("paradigm", record), _spelled("UID", record))
    names = [columns.group] if columns.group else [name for name in defaults if name in record]
    if not names:
        return without_compression(file).stem
    uid = _value(record, names[0])
    return _text(str(uid) if isinstance(uid, int) else uid, names[0], where)


def _phenomenon(record: dict, columns: Columns) -> str:
    names = [columns.phenomenon] if columns.phenomenon else ["linguistics_term", "phenomenon"]
    values = [str(_value(record, name) or "").strip() for name in names]
    phenomenon = next(filter(None, values), UNKNOWN)
    # In two official files; Warstadt et al. 2020 count them here.
    return "argument_structure" if phenomenon == "s-selection" else phenomenon


def _value(record: dict, name: str) -> Any:
    """Returns a field in any capitalization; None if it is missing."""
    return record.get(_spelled(name, record))


def _spelled(name: str, names: Collection[str]) -> str:
    """Returns a name with the capitals that it has among `names`."""
    if name in names:
        return name
    return next((other for other in names if other.lower() == name.lower()), name)


def _text(value: object, field: str, where: str) -> str:
    """Returns a field's text. Rejects empty text, since an empty sentence is more probable than
    most others."""
    if value is None:
        raise InputError(f"{where}: field {field!r} is missing")
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: field {field!r} is {json.dumps(value)}: give a text")
    return value


def _check_alike(bad: str, good: str, where: str) -> None:
    """Raises InputError if outer white space or the Unicode form would decide between two
    sentences."""
    if bad != good and unicodedata.normalize("NFC", bad) == unicodedata.normalize("NFC", good):
        raise InputError(
            f"{where}: {bad!r} and {good!r} are the same text in two Unicode forms: write both"
            " in NFC"
        )
    if bad.partition(bad.strip())[::2] != good.partition(good.strip())[::2]:
        raise InputError(
            f"{where}: {bad!r} and {good!r} have different white space at their ends: strip them"
        )


def _is_good(label: object) -> bool | None:
    """Returns whether a label means grammatical; None if it is not a label."""
    return LABELS.get(str(label).strip().lower())
