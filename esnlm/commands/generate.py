"""Generates text with a trained run."""

import argparse

from esnlm.commands.base import STEP, step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--run", required=True, metavar="DIR", help="the run directory")
    add("--prompt", default="", help="text to continue (default: none)")
    add("--count", type=int, default=1, help="number of continuations (default: %(default)s)")
    add("--length", type=int, default=50, help="maximum number of tokens (default: %(default)s)")
    add(
        "--temperature",
        type=float,
        default=1.0,
        help="0 picks the most probable token (default: %(default)s)",
    )
    add("--top-k", type=int, help="sample from the TOP_K most probable tokens (default: all)")
    add("--seed", type=int, default=0, help="seed of the sampling (default: %(default)s)")
    add("--step", type=step, metavar="N", help=STEP)


def run(options: argparse.Namespace) -> None:
    from esnlm.base.console import working
    from esnlm.loaded_run import load

    settings = {
        name: getattr(options, name) for name in ("count", "length", "temperature", "top_k", "seed")
    }
    with working(f"loading {options.run}"):
        loaded = load(options.run, options.step)
    with working("generating"):
        texts = loaded.generate(options.prompt, **settings)
    for text in texts:
        print(options.prompt + text)
