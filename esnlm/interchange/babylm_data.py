"""The data of BabyLM's evaluation pipeline: which files it has, and what each line of them asks.

The formats are those of babylm-org/babylm-eval, folder strict/ (the same as babylm/evaluation-pipeline-2025): its modules
sentence_zero_shot/read_files.py, reading/run.py and AoA_word/eval_util.py.
"""

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.errors import InputError, require
from esnlm.evaluation.minimal_pairs import records, text_of
from esnlm.io.json_file import parse_json


@dataclass(frozen=True)
class Item:
    """A choice between sentences, of which the first is right."""

    uid: str  # the subset that it belongs to
    sentences: list[str]
    completions: list[str]  # the end of each sentence, which is scored; the rest is its context
    shown: list[str]  # what a prediction file says where a sentence is chosen
    ratio: float = math.nan  # of the people who chose the first one, for the WUG sets


@dataclass(frozen=True)
class Reading:
    """Words that people read in their context, and how long they took."""

    contexts: list[str]  # n texts before each word
    words: list[str]
    previous: list[tuple[str, str] | None]  # context and text of the word before; None at the beginning of a sentence
    columns: dict[str, np.ndarray]  # reading times and properties of the words, (n,) float64, NaN where there is none


# Reading times and what predicts them, in the words of reading/run.py.
EYE_TRACKING = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
SELF_PACED = "self_paced_reading_time"
PROPERTIES = ("Subtlex_log10", "length", "context_length")
# What pandas takes for a missing value, as the pipeline reads this file with it.
MISSING = {*("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>")} | {
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
}


def _blimp(record: dict, where: str, stem: str) -> Item:
    pair = [text_of(record, "sentence_good", where), text_of(record, "sentence_bad", where)]
    return Item(text_of(record, "UID", where) if "field" in record else stem, pair, pair, pair)


def _ewok(record: dict, where: str, stem: str) -> Item:
    context = text_of(
        record, "Context1", where
    )  # Context2 stands in the data, and the pipeline scores nothing after it
    targets = [" " + text_of(record, name, where) for name in ("Target1", "Target2")]
    return Item(text_of(record, "Domain", where), [context + target for target in targets], targets, targets)


