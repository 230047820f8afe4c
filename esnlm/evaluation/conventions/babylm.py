"""The convention of the BabyLM 2025 evaluation pipeline: the sentence and nothing else."""

from esnlm.evaluation.conventions.base import Convention

CONVENTION = Convention(
    name="babylm",
    description="the sentence alone, without BOS, EOS or leading space; its first token only conditions and is not "
    "scored; a tie is wrong (BabyLM 2025's own code leaves ties to argmax)",
    bos=False,  # the pipeline adds no BOS, and neither does GPT-2's tokenizer
    space=False,
    eos=False,
    tie_is_right=False,
)
