"""Seconds and peak memory to draw a reservoir: python benchmarks/build.py [--sizes 4096 65536] [--vocab 50257]

Each size is drawn in a process of its own, so that its peak is its own. Writes results/build.json and results/build.md.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def build(size: int, vocab: int, pipe) -> None:
    from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    drawn = initialize_reservoir(ReservoirConfig(state_size=size), vocab, seed=0)
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send(
        {
            "state_size": size,
            "vocab_size": vocab,
            "seconds": round(seconds, 1),
            "peak_gb": round(peak * 1024 / 1e9, 2),
            "peak_gb_before": round(before * 1024 / 1e9, 2),
            "nonzeros": sum(drawn.reservoir.nonzeros),
            "radius_before_scaling": drawn.radii[0].radius,
            "method": drawn.radii[0].method,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096, 16_384, 65_536])
    parser.add_argument("--vocab", type=int, default=50_257)
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=build, args=(size, options.vocab, theirs))
        process.start()
        rows.append(ours.recv())
        process.join()
        print(rows[-1], file=sys.stderr)
    (RESULTS / "build.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        f"# Drawing a reservoir, V = {options.vocab:,}, d = 32",
        "",
        "| N | seconds | peak memory, GB | of it Python and JAX | nonzeros |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        lines.append(
            f"| {row['state_size']:,} | {row['seconds']} | {row['peak_gb']} | {row['peak_gb_before']} | {row['nonzeros']:,} |"
        )
    sizes = " ".join(map(str, options.sizes))
    lines += ["", f"`python benchmarks/build.py --sizes {sizes}`, two CPU cores, other work beside it"]
    (RESULTS / "build.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
