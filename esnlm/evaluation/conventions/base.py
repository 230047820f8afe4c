"""What a scoring convention fixes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Convention:
    """One way in use to turn a sentence into a log-probability.

    In every convention the first id of the sequence is only a condition. log p(s) is the sum over all ids after it, in
    nats and without normalization by length.
    """

    name: str  # as --scoring takes it
    description: str  # as reports show it
    bos: bool  # BOS stands first; without it the first token of the sentence is the condition
    space: bool  # a space is put before the sentence, so that its first word is encoded as inside a text
    eos: bool  # EOS stands last and is scored
    tie_is_right: bool  # whether a pair of equal log-probabilities counts as right
