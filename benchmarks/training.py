"""Training tokens a second: esnlm, the same model in PyTorch in two ways, and an LSTM for context.

    python benchmarks/training.py
    python benchmarks/training.py --sizes 4096 --store stores/train-2M-gpt2 --rounds 7

    esnlm        as training/loop.py runs it: states of a window of updates ahead of time, then packed updates
    torch (a)    the papers' way: torch.sparse, a Python loop over time, everything on the padded batch
    torch (b)    the best PyTorch we know how to write: real tokens only, the fastest AdamW
    LSTM (c)     512 units in torch (cuDNN on a GPU), padding removed

    torch (b), BOS once   (b) with esnlm's idea too: the row of features after BOS, which all sentences share, is read once

On a CPU all of them run with esnlm's allocator setting (esnlm/commands/allocator.py: freed memory is kept), which is their best
too; "as it comes" is PyTorch without it, as one who does not know of it runs it. PyTorch with the setting and PyTorch as
it comes have a process of their own, so that thread pools and memory meet esnlm's no more than where one of them is used.
esnlm takes turns with one of the two after the other, as all three may be more than the memory holds; its ratio to each
is of their own rounds, and its row of the table is of the first.

A round is --updates updates of 32 sentences, the same for all, taken in turns. A window holds more updates than a round
trains: esnlm's states are computed for the whole window, as in a run, and counted for the round's share of it. The
first loss of each, from the same weights, is compared before anything is timed. Only real tokens count as tokens.

The floor of an update is its matrix products (three of 2 C V r flops, two of 2 C N r) at the highest GEMM speed measured
in the same run, and AdamW's seven passes over the parameters at the copy bandwidth. C is the rows of features: esnlm has
that after BOS once an update, where it belongs to the first token of every sentence, so 31 fewer than tokens.

Writes training.json and .md under --out.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import measure
import numpy as np
import optax
import sentences as text
from recurrence import random_reservoir

from esnlm.compute import ComputeConfig, choose_compute
from esnlm.config import Experiment, TrainingConfig
from esnlm.features.stream import FeatureStream
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout import linear
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import Reservoir, ReservoirConfig
from esnlm.training import batches
from esnlm.training.update import make_optimizer, make_update_loop, packed_nll, readout_loss_and_gradient

if measure.torch is not None:
    import peers

BASELINE = "esnlm"
# Relative to the loss: rounding of the readout's products, averaged over the tokens of a batch.
TOLERANCE = {"float32": 1e-4, "tf32": 1e-3, "bf16": 1e-2}


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096, 16384], help="N")
    parser.add_argument("--vocab", type=int, default=50257, help="V, where no store is given")
    parser.add_argument("--rank", type=int, default=512, help="r")
    parser.add_argument("--batch", type=int, default=32, help="sentences an update")
    parser.add_argument("--updates", type=int, default=4, help="updates a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", type=Path, help="take the sentences from this token store")
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="float32", help="of the readout")
    parser.add_argument("--compiled", action="store_true", help="also (b) with its readout under torch.compile")
    parser.add_argument("--square", type=int, default=4096, help="side of the matrices that show the GEMM peak")
    parser.add_argument("--copy-megabytes", type=int, default=512)
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    args = parser.parse_args(arguments)
    if args.store is not None:
        args.vocab = text.open_store(args.store).manifest["tokenizer"]["vocab_size"]
    measure.set_up()
    record = {"command": measure.command(), "load_before": measure.load(), "machine": measure.machine()}
    shapes = gemm_shapes(700, args.vocab, args.rank) | {"square": (args.square,) * 3}
    record["gemm_flops_per_s"] = measure.gemm_peaks(shapes, args.rounds, args.precision)
    record["copy_bytes_per_s"] = measure.copy_peaks(args.copy_megabytes, args.rounds)
    record["rows"] = []
    for size in args.sizes:
        row = measure_training(size, args, *limits(record))
        record["rows"].append(row)
        print("\n".join(lines_of(row)), flush=True)
        record["load_after"] = measure.load()
        measure.write(args.out, "training", "Training speed", markdown(record), record)
    return record


def gemm_shapes(tokens: int, vocab_size: int, rank: int) -> dict[str, tuple[int, int, int]]:
    """The three large products of an update, (m, k, n)."""
    return {
        "logits": (tokens, rank, vocab_size),
        "states' gradient": (tokens, vocab_size, rank),
        "weights' gradient": (vocab_size, tokens, rank),
    }


def limits(record: dict) -> tuple[float, float]:
    """(FLOP/s, bytes/s): the highest measured in this run, by whichever library."""
    flops = max(measure.best_peak(peaks) for peaks in record["gemm_flops_per_s"].values())
    return flops, measure.best_peak(record["copy_bytes_per_s"])


def measure_training(size: int, args: argparse.Namespace, flops_per_s: float, bytes_per_s: float) -> dict:
    """One row: every contender at one N."""
    described = EchoStateConfig("esn", ReservoirConfig(size), ReadoutConfig(args.rank))
    experiment = Experiment(model=described, compute=ComputeConfig(precision=args.precision))
    compute = choose_compute(experiment.compute, experiment.model, jax.default_backend())
    windows = text.windows(args.store, args.vocab, args.batch, compute.window_tokens, args.rounds, seed=0)
    count = min(args.updates, *map(len, windows))  # updates a round
    reservoir, params = model(size, args.vocab, args.rank)
    own = Esnlm(reservoir, params, compute, windows, count)
    losses, failures, notes, compared, measured = {BASELINE: own.first_loss()}, {}, [], {}, {}
    in_window = np.array([len(window) for window in windows])
    # "warm" is not counted: as in a run, the updates before have left memory that need not be taken anew.
    own_turns = {
        "warm": partial(own.updates, count=1),
        "states": own.states,
        "packing": own.pack,
        "updates": own.updates,
    }
    for suffix, start in peers_by_suffix(size, args, windows, count).items():
        process, turns = start(), {}
        names, own_notes = process.contenders()
        notes = notes or own_notes
        for name in names:
            try:
                losses[name + suffix] = process.first_loss(name)
                turns[name + suffix] = partial(process.updates, name)
            except Exception as error:  # a peer may fail in any way; that is a result, and the others go on
                failures[name + suffix] = measure.one_line(error)
        for name, loss in losses.items():
            if name.startswith("torch") and abs(loss / losses[BASELINE] - 1) > TOLERANCE[args.precision]:
                raise SystemExit(
                    f"error: first loss of {name} {loss:.6f}, of esnlm {losses[BASELINE]:.6f}: not one model"
                )
        seconds, failed = measure.interleave(own_turns | turns, args.rounds)
        failures |= failed
        measured = measured or {name: np.array(seconds[name]) for name in ("states", "packing", "updates")}
        states, packing, updates = (np.array(seconds.pop(name)) for name in ("states", "packing", "updates"))
        seconds[BASELINE] = list((states + packing) * count / in_window + updates)
        del seconds["warm"]
        compared = measure.compare(seconds, BASELINE) | compared  # the first esnlm is the one that is shown
        if not suffix:
            alone, parts_rows, peers_bytes = of_parts(own, process, turns, args.rounds)
        process.close()
    tokens = np.array([sum(map(text.predictions, window[:count])) for window in windows])
    for result in compared.values():
        result["tokens_per_s"] = float(np.median(tokens / result["rounds_s"]))
    per_update = float(np.median(tokens / count))
    rows = float(np.median([sum(map(text.rows, window[:count])) / count for window in windows]))
    floor = update_floor(rows, size, args.vocab, args.rank, flops_per_s, bytes_per_s)
    parts = {
        "states": float(np.median(measured["states"] / in_window)),
        "packing": float(np.median(measured["packing"] / in_window)),
        "updates": float(np.median(measured["updates"] / count)),
    }
    parts |= {f"{name} alone": float(np.median(own)) for name, own in alone.items()}
    readout = sum(readout_flops(parts_rows, size, args.vocab, args.rank)) / parts["gradient alone"]
    return {
        "size": size,
        "vocab_size": args.vocab,
        "rank": args.rank,
        "precision": args.precision,
        "updates_a_round": count,
        "updates_a_window": float(in_window.mean()),
        "tokens_an_update": per_update,
        "rows_an_update": rows,
        "real_share_of_padded": text.real_share([batch for window in windows for batch in window]),
        "first_losses": losses,
        "contenders": compared,
        "failures": failures,
        "notes": notes,
        "compile_s": own.compile_s,
        "working_bytes": own.working_bytes() | peers_bytes,
        "compute": {"kernel": compute.kernel, "slots": compute.batch_slots, "window_tokens": compute.window_tokens},
        "floor_s": floor,
        "share_of_floor": sum(floor.values()) * count / compared[BASELINE]["median_s"],
        "parts_s": parts,
        "parts_rows": parts_rows,
        "readout_flops_per_s": readout,
        "readout_share_of_gemm": readout / flops_per_s,
    }


def of_parts(own: "Esnlm", process, turns: dict, rounds: int) -> tuple[dict[str, list[float]], int, dict[str, int]]:
    """Seconds of the parts of an update, the rows of the batch that some of them are of, and memory of peers on a GPU."""
    parts, rows = own.parts()
    if "torch (b)" in turns:
        parts["torch (b)'s states"] = partial(process.states, "torch (b)")
    alone, _ = measure.interleave(parts, rounds)
    return alone, rows, {name: held for name in turns if (held := process.working_bytes(name))}


def model(size: int, vocab_size: int, rank: int) -> tuple[Reservoir, dict[str, np.ndarray]]:
    """An untrained model: its reservoir, and its readout's arrays."""
    readout = linear.initialize(ReadoutConfig(rank), size, vocab_size, seed=0)
    params = {name: np.asarray(getattr(readout, name)[...]) for name in ("a", "b", "bias")}
    return random_reservoir(size, vocab_size, min(32, size), seed=0), params


