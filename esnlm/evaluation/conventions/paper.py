"""The convention of the papers: the whole sentence with both of its ends (Ueda et al. 2025a).

The paper says no more than that it used BLiMP. That EOS is scored, and that a tie is wrong, are [ours].
"""

from esnlm.evaluation.conventions.base import Convention

CONVENTION = Convention(
    name="paper",
    description="BOS, the sentence, EOS; no leading space; every token after BOS is scored, EOS included; a tie is wrong",
    bos=True,
    space=False,
    eos=True,
    tie_is_right=False,
)
