"""Generates text with a trained run."""

import argparse

from esnlm.base.console import spinner
from esnlm.commands.arguments import RUN, STEP, Argument, load_run

ARGUMENTS = [
    RUN,
    Argument("--prompt", default="", help="text to continue (default: none)"),
    Argument("--count", type=int, default=1, help="number of continuations (default: %(default)s)"),
    Argument(
        "--length", type=int, default=50, help="maximum number of tokens (default: %(default)s)"
    ),
    Argument(
        "--temperature",
        type=float,
        default=1.0,
        help="0 picks the most probable token (default: %(default)s)",
    ),
    Argument("--top-k", type=int, help="sample from the TOP_K most probable tokens (default: all)"),
    Argument("--seed", type=int, default=0, help="seed of the sampling (default: %(default)s)"),
    STEP,
]


def run(args: argparse.Namespace) -> None:
    loaded = load_run(args)
    with spinner("generating"):
        texts = loaded.generate(
            args.prompt,
            count=args.count,
            length=args.length,
            temperature=args.temperature,
            top_k=args.top_k,
            seed=args.seed,
        )
    for text in texts:
        print(args.prompt + text)
