"""The command: python -m experiments.bottleneck FILE [--small] [--out DIR]."""

import sys
from pathlib import Path

from esnlm.commands.base import Parser
from esnlm.process import exit_with
from experiments.bottleneck.study import run_file


def main() -> None:
    parser = Parser("python -m experiments.bottleneck", description="Runs a study of Utsunomiya 2025 on bottlenecks.")
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a study, such as those in experiments/bottleneck/studies")
    add("--small", action="store_true", help="take the sizes of the file's section `small`, for two cores")
    add("--out", type=Path, metavar="DIR", help="where the results go (default: studies/NAME)")
    options = parser.parse_args()
    run_file(options.file, options.out, options.small)


if __name__ == "__main__":
    sys.exit(exit_with(main))
