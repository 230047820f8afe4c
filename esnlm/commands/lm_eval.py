"""Runs lm-evaluation-harness on a trained run, with the options of `lm-eval run --help`.

    esnlm lm-eval --model_args run=DIR --tasks blimp
    esnlm lm-eval --model_args run=DIR,step=500 --tasks mine --include_path tasks/

model_args:
  run=DIR             the run directory
  step=N              checkpoint to load, or best (default: the newest undamaged one)
  untrained=True      the model before its first update, as a baseline
  add_bos_token=True  BOS also before non-empty contexts
  max_length=N, max_gen_toks=N, seed=N
"""

import argparse
import re
import sys
import warnings

from esnlm.base.errors import InputError
from esnlm.commands.arguments import AnySetting

ARGUMENTS = [AnySetting()]


def run(args: argparse.Namespace) -> None:
    """Runs the harness's own command line with `esnlm` as its default model."""
    try:
        from lm_eval.__main__ import cli_evaluate

        import esnlm.interchange.lm_eval  # noqa: F401  registers the model
    except ImportError as error:
        raise InputError(
            f"lm-evaluation-harness is needed ({error}): pip install 'esnlm[lm-eval]'"
        ) from None

    words = args.overrides
    if words and words[0] not in ("run", "ls", "validate"):
        words = ["run", *words]
    names_model = any(re.match("(-M|--model|-C|--config)(=|$)", word) for word in words)
    if words[:1] == ["run"] and not names_model:
        words = [*words, "--model", "esnlm"]
    arguments, sys.argv = sys.argv, ["lm-eval", *words]  # the harness reads its arguments there
    try:
        with warnings.catch_warnings():
            # JAX warns when the harness calls git.
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            cli_evaluate()
    except InputError:
        raise
    except (ValueError, OSError) as error:  # for example an unknown task, or no network
        raise InputError(f"lm-evaluation-harness: {error}") from error
    finally:
        sys.argv = arguments
