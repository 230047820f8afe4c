"""From the shell to an answer: the time of whole commands on a run, beside that of `import jax`.

    python benchmarks/start.py --run runs/quickstart

`score` prints the log-probabilities of two sentences, `generate` one continuation of 20 tokens. The
floor is `import jax`. They take turns, after one uncounted turn, so that compiled programs are in
the cache (docs/machines.md). Writes start.json and .md under --out.
"""

import argparse
import subprocess
import sys
from functools import partial

import measure

from esnlm.base.errors import InputError

SENTENCES = "The cats sleep.\nThe cat sleep.\n"


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__, rounds=9)
    parser.add_argument("--run", required=True, help="a trained run")
    args = parser.parse_args(arguments)
    record = measure.begin()
    seconds, failures = measure.interleave(commands(args), args.rounds)
    if failures:
        raise InputError(f"--run {args.run}: {', '.join(failures)} failed, as said above")
    record["commands"] = measure.compare(seconds, "import jax")
    head = ["", "s", "least", "most", "more than import jax, s"]
    floor = record["commands"]["import jax"]["median_s"]
    cells = [
        [name, r["median_s"], r["min_s"], r["max_s"], r["median_s"] - floor]
        for name, r in record["commands"].items()
    ]
    measure.write(
        args.out, "start", "From the shell to an answer", measure.table(head, cells), record
    )
    return record


def commands(args: argparse.Namespace) -> dict[str, measure.Contender]:
    """Returns a function for each command, which runs it in a process of its own."""
    esnlm = [sys.executable, "-m", "esnlm"]
    given = {
        "import jax": [sys.executable, "-c", "import jax"],
        "score": [*esnlm, "score", "--run", args.run],
        "generate": [*esnlm, "generate", "--run", args.run, "--length", "20"],
    }
    run = partial(subprocess.run, input=SENTENCES, check=True, text=True, stdout=subprocess.DEVNULL)
    return {name: lambda _, command=command: run(command) for name, command in given.items()}


if __name__ == "__main__":
    measure.as_command(main)
