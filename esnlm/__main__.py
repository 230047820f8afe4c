"""Runs `python -m esnlm COMMAND ...`, the same as `esnlm COMMAND ...`."""

import sys

from esnlm.commands import main

if __name__ == "__main__":
    sys.exit(main(program="python -m esnlm"))