def _wug(task: str) -> Callable[[dict, str, str], Item]:
    def read(record: dict, where: str, stem: str) -> Item:
        sentences = text_of(record, "sentences", where).split("\t")
        require(
            len(sentences) == 2,
            f"{where}: field 'sentences' has {len(sentences)} parts: it must be two, with a tab between",
        )
        try:
            ratio = float(record["ratio"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{where}: field 'ratio' is missing or no number") from None
        return Item(task, sentences, sentences, sentences, ratio)

    return read


def _entity_tracking(record: dict, where: str, stem: str) -> Item:
    context, options = text_of(record, "input_prefix", where), record.get("options")
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
        raise InputError(f"{where}: field 'options' is missing, or no list of two and more texts")
    require(type(record.get("numops")) is int, f"{where}: field 'numops' is missing or no whole number")
    return Item(f"{stem}_{record['numops']}_ops", [context + option for option in options], options, options)


def _comps(record: dict, where: str, stem: str) -> Item:
    phrase = text_of(record, "property_phrase", where)
    sentences = [f"{text_of(record, name, where)} {phrase}" for name in ("prefix_acceptable", "prefix_unacceptable")]
    subsets = {"comps_base": "base", "comps_wugs": "wugs", "comps_wugs_dist-before": "wugs_dist_before"}
    return Item(subsets.get(stem, "wugs_dist_in_between"), sentences, [phrase, phrase], sentences)


@dataclass(frozen=True)
class Kind:
    """What the files of a folder hold."""

    task: str  # the name of the pipeline's task, and of a folder of its results
    read: Callable[[dict, str, str], Item]
    fields: str  # that a line should have


_PAIRS = "sentence_good, sentence_bad"
FOLDERS = {
    **dict.fromkeys(
        ("blimp_filtered", "supplement_filtered", "blimp_fast", "supplement_fast"), Kind("blimp", _blimp, _PAIRS)
    ),
    **dict.fromkeys(("ewok_filtered", "ewok_fast"), Kind("ewok", _ewok, "Domain, Context1, Target1, Target2")),
    **dict.fromkeys(
        ("entity_tracking", "entity_tracking_fast"),
        Kind("entity_tracking", _entity_tracking, "input_prefix, options, numops"),
    ),
    "wug_adj_nominalization": Kind("wug_adj", _wug("wug_adj"), "sentences, ratio"),
    "wug_past_tense": Kind("wug_past", _wug("wug_past"), "sentences, ratio"),
    "comps": Kind("comps", _comps, "prefix_acceptable, prefix_unacceptable, property_phrase"),
}
READING = "reading"
AOA = "aoa"
READING_FILE = Path("reading", "reading_data.csv")
AOA_FILES = (Path("aoa", "cdi_childes.json"), Path("cdi_childes", "cdi_childes.json"))  # the pipeline names both places


def find_sets(data: Path, asked: list[str] | None = None) -> dict[str, Path]:
    """Returns where each set of the data lies, by the set's name.

    Args:
        data: the folder full_eval or fast_eval of the pipeline's data.
        asked: the names of sets; None: all that are there.

    Raises:
        InputError: there is no such folder, a name is unknown, a set that was asked for is missing, or there is none.
    """
    require(data.is_dir(), f"{data}: no such folder: give the pipeline's full_eval or fast_eval")
    names = [*FOLDERS, READING, AOA]
    for name in asked or ():
        require(name in names, f"set {name!r} is not known: choose {', '.join(names)}")
    places = {name: data / name for name in FOLDERS} | {READING: data / READING_FILE}
    places[AOA] = next((data / file for file in AOA_FILES if (data / file).exists()), data / AOA_FILES[0])
    for name in asked or ():
        require(places[name].exists(), f"{places[name]}: missing: the set {name} lies there in the pipeline's data")
    found = {name: place for name, place in places.items() if (name in asked if asked else place.exists())}
    require(len(found) > 0, f"{data}: none of the pipeline's sets is here: give its full_eval or fast_eval")
    return found


def find_item_files(folder: Path) -> list[Path]:
    """Returns the files of one set in the order of their names; hidden ones are not of it."""
    return sorted(file for file in folder.glob("*.jsonl") if not file.name.startswith("."))


def read_items(folder: Path) -> list[Item]:
    """Reads the items of one set, in the order of its files' names and of their lines.

    Raises:
        InputError: the folder has no .jsonl file, or a line of one is not what the set needs.
    """
    kind = FOLDERS[folder.name]
    files = find_item_files(folder)
    require(len(files) > 0, f"{folder}: no .jsonl file in this folder: copy the pipeline's data again")
    return [kind.read(record, where, file.stem) for file in files for where, record in records(file, kind.fields)]


def read_reading(file: Path) -> Reading:
    """Reads the words of reading_data.csv.

    Raises:
        InputError: the file is no CSV file in UTF-8, a column is missing, or a figure is no number.
    """
    try:
        with open(file, encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}: not a CSV file in UTF-8 ({error}): copy the pipeline's data again") from None
    figures = (*EYE_TRACKING, SELF_PACED, *PROPERTIES, "prev_length")
    for column in ("item", "word", "prev_item", "prev_word", *figures):
        require(
            bool(rows) and column in rows[0], f"{file}: column {column!r} is missing: copy the pipeline's data again"
        )

    for number, row in enumerate(rows, 1):
        for column in ("item", "word", "prev_item", "prev_word"):
            line = f"{file}: row {number}: it ends before column {column!r}: copy the pipeline's data again"
            require(row[column] is not None, line)

    def figure(number: int, column: str) -> float:
        cell = rows[number][column] or ""
        try:
            return math.nan if cell in MISSING else float(cell)
        except ValueError:
            raise InputError(f"{file}: row {number + 1}: column {column!r} is {cell!r}, no number") from None

    return Reading(
        # The pipeline puts the text "None" where there is no context.
        contexts=["None" if row["item"] in MISSING else row["item"] for row in rows],
        words=[row["word"] for row in rows],
        previous=[None if row["prev_item"] in MISSING else (row["prev_item"], row["prev_word"]) for row in rows],
        columns={name: np.array([figure(i, name) for i in range(len(rows))]) for name in figures},
    )


def read_aoa(file: Path) -> dict[str, list[str]]:
    """Reads the contexts of each word. Words of one letter are left out, as the pipeline leaves them out.

    Raises:
        InputError: the file is not JSON, or not {word: [{"context": text}, ...]}.
    """
    try:
        content = parse_json(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: not JSON ({error}): copy the pipeline's data again") from None
    try:
        return {word: [_context(each) for each in content[word]] for word in content if len(word) > 1}
    except (KeyError, TypeError, ValueError):
        raise InputError(f'{file}: not {{word: [{{"context": text}}, ...]}}: copy the pipeline\'s data again') from None


def _context(entry: Any) -> str:
    if not isinstance(entry["context"], str):
        raise TypeError
    return entry["context"]
