"""Word frequencies of a training text, on the Zipf scale (van Heuven et al. 2014)."""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from esnlm.data.store import TokenStore
from esnlm.data.tokenizer import Tokenizer
from esnlm.evaluation.surprisal import bare_span

BLOCK_SENTENCES = 1 << 12  # sentences decoded at a time, to bound the memory


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
