"""esnlm: echo state network language models at scale.

run = esnlm.load("runs/quickstart")
run.log_probs(["The cats sleep."])
"""

from typing import Any

from esnlm.errors import InputError

__all__ = ["InputError", "Run", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # JAX takes a second or two to start. Whoever only prepares text or asks for --help does not wait for it.
    if name in ("load", "Run"):
        from esnlm import loaded_run

        return getattr(loaded_run, name)
    raise AttributeError(f"module 'esnlm' has no attribute {name!r}")
