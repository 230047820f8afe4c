"""Minimal pairs, and items of other shapes: read from files, checked, and grouped by paradigm.

BLiMP (Warstadt et al. 2020) is 67 files of 1,000 pairs, one JSON object a line: `sentence_good`, `sentence_bad` and
`UID`, the name of the paradigm. Any pairs of this form will do, and the other forms of docs/minimal_pairs.md: tables, sets
of more than two sentences, Zorro's text files, and SyntaxGym's test suites.
"""

import codecs
import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esnlm.data.markers import Oddities
from esnlm.data.tables import read_table
from esnlm.data.text_files import is_compressed, read_lines
from esnlm.errors import InputError, require
from esnlm.evaluation.region_tests import RegionTest, read_suite
from esnlm.io.console import counted
from esnlm.io.json_file import parse_json, read_small

LARGEST_FILE = 64 << 20  # bytes: some 200,000 pairs, and BLiMP has 1,000 a file
SPLIT = "split it into several files, each paradigm in one of them"

# Of a folder the files of one kind are read: the first of these that it has.
SUFFIXES = (".jsonl", ".tsv", ".csv", ".json", ".txt")
# How the files end that lie beside a report NAME.json of `esnlm blimp` or `esnlm lm-eval`, with a line for each item.
LINES = (".pairs.jsonl", ".samples.jsonl")
# The phenomena as the tables of Warstadt et al. 2020 abbreviate them, without marks and in lower case.
ABBREVIATIONS = {
    "anaagr": "anaphor_agreement",
    "argstr": "argument_structure",
    "ctrlrais": "control_raising",
    "dnagr": "determiner_noun_agreement",
    "fillergap": "filler_gap_dependency",
    "irregular": "irregular_forms",
    "island": "island_effects",
    "npi": "npi_licensing",
    "svagr": "subject_verb_agreement",
}


class Columns(NamedTuple):
    """Where in a JSON object or a table what makes a pair is found."""

    good: str = "sentence_good"
    bad: tuple[str, ...] = ("sentence_bad",)  # several, or a list in one of them: a set of more than two sentences
    group: str | None = None  # the paradigm; None: "UID", or the file's name where there is none


class Pair(NamedTuple):
    """Two sentences of which a model should find the first more probable, or one that should be above all of several."""

    uid: str  # the paradigm
    number: int  # in its paradigm, from 0
    good: str
    bad: str | tuple[str, ...]  # a tuple in a set of more than two sentences
    phenomenon: str
    field: str  # of linguistics
    pair_id: str


Item = Pair | RegionTest


def load(data: str | Path | Sequence[str | Path], columns: Columns | None = None) -> list[Item]:
    """Reads pairs and other items, sorted by paradigm and in the order of their file within a paradigm.

    A missing `UID` is the file's stem; a missing or empty `linguistics_term` (the phenomenon) or `field` is "unknown".

    Args:
        data: files and folders, and FOLDER/NAME for what has this name in a folder: a paradigm, a phenomenon, as BLiMP
            names or abbreviates it, or a field. The suffix of a file says what it holds: .tsv and .csv tables, .txt Zorro's
            pairs of lines, .json a test suite, and anything else JSON lines. A .txt or .json whose first line is a JSON
            object, and no test suite, holds JSON lines, too.
        columns: the names of columns and JSON fields; None: those of BLiMP.

    Raises:
        InputError: something is not a pair (the message has file, line and field), a paradigm is in two files or under
            two phenomena, or a file or folder is empty.
    """
    paths = [data] if isinstance(data, str | Path) else data
    sources: list[tuple[Path, set[str]]] = []  # a file, and the names of what is taken from it; none: all
    picked: dict[Path, set[str]] = {}  # those of the files that names pick from: such a file is read once
    for path in map(Path, paths):
        files, name = _files(path)
        for file in files:
            if name is None:
                sources.append((file, set()))
            elif file in picked:
                picked[file].add(name)
            else:
                picked[file] = {name}
                sources.append((file, picked[file]))
    items: list[Item] = []
    home: dict[str, tuple[int, str]] = {}  # paradigm -> (number of its file, its phenomenon)
    size: Counter[str] = Counter()
    found: set[tuple[Path, str]] = set()  # the folders and names of which something was there
    for number, (file, names) in enumerate(sources):
        for where, item in _items(file, columns or Columns()):
            matching = {name for name in names if _is_called(item, name)}
            if names and not matching:
                continue
            found |= {(file.parent, name) for name in matching}
            first_number, first_phenomenon = home.setdefault(item.uid, (number, item.phenomenon))
            if first_number != number:
                raise InputError(
                    f"{where}: UID {item.uid!r} is also in {sources[first_number][0]}: give every paradigm once"
                )
            if first_phenomenon != item.phenomenon:
                raise InputError(
                    f"{where}: field 'linguistics_term' is {item.phenomenon!r}, and {first_phenomenon!r} earlier for the "
                    f"same UID {item.uid!r}: a paradigm belongs to one phenomenon"
                )
            item_id = item.pair_id if item.pair_id else str(size[item.uid])
            items.append(item._replace(number=size[item.uid], pair_id=item_id))
            size[item.uid] += 1
    for path in map(Path, paths):
        require(
            path.exists() or (path.parent, path.name) in found,
            f"{path}: no such file or folder of minimal pairs, and no paradigm, phenomenon or field in {path.parent} has this"
            " name: name one of those in its files",
        )
    oddities = Oddities()
    oddities.note(
        "\n".join(sentence for item in items if isinstance(item, Pair) for sentence in (item.good, *wrong_of(item)))
    )
    oddities.warn(str(paths[0]) + f" and {counted(len(paths) - 1, 'more place')}" * (len(paths) > 1))
    return sorted(items, key=lambda item: item.uid)


