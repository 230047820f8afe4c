"""Writes prediction files for BabyLM's zero-shot evaluation, as its pipeline does for causal
models."""

import argparse

from esnlm.commands.arguments import OVERWRITE, RUN, SEVERAL, STEP, Argument, OneOf, local_path

ARGUMENTS = [
    RUN,
    Argument(
        "--data",
        required=True,
        metavar="DIR",
        help="the folder full_eval or fast_eval of the pipeline",
    ),
    Argument(
        "--out",
        type=local_path,
        metavar="DIR",
        help="folder for the predictions (default: RUN/evaluation/babylm)",
    ),
    Argument(
        "--model-name",
        metavar="NAME",
        help="name of the model's folder inside --out (default: the name of the run)",
    ),
    Argument(
        "--sets",
        **SEVERAL,
        metavar="SET",
        help="data sets, e.g. blimp_filtered ewok_fast (default: all in --data)",
    ),
    OneOf(
        STEP,
        Argument(
            "--checkpoints",
            action="store_true",
            help="score the checkpoints at 1M, 2M, ... words, as revisions chck_1M, chck_2M, ..."
            " (default: the newest, as revision main)",
        ),
    ),
    Argument(
        "--without-bos",
        dest="bos",
        action="store_false",
        help="no BOS before each text, as with tokenizers that add none; the first token is then"
        " not scored",
    ),
    OVERWRITE,
]


def run(args: argparse.Namespace) -> None:
    from esnlm.interchange.babylm import evaluate_babylm

    evaluate_babylm(
        args.run,
        args.data,
        args.out,
        args.model_name,
        args.sets,
        args.step,
        args.checkpoints,
        args.bos,
        args.overwrite,
        args.command,
    )
