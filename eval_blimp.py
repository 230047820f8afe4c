"""Scores minimal pairs with a trained run, the same as `esnlm blimp`: python eval_blimp.py --run
DIR [--data PATH ...]"""

import sys
from collections.abc import Sequence

from esnlm.commands import run_command


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command("blimp", arguments, "python eval_blimp.py")


if __name__ == "__main__":
    sys.exit(main())
