"""The registry of scoring conventions."""

import subprocess
import sys

import pytest

from esnlm.errors import InputError
from esnlm.evaluation import conventions


def test_only_lm_eval_calls_a_tie_right():
    assert [name for name, convention in conventions.CONVENTIONS.items() if convention.tie_is_right] == ["lm-eval"]


def test_an_unknown_convention_is_named():
    with pytest.raises(InputError) as error:
        conventions.get("blimp")
    assert str(error.value) == "scoring 'blimp' is not known: choose one of paper, no-eos, lm-eval, babylm"


def test_a_command_line_that_offers_the_conventions_waits_for_neither_jax_nor_numpy():
    code = "import sys, esnlm.evaluation.conventions; assert not {'jax', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
