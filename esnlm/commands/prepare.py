"""Makes a token store from raw text files."""

import argparse
from pathlib import Path

from esnlm.commands.arguments import OVERWRITE, SEVERAL, Argument, local_path

ARGUMENTS = [
    Argument(
        "--input",
        dest="inputs",
        **SEVERAL,
        required=True,
        metavar="PATH",
        help="text files (also .gz, .bz2, .xz, .zst, .jsonl, .parquet, .csv), folders, patterns, or"
        " hf:NAME",
    ),
    Argument(
        "--field",
        default="text",
        help="field or column with the text in records (default: %(default)s)",
    ),
    Argument(
        "--skip-missing", action="store_true", help="leave out records without text, and count them"
    ),
    Argument("--out", type=local_path, metavar="DIR", required=True, help="token store to create"),
    Argument(
        "--tokenizer",
        default="gpt2",
        help="gpt2, a folder or tokenizer.json, or train:8192 (default: %(default)s)",
    ),
    Argument(
        "--sentences",
        choices=("punkt", "line", "file"),
        default="punkt",
        help="punkt splits each line into sentences, line keeps lines, file ignores line ends"
        " (default: %(default)s)",
    ),
    Argument("--language", help="language of the Punkt model (default: english)"),
    Argument(
        "--punkt-data",
        type=Path,
        metavar="DIR",
        help="folder of Punkt's data, if not on NLTK's own path",
    ),
    Argument(
        "--min-length",
        type=int,
        default=6,
        help="drop sentences of fewer tokens, BOS to EOS (default: %(default)s)",
    ),
    Argument(
        "--max-length",
        type=int,
        default=512,
        help="cut sentences of more tokens, BOS to EOS (default: %(default)s)",
    ),
    Argument(
        "--max-words", type=int, help="keep about this many words, the same share of each file"
    ),
    Argument("--workers", type=int, help="number of processes (default: one per core)"),
    OVERWRITE,
]


def run(args: argparse.Namespace) -> None:
    from esnlm.data.prepare import prepare

    prepare(
        args.inputs,
        args.out,
        tokenizer=args.tokenizer,
        sentences=args.sentences,
        language=args.language,
        punkt_data=args.punkt_data,
        min_length=args.min_length,
        max_length=args.max_length,
        max_words=args.max_words,
        field=args.field,
        skip_missing=args.skip_missing,
        workers=args.workers,
        overwrite=args.overwrite,
    )