def describe_repeated(items: Sequence[Item]) -> str | None:
    """Returns the line on pairs that stand more than once in their paradigm; None without any."""
    pairs = [(item.uid, item.good, wrong_of(item)) for item in items if isinstance(item, Pair)]
    repeated = len(pairs) - len(set(pairs))
    if not repeated:
        return None
    return (
        f"{repeated:,} of {len(pairs):,} pairs stand in their paradigm already: each counts, and makes intervals narrower than different"
        " pairs would; give every pair once"
    )


def rows_by_paradigm(pairs: Sequence[Item]) -> dict[str, np.ndarray]:
    """Returns the pairs of each paradigm, as indices into `pairs`."""
    rows: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        rows.setdefault(pair.uid, []).append(i)
    return {uid: np.array(indices) for uid, indices in rows.items()}


def wrong_of(pair: Pair) -> tuple[str, ...]:
    """Returns the sentences that should be less probable."""
    return (pair.bad,) if isinstance(pair.bad, str) else pair.bad


def sentences_of(item: Item) -> tuple[str, ...]:
    """Returns all sentences of an item."""
    if isinstance(item, RegionTest):
        return tuple(condition.sentence for condition in item.conditions.values())
    return (item.good, *wrong_of(item))


def digest(items: Sequence[Item]) -> str:
    """Returns the sha256 of the paradigms and sentences, which does not depend on how they are spread over files."""
    content = hashlib.sha256()
    for item in items:
        parts: list = (
            [item.uid, item.good, item.bad] if isinstance(item, Pair) else [item.uid, item.text, item.conditions]
        )
        content.update(json.dumps(parts).encode() + b"\n")
    return content.hexdigest()


def _is_called(item: Item, name: str) -> bool:
    """Tells whether a name is that of an item's paradigm, phenomenon or field, or BLiMP's abbreviation of it."""
    plain = _plain(ABBREVIATIONS.get(_plain(name), name))
    return plain in (_plain(item.uid), _plain(item.phenomenon), _plain(item.field))


def _plain(name: str) -> str:
    """Returns a name as names are compared: letters and digits in lower case."""
    return "".join(character for character in name.lower() if character.isalnum())


def _files(path: Path) -> tuple[list[Path], str | None]:
    """Returns the files of a path, and the name of what is picked from them, or None where all is taken."""
    if path.is_file():
        return [path], None
    if path.is_dir():
        files = _in_folder(path)
        if not files:
            raise InputError(
                f"{path}: no file of pairs in this folder ({', '.join(SUFFIXES)}): give the folder that holds them, or its files"
            )
        return files, None
    # A bare NAME names no folder, so it is a file that is not there, and not a part of the working directory's files.
    named = [] if path.suffix in SUFFIXES or path.name == str(path) else _in_folder(path.parent)
    if not named:
        raise InputError(f"{path}: no such file or folder of minimal pairs")
    return named, path.name


def _in_folder(folder: Path) -> list[Path]:
    """Returns the files of items in a folder: those of the first kind that it has."""
    for suffix in SUFFIXES if folder.is_dir() else ():
        found = (file for file in folder.iterdir() if file.suffix.lower() == suffix and not file.name.startswith("."))
        files = sorted(file for file in found if not _is_of_report(file))
        if files:
            return files
    return []


def _is_of_report(file: Path) -> bool:
    """Tells whether a file is the JSON or the lines of a report, which lie side by side and are no data."""
    for ending in LINES:
        name = file.name.removesuffix(ending) if file.name.endswith(ending) else file.stem
        both = file.with_name(f"{name}.json"), file.with_name(name + ending)
        if file in both and all(each.exists() for each in both):
            return True
    return False


def _items(file: Path, columns: Columns) -> Iterator[tuple[str, Item]]:
    """Yields "file:line" and each item of a file, not yet numbered."""
    suffix = file.suffix.lower()
    require(not is_compressed(file), f"{file}: compressed: decompress it first")
    if suffix in (".txt", ".json") and _begins_with_object(file):
        suffix = ".jsonl"
    if suffix == ".txt":
        yield from _alternate_lines(file)
    elif suffix == ".json":
        yield from ((str(file), test) for test in read_suite(file))
    else:
        found = _rows(file, columns) if suffix in (".tsv", ".csv") else records(file, advice=SPLIT)
        yield from ((where, _pair(record, where, file, columns)) for where, record in found)


