"""Scores minimal pairs, as `esnlm blimp` does: python eval_blimp.py --run DIR [--data PATH ...]"""

import sys

from esnlm.commands import run_command

if __name__ == "__main__":
    sys.exit(run_command("blimp", program="python eval_blimp.py"))
