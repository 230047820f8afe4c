"""Surprisals of words and tokens: -log p of each, given what stands before it.

Data flows through `surprisals` one way: sentences -> sequences of ids -> log-probabilities of tokens -> sums over words.
docs/surprisal.md says how words, white space and documents are treated, and why.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from esnlm.errors import InputError
from esnlm.evaluation import alignment, conventions
from esnlm.evaluation.alignment import Span
from esnlm.evaluation.sequences import encode
from esnlm.io.console import Shown

UNITS = {"bits": math.log(2), "nats": 1.0}  # a unit, in nats
BY = ("word", "token")
WHITESPACE = ("leading", "trailing")
END = "<|endoftext|>"  # what stands for the end of a sentence in the table


class Reader(Protocol):
    """What `surprisals` asks of a run; `loaded_run.Run` has it."""

    @property
    def tokenizer(self) -> Any: ...
    @property
    def longest(self) -> int | None: ...
    def token_log_probs_of(self, sequences: list[np.ndarray], progress: Shown = False) -> list[np.ndarray]: ...
    def group_log_probs_of(self, sequences: list[np.ndarray], group: np.ndarray) -> list[np.ndarray]: ...


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the rows of a table are; `loaded_run.Run.surprisal` describes each argument."""

    by: str = "word"
    unit: str = "bits"
    punctuation: str = "attached"
    whitespace: str = "leading"
    eos: bool = True
    scoring: str = "paper"

    def check(self) -> None:
        """Raises InputError for a value that is not known, or a convention that cannot be used."""
        for name, value, choices in (
            ("by", self.by, BY),
            ("unit", self.unit, UNITS),
            ("punctuation", self.punctuation, alignment.PUNCTUATION),
            ("whitespace", self.whitespace, WHITESPACE),
        ):
            if value not in choices:
                raise InputError(f"{name} is {value!r}: choose {' or '.join(choices)}")
        if self.by != "word" and self.punctuation != "attached":
            raise InputError(
                f"punctuation is {self.punctuation!r}: it says what a word is, and a row is a {self.by}; leave it out"
            )
        if not conventions.get(self.scoring).bos:
            raise InputError(
                f"scoring {self.scoring} does not score the first token of a sentence, so its first word has no surprisal: choose "
                + " or ".join(name for name, convention in conventions.CONVENTIONS.items() if convention.bos)
            )

    def columns(self) -> list[str]:
        """Returns the names of the columns of the table, in order."""
        return ["sentence", "position", self.by, "start", "end", f"surprisal_{self.unit}"]


@dataclass(frozen=True)
class Sentence:
    """A sentence and what a model makes of its n tokens, EOS not among them."""

    text: str
    ids: np.ndarray  # (n,)
    spans: list[Span]  # (n,) of the tokens
    nats: np.ndarray  # (n,) float64, the surprisal of each token, or (n + 1,) with that of EOS

    @property
    def has_end(self) -> bool:
        """Whether EOS is scored."""
        return len(self.nats) > len(self.ids)


def surprisals(
    run: Reader,
    documents: Sequence[Sequence[str | Sequence[str]]],
    options: Options,
    progress: Shown = False,
) -> list[dict]:
    """Computes the table of surprisals; see `loaded_run.Run.surprisal`, which documents its rows.

    Args:
        run: as from `esnlm.load`.
        documents: sentences, each a text or its words; those of one document are read one after another. Sentences are counted
            across all of them.
        options: what the rows are.
        progress: whether to show how far the scoring is.

    Raises:
        InputError: an option is unknown, a sequence is too long for the model or for the memory, a word is empty, or a token
            stands in two words that were given.
    """
    options.check()
    given = [[_text_and_words(sentence, options) for sentence in document] for document in documents]
    texts = [[text for text, _ in document] for document in given]
    sentences = read(run, texts, options.scoring, progress=progress, trailing=options.whitespace == "trailing")
    its_words = [words for document in given for _, words in document]
    rows, names = [], options.columns()
    for number, (sentence, words) in enumerate(zip(sentences, its_words, strict=True)):
        spans = None if words is None or options.by == "token" else _given_spans(sentence, words)
        for position, (text, (start, end), nats) in enumerate(_parts(sentence, options, spans)):
            row = (number, position, text, start, end, nats / UNITS[options.unit])
            rows.append(dict(zip(names, row, strict=True)))
    return rows


