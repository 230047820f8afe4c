"""Raw text to sentences: files to checked lines, and lines to sentences with NLTK's Punkt.

Punkt looks at each candidate (a `.`, `?` or `!` with something after it) and decides from the words around it whether
a sentence ends there. Nearly all its time goes into these decisions, and the same contexts come again and again:
`punkt_splitter` remembers them, and leaves everything else to NLTK. The outcome is NLTK's own.
"""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from esnlm.errors import InputError

CHUNK = 1 << 20  # bytes
LONGEST_LINE = 4 << 20  # bytes; a line is split as a whole

# The languages of NLTK's data package punkt_tab.
LANGUAGES = (
    "czech danish dutch english estonian finnish french german greek italian malayalam norwegian polish portuguese "
    "russian slovene spanish swedish turkish"
).split()

REMEMBERED = 1 << 16  # contexts, and words
LONGEST_REMEMBERED = 64  # characters, so that text without spaces cannot fill the memory


def read_chunks(path: Path, seen: Callable[[bytes], object] = lambda block: None) -> Iterator[str]:
    """The text of a file in pieces of about a megabyte that end where lines end.

    Line ends (\\n, \\r\\n, \\r) all become \\n; a byte order mark at the start is dropped. `seen` is called with each
    block of the file's bytes as it is read, for a hash or a count.

    Raises InputError, naming line and byte offset, where the file is not UTF-8 text or a line is longer than 4 MB.
    """
    offset, rest = 0, b""  # rest: the start of a line whose end is not read yet, at offset
    with _open(path) as file:
        while block := file.read(CHUNK):
            seen(block)
            data = rest + block
            end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r"))
            if end:
                yield _decode(path, offset, data[:end])
            offset, rest = offset + end, data[end:]
            if len(rest) > LONGEST_LINE:
                raise InputError(
                    f"{path}:{_line_number(path, offset)}: a line longer than {LONGEST_LINE >> 20} MB at byte {offset}; "
                    "put one paragraph or sentence on a line"
                )
    if rest:
        yield _decode(path, offset, rest)


def split_lines(text: str) -> list[str]:
    """The lines of a chunk that have something in them, without white space at either end."""
    return [line for line in map(str.strip, text.split("\n")) if line]


