"""Converts sentences to token ids, and log-probabilities of tokens to those of sentences."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from esnlm.base.console import ShowProgress, counted
from esnlm.base.errors import InputError, warn_caller
from esnlm.data.text_files import INVISIBLE, code_point
from esnlm.evaluation import conventions
from esnlm.models.ngrams import NgramModel


class ScorableRun(Protocol):
    """The interface of a run for scoring."""

    @property
    def name(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def directory(self) -> Path: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def longest(self) -> int | None: ...
    def token_log_probs_of(
        self,
        sequences: list[np.ndarray],
        progress: ShowProgress = False,
        *,
        group: np.ndarray | None = None,
    ) -> list[np.ndarray]: ...
    def unigram(self) -> NgramModel | None: ...


GIVE_TEXT = "give a text (pandas keeps words such as 'NA' with dtype=str, keep_default_na=False)"


def list_texts(sentences: Iterable[str]) -> list[str]:
    """Returns a list of texts. Warns of line ends, as in lines of a file, and invisible characters.

    Raises:
        InputError: the argument is a single text, or an element is not a text.
    """
    if isinstance(sentences, str):
        raise InputError("sentences is one text: give a list of texts")
    texts = list(sentences)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"sentence {i} is {text!r}: {GIVE_TEXT}")
    with_line_end = [i for i, text in enumerate(texts) if text.endswith(("\n", "\r"))]
    if with_line_end:
        warn_caller(
            f"line ends after {counted(len(with_line_end), 'sentence')}, first after sentence"
            f" {with_line_end[0]}, are read as tokens; strip them"
        )
    matches = [(i, match) for i, text in enumerate(texts) if (match := INVISIBLE.search(text))]
    if matches:
        first, match = matches[0]
        warn_caller(
            f"invisible characters in {counted(len(matches), 'sentence')}, first"
            f" {code_point(match[0])} in sentence {first}, are read as separate tokens; remove them"
        )
    return texts


def is_blank(text: str) -> bool:
    """Returns whether a text is empty or all white space, and so has no log-probability."""
    return not text.strip()


def encode(sentences: Sequence[str], tokenizer: Any, scoring: str) -> list[np.ndarray]:
    """Encodes n sentences under a convention, as one int32 array (T,) each. All ids after the first
    are scored.

    Text that looks like a special token stays ordinary text. A sequence of fewer than two ids has
    nothing to score: an empty sentence under `no-eos`, and an empty sentence or one token under
    `without-bos`.

    Raises:
        InputError: the convention is unknown.
    """
    convention = conventions.get(scoring)
    before = [tokenizer.bos] if convention.bos else []
    after = [tokenizer.eos] if convention.eos else []
    texts = [" " + sentence for sentence in sentences] if convention.space else sentences
    return [np.array(before + list(ids) + after, np.int32) for ids in tokenizer.encode_batch(texts)]


def describe_unscored(sequences: Sequence[np.ndarray], scoring: str) -> str | None:
    """Returns a warning if a convention scores no token of some sentences, else None."""
    unscored = sum(len(ids) < 2 for ids in sequences)
    if not unscored:
        return None
    what = "empty" if conventions.get(scoring).bos else "empty or one token"
    return (
        f"{unscored} of {len(sequences)} sentences are {what}, which {scoring} does not score:"
        " their log-probability is 0, the highest possible; choose another scoring"
    )


def sum_log_probs(token_log_probs: Iterable[np.ndarray]) -> np.ndarray:
    """Returns log p of each sequence given its first id, (n,) float64 in nats, from log p of its
    tokens, (T - 1,).

    A sequence with nothing to score has log-probability 0, the empty product. math.fsum rounds
    once, at the end, so the sum does not depend on the order of terms: a unigram model ties on two
    orders of the same words, as it should.
    """
    return np.array([_sum(np.asarray(terms, np.float64)) for terms in token_log_probs], np.float64)


def _sum(terms: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):  # the sum of both infinities is NaN, as it should be
        return math.fsum(terms) if np.isfinite(terms).all() else float(terms.sum())


def check_defined(token_log_probs: Sequence[np.ndarray], run: Path, step: int) -> None:
    """Raises InputError if a log-probability is not a number, before another program uses it."""
    undefined = sum(
        bool(np.isnan(each).any() or np.isposinf(each).any()) for each in token_log_probs
    )
    if undefined:
        raise InputError(
            f"{run}: {undefined} of {len(token_log_probs)} texts have a log-probability that is not"
            f" a number at step {step}: the run has diverged; try another --step"
        )
