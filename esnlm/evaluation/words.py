"""Words: those of a table, as documents of sentences in reading order, and those of a training text,
with their frequencies on the Zipf scale (van Heuven et al. 2014)."""

import math
import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

from esnlm.base.console import counted, info
from esnlm.base.errors import InputError
from esnlm.data.sentences import load_punkt, punkt_splitter
from esnlm.data.store import TokenStore
from esnlm.data.tables import Table
from esnlm.data.tokenizer import Tokenizer
from esnlm.evaluation.surprisal import JoinedSentence, bare_span, join, separator_of

POSITIONS = ("word_number", "ia_id", "zone", "position")  # columns of positions, in lower case
NO_SPACE = ("no", "false", "0", "0.0", "0,0")  # in lower case
# The end of a quotation that is a sentence, as in '"Stop!" he cried.'
QUOTED_END = re.compile("[.?!…][\"'”’»›“‘«‹]+$")
BLOCK_SENTENCES = 1 << 12  # sentences decoded at a time, to bound the memory


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
    spaces = None if space_after is None else _read_spaces(table, space_after)
    documents = _order_rows(table, document, sentence, position)
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


def _read_spaces(table: Table, column: str) -> list[bool]:
    """Returns whether a space follows the word of each row: not if the cell is No or has
    SpaceAfter=No."""
    cells = [str(cell).strip().lower() for cell in table.column(column)]
    spaces = [cell not in NO_SPACE and "spaceafter=no" not in cell.split("|") for cell in cells]
    if all(spaces):
        raise InputError(
            f"{table.name}: no cell of column {column!r} says that no space follows its word: write"
            " No, False, 0 or SpaceAfter=No there, or leave out --space-after"
        )
    return spaces


def _order_rows(
    table: Table, document: Sequence[str], sentence: Sequence[str], position: str | None
) -> list[list[list[int]]]:
    """Returns the rows of each sentence of each document, in the order of their positions.

    Without `sentence`, each document is one sentence.
    """
    columns = [*document, *sentence]
    keys, document_keys = table.keys(columns), table.keys(document)
    sentences = _group(keys)
    name, positions = _read_positions(table, columns, position)
    is_scattered = (
        len(positions) > 0 and len(set(keys)) < len(sentences) and len(keys) < 2 * len(sentences)
    )
    if is_scattered:
        sentences = _group(keys, is_scattered)
    numbers = _group([document_keys[rows[0]] for rows in sentences], is_scattered)
    documents = [[sentences[number] for number in group] for group in numbers]
    if not positions:
        return documents
    for rows in sentences:
        rows.sort(key=positions.__getitem__)
        for before, row in pairwise(rows):
            if positions[before] == positions[row]:
                unit = "sentence" if sentence else "document"
                raise InputError(
                    f"{table.where(row)}: {name} {positions[row]} occurs twice in a {unit}: name"
                    f" all columns that identify {'sentences and ' if sentence else ''}documents"
                    " (readers, too), or another --position, or --position none"
                )
    for parts in documents:
        rows = list(chain(*parts))
        if len({positions[row] for row in rows}) == len(rows):  # they count through the document
            parts.sort(key=lambda rows: positions[rows[0]])
    moved = [list(chain(*parts)) for parts in documents]
    if count := sum(rows != sorted(rows) for rows in moved):
        info(
            f"{counted(count, 'document')} not in the order of {name}: read in that order; rows"
            " keep their places"
        )
    return documents


def _group(keys: Sequence[Hashable], is_scattered: bool = False) -> list[list[int]]:
    """Returns the indices of equal keys: of neighbours, or of all keys if they are scattered."""
    if not is_scattered:
        return [list(group) for _, group in groupby(range(len(keys)), keys.__getitem__)]
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _read_positions(
    table: Table, columns: Sequence[str], position: str | None
) -> tuple[str, list[int]]:
    """Returns the name and the values of the column of positions; no values if it has none."""
    names = {str(name).lower(): name for name in table.rows[0] if name not in columns}
    name = position or next((names[each] for each in POSITIONS if each in names), "none")
    if name == "none":
        return name, []
    try:
        return name, list(map(int, table.numbers(name)))
    except (ValueError, TypeError, OverflowError) as error:
        if position is None:
            return name, []
        raise InputError(
            f"{table.name}: column {name!r} does not hold positions of words: {error}"
        ) from None


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
