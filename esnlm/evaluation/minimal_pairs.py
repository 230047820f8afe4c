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
from typing import NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.data.tables import read_table
from esnlm.data.text_files import kind_of, parse_json_lines, read_text, without_compression

# A folder's files of one kind are read: the first of these that it contains.
SUFFIXES = (".jsonl", ".tsv", ".csv", ".json", ".txt")

# Labels of sentences, in lower case.
GOOD_LABELS = (
    "true",
    "1",
    "1.0",
    "1,0",
    "good",
    "correct",
    "right",
    "ok",
    "grammatical",
    "acceptable",
    "yes",
)
BAD_LABELS = (
    "false",
    "0",
    "0.0",
    "0,0",
    "bad",
    "incorrect",
    "wrong",
    "*",
    "ungrammatical",
    "unacceptable",
    "no",
)
LABELS = dict.fromkeys(GOOD_LABELS, True) | dict.fromkeys(BAD_LABELS, False)
LABELS_ARE = (
    "labels are true and false, 1 and 0, good and bad, right and wrong, ok and *, "
    "(in)correct, (un)grammatical or (un)acceptable"
)


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
    items: list[Pair] = []
    # paradigm -> the number of its path, its file, its phenomenon
    home: dict[str, tuple[int, Path, str]] = {}
    size: Counter[str] = Counter()
    for number, path in enumerate(map(Path, [data] if isinstance(data, str | Path) else data)):
        files, name = _files(path)
        before = len(items)
        for file in files:
            for where, item in _pairs(file, columns):
                if name is not None and _plain(name) not in map(
                    _plain, (item.uid, item.phenomenon, item.field)
                ):
                    continue
                first, first_file, phenomenon = home.setdefault(
                    item.uid, (number, file, item.phenomenon)
                )
                if (first, first_file) != (number, file):
                    raise InputError(
                        f"{where}: UID {item.uid!r} is also in {first_file}: give each paradigm"
                        " once"
                    )
                if phenomenon != item.phenomenon:
                    both = f"the phenomenon is {item.phenomenon!r}, and {phenomenon!r} earlier"
                    advice = (
                        "" if columns.group else ": name the column of the paradigm with --group"
                    )
                    raise InputError(f"{where}: {both} for UID {item.uid!r}{advice}")
                items.append(
                    item._replace(
                        number=size[item.uid], pair_id=item.pair_id or str(size[item.uid])
                    )
                )
                size[item.uid] += 1
        if len(items) == before:
            raise InputError(
                f"{path}: {path.parent} has no paradigm, phenomenon or field of this name"
            )
    return sorted(items, key=lambda item: item.uid)