class Esnlm:
    """What training/loop.py does with a window, taken apart so that its parts can be timed."""

    def __init__(self, reservoir, params: dict, compute: ComputeConfig, windows: list, count: int):
        self.windows, self.count, self.precision = windows, count, compute.precision
        frozen = reservoir.for_device(compute.kernel)
        self.stream = FeatureStream(frozen, compute.batch_slots, compute.window_tokens)
        sizes = {batches.bucket_size(text.rows(batch)) for window in windows for batch in window}
        first_targets = max(len(batch) for window in windows for batch in window) - 1
        self.shapes = batches.WindowShapes(tuple(sorted(sizes)), max(map(len, windows)), first_targets)
        self.optimizer = make_optimizer(TrainingConfig(), updates=1000)
        self.params = {"readout": {name: jax.numpy.array(array) for name, array in params.items()}}
        self.state = self.optimizer.init(self.params)
        for i in reversed(range(len(windows))):  # compiles for every length of a window's slots; ends at the first
            self.states(i)
        self.pack(0)
        began = time.perf_counter()
        options = {"precision": compute.precision, "chunk_tokens": compute.chunk_tokens, "dropout_rate": 0.0}
        loss_and_gradient = partial(readout_loss_and_gradient, **options)
        updates = make_update_loop(self.optimizer, "continue", self.shapes.buckets, loss_and_gradient)
        self.run_updates = updates.lower(self.params, self.state, self.buffer, self.packs, None, 0, count).compile()
        self.compile_s = time.perf_counter() - began

    def states(self, i: int) -> None:
        """The states of window i."""
        inputs = [sentence[:-1] for batch in self.windows[i] for sentence in batch]
        self.buffer, self.rows = self.stream.read(inputs)
        self.buffer.block_until_ready()

    def pack(self, i: int) -> None:
        """Packs the targets of window i, whose states are there."""
        updates, place = [], 0
        for batch in self.windows[i]:
            here = slice(place, place := place + len(batch))
            targets = [sentence[1:] for sentence in batch]
            updates.append((batches.Sentences(targets, targets, targets), self.rows[here]))  # no dropout: no places
        self.packs = batches.pack_window(updates, self.shapes)

    def updates(self, i: int, count: int | None = None) -> np.ndarray:
        """The first updates of window i, whose packs are there; their losses."""
        last = self.count if count is None else count
        self.params, self.state, outcome = self.run_updates(
            self.params, self.state, self.buffer, self.packs, None, 0, last
        )
        jax.block_until_ready((self.params, self.state))
        return np.asarray(outcome.losses)[:last]

    def first_loss(self) -> float:
        """The loss of the very first update, which is made."""
        self.states(0)
        self.pack(0)
        return float(self.updates(0, count=1)[0])

    def working_bytes(self) -> dict[str, int]:
        """Memory that updates take beyond what was there before, as compiled."""
        return {BASELINE: self.run_updates.memory_analysis().temp_size_in_bytes}

    def parts(self) -> tuple[dict[str, measure.Contender], int]:
        """The gradient and AdamW alone, on the batch of median size among a round's; and its rows."""
        self.states(0)
        self.pack(0)
        sizes = (self.packs.packed.weights[: self.count] > 0).sum(1)
        u = int(np.argsort(sizes)[len(sizes) // 2])
        packed = self.packs.of_update(u, self.shapes.buckets[self.packs.bucket[u]])

        def loss_and_gradient(params, buffer, packed):
            return jax.value_and_grad(packed_nll)(params["readout"], buffer[packed.rows], packed, self.precision)

        def adamw(params, state, gradient):
            changes, state = self.optimizer.update({"readout": gradient}, state, params)
            return optax.apply_updates(params, changes), state

        gradient_of, adamw = jax.jit(loss_and_gradient), jax.jit(adamw, donate_argnums=(0, 1))
        _, gradient = gradient_of(self.params, self.buffer, packed)

        def run_adamw(_):
            self.params, self.state = jax.block_until_ready(adamw(self.params, self.state, gradient))

        turns = {
            "gradient": lambda _: jax.block_until_ready(gradient_of(self.params, self.buffer, packed)),
            "AdamW": run_adamw,
        }
        return turns, int(sizes[u])


class Peers:
    """What PyTorch makes of the same windows, in several ways: {name: object with .update(sentences)}."""

    def __init__(self, size: int, args: argparse.Namespace, windows: list, count: int, as_it_comes: bool):
        if not as_it_comes:
            measure.set_up()
        self.windows, self.count = windows, count
        reservoir, params = model(size, args.vocab, args.rank)
        device = "cuda" if measure.torch.cuda.is_available() else "cpu"
        layout, first_note = peers.fastest_layout(reservoir.w_rec, device, slots=32)
        adamw, second_note = peers.fastest_adamw(params, device)
        frozen = peers.TorchReservoir(reservoir, device, layout)
        self.notes = [first_note, second_note]
        self.ways = {
            "torch (a)": peers.PaperWay(frozen, params, args.precision),
            "torch (b)": peers.PackedWay(frozen, params, args.precision, adamw),
        }
        if as_it_comes:
            return
        self.ways["torch (b), BOS once"] = peers.PackedWay(frozen, params, args.precision, adamw, prefix_tree=True)
        self.ways["LSTM (c)"] = peers.Lstm(args.vocab, args.precision, adamw, device)
        if args.compiled:
            self.ways["torch (b), compiled"] = peers.PackedWay(frozen, params, args.precision, adamw, compiled=True)

    def close(self) -> None:
        """Nothing to end here: see measure.Apart."""

    def contenders(self) -> tuple[list[str], list[str]]:
        """Their names, and what was chosen for them."""
        return list(self.ways), self.notes

    def first_loss(self, name: str) -> float:
        """The loss of the very first update, which is made."""
        return float(self.ways[name].update(self.windows[0][0]))

    def updates(self, name: str, i: int) -> float:
        """The first updates of window i; the last loss."""
        for batch in self.windows[i][: self.count]:
            loss = self.ways[name].update(batch)
        return float(loss)  # waits

    def states(self, name: str, _: int) -> None:
        """Those of one update."""
        self.ways[name].features(self.windows[0][0])
        measure.torch_wait()

    def working_bytes(self, name: str) -> int | None:
        """Memory that an update takes beyond what was there before, on a GPU."""
        if not measure.torch.cuda.is_available():
            return None
        measure.torch.cuda.reset_peak_memory_stats()
        held = measure.torch.cuda.memory_allocated()
        self.ways[name].update(self.windows[0][0])
        measure.torch_wait()
        return measure.torch.cuda.max_memory_allocated() - held


class NoPeers:
    """Where torch is not installed."""

    def contenders(self) -> tuple[list[str], list[str]]:
        return [], ["torch is not installed: no peers"]

    def working_bytes(self, name: str) -> None:
        return None

    def close(self) -> None:
        pass


def peers_by_suffix(size: int, args: argparse.Namespace, windows: list, count: int) -> dict[str, Callable]:
    """How peers are started, by the suffix of their names: on a CPU in processes of their own, one after the other (they are
    large), on a GPU here, where its memory is."""
    arguments = size, args, windows, count
    if measure.torch is None:
        return {"": NoPeers}
    if jax.default_backend() != "cpu":
        return {"": partial(Peers, *arguments, as_it_comes=False)}
    return {
        suffix: partial(measure.Apart, Peers, *arguments, slow)
        for suffix, slow in (("", False), (", as it comes", True))
    }


def readout_flops(rows: float, size: int, vocab_size: int, rank: int) -> tuple[float, float]:
    """Of one update: the three products with A, and the two with B (its states need no gradient)."""
    return 3 * 2 * rows * vocab_size * rank, 2 * 2 * rows * size * rank


def update_floor(rows, size, vocab_size, rank, flops_per_s, bytes_per_s) -> dict[str, float]:
    """Seconds that an update cannot go below: products at the GEMM peak, AdamW at the copy bandwidth."""
    trained = vocab_size * rank + rank * size + vocab_size
    # AdamW reads parameter, gradient and both moments, and writes all but the gradient.
    return {
        "products": sum(readout_flops(rows, size, vocab_size, rank)) / flops_per_s,
        "adamw": 7 * 4 * trained / bytes_per_s,
    }


# ---- the table


def lines_of(row: dict) -> list[str]:
    results = sorted(row["contenders"].items(), key=lambda item: item[1]["median_s"])
    count, compute = row["updates_a_round"], row["compute"]
    cells = [
        [name, r["tokens_per_s"], *(1e3 * r[key] / count for key in ("median_s", "min_s", "max_s")), r["slower"]]
        for name, r in results
    ]
    head = ["", "tokens/s", "ms an update", "least", "most", f"x {BASELINE}"]
    parts = ", ".join(f"{name} {1e3 * value:.3g}" for name, value in row["parts_s"].items())
    floor = ", ".join(f"{name} {1e3 * value:.3g}" for name, value in row["floor_s"].items())
    losses = ", ".join(f"{name} {value:.6f}" for name, value in row["first_losses"].items())
    memory = ", ".join(f"{name} {value / 1e6:,.0f}" for name, value in row["working_bytes"].items())
    return [
        f"## N = {row['size']:,}, {row['precision']}",
        "",
        *measure.table(head, cells),
        "",
        f"- {row['tokens_an_update']:.0f} tokens an update, {row['real_share_of_padded']:.0%} of the padded batch, from {row['rows_an_update']:.0f} rows",
        f"- floor, ms: {floor}; esnlm reaches {row['share_of_floor']:.0%} of it",
        f"- ms an update: {parts} (gradient and AdamW on a batch of {row['parts_rows']} rows)",
        f"- the readout's products: {row['readout_flops_per_s'] / 1e9:,.0f} GFLOP/s over the whole gradient's time,"
        f" {row['readout_share_of_gemm']:.0%} of the GEMM peak",
        f"- first losses: {losses}",
        f"- working memory of an update, MB: {memory}; esnlm compiled in {row['compile_s']:.0f} s, once a run",
        f"- esnlm: {compute['slots']} slots of {compute['kernel']}, {row['updates_a_window']:.0f} updates a window",
        *(f"- {note}" for note in row["notes"]),
        *(f"- {name} failed: {error}" for name, error in row["failures"].items()),
        "",
    ]


def gemm_lines(peaks: dict) -> list[str]:
    def cell(library, value):
        return f"{library} {value / 1e9:,.0f} GFLOP/s" if isinstance(value, float) else f"{library} ({value})"

    return [f"GEMM, {shape}: " + ", ".join(cell(*item) for item in own.items()) for shape, own in peaks.items()]


def markdown(record: dict) -> list[str]:
    copies = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in record["copy_bytes_per_s"].items())
    return [
        "Medians over rounds in which the contenders take turns on the same sentences; only real tokens count.",
        "`x esnlm`: the median over rounds of a contender's time over esnlm's. benchmarks/training.py says who is who.",
        "",
        *(line for row in record["rows"] for line in lines_of(row)),
        "## Measured limits",
        "",
        *(f"- {line}" for line in gemm_lines(record["gemm_flops_per_s"])),
        f"- copy, GB/s read and written: {copies}",
    ]


if __name__ == "__main__":
    measure.as_command(main)
