"""XLA's CPU compiler, asked to write several arrays in one pass over what they are made from.

On a CPU it makes each array of an AdamW step in a pass of its own, unless an option in the environment asks for one pass:
of a readout of GPT-2's vocabulary, 100 MB an array, seven are then read or written instead of ten. The commands, which own
their process, ask for it; the library itself asks for nothing.
"""

import os

OPTION = "xla_cpu_use_multi_output_fusion"


def fuse_outputs() -> None:
    """Asks for it, beside what XLA_FLAGS has. Nothing changes where that has such options of its own.

    Call it before JAX makes its first array: it reads them then.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_extra_options={OPTION}".strip()


def outputs_fused() -> bool:
    """Whether it was asked for."""
    return OPTION in os.environ.get("XLA_FLAGS", "")