def rows_by_paradigm(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """Returns the indices of the pairs of each paradigm."""
    rows: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        rows.setdefault(pair.uid, []).append(i)
    return {uid: np.array(indices) for uid, indices in rows.items()}


def wrong_of(pair: Pair) -> tuple[str, ...]:
    """Returns the sentences that should be less probable."""
    return (pair.bad,) if isinstance(pair.bad, str) else pair.bad


def sentences_of(pair: Pair) -> tuple[str, ...]:
    """Returns all sentences of a pair or set."""
    return (pair.good, *wrong_of(pair))


def digest(items: Sequence[Pair]) -> str:
    """Returns the sha256 of the paradigms and sentences, which is independent of their division
    into files."""
    content = hashlib.sha256()
    for item in items:
        content.update(json.dumps([item.uid, item.good, item.bad]).encode() + b"\n")
    return content.hexdigest()


@cache
def _plain(name: str) -> str:
    """Returns the letters and digits of a name in lower case, for comparison."""
    return "".join(character for character in name.lower() if character.isalnum())


def _files(path: Path) -> tuple[list[Path], str | None]:
    """Returns the files of a path, and the name of the items to select from them, or None for
    all."""
    if path.is_file():
        return [path], None
    # A bare NAME is a missing file, not a selection from the files of the working directory.
    is_name = not path.is_dir() and kind_of(path) not in SUFFIXES and path.name != str(path)
    folder = path.parent if is_name else path
    for suffix in SUFFIXES if folder.is_dir() else ():
        files = sorted(
            file
            for file in folder.iterdir()
            if kind_of(file) == suffix and not file.name.startswith(".")
        )
        if files:
            return files, path.name if is_name else None
    raise InputError(f"{path}: no such file or folder of minimal pairs ({', '.join(SUFFIXES)})")


def _pairs(file: Path, columns: Columns) -> Iterator[tuple[str, Pair]]:
    """Yields "file:line" and each pair of a file, not yet numbered."""
    kind = kind_of(file)
    if kind in (".tsv", ".csv"):
        table = read_table(file)
        bad = columns.bad if columns.label is None else (columns.label, columns.pair)
        for name in (columns.good, *bad, columns.group, columns.phenomenon):
            if name is not None:
                # raises if the table lacks this column
                table.texts(_spelled(name, table.rows[0]), several_lines=True)
        rows: Iterator[tuple[int, dict]] = zip(table.lines, table.rows, strict=True)
    else:
        text = read_text(file)
        lines = text.split("\n")  # str.splitlines would also split at other separators
        if kind == ".txt" and not text.lstrip().startswith('{"'):
            yield from _pairs_of_lines(file, lines)
            return
        if not text.strip():
            raise InputError(f"{file}: the file is empty; give one JSON object per line")
        rows = parse_json_lines(file, lines)
    if columns.label is not None:
        yield from _labelled_pairs(file, rows, columns)
        return
    for line, record in rows:
        yield f"{file}:{line}", _pair(record, f"{file}:{line}", file, columns)


def _labelled_pairs(
    file: Path, rows: Iterator[tuple[int, dict]], columns: Columns
) -> Iterator[tuple[str, Pair]]:
    """Yields the pairs and sets of a table with one sentence per row."""
    label, pair = columns.label or "", columns.pair or ""
    # By paradigm and pair: the rows, each as "file:line", whether it is grammatical, and its cells.
    rows_of_pair: dict[tuple[str, str], list[tuple[str, bool, dict]]] = {}
    for line, record in rows:
        where = f"{file}:{line}"
        is_good = _is_good(_value(record, label))
        if is_good is None:
            raise InputError(f"{where}: {label} is {_value(record, label)!r}: {LABELS_ARE}")
        pair_id = _value(record, pair)
        if pair_id is None or not str(pair_id).strip():
            raise InputError(f"{where}: {pair} is empty: give the pair's number or name")
        key = (_uid(record, where, file, columns), str(pair_id))
        rows_of_pair.setdefault(key, []).append((where, is_good, record))
    restart = "" if columns.group else f"; if {pair} starts again in each paradigm, give --group"
    for (_, pair_id), members in rows_of_pair.items():
        good = [(where, record) for where, is_good, record in members if is_good]
        bad = [_value(record, columns.good) for _, is_good, record in members if not is_good]
        if len(good) != 1 or not bad:
            raise InputError(
                f"{members[0][0]}: {pair} {pair_id} has {len(good)} good and {len(bad)} bad: give"
                f" one good, one or more bad{restart}"
            )
        phenomena = sorted({_phenomenon(record, columns) for _, _, record in members} - {"unknown"})
        if len(phenomena) > 1:
            raise InputError(
                f"{members[0][0]}: {pair} {pair_id} is in the phenomena {' and '.join(phenomena)}:"
                f" give one{restart}"
            )
        ((where, record),) = good
        item = _pair(
            record | {"bad": bad, "pairID": pair_id}, where, file, columns._replace(bad=("bad",))
        )
        yield where, item._replace(phenomenon=phenomena[0] if phenomena else "unknown")


def _pair(record: dict, where: str, file: Path, columns: Columns) -> Pair:
    """Returns the pair of a JSON object or of a row of a table."""
    uid = _uid(record, where, file, columns)
    good = _text(_value(record, columns.good), columns.good, where)
    bad: list[str] = []
    for name in columns.bad:
        value = _value(record, name)
        listed = value if isinstance(value, list) and value else [value]
        bad += [_text(each, name, where) for each in listed]
    bad = list(dict.fromkeys(bad))  # A table may repeat a sentence to fill its columns.
    for sentence in bad:
        _require_alike(sentence, good, where)
    field = str(_value(record, "field") or "").strip() or "unknown"
    field = field.replace("syntax_semantics", "syntax/semantics")
    pair_id = _value(record, "pairID")
    return Pair(
        uid,
        number=0,
        good=good,
        bad=bad[0] if len(bad) == 1 else tuple(bad),
        phenomenon=_phenomenon(record, columns),
        field=field,
        pair_id="" if pair_id is None else str(pair_id),
    )


def _uid(record: dict, where: str, file: Path, columns: Columns) -> str:
    """Returns the paradigm of a JSON object or of a row of a table."""
    name = columns.group
    if name is None:
        # `uid` in other capitals is often the id of a row.
        names = [
            name
            for name in ("UID", _spelled("paradigm", record), _spelled("UID", record))
            if name in record
        ]
        if not names:
            return without_compression(file).stem
        name = names[0]
    uid = _value(record, name)
    return _text(str(uid) if isinstance(uid, int) else uid, name, where)


def _phenomenon(record: dict, columns: Columns) -> str:
    """Returns the phenomenon of a JSON object or of a row of a table."""
    if columns.phenomenon is not None:
        value = _value(record, columns.phenomenon)
    else:
        value = _value(record, "linguistics_term") or _value(record, "phenomenon")
    phenomenon = str(value or "").strip() or "unknown"
    # In two official files; Warstadt et al. 2020 count them here.
    return "argument_structure" if phenomenon == "s-selection" else phenomenon


def _value(record: dict, name: str) -> object:
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


def _require_alike(bad: str, good: str, where: str) -> None:
    """Raises InputError if outer white space or the Unicode form would decide between two
    sentences."""
    if bad != good and unicodedata.normalize("NFC", bad) == unicodedata.normalize("NFC", good):
        raise InputError(
            f"{where}: {bad!r} and {good!r} are the same text in two Unicode forms: write both"
            " in NFC"
        )
    if (
        len(
            {
                (text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :])
                for text in (bad, good)
            }
        )
        > 1
    ):
        raise InputError(
            f"{where}: {bad!r} and {good!r} have different white space at their ends: strip them"
        )


