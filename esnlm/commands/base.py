"""What every command does with its arguments and its end: exit status, and errors in one line."""

import argparse
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from esnlm.commands.allocator import keep_freed_memory
from esnlm.errors import InputError
from esnlm.runs.atomic import ADVICE, refusal


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, without the usage; no abbreviations."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see --help)\n")


def exit_with(main: Callable[[], int | None]) -> int:
    """Runs a command and returns its exit status: main's own, 2 after one line on stderr for an InputError, 130 for Ctrl-C."""
    keep_freed_memory()
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        return main() or 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # from where no file is named: a result that cannot be written, say
        if error.errno not in ADVICE:
            raise
        print(f"error: {refusal(error, error.filename or 'a file')}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(
            f"error: not enough memory: {error or 'no more is given'}; ask for less (train.py --plan shows the need)",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130
