"""Surprisals of words and tokens: -log p of each, conditioned on the text before it.

The steps of `surprisals`: sentences -> sequences of ids -> log-probabilities of tokens -> sums over
words. docs/surprisal.md describes and explains the treatment of words, white space and documents.
"""

import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from esnlm.base.console import ShowProgress, counted, info
from esnlm.base.errors import InputError, warn_caller
from esnlm.data.encode import Encoded, store_in_memory
from esnlm.data.tables import GIVE_TEXT
from esnlm.evaluation import conventions
from esnlm.evaluation.conventions import (
    Predictor,
    ScorableRun,
    encode,
    is_blank,
    list_texts,
    sum_log_probs,
)

# Start and end of a token or word in a text, as character indices: it covers text[start:end].
Span = tuple[int, int]
UNITS = {"bits": math.log(2), "nats": 1.0}  # a unit, in nats
END = "<|endoftext|>"  # marks the end of a sentence in the table
# A letter of a script without spaces between words: Thai, Lao, Burmese, Khmer, kana, or a Chinese
# character.
SPACELESS = re.compile(
    "[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff"
    "\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
# Words that no space precedes in English text: closing punctuation, and clitics as treebanks cut
# them off.
ATTACHED = re.compile(r"[.,!?;:)\]…”’]|\.\.\.|''|n['’]t|['’](?:s|re|ve|ll|d|m)", re.IGNORECASE)


class JoinedSentence(NamedTuple):
    """A sentence as a text, and the spans of its words if it was given as words."""

    text: str
    words: list[Span] | None = None


@dataclass(frozen=True)
class Options:
    """The options of a table of surprisals; `Run.surprisal` describes each argument."""

    by: str = "word"
    unit: str = "bits"
    punctuation: str = "attached"
    whitespace: str = "leading"
    eos: bool = True
    scoring: str = "paper"

    def check(self) -> None:
        """Raises InputError for an unknown value or an unsuitable convention."""
        choices: dict[str, Iterable[str]] = {"by": ("word", "token"), "unit": UNITS}
        choices |= {"punctuation": ("attached", "separate"), "whitespace": ("leading", "trailing")}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise InputError(f"{name} is {getattr(self, name)!r}: choose {' or '.join(known)}")
        if not conventions.get(self.scoring).bos:
            raise InputError(
                f"scoring {self.scoring} scores no first token, so the first word has no surprisal:"
                " choose paper"
            )

    def columns(self) -> list[str]:
        """Returns the names of the columns of the table, in order."""
        return ["sentence", "position", self.by, "start", "end", f"surprisal_{self.unit}"]


def surprisals(
    run: Predictor,
    sentences: Sequence[JoinedSentence],
    documents: Sequence[Sequence[int]],
    options: Options,
    progress: ShowProgress = False,
    cached: Sequence[Sequence[int]] | None = None,
) -> list[dict]:
    """Computes the table of surprisals; `Run.surprisal` documents its rows.

    A document is a list of sentence numbers; its sentences are read one after another. Blank
    sentences are left out. With a cache, `cached` are the documents whose tokens it counts.
    """
    options.check()
    convention, tokenizer = conventions.get(options.scoring), run.tokenizer
    sequences = encode(list_texts(text for text, _ in sentences), tokenizer, options.scoring)
    streams = streams_of(sentences, documents)
    if not streams:
        return []

    def predict(**arguments: Any) -> dict[int, np.ndarray]:
        if cached is not None:
            with_cache = cast(ScorableRun, run)  # n-gram models have no cache
            return _predict_with_cache(with_cache, streams, sequences, cached, arguments)
        compute = partial(run.token_log_probs_of, **arguments)
        return _predict(streams, sequences, run.longest, compute)

    log_probs = predict(progress=progress)
    if options.whitespace == "trailing":
        log_ends = predict(group=word_ends(tokenizer))

    rows: list[dict] = []
    for number in chain(*streams):
        (text, words), ids = sentences[number], sequences[number][1:]
        ids = ids[: len(ids) - convention.eos]
        spans = token_spans(" " * convention.space + text, ids, tokenizer)
        if convention.space:  # the added space is not part of the text
            spans = [(max(0, start - 1), end - 1) for start, end in spans]
        nats = 0.0 - log_probs[number]
        if options.whitespace == "trailing":
            nats = _move_white_space(nats, log_ends[number], ids, tokenizer)
        parts = _parts(text, words, spans, nats, options)
        table = [(text[start:end], start, end, value) for (start, end), value in parts]
        if options.eos and convention.eos:
            table.append((END, len(text), len(text), float(nats[-1])))
        for position, (part, start, end, value) in enumerate(table):
            surprisal = None if value is None else value / UNITS[options.unit]
            row = number, position, part, start, end, surprisal
            rows.append(dict(zip(options.columns(), row, strict=True)))
    return rows


def streams_of(
    sentences: Sequence[JoinedSentence], documents: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Returns the documents without blank sentences; documents of blank ones are left out."""
    streams = [
        [number for number in document if not is_blank(sentences[number].text)]
        for document in documents
    ]
    return [stream for stream in streams if stream]


def word_ends(tokenizer: Any) -> np.ndarray:
    """Returns the tokens that end the word before them, (V,) bool: white space first, or EOS."""
    tokens = (tokenizer.decode_bytes([i]) for i in range(tokenizer.vocab_size))
    is_end = np.array([begins_word(token) for token in tokens])
    is_end[tokenizer.eos] = True
    return is_end


def _predict(
    streams: list[list[int]],
    sequences: list[np.ndarray],
    longest: int | None,
    compute: Callable[[list[np.ndarray]], list[np.ndarray]],
) -> dict[int, np.ndarray]:
    """Returns the values of all ids of a sentence but the first, (T - 1,), by its number.

    A stream is the ids of its sentences end to end, each with BOS and, if the convention has it,
    EOS. `compute` takes windows of streams (T,) and returns values for all ids but the first.
    """
    ids = [np.concatenate([sequences[number] for number in stream]) for stream in streams]
    windows = [windows_of(len(stream), longest) for stream in ids]
    values = iter(
        compute(
            [
                stream[first:last]
                for stream, spans in zip(ids, windows, strict=True)
                for first, last, _ in spans
            ]
        )
    )
    predictions = {}
    for stream, spans in zip(streams, windows, strict=True):
        parts = [np.asarray(next(values), np.float64)[skip:] for *_, skip in spans]
        ends = np.cumsum([len(sequences[number]) for number in stream])
        by_sentence = np.split(np.concatenate(parts), ends[:-1])
        for number, part in zip(stream, by_sentence, strict=True):
            # without the prediction of the next sentence's BOS
            predictions[number] = part[: len(sequences[number]) - 1]
    return predictions


def _predict_with_cache(
    run: ScorableRun,
    streams: list[list[int]],
    sequences: list[np.ndarray],
    cached: Sequence[Sequence[int]],
    arguments: dict[str, Any],
) -> dict[int, np.ndarray]:
    """Returns what `_predict` does, with a cache for each of the documents `cached`."""
    numbers = list(chain(*streams))
    lengths = np.array([len(sequences[number]) for number in numbers])
    document_of = {number: d for d, document in enumerate(cached) for number in document}
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
    log_probs = run.cached_log_probs(text, by_document, **arguments).astype(np.float64)
    parts = np.split(log_probs, np.cumsum(lengths[:-1] - 1))
    return dict(zip(numbers, parts, strict=True))


def windows_of(length: int, longest: int | None) -> list[tuple[int, int, int]]:
    """Returns the windows of a sequence: first id, end, predictions that an earlier window made."""
    if longest is None or length <= longest + 1:
        return [(0, length, 0)]
    # after the first window, every token is predicted from at least half a window
    step = max(1, longest // 2)
    firsts = range(0, length - longest - 1 + step, step)
    return [
        (first, min(first + longest + 1, length), (longest - step) * (first > 0))
        for first in firsts
    ]


def words_before(
    tokens: Sequence[Sequence[int]],
    documents: Sequence[Sequence[int]],
    longest: int | None,
    scoring: str,
) -> list[int]:
    """Returns how many words are read before each word of each document.

    These are the words before it in its document, from the first token of the window that predicts
    its first token.

    Args:
        tokens: the number of tokens of each word, for each sentence.
        documents: lists of sentence numbers.
        longest: the maximum number of ids that the model reads at once.
        scoring: the convention.
    """
    convention = conventions.get(scoring)
    counts: list[int] = []
    for document in documents:
        firsts: list[int] = []  # of each word, the place of its first token in the document
        length = 0
        for number in document:
            ends = np.cumsum(tokens[number])
            firsts += (length + 1 + ends - tokens[number]).tolist()
            length += 1 + int(ends[-1]) + convention.eos
        windows = np.array(windows_of(length, longest))  # (windows, 3)
        window = np.searchsorted(windows[:-1, 1], firsts, side="right")
        counts += (np.arange(len(firsts)) - np.searchsorted(firsts, windows[window, 0])).tolist()
    return counts


def _move_white_space(
    nats: np.ndarray, log_ends: np.ndarray, ids: np.ndarray, tokenizer: Any
) -> np.ndarray:
    """Moves the surprisal of each word's end from the next word to the word itself; (n,) or (n +
    1,)."""
    # E are the tokens that begin with white space, and EOS. If a word ends, p(next token) = p(E)
    # p(next token | E). The factor p(E), in `log_ends`, moves to the word's last token (Oh and
    # Schuler 2024, Pimentel and Meister 2024).
    tokens = [tokenizer.decode_bytes([int(i)]) for i in ids]
    moved = nats.copy()
    for j in range(1, len(nats)):
        blank_before = not tokens[j - 1].decode("utf-8", errors="replace").strip()
        if j == len(ids) or (begins_word(tokens[j]) and not blank_before):
            moved[j - 1] -= log_ends[j]
            moved[j] += log_ends[j]
    return moved


def separator_of(words: Sequence[str]) -> str:
    """Returns the text between words: none if at least half of the words with letters are in a
    script without spaces."""
    lettered = [word for word in words if any(map(str.isalpha, word))]
    spaceless = sum(SPACELESS.search(word) is not None for word in lettered)
    return "" if lettered and 2 * spaceless >= len(lettered) else " "


def join(words: Sequence[str], separators: Sequence[str]) -> JoinedSentence:
    """Joins words to a text in which each is followed by its separator, except the last one."""
    text, spans = "", []
    for word, separator in zip(words, separators, strict=True):
        spans.append((len(text), len(text) + len(word)))
        text += word + separator
    return JoinedSentence(text[: spans[-1][1]] if spans else "", spans)


def join_sentences(
    sentences: Iterable[str | Sequence[str]],
    separator: str | None = None,
    spaces: Sequence[Sequence[bool]] | None = None,
) -> list[JoinedSentence]:
    """Joins the words of each sentence that is not a text; `Run.surprisal` describes the arguments.

    Warns if a space precedes words that belong to the word before, such as "n't", unless
    `separator` or `spaces` is given.
    """
    if isinstance(sentences, str):
        raise InputError("sentences is one text: give a list of texts")
    sentences = list(sentences)
    if spaces is not None and len(spaces) != len(sentences):
        raise InputError(
            f"spaces has {len(spaces)} lists for {counted(len(sentences), 'sentence')}: give one"
            " for each"
        )
    joined: list[JoinedSentence] = []
    spaceless = 0  # sentences joined without spaces
    attached: list[str] = []
    for i, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            joined.append(JoinedSentence(sentence))
            continue
        words = _list_words(sentence, i)
        between = " " if separator is None else separator
        if separator is None and spaces is None:
            between = separator_of(words)
            spaceless += not between
            attached += [
                f"{word!r} (sentence {i}, word {j})"
                for j, word in enumerate(words)
                if between and j > 0 and ATTACHED.fullmatch(word)
            ]
        has_space = [True] * len(words) if spaces is None else spaces[i]
        if len(has_space) != len(words):
            raise InputError(
                f"sentence {i} has {counted(len(words), 'word')}, but {len(has_space)} values in"
                " spaces"
            )
        joined.append(join(words, [between if follows else "" for follows in has_space]))
    if spaceless:
        info(
            f"the words of {counted(spaceless, 'sentence')} are joined without spaces, as their"
            " script has none; the separator ' ' adds spaces"
        )
    if attached:
        others = f" and {counted(len(attached) - 1, 'other word')}" if len(attached) > 1 else ""
        warn_caller(
            f"{attached[0]}{others} scored with a space before: say where spaces stand (spaces,"
            " --space-after), give a separator, or join such words to the word before"
        )
    return joined


def _list_words(sentence: Sequence[str], number: int) -> list[str]:
    """Returns the words of a sentence, stripped. Raises InputError if one is no text or blank."""
    if not isinstance(sentence, Iterable):
        raise InputError(f"sentence {number} is {sentence!r}: {GIVE_TEXT}")
    words = list(sentence)
    for j, word in enumerate(words):
        if not isinstance(word, str):
            raise InputError(f"sentence {number}, word {j} is {word!r}: {GIVE_TEXT}")
        if is_blank(word):
            raise InputError(f"sentence {number}, word {j} is blank: leave it out")
    return [word.strip() for word in words]


def _parts(
    text: str, words: list[Span] | None, tokens: list[Span], nats: np.ndarray, options: Options
) -> list[tuple[Span, float | None]]:
    """Returns the span and surprisal in nats of each token or word of a sentence, without EOS."""
    nats = nats[: len(tokens)]  # without EOS
    if options.by == "token" or not tokens:
        return list(zip(tokens, nats.tolist(), strict=True))
    spans = join_words(tokens, words or word_spans(text, options.punctuation) or [(0, len(text))])
    owner = np.array(owners(tokens, spans))
    sums = sum_log_probs(nats[owner == number] for number in range(len(spans))).tolist()
    value_from = {start: value for (start, _), value in zip(spans, sums, strict=True)}
    return [(span, value_from.get(span[0])) for span in words or spans]


def token_spans(text: str, ids: Sequence[int] | np.ndarray, tokenizer: Any) -> list[Span]:
    """Returns the span of each token of a text, including its leading white space.

    If several tokens share the bytes of a character, each of them covers that character.
    """
    if (offsets := tokenizer.offsets(text)) is not None:
        return offsets
    widths = [len(character.encode("utf-8", "surrogatepass")) for character in text]  # in bytes
    size_of = {i: len(tokenizer.decode_bytes([i])) for i in set(map(int, ids))}
    token_ends = np.cumsum([0, *(size_of[int(i)] for i in ids)])
    character_ends = np.cumsum([0, *widths])
    first = np.searchsorted(character_ends[1:], token_ends[:-1], side="right")
    end = np.searchsorted(character_ends[:-1], token_ends[1:], side="left")
    return list(zip(first.tolist(), end.tolist(), strict=True))


def word_spans(text: str, punctuation: str = "attached") -> list[Span]:
    """Returns the spans of the words of a text, separated by white space.

    Args:
        text: any text.
        punctuation: "attached" leaves punctuation in the word that it touches, as in regions of
            reading-time studies. "separate" makes the marks before and after a word words of their
            own; marks inside a word (don't) stay.
    """
    regions = [match.span() for match in re.finditer(r"\S+", text)]
    if punctuation == "attached":
        return regions
    spans = []
    for start, end in regions:
        first, last = bare_span(text[start:end])
        parts = (start, start + first), (start + first, start + last), (start + last, end)
        spans += [part for part in parts if part[0] < part[1]]
    return spans


def bare_span(word: str) -> Span:
    """Returns the span of a word without the punctuation at its edges; (0, 0) if it is all
    punctuation."""
    is_mark = [unicodedata.category(character)[0] in "PS" for character in word]
    if all(is_mark):
        return 0, 0
    return is_mark.index(False), len(word) - is_mark[::-1].index(False)


def owners(tokens: Sequence[Span], spans: Sequence[Span]) -> list[int]:
    """Returns the index of the span that each token belongs to, the span of its first character
    that is in one.

    Tokens of white space belong to the span after them, or to the last one. Requires at least one
    span.
    """
    ends = [end for _, end in spans]
    return [min(bisect_right(ends, start), len(spans) - 1) for start, _ in tokens]


def join_words(tokens: Sequence[Span], words: Sequence[Span]) -> list[Span]:
    """Returns the words; words that share a token are merged, as they share a probability."""
    starts = [start for start, _ in words]
    continued: set[int] = set()  # words merged with the one before
    for owner, (_, end) in zip(owners(tokens, words), tokens, strict=True):
        continued |= set(range(owner + 1, bisect_left(starts, end)))
    merged: list[Span] = []
    for number, (start, end) in enumerate(words):
        merged.append((merged.pop()[0] if number in continued else start, end))
    return merged


def begins_word(token: bytes) -> bool:
    """Returns whether a token begins with white space, which ends the word before it."""
    return token.decode("utf-8", errors="ignore")[:1].isspace()
