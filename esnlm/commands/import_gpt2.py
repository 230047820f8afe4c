"""Imports a GPT-2 in Hugging Face's format as a run."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    files = "folder with config.json, model.safetensors and the tokenizer's files"
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=files)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="run directory to create"
    )


def run(options: argparse.Namespace) -> None:
    from esnlm.base.console import working
    from esnlm.commands.gpt2_import import import_gpt2

    with working(f"importing {options.folder}"):
        experiment = import_gpt2(options.folder, options.out)
    print(f"{experiment.model.title} is in {options.out}")
