"""Trains a language model, as `esnlm train` does: python train.py [--config FILE] [--help]"""

import sys

from esnlm.commands import run_command

if __name__ == "__main__":
    sys.exit(run_command("train", program="python train.py"))