def read(
    run: Reader,
    documents: Sequence[Sequence[str]],
    scoring: str = "paper",
    *,
    progress: Shown = False,
    trailing: bool = False,
) -> list[Sentence]:
    """Scores every token of the sentences of documents, each document from a fresh state.

    Args:
        run, documents, progress: as in `surprisals`.
        scoring: the name of a convention that begins with BOS.
        trailing: whether the white space after a word is counted in the word (Oh and Schuler 2024).

    Raises:
        InputError: a sequence is too long for the model or for the memory.
    """
    # A stream is the ids of a document: its sentences end to end, each with BOS and, where the convention has it, EOS.
    documents = [document for document in documents if len(document)]
    encoded = iter(encode([text for document in documents for text in document], run.tokenizer, scoring))
    framed = [[next(encoded) for _ in document] for document in documents]
    streams = [np.concatenate(document) for document in framed]
    log_probs = _over_windows(streams, run.longest, lambda pieces: run.token_log_probs_of(pieces, progress=progress))
    log_moved = None
    if trailing:
        group = word_ends(run.tokenizer)
        log_moved = _over_windows(streams, run.longest, lambda pieces: run.group_log_probs_of(pieces, group))

    sentences = []
    for number, (document, sequences) in enumerate(zip(documents, framed, strict=True)):
        first = 0
        for text, sequence in zip(document, sequences, strict=True):
            here = slice(first, first + len(sequence) - 1)  # the predictions of this sentence's tokens after BOS
            first += len(sequence)
            nats = 0.0 - log_probs[number][here]
            ids, spans = tokens_of(text, sequence, run.tokenizer, scoring)
            if log_moved is not None:
                nats = _move_white_space(nats, log_moved[number][here], ids, run.tokenizer)
            sentences.append(Sentence(text, ids, spans, nats))
    return sentences


def tokens_of(text: str, sequence: np.ndarray, tokenizer: Any, scoring: str) -> tuple[np.ndarray, list[Span]]:
    """Returns the tokens (n,) of a sentence, without BOS and EOS, and the characters of each.

    Args:
        text: the sentence.
        sequence: what `encode` made of it under the convention.
        tokenizer, scoring: as there.

    Raises:
        InputError: the tokens do not spell the text.
    """
    convention = conventions.get(scoring)
    ids = sequence[int(convention.bos) : len(sequence) - convention.eos]
    spans = alignment.token_spans(" " * convention.space + text, ids, tokenizer)
    if convention.space:  # the space is not a character of the given sentence
        spans = [(max(0, start - 1), end - 1) for start, end in spans]
    return ids, spans


def word_ends(tokenizer: Any) -> np.ndarray:
    """Returns which tokens say that a word has ended, (V,) bool: those that begin with white space, and EOS."""
    found = [alignment.begins_word(tokenizer.decode_bytes([i])) for i in range(tokenizer.vocab_size)]
    found[tokenizer.eos] = True
    return np.array(found)


def sum_nats(nats: np.ndarray) -> float:
    """Returns the sum of surprisals, rounded once; infinite or NaN where a term is."""
    return math.fsum(nats) if np.isfinite(nats).all() else float(nats.sum())


def _over_windows(
    streams: list[np.ndarray], longest: int | None, compute: Callable[[list[np.ndarray]], list[np.ndarray]]
) -> list[np.ndarray]:
    """Returns what `compute` says of every id of each stream but the first, (T - 1,) float64, a window at a time.

    Args:
        streams: ids (T,).
        longest: ids that can be read at once; None: any number.
        compute: from sequences (T,) to arrays (T - 1,).
    """
    windows = [_windows(len(stream), longest) for stream in streams]
    pieces = [stream[first:last] for stream, its in zip(streams, windows, strict=True) for first, last, _ in its]
    found = iter(compute(pieces))
    return [np.concatenate([np.asarray(next(found), np.float64)[skip:] for *_, skip in its]) for its in windows]


