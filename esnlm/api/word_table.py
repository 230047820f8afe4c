"""Surprisals, frequencies and lengths of the words of a table, for analyses of reading times."""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import loaded_run
from esnlm.base.console import ShowProgress, counted, info, spinner
from esnlm.base.errors import InputError, whole_number
from esnlm.data.tables import Table, is_data_frame, table_of
from esnlm.data.tokenizer import Tokenizer
from esnlm.evaluation import surprisal
from esnlm.evaluation.surprisal import Options
from esnlm.evaluation.words import (
    TableWords,
    join_sentences,
    log_frequencies,
    read_words,
    word_form,
    word_spans,
)
from esnlm.loaded_run import Run
from esnlm.models.ngrams import NgramModel

ORDERS = {"unigram": 1, "bigram": 2, "trigram": 3}
PLACE = ("sentence_number", "sentence_position", "first_in_sentence", "last_in_sentence")
Names = str | Sequence[str]


def score_words(
    table: Any,
    runs: Run | str | Path | Sequence[Run | str | Path],
    word: str = "word",
    *,
    document: Names = (),
    sentence: Names = (),
    position: str | None = None,
    baselines: Names = (),
    previous: int = 0,
    context: str = "sentence",
    cache: bool = False,
    unit: str = "bits",
    whitespace: str = "leading",
    separator: str | None = None,
    space_after: str | None = None,
    language: str = "english",
    scoring: str = "paper",
    progress: ShowProgress = False,
) -> Any:
    """Returns a table of words, one per row, with the surprisal of each and the usual predictors.

    Rows keep their order, and a DataFrame its index. docs/surprisal.md lists the columns that are
    added; undefined values are None, in a DataFrame NaN.

    Args:
        table: a pandas DataFrame, or a list of dicts.
        runs: runs or run directories, one or several. Frequencies and baselines are those of the
            training text of the first.
        word: the column of words.
        document: columns that identify a document; by default the table is one.
        sentence: columns that identify a sentence; by default Punkt finds the sentences.
        position: the column of positions in a document or sentence, or "none"; by default the first
            that exists of word_number, IA_ID, zone and position.
        baselines: "unigram", "bigram", "trigram" or an n-gram such as "5-gram".
        previous: the number of words before, in the document, whose length, log-frequency and
            surprisals are added to each row.
        context: "sentence" resets the state at each sentence, "document" at each document.
        cache: as for `Run.surprisal`; n-gram models have no cache. The column `cache` repeats it.
        unit: "bits" or "nats".
        whitespace: as for `Run.surprisal`.
        separator: the text between words; by default a space, or nothing in a script without
            spaces.
        space_after: the column with No, False or 0 (or SpaceAfter=No) if no space follows the word.
        language: the language of Punkt.
        scoring: the convention: "paper", "no-eos", "lm-eval" or "babylm".
        progress: whether to show progress on stderr.

    Raises:
        InputError: a column is missing, has a wrong value, or has the name of a column to add; or
            the training text that a baseline needs is unknown.

    Example:
        table = esnlm.score_words(
            pandas.read_csv("words.tsv", sep="\\t", keep_default_na=False),
            ["runs/small", "runs/large"],
            document="item",
            baselines=["unigram", "bigram"],
            previous=3,
        )
    """
    cells = table if isinstance(table, Table) else table_of(table)
    options = Options(
        unit=unit, context=context, whitespace=whitespace, eos=False, scoring=scoring, cache=cache
    )
    options.check()
    if whole_number("previous", previous) < 0:
        raise InputError(f"previous is {previous}: give a number of words")
    orders = {
        f"surprisal_{unit}_{name.replace('-', '')}": _order(name) for name in _list(baselines)
    }
    words = read_words(
        cells, word, _list(document), _list(sentence), position, space_after, language
    )
    if previous and not document:
        info(
            "no column identifies documents (--document): the table is one, and the words before"
            " are those before in the table, across all sentences"
        )
    several = [runs] if isinstance(runs, Run | str | Path) else runs
    loaded = [run if isinstance(run, Run) else loaded_run.load(run) for run in several]
    if not loaded:
        raise InputError("no run to score the words with: give at least one")
    names = _distinct_names(loaded)
    column = f"surprisal_{unit}"
    scored = {column: loaded[0]}
    if len(loaded) > 1:
        scored = {f"{column}_{name}": run for name, run in zip(names, loaded, strict=True)}

    # Columns are in reading order until the end.
    text = _Text(words, separator)
    tokens = [surprisal.count_tokens(text.joined, run.tokenizer, scoring) for run in loaded]
    streams = surprisal.streams_of(text.joined, text.documents, context)
    before = [
        surprisal.words_before(counts, streams, run.max_length, scoring)
        for run, counts in zip(loaded, tokens, strict=True)
    ]
    by_word = [list(chain(*counts)) for counts in tokens]
    columns = text.places()
    # The columns depend on the runs alone, not on the words.
    is_one_tokenizer = len({run.tokenizer.sha256 for run in loaded}) == 1
    limits = {run.max_length for run in loaded}
    is_one_window = limits == {None} or (is_one_tokenizer and len(limits) == 1)
    columns |= _of_runs("tokens", names, by_word, is_one_tokenizer)
    columns |= _of_runs("context_words", names, before, is_one_window)
    columns["context"] = [context] * len(text.words)
    columns["cache"] = [cache] * len(text.words)
    predictors = ["length", "log_frequency", *scored, *orders]
    lagged = {
        f"{name}_previous{k}": (name, k) for name in predictors for k in range(1, previous + 1)
    }
    input_columns = dict.fromkeys(chain(*cells.rows))
    for name, count in Counter([*input_columns, *columns, *predictors, *lagged]).items():
        if count > 1:
            raise InputError(
                f"{cells.name}: column {name!r} would appear twice in the table: rename it, or drop"
                " the columns of an earlier score_words"
            )

    if shared := max(counts.count(None) for counts in by_word):
        info(
            f"no surprisal for {counted(shared, 'word')}: the word shares a token with the one"
            " before, which has the surprisal of both"
        )
    ngrams = _fit(loaded[0], orders)
    columns["length"] = list(map(len, text.words))
    columns["log_frequency"] = _log_frequencies(loaded[0], text)
    for name, run in scored.items():
        rows = run.surprisals_of(text.joined, text.documents, options, progress)
        columns[name] = [row[column] for row in rows]
    # n-gram models read single sentences, as in the training text
    by_sentence = replace(options, context="sentence", cache=False)
    for name, model in ngrams.items():
        baseline = _Baseline(loaded[0].tokenizer, model)
        rows = surprisal.surprisals(baseline, text.joined, text.documents, by_sentence)
        columns[name] = [row[column] for row in rows]
    for lag, (name, k) in lagged.items():
        columns[lag] = text.previous(columns[name], k)
    return _add(table, cells, columns, text.rows)


