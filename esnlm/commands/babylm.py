"""Writes the prediction files of BabyLM's zero-shot evaluation, as its pipeline would for a causal model."""

import argparse

from esnlm.commands.base import SEVERAL, step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--data", required=True, metavar="DIR", help="the pipeline's folder full_eval or fast_eval")
    add("--out", metavar="DIR", help="the folder of results (default: RUN/evaluation/babylm)")
    add("--model-name", metavar="NAME", help="the model's folder in it (default: the name of the run)")
    add("--sets", **SEVERAL, metavar="SET", help="such as blimp_filtered, ewok_fast (default: all in the data)")
    which = parser.add_mutually_exclusive_group()
    one = "this checkpoint, or best (default: the newest, as revision main)"
    which.add_argument("--step", type=step, metavar="N", help=one)
    checkpoints = "those at 1M, 2M, ... words, as chck_1M, chck_2M, ..."
    which.add_argument("--checkpoints", action="store_true", help=checkpoints)
    bare = "no BOS before a text, as with a tokenizer that adds none; its first token is not scored"
    add("--without-bos", dest="bos", action="store_false", help=bare)
    add("--overwrite", action="store_true", help="replace predictions that are there")


def run(options: argparse.Namespace) -> None:
    from esnlm.interchange.babylm import evaluate_babylm

    evaluate_babylm(**vars(options))