def _windows(length: int, longest: int | None) -> list[tuple[int, int, int]]:
    """Returns the windows in which a sequence is read: (first id, end, predictions that the window before has made).

    There is one, or where the model reads at most `longest` ids, each is half of them further on than the one before. So
    behind the first window every token is predicted from at least half a window.
    """
    if longest is None or length <= longest + 1:
        return [(0, length, 0)]
    step = max(1, longest // 2)
    firsts = range(0, length - longest - 1 + step, step)
    return [(first, min(first + longest + 1, length), (longest - step) * (first > 0)) for first in firsts]


def _move_white_space(nats: np.ndarray, log_ends: np.ndarray, ids: np.ndarray, tokenizer: Any) -> np.ndarray:
    """Returns surprisals (n,) or (n + 1,) in which a word pays for its own end, and the next one no longer does.

    With E the tokens that begin with white space, and EOS, p(next token) is p(E) p(next token | E) where a word ends. The
    factor p(E) moves from the token after the word to the last one of the word (Oh and Schuler 2024, Pimentel and Meister
    2024). The sum stays. The first word keeps what it has: nothing stands before it.

    Args:
        nats: of the tokens and, where it is scored, EOS.
        log_ends: log p(E) before each of them.
        ids: the tokens, (n,).
        tokenizer: has `decode_bytes`.
    """
    tokens = [tokenizer.decode_bytes([int(i)]) for i in ids]
    moved = nats.copy()
    for j in range(1, len(nats)):
        blank_before = not tokens[j - 1].decode("utf-8", errors="replace").strip()
        if j == len(ids) or (alignment.begins_word(tokens[j]) and not blank_before):
            moved[j - 1] -= log_ends[j]
            moved[j] += log_ends[j]
    return moved


def _text_and_words(sentence: str | Sequence[str], options: Options) -> tuple[str, list[str] | None]:
    """Returns a sentence as a text, and its words if these were given. Raises InputError if one is empty or no text."""
    if isinstance(sentence, str):
        return sentence, None
    words = (
        [word.strip() if isinstance(word, str) else "" for word in sentence] if isinstance(sentence, Iterable) else [""]
    )
    if not all(words):
        raise InputError(f"the sentence {sentence!r} is no text, or a list with an empty word or what is none")
    if options.punctuation != "attached":
        raise InputError(f"punctuation is {options.punctuation!r}: the words of a sentence are given, so leave it out")
    return " ".join(words), words


def _given_spans(sentence: Sentence, words: Sequence[str]) -> list[Span]:
    """Returns the characters of each word that was given. Raises InputError if a token stands in two of them."""
    ends = [end - 1 for end in accumulate(len(word) + 1 for word in words)]
    spans = [(end - len(word), end) for word, end in zip(words, ends, strict=True)]
    if joined := set(alignment.join_words(sentence.spans, spans)) - set(spans):
        start, end = min(joined)
        raise InputError(
            f"{sentence.text[start:end]!r}: a token stands in more than one of these words; give them as one word"
        )
    return spans


def _parts(sentence: Sentence, options: Options, words: list[Span] | None = None) -> Iterator[tuple[str, Span, float]]:
    """Yields text, span and surprisal in nats of each word or token of a sentence, and of its end.

    Args:
        sentence: a sentence.
        options: what the rows are.
        words: the words, which have no token in common; None: what stands between white space.
    """
    tokens = sentence.nats[: len(sentence.ids)]
    if options.by == "token":
        for (start, end), nats in zip(sentence.spans, tokens, strict=True):
            yield sentence.text[start:end], (start, end), float(nats)
    elif len(tokens):
        if words is None:
            words = alignment.word_spans(sentence.text, options.punctuation) or [(0, len(sentence.text))]
            words = alignment.join_words(sentence.spans, words)
        owner = np.array(alignment.owners(sentence.spans, words))
        for number, (start, end) in enumerate(words):
            yield sentence.text[start:end], (start, end), sum_nats(tokens[owner == number])
    if options.eos and sentence.has_end:
        length = len(sentence.text)
        yield END, (length, length), float(sentence.nats[-1])
