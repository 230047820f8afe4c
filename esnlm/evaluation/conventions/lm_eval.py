"""The convention of lm-evaluation-harness: a continuation of BOS and a space."""

from esnlm.evaluation.conventions.base import Convention

CONVENTION = Convention(
    name="lm-eval",
    description="BOS, a space, the sentence; no EOS; every token after BOS is scored; argmax over (good, bad), so that "
    "a tie is right (lm-evaluation-harness)",
    bos=True,
    space=True,
    eos=False,
    tie_is_right=True,
)
