"""Peak memory and time of the largest updates: many long sentences, or very many units.

    python benchmarks/memory.py

Each case is a process of its own: it draws a reservoir, makes the windows and the readout's updates as training/loop.py
does, and reports its peak resident memory. "whole" holds the states of an update at once, as compute.window_tokens
allows where it is large enough; "in parts" is what the default for the device does.

Writes memory.json and .md under --out.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import measure
import numpy as np

from esnlm.allocator import keep_freed_memory
from esnlm.compute import ComputeConfig, choose_compute
from esnlm.config import Experiment
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import batches
from esnlm.training.precomputed import PrecomputedUpdates
from esnlm.training.update import make_optimizer

# (N, sentences, tokens each, window_tokens or None for the device's own)
CASES = {
    "N 65,536, 32 sentences of 512 tokens, in parts": (65_536, 32, 512, None),
    "N 65,536, 32 sentences of 512 tokens, whole": (65_536, 32, 512, 32 * 511),
    "N 2^20, 32 sentences of 21 tokens, in parts of 256": (2**20, 32, 21, None),
    "N 2^20, 4 sentences of 512 tokens, in parts": (2**20, 4, 512, None),
}


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=50_257, help="V")
    parser.add_argument("--rank", type=int, default=512, help="r")
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--divide", type=int, default=1, help="try it with N so many times smaller")
    parser.add_argument(
        "--topology", default="erdos_renyi", help="of W_rec; that of an orthogonal one needs no spectral radius"
    )
    parser.add_argument("--only", default="", help="a regular expression: the cases to run (default: all)")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    args = parser.parse_args(arguments)
    if args.case:
        print(json.dumps(run(CASES[args.case], args)))
        return {}
    record = {"command": measure.command(), "load_before": measure.load(), "machine": measure.machine(), "rows": {}}
    record |= {"vocab": args.vocab, "rank": args.rank}
    options = [f"--{name}={getattr(args, name)}" for name in ("vocab", "rank", "updates", "divide", "topology")]
    for case in filter(re.compile(args.only).search, CASES):
        done = subprocess.run([sys.executable, __file__, "--case", case, *options], capture_output=True, text=True)
        if done.returncode:
            row = {"failed": measure.one_line(RuntimeError(done.stderr.strip().splitlines()[-1:] or done.returncode))}
        else:
            row = json.loads(done.stdout.splitlines()[-1])
        record["rows"][case] = row
        print(case, row, flush=True)
    record["load_after"] = measure.load()
    measure.write(args.out, "memory", "Memory of the largest updates", markdown(record), record)
    return record


def run(case: tuple, args: argparse.Namespace) -> dict:
    keep_freed_memory()
    size, count, length, window_tokens = case
    size //= args.divide
    model = EchoStateConfig(
        reservoir=ReservoirConfig(size, TOPOLOGIES[args.topology]()), readout=ReadoutConfig(args.rank)
    )
    experiment = Experiment(model=model, compute=ComputeConfig(window_tokens=window_tokens))
    compute = choose_compute(experiment.compute, experiment.model, jax.default_backend())
    experiment = Experiment(model=model, compute=compute)
    began = time.perf_counter()
    frozen, _ = model.initialize_frozen(args.vocab, seed=0)
    drawn = time.perf_counter() - began
    built = model.initialize(args.vocab, 0, frozen)
    total = count * args.updates
    tokens = np.random.default_rng(0).integers(0, args.vocab, (total, length)).astype(np.int32)
    tokens[:, 0] = 0  # BOS
    text = SimpleNamespace(sentence=tokens.__getitem__, tokens=tokens.ravel(), offsets=np.arange(total + 1) * length)
    epoch = batches.plan_epoch(np.full(total, length), 0, 0, count, compute.window_tokens)
    params = built.params
    optimizer = make_optimizer(experiment.training, args.updates)
    updates = PrecomputedUpdates(
        model=built.for_device(compute),
        compute=compute,
        seed=0,
        store=text,
        epochs=[epoch],
        optimizer=optimizer,
        on_nonfinite="continue",
    )
    state, losses, seconds = optimizer.init(params), [], []
    for window in epoch.windows:
        began = time.perf_counter()
        updates.load(0, epoch, window)
        params, state, outcome = updates.run(params, state, 0, len(window))
        losses += np.asarray(outcome.losses)[: len(window)].tolist()
        seconds.append((time.perf_counter() - began) / len(window))
    return {
        "drawn_s": drawn,
        "window_tokens": compute.window_tokens,
        "predictions_an_update": int(epoch.tokens[0]),
        "trained_bytes": 16 * sum(array.size for array in jax.tree.leaves(params)),
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
        "reservoir drawn, s",
        "s an update",
        "first loss",
    ]
    cells = []
    for case, row in record["rows"].items():
        if "failed" in row:
            cells.append([case, row["failed"], *[""] * 5])
            continue
        sizes = (row[key] / 1e9 for key in ("peak_bytes", "trained_bytes", "states_bytes"))
        cells.append([case, *sizes, row["drawn_s"], row["s_an_update"], row["losses"][0]])
    return [
        f"V = {record['vocab']:,}, r = {record['rank']}, float32; the last of two updates, compiled in the first.",
        "",
        *measure.table(head, cells),
        "",
    ]


if __name__ == "__main__":
    main()
