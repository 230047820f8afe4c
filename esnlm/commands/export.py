"""Exports a run as a Hugging Face folder, for transformers, minicons and BabyLM's pipeline."""

import argparse

from esnlm.commands.arguments import OVERWRITE, RUN, STEP, Argument, OneOf, local_path

ARGUMENTS = [
    RUN,
    Argument("--out", type=local_path, metavar="DIR", required=True, help="folder to create"),
    OneOf(
        STEP,
        Argument(
            "--checkpoints",
            action="store_true",
            help="export each checkpoint of training.checkpoint_words to a folder inside --out,"
            " named as BabyLM's branches",
        ),
    ),
    OVERWRITE,
]


def run(args: argparse.Namespace) -> None:
    from esnlm.interchange.huggingface.export import export, export_checkpoints

    if args.checkpoints:
        for name, step in export_checkpoints(args.run, args.out, args.overwrite).items():
            print(f"update {step:,} is in {args.out / name}")
    else:
        loaded = export(args.run, args.out, args.step, args.overwrite)
        print(f"{loaded.config.model.title}, update {loaded.step:,}, is in {args.out}")
