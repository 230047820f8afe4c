"""Seconds and peak memory to initialize a reservoir.

    python benchmarks/build.py
    python benchmarks/build.py --sizes 4096 65536 --vocab 50257

Each size is initialized in a process of its own, so that its peak is its own. Writes build.json and .md under --out.
"""

import resource
import time

import measure

from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096, 16_384, 65_536])
    parser.add_argument("--vocab", type=int, default=50_257)
    args = parser.parse_args(arguments)
    record = measure.begin() | {"vocab": args.vocab, "rows": []}
    for size in args.sizes:
        process = measure.Apart(Builder)
        record["rows"].append(process.build(size, args.vocab))
        process.close()
        print(record["rows"][-1], flush=True)
    measure.write(args.out, "build", f"Initializing a reservoir, V = {args.vocab:,}, d = 32", markdown(record), record)
    return record


class Builder:
    """Initializes a reservoir in the process where it is."""

    def build(self, size: int, vocab_size: int) -> dict:
        """Returns what it takes."""
        before, began = peak_gigabytes(), time.monotonic()
        found = initialize_reservoir(ReservoirConfig(size), vocab_size, seed=0)
        return {
            "state_size": size,
            "seconds": time.monotonic() - began,
            "peak_gb": peak_gigabytes(),
            "peak_gb_before": before,
            "nonzeros": sum(found.reservoir.nonzeros),
            "radius_before_scaling": found.radii[0].radius,
            "method": found.radii[0].method,
        }


def peak_gigabytes() -> float:
    """Returns the most memory that this process has held so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9


def markdown(record: dict) -> list[str]:
    keys = ("state_size", "seconds", "peak_gb", "peak_gb_before", "nonzeros")
    head = ["N", "seconds", "peak memory, GB", "of it before", "nonzeros"]
    return measure.table(head, [[row[key] for key in keys] for row in record["rows"]])


if __name__ == "__main__":
    measure.as_command(main)
