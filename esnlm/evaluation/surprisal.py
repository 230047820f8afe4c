"""Surprisals of words and tokens: -log p of each, conditioned on the text before it.

The steps of `surprisals`: sentences -> sequences of ids -> log-probabilities of tokens -> sums over
words. docs/surprisal.md describes and explains the treatment of words, white space and documents.

The sentences of a document are read in *streams*: with context "document" a stream is a document,
with context "sentence" it is one sentence. The state is reset at the beginning of a stream. Models
of a maximum length read a stream in overlapping *windows*.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import numpy as np

from esnlm.base.console import ShowProgress, counted
from esnlm.base.errors import InputError, check_choice
from esnlm.data.encode import Encoded, store_in_memory
from esnlm.evaluation import conventions
from esnlm.evaluation.conventions import (
    Convention,
    Predictor,
    ScorableRun,
    encode,
    is_blank,
    list_texts,
    sum_log_probs,
)
from esnlm.evaluation.words import (
    JoinedSentence,
    Span,
    assign_tokens,
    merge_shared,
    token_spans,
    word_spans,
)

CONTEXTS = "sentence", "document"
UNITS = {"bits": math.log(2), "nats": 1.0}  # a unit, in nats
END = "<|endoftext|>"  # marks the end of a sentence in the table


@dataclass(frozen=True)
class Options:
    """The options of a table of surprisals; `Run.surprisal` describes each argument."""

    by: str = "word"
    unit: str = "bits"
    context: str = "sentence"
    punctuation: str = "attached"
    whitespace: str = "leading"
    eos: bool = True
    scoring: str = "paper"
    cache: bool = False

    def check(self) -> None:
        """Raises InputError for an unknown value or an unsuitable convention."""
        check_choice("by", self.by, ("word", "token"))
        check_choice("unit", self.unit, UNITS)
        check_choice("context", self.context, CONTEXTS)
        check_choice("punctuation", self.punctuation, ("attached", "separate"))
        check_choice("whitespace", self.whitespace, ("leading", "trailing"))
        if not conventions.get(self.scoring).bos:
            raise InputError(
                f"scoring {self.scoring} scores no first token, so the first word has no surprisal:"
                " choose paper"
            )


def columns(by: str, unit: str) -> list[str]:
    """Returns the names of the columns of a table of surprisals, in order."""
    return ["sentence", "position", by, "start", "end", f"surprisal_{unit}"]


def surprisals(
    run: Predictor,
    sentences: Sequence[JoinedSentence],
    documents: Sequence[Sequence[int]],
    options: Options,
    progress: ShowProgress = False,
) -> list[dict]:
    """Computes the table of surprisals; `Run.surprisal` documents its rows.

    A document is a list of sentence numbers. Blank sentences are left out.
    """
    options.check()
    convention, tokenizer = conventions.get(options.scoring), run.tokenizer
    sequences = encode(list_texts(text for text, _ in sentences), tokenizer, options.scoring)
    streams = streams_of(sentences, documents, options.context)
    if not streams:
        return []
    predict = partial(_predict, run, streams, sequences)
    if options.cache:
        with_cache = cast(ScorableRun, run)  # n-gram models have no cache
        predict = partial(_predict_with_cache, with_cache, streams, sequences, documents)
    log_probs = predict(progress=progress)
    if options.whitespace == "trailing":
        log_ends = predict(group=word_ends(tokenizer))

    rows: list[dict] = []
    names = columns(options.by, options.unit)
    for number in chain(*streams):
        text, words = sentences[number]
        tokens = spans_of_sequence(text, sequences[number], tokenizer, convention)
        nats = 0.0 - log_probs[number]
        if options.whitespace == "trailing":
            nats = _move_white_space(nats, log_ends[number], sequences[number], tokenizer)
        parts = _parts(text, words, tokens, nats, options)
        table = [(text[start:end], start, end, value) for (start, end), value in parts]
        if options.eos and convention.eos:
            table.append((END, len(text), len(text), float(nats[-1])))
        for position, (part, start, end, value) in enumerate(table):
            surprisal = None if value is None else value / UNITS[options.unit]
            row = number, position, part, start, end, surprisal
            rows.append(dict(zip(names, row, strict=True)))
    return rows


def _parts(
    text: str, words: list[Span] | None, tokens: list[Span], nats: np.ndarray, options: Options
) -> list[tuple[Span, float | None]]:
    """Returns the span and surprisal in nats of each token or word of a sentence, without EOS."""
    if options.by == "token" or not tokens:
        return list(zip(tokens, nats[: len(tokens)].tolist(), strict=True))
    spans = words or word_spans(text, options.punctuation)
    owned = assign_tokens(spans, tokens)
    if words is None:  # words that share a token share a row
        spans = merge_shared(spans, owned)
        owned = [numbers for numbers in owned if numbers is not None]
    sums = sum_log_probs(nats[numbers.start : numbers.stop] for numbers in owned if numbers)
    each = iter(sums.tolist())
    return [
        (span, next(each) if numbers else None) for span, numbers in zip(spans, owned, strict=True)
    ]


def spans_of_sequence(
    text: str, sequence: np.ndarray, tokenizer: Any, convention: Convention
) -> list[Span]:
    """Returns the span in a text of each token of its sequence of ids, without BOS and EOS."""
    ids = sequence[1 : len(sequence) - convention.eos]
    if not convention.space:
        return token_spans(text, ids, tokenizer)
    spans = token_spans(" " + text, ids, tokenizer)  # the added space is not part of the text
    return [(max(0, start - 1), end - 1) for start, end in spans]


def count_tokens(
    sentences: Sequence[JoinedSentence], tokenizer: Any, scoring: str
) -> list[list[int | None]]:
    """Returns the number of tokens of each word of each sentence, joined of words; None if the word
    before has them."""
    convention = conventions.get(scoring)
    sequences = encode([text for text, _ in sentences], tokenizer, scoring)
    counts = []
    for (text, words), sequence in zip(sentences, sequences, strict=True):
        tokens = spans_of_sequence(text, sequence, tokenizer, convention)
        owned = assign_tokens(words or [], tokens)
        counts.append([None if numbers is None else len(numbers) for numbers in owned])
    return counts


def group_documents(count: int, documents: Sequence | None, are_used: bool) -> list[list[int]]:
    """Returns the numbers of the sentences of each document; `Run.surprisal` describes the values
    of `documents`."""
    if documents is None:
        documents = [None] * count
    elif not are_used:
        raise InputError(
            "documents need context='document', which carries the state between sentences"
        )
    if len(documents) != count:
        raise InputError(
            f"documents has {len(documents)} values for {counted(count, 'sentence')}: give one for"
            " each"
        )
    groups = groupby(enumerate(documents), itemgetter(1))
    return [[number for number, _ in group] for _, group in groups]


def streams_of(
    sentences: Sequence[JoinedSentence], documents: Sequence[Sequence[int]], context: str
) -> list[list[int]]:
    """Returns the numbers of the sentences of each stream, without blank sentences."""
    check_choice("context", context, CONTEXTS)
    streams = [[number] for number in chain(*documents)] if context == "sentence" else documents
    without_blank = (
        [number for number in stream if not is_blank(sentences[number].text)] for stream in streams
    )
    return [stream for stream in without_blank if stream]


def cut_windows(
    streams: Sequence[Sequence[int]], sequences: Sequence[np.ndarray], longest: int | None
) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """Cuts streams, the ids of their sentences end to end, into windows that a model can read.

    Returns:
        The windows, (T,), and for each sentence the places of its values, (T - 1,), by its number.
        A model has a value after each id of a window but the last: a state, or the prediction of
        the next id. Their places count the values of all windows, end to end.
    """
    windows: list[np.ndarray] = []
    places: dict[int, np.ndarray] = {}
    total = 0  # values of the windows so far
    for stream in streams:
        ids = np.concatenate([sequences[number] for number in stream])
        values: list[int] = []  # place after each id of the stream but the last
        for first, end, skip in _windows(len(ids), longest):
            windows.append(ids[first:end])
            count = end - first - 1
            values += range(total + skip, total + count)
            total += count
        ends = np.cumsum([len(sequences[number]) for number in stream])
        parts = np.split(np.array(values, np.int64), ends[:-1])
        for number, part in zip(stream, parts, strict=True):
            places[number] = part[: len(sequences[number]) - 1]
    return windows, places


def _windows(length: int, longest: int | None) -> list[tuple[int, int, int]]:
    """Returns the windows of a stream: first id, end, values that an earlier window has."""
    if longest is None or length <= longest + 1:
        return [(0, length, 0)]
    # after the first window, every token is predicted from at least half a window
    step = max(1, longest // 2)
    firsts = range(0, length - longest - 1 + step, step)
    return [
        (first, min(first + longest + 1, length), (longest - step) * (first > 0))
        for first in firsts
    ]


def _predict(
    run: Predictor,
    streams: Sequence[Sequence[int]],
    sequences: list[np.ndarray],
    progress: ShowProgress = False,
    group: np.ndarray | None = None,
) -> dict[int, np.ndarray]:
    """Returns the log-probabilities of all ids of a sentence but the first, (T - 1,), by its
    number."""
    windows, places = cut_windows(streams, sequences, run.max_length)
    values = np.concatenate(run.token_log_probs_of_ids(windows, progress=progress, group=group))
    return {number: values[place].astype(np.float64) for number, place in places.items()}


def _predict_with_cache(
    run: ScorableRun,
    streams: Sequence[Sequence[int]],
    sequences: list[np.ndarray],
    documents: Sequence[Sequence[int]],
    progress: ShowProgress = False,
    group: np.ndarray | None = None,
) -> dict[int, np.ndarray]:
    """Returns what `_predict` does, with a cache for each of the documents."""
    numbers = list(chain(*streams))
    lengths = np.array([len(sequences[number]) for number in numbers])
    document_of = {number: d for d, document in enumerate(documents) for number in document}
    encoded = Encoded(
        tokens=np.concatenate([sequences[number] for number in numbers]),
        lengths=lengths,
        words=np.zeros_like(lengths),
        bytes=np.zeros_like(lengths),
        documents=np.array([document_of[number] for number in numbers]),
        empty_lines=0,
    )
    text = store_in_memory(Path("sentences"), run.tokenizer, encoded)
    by_document = len(streams) < len(numbers)  # else each sentence is read alone
    log_probs = run.cached_log_probs(text, by_document, progress=progress, group=group)
    parts = np.split(log_probs.astype(np.float64), np.cumsum(lengths[:-1] - 1))
    return dict(zip(numbers, parts, strict=True))


def words_before(
    tokens: Sequence[Sequence[int | None]],
    streams: Sequence[Sequence[int]],
    longest: int | None,
    scoring: str,
) -> list[int]:
    """Returns how many words a model has read before each word of each stream.

    These are the words before it in its stream, from the first token of the window that predicts
    its first token.

    Args:
        tokens: the number of tokens of each word of each sentence (`count_tokens`).
        streams: lists of sentence numbers.
        longest: the maximum number of ids that the model reads at once.
        scoring: the convention.
    """
    convention = conventions.get(scoring)
    counts: list[int] = []
    for stream in streams:
        firsts: list[int] = []  # of each word, the place of its first token in the stream
        length = 0
        for number in stream:
            sizes = np.array([size or 0 for size in tokens[number]])
            ends = length + 1 + np.cumsum(sizes)  # after BOS
            firsts += (ends - sizes).tolist()
            length = int(ends[-1]) + convention.eos
        windows = np.array(_windows(length, longest))  # (windows, 3)
        window = np.searchsorted(windows[:-1, 1], firsts, side="right")
        counts += (np.arange(len(firsts)) - np.searchsorted(firsts, windows[window, 0])).tolist()
    return counts


def begins_word(token: bytes) -> bool:
    """Returns whether a token begins with white space, which ends the word before it."""
    return token.decode("utf-8", errors="ignore")[:1].isspace()


def word_ends(tokenizer: Any) -> np.ndarray:
    """Returns the tokens that end the word before them, (V,) bool: white space first, or EOS."""
    tokens = (tokenizer.decode_bytes([i]) for i in range(tokenizer.vocab_size))
    is_end = np.array([begins_word(token) for token in tokens])
    is_end[tokenizer.eos] = True
    return is_end


def _move_white_space(
    nats: np.ndarray, log_ends: np.ndarray, sequence: np.ndarray, tokenizer: Any
) -> np.ndarray:
    """Moves the surprisal of each word's end from the next word to the word itself, (T - 1,)."""
    # E are the tokens that begin with white space, and EOS. If a word ends, p(next token) = p(E)
    # p(next token | E). The factor p(E), in `log_ends`, moves to the word's last token (Oh and
    # Schuler 2024, Pimentel and Meister 2024).
    ids = sequence[1:].tolist()
    tokens = [tokenizer.decode_bytes([i]) for i in ids]
    moved = nats.copy()
    for j in range(1, len(ids)):
        blank_before = not tokens[j - 1].decode("utf-8", errors="replace").strip()
        if ids[j] == tokenizer.eos or (begins_word(tokens[j]) and not blank_before):
            moved[j - 1] -= log_ends[j]
            moved[j] += log_ends[j]
    return moved