def _begins_with_object(file: Path) -> bool:
    """Tells whether the first line of a file is a JSON object, and no test suite: then all of its lines are."""
    with open(file, "rb") as lines:
        try:
            first = parse_json(next((line for line in lines if line.strip()), b""))
        except ValueError:
            return False
    return isinstance(first, dict) and "predictions" not in first


def _pair(record: dict, where: str, file: Path, columns: Columns) -> Pair:
    """Returns the pair of a JSON object or of a row of a table."""
    is_written = "log_prob_good" in record and "right" in record
    require(
        not is_written, f"{where}: this is what a report says of a pair, and no pair: give the data that it was made of"
    )
    group = columns.group or "UID"
    uid = text_of(record, group, where, default=None if columns.group else file.stem)
    require(bool(uid.strip()), f"{where}: field {group!r} is empty: name the paradigm in every row")
    phenomenon = text_of(record, "linguistics_term", where, default="unknown").strip() or "unknown"
    if phenomenon == "s-selection":  # so two official files say; Warstadt et al. 2020 count them here
        phenomenon = "argument_structure"
    good = _sentence(record, columns.good, where)
    bad: list[str] = []
    for name in columns.bad:
        value = record.get(name)
        if isinstance(value, list):
            require(bool(value), f"{where}: field {name!r} is an empty list: give at least one sentence")
            bad += [_sentence({name: each}, name, where) for each in value]
        else:
            bad.append(_sentence(record, name, where))
    bad = list(dict.fromkeys(bad))  # A table may fill its columns with one sentence again.
    for sentence in bad:
        _require_one_form(sentence, good, where)
        require(
            _ends(sentence) == _ends(good),
            f"{where}: {sentence!r} and {good!r} have other white space at their ends, which would decide between them: strip them",
        )
    field = text_of(record, "field", where, default="unknown").strip() or "unknown"
    field = field.replace("syntax_semantics", "syntax/semantics")
    pair_id = "" if record.get("pairID") is None else str(record["pairID"])
    return Pair(uid, 0, good, bad[0] if len(bad) == 1 else tuple(bad), phenomenon, field, pair_id)


def _require_one_form(bad: str, good: str, where: str) -> None:
    """Raises InputError where two sentences differ in their form of Unicode only."""
    alike = bad != good and unicodedata.normalize("NFC", bad) == unicodedata.normalize("NFC", good)
    message = "are the same text in two forms of Unicode, which would decide between them: write both in NFC"
    require(not alike, f"{where}: {bad!r} and {good!r} {message}")


def _sentence(record: dict, field: str, where: str) -> str:
    """Returns a sentence. Raises InputError where it is missing or empty: an empty one is more probable than most others."""
    sentence = text_of(record, field, where)
    require(bool(sentence.strip()), f"{where}: field {field!r} is empty: give a sentence")
    return sentence


def _ends(sentence: str) -> tuple[str, str]:
    """Returns the white space before and behind a sentence. Both are tokens, and improbable ones."""
    return sentence[: len(sentence) - len(sentence.lstrip())], sentence[len(sentence.rstrip()) :]


def _rows(file: Path, columns: Columns) -> Iterator[tuple[str, dict]]:
    """Yields "file:line" and the cells of each row of a table, which has all columns that were named."""
    table = read_table(file)
    for name in (columns.good, *columns.bad, *([columns.group] if columns.group else [])):
        table.texts(name)
    for line, row in zip(table.lines, table.others([]), strict=True):
        yield f"{file}:{line}", row


def _alternate_lines(file: Path) -> Iterator[tuple[str, Pair]]:
    """Yields the pairs of a text file as Zorro has them (Huebner et al. 2021).

    Of each two lines the first is ungrammatical and the second grammatical. The file is called PHENOMENON-PARADIGM.txt.
    """
    lines = read_lines(file, tells_of_marks=False)  # `load` tells of those in all files
    while lines and not lines[-1]:
        lines.pop()
    require(bool(lines), f"{file}: the file is empty: two lines a pair are needed, the ungrammatical sentence first")
    require(
        len(lines) % 2 == 0,
        f"{file}: {len(lines)} lines, an odd number: each ungrammatical sentence is followed by its grammatical one",
    )
    phenomenon = file.stem.rpartition("-")[0] or "unknown"
    for number, (bad, good) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        where = f"{file}:{2 * number + 1}"
        require(
            bool(bad and good), f"{where}: a blank line in a pair: each has two sentences, the ungrammatical one first"
        )
        _require_one_form(bad, good, where)
        yield where, Pair(file.stem, 0, good, bad, phenomenon, "unknown", "")


def records(
    file: Path, needed: str = "sentence_good, sentence_bad", advice: str = "not a file of this kind"
) -> Iterator[tuple[str, dict]]:
    """Yields "file:line" and the object of each line. Only \\n ends a line: a sentence may hold other separators.

    Args:
        file: JSONL.
        needed: the names of the fields that an object should have, for the message where a line holds something else.
        advice: the end of the line for a file that is too large.

    Raises:
        InputError: the file is empty, or a line is no JSON object.
    """
    empty = True
    content = read_small(file, LARGEST_FILE, advice).removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(content.split(b"\n"), start=1):
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
