"""The registry of scoring conventions."""

import pytest

from esnlm.errors import InputError
from esnlm.evaluation import conventions


def test_only_lm_eval_calls_a_tie_right():
    assert [name for name, convention in conventions.CONVENTIONS.items() if convention.tie_is_right] == ["lm-eval"]


def test_an_unknown_convention_is_named():
    with pytest.raises(
        InputError, match="^scoring 'blimp' is not known: choose one of paper, no-eos, lm-eval, babylm$"
    ):
        conventions.get("blimp")