def read_lines(path: Path | None) -> list[str]:
    """All lines of a text file, or of standard input for None, without white space at either end; blank ones too, so
    that line i of the outcome is line i of the file.

    Raises InputError where the file cannot be read or is not UTF-8 text.
    """
    if path is not None:
        text = "".join(read_chunks(path))
    else:
        text = _decode(Path("<stdin>"), 0, sys.stdin.buffer.read())
    return [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []


def load_punkt(language: str, folder: Path | None = None):
    """Pretrained Punkt parameters of `language`, or None where this machine has none for a language of NLTK's.

    Looks in `folder`, which holds `punkt_tab/LANGUAGE`, `LANGUAGE` or `tokenizers/punkt_tab/LANGUAGE`; without a
    `folder`, in NLTK's own layout in every folder of `nltk.data.path`.

    Returns NLTK's PunktParameters. Raises InputError if `folder` has none, if the language is neither found nor one
    of NLTK's, or if a file of the parameters is missing or damaged.
    """
    _nltk_punkt()
    import nltk.data

    if not language or not all(character.isalnum() or character in "-_" for character in language):
        raise InputError(f"language {language!r} is no name of a Punkt language; known: {', '.join(LANGUAGES)}")
    layouts = ("tokenizers/punkt_tab", "punkt_tab", ".") if folder else ("tokenizers/punkt_tab",)
    for root in [folder] if folder else nltk.data.path:
        for layout in layouts:
            place = Path(root, layout, language)
            if place.is_dir():
                return _read_punkt(place)
    if folder:
        raise InputError(
            f"{folder}: no Punkt data for language {language!r}: neither {language} nor punkt_tab/{language} nor "
            f"tokenizers/punkt_tab/{language} is in it; name another folder or language"
        )
    if language not in LANGUAGES:
        raise InputError(f"language {language!r}: no Punkt data of that name is found; known: {', '.join(LANGUAGES)}")
    return None


def train_punkt(texts: Iterable[str]):
    """PunktParameters learned without supervision from `texts`, by Kiss and Strunk (2006) as NLTK has it.

    The outcome depends on the texts and on where one ends and the next begins, and on nothing else.
    """
    punkt = _nltk_punkt()

    class Token(punkt.PunktToken):
        __slots__ = ()
        _RE_NUMERIC = _untimed(punkt.PunktToken._RE_NUMERIC)
        _RE_ELLIPSIS = _untimed(punkt.PunktToken._RE_ELLIPSIS)

    class Trainer(punkt.PunktTrainer):
        def _unique_types(self, tokens):
            # NLTK goes through a set, whose order differs from process to process, and so can the abbreviations found.
            return sorted(super()._unique_types(tokens))

    trainer = Trainer(lang_vars=_patterns(), token_cls=Token)
    for text in texts:
        trainer.train(text, finalize=False)
    return trainer.get_params()


def punkt_splitter(parameters) -> Callable[[str], list[str]]:
    """A function from a line to its sentences: NLTK's `PunktSentenceTokenizer(parameters).tokenize`, faster.

    A decision depends on nothing but its context and the parameters, so a remembered one is the same one.
    """
    splitter = _nltk_punkt().PunktSentenceTokenizer(parameters, lang_vars=_patterns())
    plain_decision = splitter.text_contains_sentbreak

    @lru_cache(REMEMBERED)
    def first_pass(word):
        token = splitter._Token(word)
        splitter._first_pass_annotation(token)
        return token

    def ends_sentence(token, following) -> bool:
        if not token.period_final:  # the second pass changes only tokens that end in a period
            return bool(token.sentbreak)
        before = token.sentbreak, token.abbr
        splitter._second_pass_annotation(token, following)
        after = bool(token.sentbreak)
        token.sentbreak, token.abbr = before  # the token is shared
        return after

    @lru_cache(REMEMBERED)
    def remembered_decision(context: str) -> bool:
        tokens = [first_pass(word) for word in splitter._lang_vars.word_tokenize(context)]
        return any(map(ends_sentence, tokens, tokens[1:]))

    def decision(context: str) -> bool:
        plain = len(context) > LONGEST_REMEMBERED or "\n" in context
        return plain_decision(context) if plain else remembered_decision(context)

    splitter.text_contains_sentbreak = decision
    return splitter.tokenize


def _nltk_punkt():
    try:
        from nltk.tokenize import punkt
    except ImportError:
        raise InputError(
            "splitting sentences needs nltk: pip install 'esnlm[text]', or give one sentence a line (--sentences line)"
        ) from None
    return punkt


def _untimed(pattern):
    # From 3.10 NLTK wraps its patterns so that each call ends after five seconds. That costs a third of our time, and
    # a line of megabytes overruns it. Before 3.10 they are plain patterns.
    return getattr(pattern, "_rx", pattern)


def _patterns():
    punkt = _nltk_punkt()

    class Patterns(punkt.PunktLanguageVars):
        re_boundary_realignment = _untimed(punkt.PunktLanguageVars.re_boundary_realignment)

        def period_context_re(self):
            return _untimed(super().period_context_re())

        def word_tokenize(self, s):
            return _untimed(self._word_tokenizer_re()).findall(s)

    return Patterns()


def _read_punkt(folder: Path):
    # Not by nltk's load_punkt_params: from 3.10 that refuses folders outside nltk.data.path.
    from nltk.tabdata import PunktDecoder

    def read(name: str, decode: Callable):
        path = folder / name
        try:
            with open(path, encoding="utf-8") as file:
                return decode(file)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; a Punkt language needs it: install punkt_tab again") from None
        except (ValueError, IndexError):
            raise InputError(f"{path}: damaged; install punkt_tab again") from None

    decoder, parameters = PunktDecoder(), _nltk_punkt().PunktParameters()
    parameters.abbrev_types = read("abbrev_types.txt", decoder.txt2set)
    parameters.sent_starters = read("sent_starters.txt", decoder.txt2set)
    parameters.collocations = set(read("collocations.tab", decoder.tab2tups))
    parameters.ortho_context = read("ortho_context.tab", decoder.tab2intdict)
    return parameters


def _open(path: Path):
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _decode(path: Path, offset: int, data: bytes) -> str:
    """The text of `data`, which lies at `offset` in the file."""
    if (nul := data.find(b"\0")) >= 0:
        line = _line_number(path, offset + nul)
        raise InputError(f"{path}:{line}: a NUL byte at byte {offset + nul}: not a text file in UTF-8")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        at, byte = offset + error.start, data[error.start]
        raise InputError(
            f"{path}:{_line_number(path, at)}: not UTF-8: 0x{byte:02x} at byte {at}; convert the file to UTF-8"
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removeprefix("\ufeff") if offset == 0 else text


def _line_number(path: Path, offset: int) -> int:
    """The line that holds the byte at `offset`, from 1."""
    line_ends = io.IncrementalNewlineDecoder(None, translate=True)
    number = 1
    with open(path, "rb") as file:
        while offset and (block := file.read(min(CHUNK, offset))):
            number += line_ends.decode(block.decode("latin-1")).count("\n")
            offset -= len(block)
    return number
