"""The scoring conventions: how a sentence becomes a sequence of ids, and how a tie counts.

A score means little without the name of its convention. To add a convention, add it to the list.
The commands import this file for --help, so it imports neither JAX nor NumPy.
"""

from dataclasses import dataclass

from esnlm.base.errors import InputError


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
