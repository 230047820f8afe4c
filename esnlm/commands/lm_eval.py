"""Runs lm-evaluation-harness with a trained run: all options are the harness's own, as `lm-eval run --help` lists them.

    esnlm lm-eval --model_args run=DIR --tasks blimp
    esnlm lm-eval --model_args run=DIR,step=500 --tasks mine --include_path tasks/ --output_path results/

model_args:
  run=DIR             the run directory
  step=N              a checkpoint, or best (default: the newest that is good)
  untrained=True      the model before its first update, a baseline
  add_bos_token=True  BOS before contexts that are not empty, too
  max_length=N, max_gen_toks=N, seed=N
"""

import argparse

from esnlm.commands.base import accept_settings
from esnlm.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    accept_settings(parser)


def run(options: argparse.Namespace) -> None:
    try:
        from esnlm.interchange.lm_eval import run_command_line
    except ImportError as error:
        raise InputError(f"lm-evaluation-harness is needed ({error}): pip install 'esnlm[lm-eval]'") from None

    run_command_line(options.overrides)
