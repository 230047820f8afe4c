"""Makes a token store of raw text files."""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    inputs = "text files (.gz, .bz2, .xz, .zst, .jsonl, .parquet too), folders, patterns, or hf:NAME"
    add("--input", dest="inputs", **SEVERAL, required=True, metavar="PATH", help=inputs)
    add("--field", default="text", help="where a record of JSON lines or Parquet has its text (default: %(default)s)")
    add("--out", type=Path, required=True, metavar="DIR", help="the token store to make")
    add("--tokenizer", default="gpt2", help="gpt2, a folder or tokenizer.json, or train:8192 (default: %(default)s)")
    rule = "punkt splits each line, line takes it as it is, file splits without regard to lines (default: %(default)s)"
    add("--sentences", choices=("punkt", "line", "file"), default="punkt", help=rule)
    add("--language", help="of the Punkt model (default: english)")
    add("--punkt-data", type=Path, metavar="DIR", help="where Punkt's data lies, if not on NLTK's own path")
    add("--min-length", type=int, default=6, help="tokens with BOS and EOS; shorter are dropped (default: %(default)s)")
    add("--max-length", type=int, default=512, help="tokens with BOS and EOS; longer are cut (default: %(default)s)")
    add("--max-words", type=int, help="stop at about so many words, from each file its share")
    add("--workers", type=int, help="processes (default: one a core)")
    add("--overwrite", action="store_true", help="replace an existing store")


def run(options: argparse.Namespace) -> None:
    from esnlm.data.prepare import prepare

    del options.command
    prepare(**vars(options))
