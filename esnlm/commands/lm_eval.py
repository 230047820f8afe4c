"""Runs tasks of lm-evaluation-harness with a trained run. With --data, BLiMP's tasks read local files, without a network."""

import argparse

from esnlm.commands.base import SEVERAL, STEP, step

HELP = "runs tasks of lm-evaluation-harness with a trained run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--tasks", required=True, **SEVERAL, metavar="TASK", help="names of tasks or groups, such as blimp")
    add("--data", **SEVERAL, metavar="PATH", help="BLiMP's .jsonl files, or their folder (default: downloaded)")
    add("--out", metavar="FILE", help="the results, .json (default: DIR/evaluation/lm-eval/TASKS.json)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=step, metavar="N", help=STEP)
    which.add_argument("--untrained", action="store_true", help="the model before its first update, a baseline")
    add("--num-fewshot", type=int, metavar="K", help="examples before each question (default: as the task says)")
    add("--limit", type=int, metavar="N", help="documents of a task at most, for a trial")
    add("--add-bos-token", action="store_true", help="put BOS before contexts that are not empty, too")
    add("--overwrite", action="store_true", help="replace results of another run, step or task")


def run(options: argparse.Namespace) -> None:
    from esnlm.workflows.lm_eval import evaluate_with_lm_eval

    settings = vars(options)
    settings["tasks"] = [name for names in options.tasks for name in names.split(",") if name]
    evaluate_with_lm_eval(**settings)
