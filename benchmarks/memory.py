"""Peak memory and time of the largest updates: many long sentences, or very many units.

    python benchmarks/memory.py

Each case is a process of its own. It initializes a model, runs updates as training/loop.py does, and reports its peak
resident memory. "whole" holds the states of an update at once, which compute.window_tokens allows where it is large
enough. "in parts" is what the default for the device does.

Writes memory.json and .md under --out.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import time

import jax
import measure
import numpy as np
import untrained
from sentences import Text, as_store
from training import Esnlm

from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.training import batches

# (N, sentences, tokens each, window_tokens or None for the device's own)
CASES = {
    "N 65,536, 32 sentences of 512 tokens, in parts": (65_536, 32, 512, None),
    "N 65,536, 32 sentences of 512 tokens, whole": (65_536, 32, 512, 32 * 511),
    "N 2^20, 32 sentences of 21 tokens, in parts of 256": (2**20, 32, 21, None),
    "N 2^20, 4 sentences of 512 tokens, in parts": (2**20, 4, 512, None),
}


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--vocab", type=int, default=50_257, help="V")
    parser.add_argument("--rank", type=int, default=512, help="r")
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--divide", type=int, default=1, help="try it with N so many times smaller")
    parser.add_argument(
        "--topology", default="erdos_renyi", help="of W_rec; that of an orthogonal one needs no spectral radius"
    )
    parser.add_argument("--only", default="", help="a regular expression: the cases to run (default: all)")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.case:
        print(json.dumps(run(CASES[args.case], args)))
        return {}
    record = measure.begin() | {"vocab": args.vocab, "rank": args.rank, "rows": {}}
    options = [f"--{name}={getattr(args, name)}" for name in ("vocab", "rank", "updates", "divide", "topology")]
    for case in filter(re.compile(args.only).search, CASES):
        done = subprocess.run([sys.executable, __file__, "--case", case, *options], capture_output=True, text=True)
        if done.returncode:
            row = {"failed": measure.one_line(RuntimeError(done.stderr.strip().splitlines()[-1:] or done.returncode))}
        else:
            row = json.loads(done.stdout.splitlines()[-1])
        record["rows"][case] = row
        print(case, row, flush=True)
    measure.write(args.out, "memory", "Memory of the largest updates", markdown(record), record)
    return record


def run(case: tuple, args: argparse.Namespace) -> dict:
    """Returns what one case takes."""
    measure.set_up()
    size, count, length, window_tokens = case
    size //= args.divide
    began = time.perf_counter()
    topology = TOPOLOGIES[args.topology]()
    model = untrained.initialize(size, args.vocab, args.rank, topology=topology, window_tokens=window_tokens)
    initialized = time.perf_counter() - began
    compute, total = model.config.compute, count * args.updates
    tokens = np.random.default_rng(0).integers(0, args.vocab, (total, length)).astype(np.int32)
    tokens[:, 0] = 0  # BOS
    epoch = batches.plan_epoch(np.full(total, length), 0, 0, count, compute.window_tokens)
    own = Esnlm(model, Text(as_store(list(tokens)), [epoch], [(0, window) for window in epoch.windows]))
    losses, seconds = [], []
    for i, window in enumerate(epoch.windows):
        began = time.perf_counter()
        own.load(i)
        losses += own.run(i, len(window)).tolist()
        seconds.append((time.perf_counter() - began) / len(window))
    return {
        "initialized_s": initialized,
        "window_tokens": compute.window_tokens,
        "predictions_an_update": int(epoch.predictions[0]),
        "trained_bytes": 16 * sum(array.size for array in jax.tree.leaves(own.params)),
        "states_bytes": 4 * size * (compute.window_tokens + compute.batch_slots),
        "s_an_update": seconds[-1],
        "losses": losses,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def markdown(record: dict) -> list[str]:
    head = [
        "",
        "peak, GB",
        "readout, gradient and AdamW, GB",
        "states, GB",
        "initialized, s",
        "s an update",
        "first loss",
    ]
    cells = []
    for case, row in record["rows"].items():
        if "failed" in row:
            cells.append([case, row["failed"], *[""] * 5])
            continue
        sizes = (row[key] / 1e9 for key in ("peak_bytes", "trained_bytes", "states_bytes"))
        cells.append([case, *sizes, row["initialized_s"], row["s_an_update"], row["losses"][0]])
    return [
        f"V = {record['vocab']:,}, r = {record['rank']}, float32; the last of two updates, compiled in the first.",
        "",
        *measure.table(head, cells),
        "",
    ]


if __name__ == "__main__":
    measure.as_command(main)
