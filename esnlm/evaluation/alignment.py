"""Maps tokens and words to the characters of a text.

A span is a pair (start, end) of character indices (Unicode code points, from 0); it covers
text[start:end].
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

Span = tuple[int, int]


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
        is_mark = [unicodedata.category(character)[0] in "PS" for character in text[start:end]]
        first, last = start, end  # of the word, without the marks around it
        if not all(is_mark):
            first, last = start + is_mark.index(False), end - is_mark[::-1].index(False)
        parts = (start, first), (first, last), (last, end)
        spans += [part for part in parts if part[0] < part[1]]
    return spans


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
