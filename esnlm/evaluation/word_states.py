"""States of words: those after their last or first token, or the mean over their tokens.

`find_words` aligns words with tokens and cuts the texts into pieces that the model can read;
`collect` picks the states of the words from those of all tokens.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from esnlm.base.console import Progress, ShowProgress
from esnlm.base.errors import InputError
from esnlm.evaluation.conventions import ScorableRun, encode, list_texts
from esnlm.evaluation.surprisal import (
    JoinedSentence,
    Span,
    streams_of,
    token_spans,
    windows_of,
    word_spans,
)

# which of its tokens a word has the state of
AT = {"last": slice(-1, None), "first": slice(1), "mean": slice(None)}
COLUMNS = "sentence", "position", "word", "start", "end", "tokens", "runs_over", "shared"


@dataclass(frozen=True)
class WordStates:
    """The states of words, and a table of the words: `pandas.DataFrame(words.rows)`.

    A row has `sentence`, `position`, `word`, `start` and `end` as in `Run.surprisal` (words of a
    list have their place in the joined text), `tokens` (number of tokens of the word), `runs_over`
    (whether its last token is also the next word's first) and `shared` (whether its first token is
    also the last of the word before).
    """

    states: np.ndarray  # (W, F) float32; NaN for a word without tokens
    rows: list[dict]  # W of them


class Words(NamedTuple):
    """Words, and the states that they are made of."""

    rows: list[dict]  # W of them
    pieces: list[np.ndarray]  # ids to read, (T,)
    counts: np.ndarray  # (W,), states per word
    reads: np.ndarray  # (P,) number of the id that each state follows, among all ids of the pieces


def find_words(
    run: ScorableRun,
    sentences: Sequence[JoinedSentence],
    documents: Sequence[Sequence[int]],
    at: str,
) -> Words:
    """Aligns the words of sentences with tokens, and cuts documents into pieces.

    A document is a list of sentence numbers. It is read as BOS, a sentence, EOS, BOS, the next one,
    and so on, in windows if it is longer than the model can read. Blank sentences are left out.
    """
    if at not in AT:
        raise InputError(f"at is {at!r}: choose {', '.join(AT)}")
    sequences = encode(list_texts(text for text, _ in sentences), run.tokenizer, "paper")
    streams = streams_of(sentences, documents)
    pieces: list[np.ndarray] = []
    numbers: list[int] = []  # of each id of the sentences, end to end, among those of the pieces
    total = 0  # ids in pieces
    for stream in streams:
        ids = np.concatenate([sequences[number] for number in stream])
        for first, end, skip in windows_of(len(ids), run.longest):
            pieces.append(ids[first : end - 1])
            numbers += range(total + skip, total + len(pieces[-1]))
            total += len(pieces[-1])
        numbers.append(-1)  # the last EOS is not read
    rows: list[dict] = []
    counts: list[int] = []
    reads: list[int] = []
    place = 0  # of the sentence's BOS in `numbers`
    for number in chain(*streams):
        text, words = sentences[number]
        words = words or word_spans(text)
        tokens = tokens_of(words, token_spans(text, sequences[number][1:-1], run.tokenizer))
        shared = [after < end for (_, end), (after, _) in pairwise(tokens)]
        table = zip(words, tokens, [*shared, False], [False, *shared], strict=True)
        for i, ((start, end), (first, last), *flags) in enumerate(table):
            row = number, i, text[start:end], start, end, last - first, *flags
            rows.append(dict(zip(COLUMNS, row, strict=True)))
            chosen = numbers[place + 1 + first : place + 1 + last][AT[at]]
            reads += chosen
            counts.append(len(chosen))
        place += len(sequences[number])
    return Words(rows, pieces, np.array(counts, np.int64), np.array(reads, np.int64))


def tokens_of(words: Sequence[Span], tokens: Sequence[Span]) -> list[Span]:
    """Returns the tokens that cover characters of each word: the first, and the end."""
    starts, ends = [start for start, _ in tokens], [end for _, end in tokens]
    return [(bisect_right(ends, start), bisect_left(starts, end)) for start, end in words]


def collect(
    words: Words, states: Iterable[np.ndarray], width: int, progress: ShowProgress = False
) -> WordStates:
    """Picks the states of words, (W, width), from those after each id of each piece, (T, width)."""
    rows, pieces, counts, reads = words
    sums = np.zeros((len(rows), width), np.float32)
    word_of = np.repeat(np.arange(len(rows)), counts)  # (P,)
    total, done = sum(map(len, pieces)), 0
    bar = Progress(total, brief=progress == "brief")
    for piece in states:
        chosen = slice(*np.searchsorted(reads, [done, done + len(piece)]))
        numbers = word_of[chosen]
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        sums[numbers[begins]] += np.add.reduceat(piece[reads[chosen] - done], begins)
        done += len(piece)
        if progress:
            bar.show(done, f"reading {done:,}/{total:,}", final=done == total)
    with np.errstate(invalid="ignore"):  # 0 / 0 if a word has no token
        sums /= counts[:, None]
    return WordStates(sums, rows)
