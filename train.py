"""Trains a language model; the same as `esnlm train`.

python train.py                                            the quickstart: a corpus of its own, a
minute or two python train.py --config FILE [--section.key value ...]    an experiment; the command
line wins over the file python train.py --config FILE --plan                       parameters,
memory, disk and time; trains nothing python train.py --config FILE --allow-change KEY ...
resumes although these settings are not as they were
"""

import sys
from collections.abc import Sequence

from esnlm.commands import run_command


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command("train", arguments, "python train.py")


if __name__ == "__main__":
    sys.exit(main())
