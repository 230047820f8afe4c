"""Peak memory and time of the largest updates: many long sentences, or very many units.

    python benchmarks/memory.py

Each case is a process of its own. It initializes a model, runs updates as a training does, and reports its peak resident
memory. "whole" holds the states of an update at once, which compute.window_tokens allows where it is large enough. "in parts"
is what the default for the device does.

Writes memory.json and .md under --out.
"""

import re
import resource
import time

import families
import jax
import measure
import numpy as np
from sentences import Text, as_store

from esnlm.config import Experiment
from esnlm.models.devices import choose_compute
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.topology import TOPOLOGIES
from esnlm.reservoir.weights import ReservoirConfig
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
        "--topology", default="orthogonal", choices=TOPOLOGIES, help="an orthogonal one has a known spectral radius"
    )
    parser.add_argument("--only", default="", help="a regular expression: the cases to run (default: all)")
    args = parser.parse_args(arguments)
    record = measure.begin() | {"vocab": args.vocab, "rank": args.rank, "rows": {}}
    for name in filter(re.compile(args.only).search, CASES):
        process = measure.Apart(Case, CASES[name], args)
        try:
            record["rows"][name] = process.measure()
        except RuntimeError as error:  # it may need more memory than there is
            record["rows"][name] = {"failed": measure.one_line(error)}
        process.close()
        print(name, record["rows"][name], flush=True)
    measure.write(args.out, "memory", "Memory of the largest updates", markdown(record), record)
    return record


class Case:
    """One model and its updates."""

    def __init__(self, case: tuple, args):
        self.case, self.args = case, args

    def measure(self) -> dict:
        """Returns what they take."""
        (size, count, length, window), args = self.case, self.args
        size //= args.divide
        reservoir = ReservoirConfig(size, TOPOLOGIES[args.topology](), mean_degree=min(32, size))
        experiment = Experiment(model=EchoStateConfig(reservoir=reservoir, readout=ReadoutConfig(args.rank)))
        compute = choose_compute(experiment.compute, experiment.model, jax.default_backend())
        window, total = window or compute.window_tokens, count * args.updates
        tokens = np.random.default_rng(0).integers(0, args.vocab, (total, length)).astype(np.int32)
        tokens[:, 0] = 0  # BOS
        epoch = batches.plan_epoch(np.full(total, length), 0, 0, count, window)
        text = Text(as_store(list(tokens)), [epoch], [(0, part) for part in epoch.windows])
        began = time.perf_counter()
        own = families.Family(experiment, text, window, args.vocab, len(epoch.windows[0]))
        ready = time.perf_counter()
        own.load(0)
        own.run(len(epoch.windows[0]))
        return {
            "ready_s": ready - began,
            "predictions_an_update": int(epoch.predictions[0]),
            "trained_bytes": 16 * sum(array.size for array in jax.tree.leaves(own.params)),
            "states_bytes": 4 * size * (window + compute.batch_slots),
            "s_an_update": (time.perf_counter() - ready) / len(epoch.windows[0]),
            "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }


def markdown(record: dict) -> list[str]:
    head = ["", "peak, GB", "readout, gradient and AdamW, GB", "states, GB", "until ready, s", "s an update"]
    cells = []
    for name, row in record["rows"].items():
        if "failed" in row:
            cells.append([name, row["failed"], *[""] * 4])
        else:
            sizes = (row[key] / 1e9 for key in ("peak_bytes", "trained_bytes", "states_bytes"))
            cells.append([name, *sizes, row["ready_s"], row["s_an_update"]])
    first = f"V = {record['vocab']:,}, r = {record['rank']}, float32; an update after all were made once, which compiled them."
    return [first, "", *measure.table(head, cells), ""]


if __name__ == "__main__":
    measure.as_command(main)
