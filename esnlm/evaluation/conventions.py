"""The scoring conventions: how a sentence becomes a sequence of ids, and how a tie counts.

A score means little without the name of its convention. To add a convention, add it to the list.
`encode` converts sentences to ids, and `sum_log_probs` log-probabilities of tokens to those of
sentences. The commands import this file for --help, so it imports NumPy inside functions only.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from esnlm.base.console import ShowProgress, counted
from esnlm.base.errors import InputError, warn_caller
from esnlm.data.tables import GIVE_TEXT
from esnlm.data.text_files import INVISIBLE, code_point

if TYPE_CHECKING:
    import numpy as np

    from esnlm.data.store import TokenStore
    from esnlm.models.ngrams import NgramModel


@dataclass(frozen=True)
class Convention:
    """A way to turn a sentence into a log-probability.

    In every convention, the first id of the sequence is only a condition. log p(s) is the sum over
    all later ids, in nats, without normalization by length.
    """

    name: str  # for --scoring
    description: str  # for reports
    # BOS comes first; without it, the first token of the sentence is the condition
    bos: bool = True
    # a space precedes the sentence, so that its first word is encoded as inside a text
    space: bool = False
    eos: bool = False  # EOS comes last and is scored
    tie_is_right: bool = True  # whether a pair of equal log-probabilities counts as right


_LIST = [
    # The whole sentence with both ends. Ueda et al. 2025a only name BLiMP; scoring EOS and the rule
    # of ties are [ours].
    Convention(
        name="paper",
        description=(
            "BOS, the sentence, EOS; no leading space; every token after BOS is scored, EOS"
            " included; a tie is wrong"
        ),
        eos=True,
        tie_is_right=False,
    ),
    # For prefixes such as "The keys to the cabinet are", after which EOS is improbable however good
    # the prefix is.
    Convention(
        name="no-eos",
        description=(
            "BOS, the sentence or its beginning; no leading space, no EOS; every token after BOS is"
            " scored; a tie is wrong"
        ),
        tie_is_right=False,
    ),
    Convention(
        name="lm-eval",
        description=(
            "BOS, a space, the sentence; no EOS; every token after BOS is scored; argmax over"
            " (good, bad), so that a tie is right (lm-evaluation-harness)"
        ),
        space=True,
    ),
    Convention(
        name="babylm",
        description=(
            "BOS, the sentence; no leading space, no EOS; every token after BOS is scored; argmax"
            " over (good, bad), so that a tie is right (BabyLM's pipeline on an exported run)"
        ),
    ),
    # The pipeline on a model whose tokenizer adds no BOS, such as GPT-2's.
    Convention(
        name="without-bos",
        description=(
            "the sentence alone, without BOS, EOS or leading space; its first token only conditions"
            " and is not scored; argmax over (good, bad), so that a tie is right"
        ),
        bos=False,
    ),
]
CONVENTIONS = {convention.name: convention for convention in _LIST}
NORMALIZATIONS = ("none", "tokens", "bytes")  # divisors of log p


def get(scoring: str) -> Convention:
    """Returns the convention of this name. Raises InputError for an unknown name."""
    if scoring not in CONVENTIONS:
        raise InputError(
            f"scoring {scoring!r} is not known: choose one of {', '.join(CONVENTIONS)}"
        )
    return CONVENTIONS[scoring]


class Predictor(Protocol):
    """The interface of a model that predicts tokens."""

    @property
    def tokenizer(self) -> Any: ...
    @property
    def max_length(self) -> int | None: ...
    def token_log_probs_of_ids(
        self,
        sequences: "list[np.ndarray]",
        *,
        progress: ShowProgress = False,
        group: "np.ndarray | None" = None,
    ) -> "list[np.ndarray]": ...


class ScorableRun(Predictor, Protocol):
    """The interface of a run for scoring."""

    @property
    def name(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def directory(self) -> Path: ...
    def cached_log_probs(
        self,
        text: "TokenStore",
        by_document: bool,
        *,
        progress: ShowProgress = False,
        group: "np.ndarray | None" = None,
    ) -> "np.ndarray": ...
    def unigram(self) -> "NgramModel | None": ...


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


def encode(sentences: Sequence[str], tokenizer: Any, scoring: str) -> "list[np.ndarray]":
    """Encodes n sentences under a convention, as one int32 array (T,) each. All ids after the first
    are scored.

    Text that looks like a special token stays ordinary text. A sequence of fewer than two ids has
    nothing to score: an empty sentence under `no-eos`, and an empty sentence or one token under
    `without-bos`.

    Raises:
        InputError: the convention is unknown.
    """
    import numpy as np

    convention = get(scoring)
    before = [tokenizer.bos] if convention.bos else []
    after = [tokenizer.eos] if convention.eos else []
    texts = [" " + sentence for sentence in sentences] if convention.space else sentences
    return [np.array(before + list(ids) + after, np.int32) for ids in tokenizer.encode_batch(texts)]


def describe_unscored(sequences: "Sequence[np.ndarray]", scoring: str) -> str | None:
    """Returns a warning if a convention scores no token of some sentences, else None."""
    unscored = sum(len(ids) < 2 for ids in sequences)
    if not unscored:
        return None
    what = "empty" if get(scoring).bos else "empty or one token"
    return (
        f"{unscored} of {len(sequences)} sentences are {what}, which {scoring} does not score:"
        " their log-probability is 0, the highest possible; choose another scoring"
    )


def sum_log_probs(token_log_probs: "Iterable[np.ndarray]") -> "np.ndarray":
    """Returns log p of each sequence given its first id, (n,) float64 in nats, from log p of its
    tokens, (T - 1,).

    A sequence with nothing to score has log-probability 0, the empty product. math.fsum rounds
    once, at the end, so the sum does not depend on the order of terms: a unigram model ties on two
    orders of the same words, as it should.
    """
    import numpy as np

    sums = []
    for token_terms in token_log_probs:
        terms = np.asarray(token_terms, np.float64)
        with np.errstate(invalid="ignore"):  # the sum of both infinities is NaN, as it should be
            sums.append(math.fsum(terms) if np.isfinite(terms).all() else float(terms.sum()))
    return np.array(sums, np.float64)


def check_defined(token_log_probs: "Sequence[np.ndarray]", run: Path, step: int) -> None:
    """Raises InputError if a log-probability is not a number, before another program uses it."""
    import numpy as np

    undefined = sum(
        bool(np.isnan(each).any() or np.isposinf(each).any()) for each in token_log_probs
    )
    if undefined:
        raise InputError(
            f"{run}: {undefined} of {len(token_log_probs)} texts have a log-probability that is not"
            f" a number at step {step}: the run has diverged; try another --step"
        )
