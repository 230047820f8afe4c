"""Makes a token store from raw text files."""

import argparse
from pathlib import Path

from esnlm.commands.base import SEVERAL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    inputs = (
        "text files (also .gz, .bz2, .xz, .zst, .jsonl, .parquet, .csv), folders, patterns, or"
        " hf:NAME"
    )
    add("--input", dest="inputs", **SEVERAL, required=True, metavar="PATH", help=inputs)
    add(
        "--field",
        default="text",
        help="field or column with the text in records (default: %(default)s)",
    )
    add(
        "--skip-missing", action="store_true", help="leave out records without text, and count them"
    )
    add("--out", type=Path, required=True, metavar="DIR", help="token store to create")
    add(
        "--tokenizer",
        default="gpt2",
        help="gpt2, a folder or tokenizer.json, or train:8192 (default: %(default)s)",
    )
    rule = (
        "punkt splits each line into sentences, line keeps lines, file ignores line ends (default:"
        " %(default)s)"
    )
    add("--sentences", choices=("punkt", "line", "file"), default="punkt", help=rule)
    add("--language", help="language of the Punkt model (default: english)")
    add(
        "--punkt-data",
        type=Path,
        metavar="DIR",
        help="folder of Punkt's data, if not on NLTK's own path",
    )
    add(
        "--min-length",
        type=int,
        default=6,
        help="drop sentences of fewer tokens, BOS to EOS (default: %(default)s)",
    )
    add(
        "--max-length",
        type=int,
        default=512,
        help="cut sentences of more tokens, BOS to EOS (default: %(default)s)",
    )
    add("--max-words", type=int, help="keep about this many words, the same share of each file")
    add("--workers", type=int, help="number of processes (default: one per core)")
    add("--overwrite", action="store_true", help="replace an existing store")


def run(options: argparse.Namespace) -> None:
    from esnlm.data.prepare import prepare

    del options.command
    prepare(**vars(options))