def _is_good(label: object) -> bool | None:
    """Returns whether a label means grammatical; None if it is not a label."""
    return LABELS.get(str(label).strip().lower())


def _pairs_of_lines(file: Path, lines: Sequence[str]) -> Iterator[tuple[str, Pair]]:
    """Yields the pairs of a text file, two lines each."""
    # A label and a tab before each sentence mark the grammatical one (Linzen's group, CLAMS).
    # Without labels it is the second, as in Zorro (Huebner et al. 2021), whose files are called
    # PHENOMENON-PARADIGM.txt.
    lines = "\n".join(line.strip() for line in lines).rstrip("\n").split("\n")
    if len(lines) % 2 or not all(lines):
        raise InputError(
            f"{file}: give two lines per pair, the ungrammatical sentence first, without blank"
            " lines"
        )
    uid = without_compression(file).stem
    phenomenon = uid.rpartition("-")[0] or "unknown"
    for number, (bad, good) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        where = f"{file}:{2 * number + 1}"
        if "\t" in bad or "\t" in good:
            (first, _, bad), (second, _, good) = bad.partition("\t"), good.partition("\t")
            labels = _is_good(first), _is_good(second)
            if sorted(labels, key=str) != [False, True]:
                raise InputError(
                    f"{where}: {first!r} and {second!r} are before the tabs: {LABELS_ARE}"
                )
            bad, good = (good, bad) if labels[0] else (bad, good)
        _require_alike(bad, good, where)
        yield where, Pair(uid, 0, good, bad, phenomenon, "unknown", "")
