"""Writes prediction files for BabyLM's zero-shot evaluation, as its pipeline does for causal
models."""

import argparse

from esnlm.commands.base import SEVERAL, step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add(
        "--data",
        required=True,
        metavar="DIR",
        help="the folder full_eval or fast_eval of the pipeline",
    )
    add("--out", metavar="DIR", help="folder for the predictions (default: RUN/evaluation/babylm)")
    add(
        "--model-name",
        metavar="NAME",
        help="name of the model's folder inside --out (default: the name of the run)",
    )
    add(
        "--sets",
        **SEVERAL,
        metavar="SET",
        help="data sets, e.g. blimp_filtered ewok_fast (default: all in --data)",
    )
    which = parser.add_mutually_exclusive_group()
    one = "checkpoint to score: a step, or best (default: the newest, as revision main)"
    which.add_argument("--step", type=step, metavar="N", help=one)
    checkpoints = "score the checkpoints at 1M, 2M, ... words, as revisions chck_1M, chck_2M, ..."
    which.add_argument("--checkpoints", action="store_true", help=checkpoints)
    bare = (
        "no BOS before each text, as with tokenizers that add none; the first token is then not"
        " scored"
    )
    add("--without-bos", dest="bos", action="store_false", help=bare)
    add("--overwrite", action="store_true", help="replace existing predictions")


def run(options: argparse.Namespace) -> None:
    from esnlm.interchange.babylm import evaluate_babylm

    evaluate_babylm(**vars(options))
