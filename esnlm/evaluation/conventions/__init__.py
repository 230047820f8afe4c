"""The registry of scoring conventions: how a sentence becomes a sequence of ids, and what a tie is worth.

A score means little without the name of its convention. To add one, write a file in this folder that defines CONVENTION
and name the file in MODULES. The command lines offer what is listed here, so nothing in this folder imports JAX.
"""

from importlib import import_module

from esnlm.errors import InputError
from esnlm.evaluation.conventions.base import Convention

MODULES = (
    "paper",
    "no_eos",
    "lm_eval",
    "babylm",
)
CONVENTIONS: dict[str, Convention] = {
    convention.name: convention
    for convention in (import_module(f"{__name__}.{module}").CONVENTION for module in MODULES)
}


def get(scoring: str) -> Convention:
    """Returns the convention of this name. Raises InputError for an unknown name."""
    if scoring not in CONVENTIONS:
        raise InputError(f"scoring {scoring!r} is not known: choose one of {', '.join(CONVENTIONS)}")
    return CONVENTIONS[scoring]
