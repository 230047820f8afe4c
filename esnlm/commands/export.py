"""Exports a run as a Hugging Face folder, for transformers, minicons and BabyLM's pipeline."""

import argparse
from pathlib import Path

from esnlm.commands.base import STEP, step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder to create")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=step, metavar="N", help=STEP)
    every = (
        "export each checkpoint of training.checkpoint_words to a folder in FOLDER, named as"
        " BabyLM's branches"
    )
    which.add_argument("--checkpoints", action="store_true", help=every)
    add("--overwrite", action="store_true", help="replace an earlier export")


def run(options: argparse.Namespace) -> None:
    from esnlm.interchange.huggingface.export import export, export_checkpoints

    if options.checkpoints:
        for name, step in export_checkpoints(options.run, options.out, options.overwrite).items():
            print(f"update {step:,} is in {options.out / name}")
    else:
        found = export(options.run, options.out, options.step, options.overwrite)
        print(f"{found.config.model.title}, update {found.step:,}, is in {options.out}")
