"""Runs lm-evaluation-harness on a trained run. All options are the harness's own (see `lm-eval run
--help`).

    esnlm lm-eval --model_args run=DIR --tasks blimp
    esnlm lm-eval --model_args run=DIR,step=500 --tasks mine --include_path tasks/ --output_path
    results/

model_args:
  run=DIR             the run directory
  step=N              checkpoint to load, or best (default: the newest undamaged one)
  untrained=True      the model before its first update, as a baseline
  add_bos_token=True  BOS also before non-empty contexts
  max_length=N, max_gen_toks=N, seed=N
"""

import argparse

from esnlm.base.errors import InputError
from esnlm.commands.arguments import AnySetting

ARGUMENTS = [
    AnySetting(),
]


def run(args: argparse.Namespace) -> None:
    try:
        from esnlm.interchange.lm_eval import run_command_line
    except ImportError as error:
        raise InputError(
            f"lm-evaluation-harness is needed ({error}): pip install 'esnlm[lm-eval]'"
        ) from None

    run_command_line(args.overrides)
