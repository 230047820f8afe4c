"""States of words: those after their last or first token, or the mean over their tokens.

`find_words` aligns words with tokens and cuts the text into windows that the model can read;
`collect` picks the states of the words from those of all tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from esnlm.base.console import Progress, ShowProgress
from esnlm.base.errors import check_choice
from esnlm.evaluation.conventions import ScorableRun, encode, list_texts
from esnlm.evaluation.surprisal import cut_windows, streams_of
from esnlm.evaluation.words import JoinedSentence, covering_tokens, token_spans, word_spans

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
    windows: list[np.ndarray]  # ids to read, (T,)
    counts: np.ndarray  # (W,), states per word
    places: np.ndarray  # (P,), of these states among those after each id of all windows, ascending


def find_words(
    run: ScorableRun,
    sentences: Sequence[JoinedSentence],
    documents: Sequence[Sequence[int]],
    context: str,
    at: str,
) -> Words:
    """Aligns the words of sentences with tokens, and cuts the text into windows.

    A document is a list of sentence numbers. Its sentences are read as for surprisals, each between
    BOS and EOS. Blank ones are left out.
    """
    check_choice("at", at, AT)
    sequences = encode(list_texts(text for text, _ in sentences), run.tokenizer, "paper")
    streams = streams_of(sentences, documents, context)
    windows, places = cut_windows(streams, sequences, run.max_length)
    rows: list[dict] = []
    counts: list[int] = []
    chosen: list[int] = []
    for number in chain(*streams):
        (text, words), after_bos = sentences[number], places[number][1:].tolist()
        words = words or word_spans(text)
        tokens = token_spans(text, sequences[number][1:-1], run.tokenizer)
        covers = covering_tokens(words, tokens)
        shared = [after.start < before.stop for before, after in pairwise(covers)]
        table = zip(words, covers, [*shared, False], [False, *shared], strict=True)
        for i, ((start, end), numbers, *flags) in enumerate(table):
            row = number, i, text[start:end], start, end, len(numbers), *flags
            rows.append(dict(zip(COLUMNS, row, strict=True)))
            states = after_bos[numbers.start : numbers.stop][AT[at]]
            counts.append(len(states))
            chosen += states
    inputs = [ids[:-1] for ids in windows]
    return Words(rows, inputs, np.array(counts, np.int64), np.array(chosen, np.int64))


def collect(
    words: Words, states: Iterable[np.ndarray], width: int, progress: ShowProgress = False
) -> WordStates:
    """Picks the states of words, (W, width), from those after each id of windows, (T, width)."""
    rows, windows, counts, places = words
    sums = np.zeros((len(rows), width), np.float32)
    word_of = np.repeat(np.arange(len(rows)), counts)  # (P,)
    total, done = sum(map(len, windows)), 0
    bar = Progress(total, brief=progress == "brief")
    for part in states:
        chosen = slice(*np.searchsorted(places, [done, done + len(part)]))
        numbers = word_of[chosen]
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        sums[numbers[begins]] += np.add.reduceat(part[places[chosen] - done], begins)
        done += len(part)
        if progress:
            bar.show(done, f"reading {done:,}/{total:,}", final=done == total)
    with np.errstate(invalid="ignore"):  # 0 / 0 if a word has no token
        sums /= counts[:, None]
    return WordStates(sums, rows)
