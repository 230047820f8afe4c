"""esnlm: echo state network language models at scale.

run = esnlm.load("runs/quickstart")
run.log_probs(["The cats sleep."])

docs/library.md teaches all of it, from a reservoir in the hand to a run that is trained from Python.
"""

from typing import TYPE_CHECKING, Any

from esnlm.errors import InputError
from esnlm.versions import ESNLM as __version__  # noqa: F401

if TYPE_CHECKING:  # for editors and type checkers; see __getattr__
    from esnlm.config import Experiment
    from esnlm.library.language_model import LanguageModel
    from esnlm.library.readout import Readout
    from esnlm.library.reservoir import Reservoir
    from esnlm.library.text import prepare, tokenizer
    from esnlm.library.train import train
    from esnlm.loaded_run import Run, load
    from esnlm.reservoir.functions import activation, update_rule
    from esnlm.reservoir.topology.function import topology

__all__ = [
    "Experiment",
    "InputError",
    "LanguageModel",
    "Readout",
    "Reservoir",
    "Run",
    "activation",
    "load",
    "prepare",
    "tokenizer",
    "topology",
    "train",
    "update_rule",
]


# JAX takes a second or two to start. Whoever only prepares text or asks for --help does not wait for it, so each name is
# imported when it is first asked for.
_HOMES = {
    "Experiment": "esnlm.config:Experiment",
    "LanguageModel": "esnlm.library.language_model:LanguageModel",
    "Readout": "esnlm.library.readout:Readout",
    "Reservoir": "esnlm.library.reservoir:Reservoir",
    "Run": "esnlm.loaded_run:Run",
    "activation": "esnlm.reservoir.functions:activation",
    "load": "esnlm.loaded_run:load",
    "prepare": "esnlm.library.text:prepare",
    "tokenizer": "esnlm.library.text:tokenizer",
    "topology": "esnlm.reservoir.topology.function:topology",
    "train": "esnlm.library.train:train",
    "update_rule": "esnlm.reservoir.functions:update_rule",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from pkgutil import resolve_name

        return resolve_name(_HOMES[name])
    raise AttributeError(f"module 'esnlm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
