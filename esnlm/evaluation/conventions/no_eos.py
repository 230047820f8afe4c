"""The convention for what is no whole sentence: BOS and the text, and nothing after it.

EOS after a prefix such as "The keys to the cabinet are" is improbable however good the prefix is. Here it is not scored.
"""

from esnlm.evaluation.conventions.base import Convention

CONVENTION = Convention(
    name="no-eos",
    description="BOS, the sentence or its beginning; no leading space, no EOS; every token after BOS is scored; a tie is "
    "wrong",
    bos=True,
    space=False,
    eos=False,
    tie_is_right=False,
)
