"""esnlm: echo state network language models at scale.

run = esnlm.load("runs/quickstart")
run.log_probs(["The cats sleep."])

docs/library.md is a tutorial, from drawing a single reservoir to training a run from Python.
"""

from typing import TYPE_CHECKING, Any

from esnlm.base.errors import InputError
from esnlm.base.versions import ESNLM as __version__  # noqa: F401

if TYPE_CHECKING:  # for editors and type checkers; see __getattr__
    from esnlm.api.readout import Readout as Readout
    from esnlm.api.reservoir import Reservoir as Reservoir
    from esnlm.api.train import prepare as prepare
    from esnlm.api.train import tokenizer as tokenizer
    from esnlm.api.train import train as train
    from esnlm.api.word_table import score_words as score_words
    from esnlm.loaded_run import Run as Run
    from esnlm.loaded_run import load as load
    from esnlm.reservoir.functions import activation as activation
    from esnlm.reservoir.functions import update_rule as update_rule
    from esnlm.reservoir.topology import topology as topology
    from esnlm.training.config import Experiment as Experiment

# JAX takes a second or two to start. Each name is imported at its first use, so that --help and
# preparing text do not wait for JAX.
_HOMES = {
    "Experiment": "esnlm.training.config:Experiment",
    "Readout": "esnlm.api.readout:Readout",
    "Reservoir": "esnlm.api.reservoir:Reservoir",
    "Run": "esnlm.loaded_run:Run",
    "activation": "esnlm.reservoir.functions:activation",
    "load": "esnlm.loaded_run:load",
    "prepare": "esnlm.api.train:prepare",
    "score_words": "esnlm.api.word_table:score_words",
    "tokenizer": "esnlm.api.train:tokenizer",
    "topology": "esnlm.reservoir.topology:topology",
    "train": "esnlm.api.train:train",
    "update_rule": "esnlm.reservoir.functions:update_rule",
}
__all__ = ["InputError", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from pkgutil import resolve_name

        return resolve_name(_HOMES[name])
    raise AttributeError(f"module 'esnlm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
