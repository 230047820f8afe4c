"""Words: joined to a text, aligned with its tokens, read from a table, and counted.

Frequencies are on the Zipf scale (van Heuven et al. 2014).
"""

import math
import re
import unicodedata
from bisect import bisect, bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise, starmap
from typing import Any, NamedTuple

import numpy as np

from esnlm.base.console import counted, info
from esnlm.base.errors import InputError, warn_caller
from esnlm.data.sentences import load_punkt, punkt_splitter
from esnlm.data.store import TokenStore
from esnlm.data.tables import GIVE_TEXT, Table, order_rows, read_spaces
from esnlm.data.tokenizer import Tokenizer
from esnlm.evaluation.conventions import is_blank

# Start and end of a token or word in a text, as character indices: it covers text[start:end].
Span = tuple[int, int]
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
# The end of a quotation that is a sentence, as in '"Stop!" he cried.'
QUOTED_END = re.compile("[.?!…][\"'”’»›“‘«‹]+$")
BLOCK_SENTENCES = 1 << 12  # sentences decoded at a time, to bound the memory


class JoinedSentence(NamedTuple):
    """A sentence as a text, and the spans of its words if it was given as words."""

    text: str
    words: list[Span] | None = None


def join_sentences(
    sentences: Iterable[str | Sequence[str]],
    separator: str | None = None,
    space_after: Sequence[Sequence[bool]] | None = None,
) -> list[JoinedSentence]:
    """Joins the words of each sentence that is not a text; `Run.surprisal` describes the arguments.

    Warns if a space precedes words that belong to the word before, such as "n't", unless
    `separator` or `space_after` is given.
    """
    if isinstance(sentences, str):
        raise InputError("sentences is one text: give a list of texts")
    sentences = list(sentences)
    if space_after is not None and len(space_after) != len(sentences):
        raise InputError(
            f"space_after has {len(space_after)} lists for {counted(len(sentences), 'sentence')}:"
            " give one for each"
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
        if separator is None and space_after is None:
            between = separator_of(words)
            spaceless += not between
            attached += [
                f"{word!r} (sentence {i}, word {j})"
                for j, word in enumerate(words)
                if between and j > 0 and ATTACHED.fullmatch(word)
            ]
        has_space = [True] * len(words) if space_after is None else space_after[i]
        if len(has_space) != len(words):
            raise InputError(
                f"sentence {i} has {counted(len(words), 'word')}, but {len(has_space)} values in"
                " space_after"
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
            f"{attached[0]}{others} read with a space before: say where spaces stand (space_after,"
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


def covering_tokens(words: Sequence[Span], tokens: Sequence[Span]) -> list[range]:
    """Returns the tokens that cover characters of each word, by number. Words may share a token."""
    starts, ends = [start for start, _ in tokens], [end for _, end in tokens]
    return [range(bisect_right(ends, start), bisect_left(starts, end)) for start, end in words]


def assign_tokens(words: Sequence[Span], tokens: Sequence[Span]) -> list[range | None]:
    """Assigns each token to one of the words, at least one; returns the numbers of their tokens.

    White space belongs to the word after it, or to the last one. If words share a token, as they
    then share a probability, the first of them has the tokens of all, and the others have None.
    """
    covers = covering_tokens(words, tokens)
    owners = [i for i in range(len(words)) if i == 0 or covers[i].start >= covers[i - 1].stop]
    edges = [0, *(covers[i - 1].stop for i in owners[1:]), len(tokens)]
    owned = dict(zip(owners, starmap(range, pairwise(edges)), strict=True))
    return [owned.get(i) for i in range(len(words))]


def merge_shared(words: Sequence[Span], owned: Sequence[range | None]) -> list[Span]:
    """Returns the words, each merged with the words after it that share its tokens."""
    merged: list[Span] = []
    for (start, end), numbers in zip(words, owned, strict=True):
        merged.append((merged.pop()[0] if numbers is None else start, end))
    return merged


@dataclass(frozen=True)
class TableWords:
    """The words of a table. A sentence is the list of its rows, in reading order."""

    words: list[str]  # of each row
    spaces: list[bool] | None  # whether a space follows the word of each row
    documents: list[list[list[int]]]  # the sentences of each document

    @property
    def sentences(self) -> list[list[int]]:
        return list(chain(*self.documents))


def read_words(
    table: Table,
    word: str,
    document: Sequence[str],
    sentence: Sequence[str],
    position: str | None,
    space_after: str | None,
    language: str,
) -> TableWords:
    """Reads the words of a table; `esnlm.score_words` describes the arguments.

    Prints how many documents and sentences they are.
    """
    words = [cell.strip() for cell in table.texts(word)]
    if "" in words:
        where = table.where(words.index(""))
        raise InputError(f"{where}: no word in column {word!r}: leave the row out")
    spaces = None if space_after is None else read_spaces(table, space_after)
    documents = order_rows(table, document, sentence, position)
    if not sentence:
        split = _load_splitter(words, language)
        documents = [_split_document(words, spaces, rows, split) for (rows,) in documents]
    table_words = TableWords(words, spaces, documents)
    sentences = table_words.sentences
    info(
        f"{counted(len(words), 'word')} in {counted(len(documents), 'document')} and"
        f" {counted(len(sentences), 'sentence')}, the longest of {max(map(len, sentences))} words"
    )
    lower = [rows for rows in sentences if words[rows[0]][0].islower()]
    if lower and not sentence:
        beginning = " ".join(words[row] for row in lower[0][:5])
        info(
            f"{counted(len(lower), 'sentence')} in lower case at the beginning, first"
            f" {beginning!r} ({table.where(lower[0][0])}): if Punkt is wrong, name columns that"
            " identify sentences (--sentence)"
        )
    return table_words


def _load_splitter(words: Sequence[str], language: str) -> Callable[[str], list[str]]:
    """Returns Punkt's function that splits a text into sentences."""
    if not separator_of(words):
        raise InputError(
            "Punkt finds no end of a sentence in a script without spaces: name columns that"
            " identify sentences (--sentence)"
        )
    if (parameters := load_punkt(language)) is None:
        raise InputError(
            f"no Punkt data for {language}: get NLTK's punkt_tab, or name columns that identify"
            " sentences (--sentence)"
        )
    return punkt_splitter(parameters)


def _split_document(
    words: Sequence[str],
    spaces: Sequence[bool] | None,
    rows: Sequence[int],
    split: Callable[[str], list[str]],
) -> list[list[int]]:
    """Returns the rows of each sentence of a document.

    A quotation that ends like a sentence does not end one before a word in lower case.
    """
    separators = [" " if spaces is None or spaces[row] else "" for row in rows]
    joined = join([words[row] for row in rows], separators)
    numbers = dict(zip(rows, sentence_numbers(joined, split), strict=True))
    sentences: list[list[int]] = []
    for _, group in groupby(rows, numbers.__getitem__):
        part = list(group)
        before = "".join(words[row] for row in sentences[-1]) if sentences else ""
        if words[part[0]][0].islower() and QUOTED_END.search(before):
            sentences[-1] += part
        else:
            sentences.append(part)
    return sentences


def sentence_numbers(joined: JoinedSentence, split: Callable[[str], list[str]]) -> list[int]:
    """Returns the number of the sentence that has the first character of each word.

    `split` splits a text into sentences.
    """
    text, ends = joined.text, [0]
    for sentence in split(text):
        ends.append(text.index(sentence, ends[-1]) + len(sentence))
    return [bisect(ends, start) for start, _ in joined.words or []]


def word_form(word: str) -> str:
    """Returns a word in lower case without punctuation at its edges; "" if it is punctuation."""
    first, end = bare_span(word)
    return word[first:end].lower()


def count_forms(store: TokenStore, tokenizer: Tokenizer) -> Counter[str]:
    """Counts the words of a store, which white space separates, by their forms."""
    spelled = [tokenizer.decode_bytes([i]) for i in range(tokenizer.vocab_size)]
    spelled[tokenizer.bos] = spelled[tokenizer.eos] = b"\n"  # no word continues past its sentence
    words = Counter[str]()
    edges = [*store.offsets[:-1:BLOCK_SENTENCES].tolist(), len(store.tokens)]
    for first, end in pairwise(edges):
        block = b"".join(map(spelled.__getitem__, store.tokens[first:end].tolist()))
        words.update(block.decode("utf-8", errors="replace").split())
    forms = Counter[str]()
    for word, count in words.items():
        forms[word_form(word)] += count
    del forms[""]
    return forms


def log_frequencies(
    forms: Iterable[str], store: TokenStore, tokenizer: Tokenizer
) -> list[float | None]:
    """Returns the log-frequency of each form in the text of a store; None for the form "".

    For the count c of a form among n words of t forms it is log10((c + 1) / ((n + t) / 10^6)) + 3.
    """
    counts = count_forms(store, tokenizer)
    millions = (counts.total() + len(counts)) / 1e6
    return [math.log10((counts[form] + 1) / millions) + 3 if form else None for form in forms]
