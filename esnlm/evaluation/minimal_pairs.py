"""Minimal pairs and sets of sentences: read from files, checked, and grouped by paradigm.

BLiMP (Warstadt et al. 2020) is 67 files of 1,000 pairs, one JSON object a line: `sentence_good`, `sentence_bad` and
`UID`, the name of the paradigm. Any pairs of this form will do, and the other forms of docs/minimal_pairs.md: tables, sets
of more than two sentences, and Zorro's text files.
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

from esnlm.data.oddities import Oddities
from esnlm.data.tables import read_table
from esnlm.data.text_files import is_compressed, read_lines
from esnlm.errors import InputError
from esnlm.io.json_file import parse_json, read_small

LARGEST_FILE = 64 << 20  # bytes: some 200,000 pairs, and BLiMP has 1,000 a file

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
    """The columns of a table, or fields of a JSON object, that make a pair."""

    good: str = "sentence_good"
    bad: tuple[str, ...] = ("sentence_bad",)  # several, or a list in one of them: a set of more than two sentences
    group: str | None = None  # the paradigm; None: "UID", or the file's name if there is none


class Pair(NamedTuple):
    """Two sentences of which a model should find the first more probable, or one that should be above all of several."""

    uid: str  # the paradigm
    number: int  # in its paradigm, from 0
    good: str
    bad: str | tuple[str, ...]  # a tuple in a set of more than two sentences
    phenomenon: str
    field: str  # of linguistics
    pair_id: str


Item = Pair


def load(data: str | Path | Sequence[str | Path], columns: Columns | None = None) -> list[Pair]:
    """Reads pairs and sets, sorted by paradigm and in the order of their file within a paradigm.

    A missing `UID` is the file's stem; a missing or empty `linguistics_term` (the phenomenon) or `field` is "unknown".

    Args:
        data: files and folders, and FOLDER/NAME for what has this name in a folder: a paradigm, a phenomenon, as BLiMP
            names or abbreviates it, or a field. The suffix of a file says what it holds: .tsv and .csv tables, .txt Zorro's
            pairs of lines, and anything else JSON lines. A .txt whose first line is a JSON object holds JSON lines, too.
        columns: the names of columns and JSON fields; None: those of BLiMP.

    Raises:
        InputError: something is not a pair (the message has file, line and field), a paradigm is in two files or under
            two phenomena, or a file or folder is empty.
    """
    paths = list(map(Path, [data] if isinstance(data, str | Path) else data))
    sources: dict[tuple[int, Path], set[str]] = {}  # the files, and the names of what is taken from each; none: all
    for number, path in enumerate(paths):
        files, name = _files(path)
        for file in files:
            # A file that several names pick from is read once; one that is given twice would count twice, and is refused below.
            sources.setdefault((number if name is None else -1, file), set()).update([] if name is None else [name])
    items: list[Pair] = []
    home: dict[str, tuple[Path, int, str]] = {}  # paradigm -> its file, the file's number, its phenomenon
    size: Counter[str] = Counter()
    found: set[tuple[Path, str]] = set()  # the folders and names that matched something
    for number, ((_, file), names) in enumerate(sources.items()):
        for where, item in _pairs(file, columns or Columns()):
            matching = {name for name in names if _is_called(item, name)}
            if names and not matching:
                continue
            found |= {(file.parent, name) for name in matching}
            first_file, first_number, first_phenomenon = home.setdefault(item.uid, (file, number, item.phenomenon))
            if first_number != number:
                raise InputError(f"{where}: UID {item.uid!r} is also in {first_file}: give every paradigm once")
            if first_phenomenon != item.phenomenon:
                raise InputError(
                    f"{where}: field 'linguistics_term' is {item.phenomenon!r}, and {first_phenomenon!r} earlier for the "
                    f"same UID {item.uid!r}: a paradigm belongs to one phenomenon"
                )
            items.append(item._replace(number=size[item.uid], pair_id=item.pair_id or str(size[item.uid])))
            size[item.uid] += 1
    for path in paths:
        if not path.exists() and (path.parent, path.name) not in found:
            raise InputError(
                f"{path}: no such file or folder of minimal pairs, and no paradigm, phenomenon or field in {path.parent} has"
                " this name: name one of those in its files"
            )
    oddities = Oddities()
    oddities.note("\n".join(sentence for item in items for sentence in sentences_of(item)), str(paths[0]))
    oddities.warn("leave it out if it is not text")
    return sorted(items, key=lambda item: item.uid)


def describe_repeated(items: Sequence[Pair]) -> str | None:
    """Returns the line on pairs that stand more than once in their paradigm; None without any."""
    repeated = len(items) - len({(item.uid, item.good, item.bad) for item in items})
    if not repeated:
        return None
    return (
        f"{repeated:,} of {len(items):,} pairs stand in their paradigm already: each counts, and makes intervals narrower than different"
        " pairs would; give every pair once"
    )


def rows_by_paradigm(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """Returns the pairs of each paradigm, as indices into `pairs`."""
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
    """Returns the sha256 of the paradigms and sentences, which does not depend on how they are spread over files."""
    content = hashlib.sha256()
    for item in items:
        content.update(json.dumps([item.uid, item.good, item.bad]).encode() + b"\n")
    return content.hexdigest()


def _is_called(item: Pair, name: str) -> bool:
    """Tells whether a name is that of an item's paradigm, phenomenon or field, or BLiMP's abbreviation of it."""
    plain = _plain(ABBREVIATIONS.get(_plain(name), name))
    return plain in (_plain(item.uid), _plain(item.phenomenon), _plain(item.field))


def _plain(name: str) -> str:
    """Returns a name as names are compared: letters and digits in lower case."""
    return "".join(character for character in name.lower() if character.isalnum())


def _files(path: Path) -> tuple[list[Path], str | None]:
    """Returns the files of a path, and the name of what is picked from them, or None if all is taken."""
    if path.is_file():
        return [path], None
    if path.is_dir():
        files = _in_folder(path)
        if not files:
            raise InputError(
                f"{path}: no file of pairs in this folder ({', '.join(SUFFIXES)}): give the folder that holds them"
            )
        return files, None
    # A bare NAME names no folder, so it is a file that is not there, and not a part of the working directory's files.
    named = [] if path.suffix in SUFFIXES or path.name == str(path) else _in_folder(path.parent)
    if not named:
        raise InputError(f"{path}: no such file or folder of minimal pairs")
    return named, path.name


def _in_folder(folder: Path) -> list[Path]:
    """Returns the files of pairs in a folder: those of the first kind that it has."""
    for suffix in SUFFIXES if folder.is_dir() else ():
        found = (file for file in folder.iterdir() if file.suffix.lower() == suffix and not file.name.startswith("."))
        if files := sorted(file for file in found if not _is_of_report(file)):
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


def _pairs(file: Path, columns: Columns) -> Iterator[tuple[str, Pair]]:
    """Yields "file:line" and each pair of a file, not yet numbered."""
    suffix = file.suffix.lower()
    if is_compressed(file):
        raise InputError(f"{file}: compressed: decompress it first")
    if suffix in (".txt", ".json"):
        with open(file, "rb") as lines:
            first = next((line for line in lines if line.strip()), b"")
        if suffix == ".json" and not first.rstrip().endswith(b"}"):
            raise InputError(
                f"{file}: JSON over several lines: write pairs as one object a line (.jsonl); a test suite of SyntaxGym is scored"
                " with examples/syntaxgym.py"
            )
        if first.lstrip().startswith(b'{"'):
            suffix = ".jsonl"
    if suffix == ".txt":
        yield from _alternate_lines(file)
        return
    for where, record in _rows(file, columns) if suffix in (".tsv", ".csv") else records(file):
        yield where, _pair(record, where, file, columns)


def _pair(record: dict, where: str, file: Path, columns: Columns) -> Pair:
    """Returns the pair of a JSON object or of a row of a table."""
    if "predictions" in record and "items" in record:
        raise InputError(f"{where}: a test suite of SyntaxGym; score it with examples/syntaxgym.py")
    if "log_prob_good" in record and "right" in record:
        raise InputError(f"{where}: a line of a report on a pair: give the data that the report is made of")
    group = columns.group or "UID"
    uid = text_of(record, group, where, default=None if columns.group else file.stem)
    if not uid.strip():
        raise InputError(f"{where}: field {group!r} is empty: name the paradigm in every row")
    phenomenon = text_of(record, "linguistics_term", where, default="unknown").strip() or "unknown"
    if phenomenon == "s-selection":  # so two official files say; Warstadt et al. 2020 count them here
        phenomenon = "argument_structure"
    good = _sentence(record, columns.good, where)
    bad: list[str] = []
    for name in columns.bad:
        listed = record[name] if isinstance(record.get(name), list) else [record[name]] if name in record else []
        if not listed:
            raise InputError(f"{where}: field {name!r} is missing or empty: give at least one sentence")
        bad += [_sentence({name: each}, name, where) for each in listed]
    bad = list(dict.fromkeys(bad))  # A table may fill its columns with one sentence again.
    for sentence in bad:
        _require_alike(sentence, good, where)
    field = text_of(record, "field", where, default="unknown").strip() or "unknown"
    field = field.replace("syntax_semantics", "syntax/semantics")
    pair_id = "" if record.get("pairID") is None else str(record["pairID"])
    return Pair(uid, 0, good, bad[0] if len(bad) == 1 else tuple(bad), phenomenon, field, pair_id)


def _require_alike(bad: str, good: str, where: str) -> None:
    """Raises InputError if the white space at the ends of two sentences, or their form of Unicode, would decide between them."""
    if bad != good and unicodedata.normalize("NFC", bad) == unicodedata.normalize("NFC", good):
        raise InputError(f"{where}: {bad!r} and {good!r} are the same text in two forms of Unicode: write both in NFC")
    if len({(text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]) for text in (bad, good)}) > 1:
        raise InputError(f"{where}: {bad!r} and {good!r} have other white space at their ends: strip them")


def _sentence(record: dict, field: str, where: str) -> str:
    """Returns a sentence. Raises InputError if it is missing or empty: an empty one is more probable than most others."""
    sentence = text_of(record, field, where)
    if not sentence.strip():
        raise InputError(f"{where}: field {field!r} is empty: give a sentence")
    return sentence


def _rows(file: Path, columns: Columns) -> Iterator[tuple[str, dict]]:
    """Yields "file:line" and the cells of each row of a table, which has all columns that were named."""
    table = read_table(file)
    for name in (columns.good, *columns.bad, *([columns.group] if columns.group else [])):
        table.texts(name)
    for line, row in zip(table.lines, table.others(), strict=True):
        yield f"{file}:{line}", row


def _alternate_lines(file: Path) -> Iterator[tuple[str, Pair]]:
    """Yields the pairs of a text file as Zorro has them (Huebner et al. 2021).

    Of each two lines the first is ungrammatical and the second grammatical. The file is called PHENOMENON-PARADIGM.txt.
    """
    lines = read_lines(file, warns=False)  # `load` warns of all files together
    while lines and not lines[-1]:
        lines.pop()
    if not lines or len(lines) % 2:
        raise InputError(f"{file}: {len(lines)} lines: two lines a pair are needed, the ungrammatical sentence first")
    phenomenon = file.stem.rpartition("-")[0] or "unknown"
    for number, (bad, good) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        where = f"{file}:{2 * number + 1}"
        if not (bad and good):
            raise InputError(f"{where}: a blank line in a pair: each has two sentences, the ungrammatical one first")
        _require_alike(bad, good, where)
        yield where, Pair(file.stem, 0, good, bad, phenomenon, "unknown", "")


def records(file: Path, needed: str = "sentence_good, sentence_bad") -> Iterator[tuple[str, dict]]:
    """Yields "file:line" and the object of each line. Only \\n ends a line: a sentence may hold other separators.

    Args:
        file: JSONL.
        needed: the names of the fields that an object should have, for the message on a line that holds something else.

    Raises:
        InputError: the file is empty, or a line is no JSON object.
    """
    empty = True
    content = read_small(file, LARGEST_FILE, "split it, each paradigm in one file").removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        empty, where = False, f"{file}:{number}"
        try:
            record = parse_json(line.decode("utf-8"))
        except ValueError as error:  # UnicodeDecodeError among them
            raise InputError(f"{where}: not JSON in UTF-8 ({error}): one object a line") from None
        if not isinstance(record, dict):
            raise InputError(f"{where}: a JSON {type(record).__name__}, not an object with {needed}")
        yield where, record
    if empty:
        raise InputError(f"{file}: the file is empty: one JSON object a line is needed")


def text_of(record: dict, field: str, where: str, default: str | None = None) -> str:
    """Returns a field that holds text. Raises InputError if it is missing, or is no text."""
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
