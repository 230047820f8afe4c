"""A chunk of text becomes encoded sentences: lines, sentences, token ids, and their counts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from esnlm.data.sentences import punkt_splitter
from esnlm.data.text_files import split_lines
from esnlm.data.tokenizer import Tokenizer

if TYPE_CHECKING:  # NLTK is an extra
    from nltk.tokenize.punkt import PunktParameters

TOGETHER = 1000  # sentences that go to the tokenizer at once


class Encoded(NamedTuple):
    """Holds the sentences of a chunk, with the short ones that will be dropped. `tokens` has the other ones only."""

    tokens: np.ndarray  # (sum of kept lengths,) uint32
    lengths: np.ndarray  # (sentences,) int64, counting BOS and EOS, before the cut
    words: np.ndarray  # (sentences,) int64, after the cut
    bytes: np.ndarray  # (sentences,) int64, after the cut


def chunk_encoder(
    parameters: "PunktParameters | None",
    tokenizer: Tokenizer,
    min_length: int,
    max_length: int,
    across_lines: bool = False,
) -> Callable[[str], Encoded]:
    """Returns a function from a chunk of text to its encoded sentences.

    Args:
        parameters: of Punkt; None: a line is a sentence.
        tokenizer: gives the ids, and BOS and EOS around each sentence.
        min_length: tokens with BOS and EOS below which a sentence has no ids in the outcome.
        max_length: tokens with BOS and EOS above which a sentence is cut.
        across_lines: let Punkt split the chunk as one text, so that a sentence may hold line ends.
    """
    split = punkt_splitter(parameters) if parameters else lambda line: [line]
    no_ids, bos, eos = (np.array(ids, np.uint32) for ids in ([], [tokenizer.bos], [tokenizer.eos]))

    def encode(text: str) -> Encoded:
        pieces = [text.strip()] if across_lines else split_lines(text)
        sentences = [sentence for piece in pieces for sentence in split(piece)]
        tokens, lengths, words, sizes = [no_ids], [], [], []
        for start in range(0, len(sentences), TOGETHER):
            group = sentences[start : start + TOGETHER]
            for sentence, ids in zip(group, tokenizer.encode_lines(group), strict=True):
                lengths.append(len(ids) + 2)
                covered = sentence.encode()
                if len(ids) + 2 > max_length:
                    ids = ids[: max_length - 2]
                    covered = tokenizer.decode_bytes(ids)
                    sentence = covered.decode(errors="ignore")
                words.append(len(sentence.split()))
                sizes.append(len(covered))
                if len(ids) + 2 >= min_length:
                    tokens += bos, ids, eos
        return Encoded(np.concatenate(tokens), *(np.array(counts, np.int64) for counts in (lengths, words, sizes)))

    return encode