@dataclass(frozen=True)
class _Baseline:
    """An n-gram model with the interface of a run."""

    tokenizer: Tokenizer
    model: NgramModel
    max_length: int | None = None

    def token_log_probs_of_ids(
        self,
        sequences: list[np.ndarray],
        *,
        progress: ShowProgress = False,
        group: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        return self.model.token_log_probs_of_ids(sequences, group=group)


class _Text:
    """The words of a table as a model reads them. Its lists are in reading order."""

    def __init__(self, table: TableWords, separator: str | None) -> None:
        self.sentences = table.sentences
        self.rows = list(chain(*self.sentences))
        self.words = [table.words[row] for row in self.rows]
        spaces = table.spaces
        self.joined = join_sentences(
            [[table.words[row] for row in rows] for rows in self.sentences],
            separator,
            None if spaces is None else [[spaces[row] for row in rows] for rows in self.sentences],
        )
        numbers = iter(range(len(self.sentences)))
        self.documents = [[next(numbers) for _ in sentences] for sentences in table.documents]

    def places(self) -> dict[str, list]:
        """Returns the columns of the place of each word in its sentence."""
        places = [
            (number, i, i == 0, i == len(rows) - 1)
            for number, rows in enumerate(self.sentences)
            for i in range(len(rows))
        ]
        return dict(zip(PLACE, map(list, zip(*places, strict=True)), strict=True))

    def forms(self) -> list[str | None]:
        """Returns the form of each word; None if white space does not separate the word."""
        forms: list[str | None] = []
        for text, spans in self.joined:
            regions = word_spans(text)
            ends = [end for _, end in regions]
            for start, end in spans or []:
                first, last = regions[bisect_right(ends, start)]
                form = word_form(text[start:end])
                is_separate = form in ("", word_form(text[first:last]))
                forms.append(form if is_separate else None)
        return forms

    def previous(self, values: Sequence, k: int) -> list:
        """Returns the value of the k-th word before each word of a document; None without one."""
        shifted: list = []
        for document in self.documents:
            first, size = len(shifted), sum(len(self.sentences[number]) for number in document)
            shifted += [None] * min(k, size) + list(values[first : first + max(0, size - k)])
        return shifted


def _list(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _order(name: str) -> int:
    """Returns the order of an n-gram model."""
    match = re.fullmatch(r"([1-9]\d*)-gram", name)
    if name not in ORDERS and match is None:
        raise InputError(
            f"baseline {name!r}: choose unigram, bigram, trigram or 5-gram or the like"
        )
    return ORDERS[name] if match is None else int(match[1])


def _distinct_names(runs: Sequence[Run]) -> list[str]:
    """Returns the name of each run for columns: letters, digits and _.

    It has the path of the run if another run has the same name, and the step if the same run is
    scored at several steps.
    """
    names = []
    for run in runs:
        folders = [other.directory for other in runs if other.name == run.name]
        name = run.name if len(set(folders)) == 1 else str(run.directory)
        name += f"_{run.step}" if folders.count(run.directory) > 1 else ""
        names.append(re.sub(r"\W", "_", name))
    for name, run in zip(names, runs, strict=True):
        if names.count(name) > 1:
            raise InputError(
                f"{run.directory}: two runs would have the columns of {name!r}: give one of them,"
                " or rename its directory"
            )
    return names


def _of_runs(
    name: str, runs: Sequence[str], values: Sequence[list], is_shared: bool
) -> dict[str, list]:
    """Returns the column of values that the runs share, or a column for each run."""
    if is_shared:
        return {name: values[0]}
    return {f"{name}_{run}": each for run, each in zip(runs, values, strict=True)}


def _log_frequencies(run: Run, text: _Text) -> list[float | None]:
    """Returns the log-frequency of each word in the training text of a run, or None for all."""
    forms = text.forms()
    reason = "the run was imported, and its training text is unknown"
    try:
        store = run.training_store()
    except InputError as error:
        store, reason = None, str(error)
    if store is None:
        info(f"no log_frequency: {reason}")
        return [None] * len(forms)
    if joined := forms.count(None):
        info(
            f"no log_frequency for {counted(joined, 'word')}: no space separates the word from the"
            " next or the one before"
        )
    with spinner("counting the words of the training text"):
        return log_frequencies([form or "" for form in forms], store, run.tokenizer)


def _fit(run: Run, orders: dict[str, int]) -> dict[str, NgramModel]:
    """Returns the n-gram model of each order, fitted to the training text of a run."""
    if not orders:
        return {}
    highest = max(orders.values())
    with spinner("counting the training text for the n-gram models"):
        model = run.unigram() if highest == 1 else run.ngram(highest)
    if model is None:
        raise InputError(
            f"{run.directory}: no baselines, as the run was imported and its training text is"
            " unknown: name another run first, or no baselines"
        )
    return {name: model.lower(order) for name, order in orders.items()}


def _add(table: Any, cells: Table, columns: dict[str, list], rows: Sequence[int]) -> Any:
    """Returns a table, or the rows of `cells`, with columns added whose values belong to `rows`."""
    places = np.argsort(rows)
    columns = {name: [values[i] for i in places] for name, values in columns.items()}
    if is_data_frame(table):
        defined = {
            name: [math.nan if value is None else value for value in values]
            for name, values in columns.items()
        }
        return table.assign(**defined)
    added = zip(*columns.values(), strict=True)
    return [
        row | dict(zip(columns, values, strict=True))
        for row, values in zip(cells.rows, added, strict=True)
    ]
