"""Sentences in Python: a tokenizer for them, and token stores of them."""

import re
from collections.abc import Sequence
from pathlib import Path

from esnlm.data.encode import write_sentences
from esnlm.data.store import TokenStore
from esnlm.data.tokenizer import (
    WORD_PATTERN,
    Tokenizer,
    load_tokenizer,
    train_bpe,
    word_tokenizer,
)
from esnlm.errors import require
from esnlm.evaluation.sequences import list_texts
from esnlm.io.remote import is_url


def tokenizer(spec: str | Path | Tokenizer, sentences: Sequence[str] = ()) -> Tokenizer:
    """Returns a tokenizer: one that is there, or one made of sentences.

    Args:
        spec: "words": a closed list of the words of the sentences, which with the 256 bytes spell any other text;
            "train:N": a BPE of N ids, trained on the sentences (it needs esnlm[text]); "gpt2", or a folder or file, as `esnlm prepare` takes
            them; or a tokenizer.
        sentences: of which it is made.

    Raises:
        InputError: there is no such tokenizer, or too little text for N ids.

    Example:
        tokenizer = esnlm.tokenizer("words", ["the cats sleep.", "a dog barks."])
        tokenizer.vocab_size, tokenizer.encode("the dog")
    """
    if isinstance(spec, Tokenizer):
        return spec
    require(isinstance(spec, str | Path), f"tokenizer is {spec!r}: give 'words', 'train:N', 'gpt2', a folder or a file")
    if spec == "words":
        lines = require_sentences(sentences)
        pieces = {piece for line in lines for piece in re.findall(WORD_PATTERN, line) if not piece.isspace()}
        return word_tokenizer(sorted(pieces))
    if str(spec).startswith("train:"):
        number = str(spec).removeprefix("train:")
        require(number.isdecimal(), f"tokenizer {spec!r}: give the number of ids to train, as in train:8192")
        lines = require_sentences(sentences)
        return train_bpe(lines, int(number))
    return load_tokenizer(spec)


def prepare(
    sentences: Sequence[str], out: str | Path, *, tokenizer: str | Path | Tokenizer, overwrite: bool = False
) -> TokenStore:
    """Writes a token store of sentences, which `data: {kind: store, train: OUT}` and `run.likelihood` read.

    Each text is a sentence, kept as it is. `esnlm prepare` makes stores of files, and splits them into sentences.

    Args:
        sentences: texts.
        out: the folder of the store.
        tokenizer: as the function `tokenizer` takes it.
        overwrite: whether to replace a token store.

    Raises:
        InputError: there are no sentences, `out` is a URL, or something is there that is not to be lost.

    Example:
        esnlm.prepare(["The cats sleep.", "A dog barks."], "stores/small", tokenizer="words")
    """
    require_folder(out)
    lines = require_sentences(sentences)
    return write_sentences(Path(out), lines, make_tokenizer(tokenizer, lines), overwrite=overwrite)


def require_folder(place: str | Path) -> None:
    """Raises InputError for a URL, where sentences that are given in Python would be written to a folder of that name here."""
    require(
        not is_url(place),
        f"{place}: give a folder of this machine, and copy it there (esnlm prepare --out takes a URL)",
    )


def require_sentences(sentences: Sequence[str]) -> list[str]:
    """Returns a list of texts.

    Raises:
        InputError: one of them is no text, or there are none.
    """
    lines = list_texts(sentences)
    require(len(lines) > 0, "there are no sentences: give at least one")
    return lines


make_tokenizer = tokenizer  # for `prepare`, whose argument has the same name
