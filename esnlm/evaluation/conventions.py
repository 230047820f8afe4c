"""Three ways in use to turn a sentence into a log-probability; a score means little without the name of its own.

In all three the first id of the sequence only conditions, and log p(s) sums over every id after it, in nats, without
length normalisation. They differ in what stands before and after the sentence, and in what a tie is worth.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esnlm.errors import InputError

# Takes int32 id sequences (T,) and gives log p(w_{t+1} | w_1 .. w_t), (T - 1,) in nats, of each.
TokenLogProbs = Callable[[list[np.ndarray]], Iterable[np.ndarray]]


@dataclass(frozen=True)
class Convention:
    name: str
    bos: bool  # BOS stands first and conditions only; without it the sentence's own first token does
    space: bool  # a space is put before the sentence, so that its first word is encoded as inside a text
    eos: bool  # EOS stands last and is scored
    tie_is_right: bool  # a pair of equal log-probabilities
    description: str


CONVENTIONS = {
    convention.name: convention
    for convention in (
        Convention(
            "paper",
            bos=True,
            space=False,
            eos=True,
            tie_is_right=False,
            description="BOS, the sentence, EOS; no leading space; every token after BOS is scored, EOS included; "
            "a tie is wrong",
        ),
        Convention(
            "lm-eval",
            bos=True,
            space=True,
            eos=False,
            tie_is_right=True,
            description="BOS, a space, the sentence; no EOS; every token after BOS is scored; argmax over (good, bad), "
            "so that a tie is right (lm-evaluation-harness)",
        ),
        # The pipeline calls the tokenizer with no BOS of its own, and GPT-2's adds none: hence no BOS here.
        Convention(
            "babylm",
            bos=False,
            space=False,
            eos=False,
            tie_is_right=False,
            description="the sentence alone, without BOS, EOS or leading space; its first token only conditions and "
            "is not scored; a tie is wrong (BabyLM 2025's own code leaves ties to argmax)",
        ),
    )
}


def convention(scoring: str) -> Convention:
    """The convention of that name. Raises InputError for a name that is none."""
    if scoring not in CONVENTIONS:
        raise InputError(f"scoring {scoring!r} is not known: choose one of {', '.join(CONVENTIONS)}")
    return CONVENTIONS[scoring]


def encode(sentences: Sequence[str], tokenizer: Any, scoring: str) -> list[np.ndarray]:
    """One int32 id sequence (T,) a sentence; every id after the first is to be scored: T - 1 predictions.

    The text is ordinary text: no piece of it becomes a special token. A sequence of fewer than two ids has nothing to
    score and log-probability 0, the empty product. That happens to empty and one-token sentences under `babylm` only:
    the others give an empty sentence [BOS, EOS] and [BOS, space].

    Raises InputError for an unknown scoring.
    """
    how = convention(scoring)
    before = [tokenizer.bos] if how.bos else []
    after = [tokenizer.eos] if how.eos else []
    texts = [" " + sentence for sentence in sentences] if how.space else list(sentences)
    return [np.array(before + list(ids) + after, np.int32) for ids in tokenizer.encode_batch(texts)]


def sequence_log_probs(sequences: Sequence[np.ndarray], token_log_probs_of: TokenLogProbs) -> np.ndarray:
    """log p of each id sequence given its first id, (n,) float64 in nats; 0 where nothing is scored.

    math.fsum rounds once, at the end, so a sum does not depend on the order of its terms: a unigram model ties on two
    orders of the same words, as it should, instead of deciding by rounding.
    """
    scored = [i for i, ids in enumerate(sequences) if len(ids) > 1]
    totals = np.zeros(len(sequences))
    for i, terms in zip(scored, token_log_probs_of([sequences[i] for i in scored]), strict=True):
        values = np.asarray(terms, np.float64)
        with np.errstate(invalid="ignore"):  # the sum of both infinities is NaN, as it should be
            totals[i] = math.fsum(values) if np.isfinite(values).all() else values.sum()
    return totals


def log_probs(sentences: Sequence[str], tokenizer: Any, scoring: str, token_log_probs_of: TokenLogProbs) -> np.ndarray:
    """log p(s) of each sentence under a convention, (n,) float64 in nats. Raises InputError for an unknown scoring."""
    return sequence_log_probs(encode(sentences, tokenizer, scoring), token_log_probs_of)
