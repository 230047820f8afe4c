"""Splits lines into sentences, with NLTK's Punkt.

For each candidate (a `.`, `?` or `!` followed by text), Punkt decides from the words around it
whether a sentence ends there. These decisions take nearly all its time, and the same contexts
recur: `punkt_splitter` caches them, and leaves the rest to NLTK. The result is the same as NLTK's.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.base.errors import InputError

if TYPE_CHECKING:  # NLTK is an extra and takes a second to import
    from nltk.tokenize.punkt import PunktParameters

REMEMBERED = 1 << 16  # contexts, and words
LONGEST_REMEMBERED = 64  # characters, so that text without spaces cannot fill the memory


def load_punkt(language: str, folder: Path | None = None) -> "PunktParameters | None":
    """Loads pretrained Punkt parameters. Returns None if this machine has none for the language.

    Searches `folder` for `punkt_tab/LANGUAGE`, `LANGUAGE` or `tokenizers/punkt_tab/LANGUAGE`;
    without a `folder`, searches NLTK's own layout in every folder of `nltk.data.path`.

    Raises InputError if `folder` has none, or a file is damaged.
    """
    _nltk_punkt()
    import nltk.data

    layouts = ("tokenizers/punkt_tab", "punkt_tab", ".") if folder else ("tokenizers/punkt_tab",)
    for root in [folder] if folder else nltk.data.path:
        for layout in layouts:
            place = Path(root, layout, language)
            if (place / "abbrev_types.txt").is_file():
                return _read_punkt(place)
    if folder:
        raise InputError(f"{folder}: no Punkt data for language {language!r}")
    return None


def train_punkt(texts: Iterable[str]) -> "PunktParameters":
    """Learns Punkt parameters from `texts` without supervision (Kiss and Strunk 2006, in NLTK's
    implementation)."""
    trainer = _nltk_punkt().PunktTrainer(**_untimed_classes())
    for text in texts:
        trainer.train(text, finalize=False)
    return trainer.get_params()


def punkt_splitter(parameters: "PunktParameters") -> Callable[[str], list[str]]:
    """Returns a function from a line to its sentences: a faster
    `PunktSentenceTokenizer(parameters).tokenize`."""
    splitter = _nltk_punkt().PunktSentenceTokenizer(parameters, **_untimed_classes())
    plain_decision = splitter.text_contains_sentbreak

    @lru_cache(REMEMBERED)
    def first_pass(word: str) -> Any:
        token = splitter._Token(word)
        splitter._first_pass_annotation(token)
        return token

    def ends_sentence(token: Any, following: Any) -> bool:
        if not token.period_final:  # the second pass only changes tokens that end in a period
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


def _nltk_punkt() -> Any:
    try:
        from nltk.tokenize import punkt
    except ImportError:
        raise InputError("splitting sentences needs nltk: pip install 'esnlm[text]'") from None
    return punkt


def _untimed_classes() -> dict[str, Any]:
    """Returns NLTK's pattern and token classes without the time limits of NLTK 3.10, which take a
    third of our time."""
    punkt: Any = _nltk_punkt()

    def untimed(pattern: Any) -> Any:
        return getattr(pattern, "_rx", pattern)

    class Patterns(punkt.PunktLanguageVars):
        re_boundary_realignment = untimed(punkt.PunktLanguageVars.re_boundary_realignment)

        def period_context_re(self) -> Any:
            return untimed(super().period_context_re())

        def word_tokenize(self, s: str) -> list[str]:
            return untimed(self._word_tokenizer_re()).findall(s)

    class Token(punkt.PunktToken):
        __slots__ = ()
        _RE_ELLIPSIS = untimed(punkt.PunktToken._RE_ELLIPSIS)
        _RE_NUMERIC = untimed(punkt.PunktToken._RE_NUMERIC)
        _RE_INITIAL = untimed(punkt.PunktToken._RE_INITIAL)
        _RE_ALPHA = untimed(punkt.PunktToken._RE_ALPHA)

    return {"lang_vars": Patterns(), "token_cls": Token}


def _read_punkt(folder: Path) -> "PunktParameters":
    # Not nltk's load_punkt_params, which since 3.10 rejects folders outside nltk.data.path.
    from nltk.tabdata import PunktDecoder

    decoder, parameters = PunktDecoder(), _nltk_punkt().PunktParameters()
    try:
        for name, decode in (
            ("abbrev_types.txt", decoder.txt2set),
            ("sent_starters.txt", decoder.txt2set),
            ("collocations.tab", lambda file: set(decoder.tab2tups(file))),
            ("ortho_context.tab", decoder.tab2intdict),
        ):
            with open(folder / name, encoding="utf-8") as file:
                setattr(parameters, name.partition(".")[0], decode(file))
    except (OSError, ValueError, IndexError) as error:
        raise InputError(
            f"{folder / name}: missing or damaged ({error}); install punkt_tab again"
        ) from None
    return parameters
