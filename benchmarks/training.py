"""Training tokens a second: esnlm, the same model in PyTorch in two ways, and an LSTM for context.

    python benchmarks/training.py
    python benchmarks/training.py --sizes 4096 --store stores/train-2M-gpt2 --rounds 7

    esnlm        PrecomputedUpdates, as training/loop.py runs them: features of a prefetch window, then its updates
    torch (a)    the papers' way: torch.sparse, a Python loop over time, everything on the padded batch
    torch (b)    the best PyTorch we know how to write: real tokens only, the fastest AdamW, the faster products of MKL and oneDNN
    LSTM (c)     512 units in torch (cuDNN on a GPU), padding removed

    torch (b), BOS once   (b) with esnlm's idea too: the row of features after BOS, which all sentences share, is read once

On a CPU all of them run with esnlm's allocator setting (esnlm/allocator.py: freed memory is kept), which is the best for
all. "As it comes" is PyTorch without it and with its own choice of products, as it runs for somebody who does not know of
them. PyTorch with the setting and PyTorch as it comes have a process of their own each, so that their threads and memory do
not disturb esnlm's. esnlm takes turns with one of the two after the other, since all three may be more than the memory
holds. Its ratio to each is of their own rounds, and its row of the table is of the first.

A round is --updates updates of 32 sentences, the same for all. A prefetch window holds more updates than a round trains.
esnlm's features are computed for the whole window, as in a run, and counted for the round's share of it. The first loss
of each contender, from the same weights, is compared before anything is timed. Only real tokens count as tokens.

The floor of an update is its matrix products (three of 2 C V r flops, two of 2 C N r) at the highest GEMM speed measured
in the same run, and AdamW's seven passes over the parameters at the copy bandwidth. C is the rows of features. esnlm has
the row after BOS once an update, where it belongs to the first token of every sentence, so 31 rows fewer than tokens.

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
import sentences
import untrained
from sentences import Text

import esnlm
from esnlm.config import TrainingConfig
from esnlm.errors import InputError
from esnlm.training.precomputed import PrecomputedUpdates
from esnlm.training.update import make_optimizer

if measure.torch is not None:
    import peers

BASELINE = "esnlm"
# Relative to the loss: rounding of the readout's products, averaged over the tokens of a batch.
TOLERANCE = {"float32": 1e-4, "tf32": 1e-3, "bf16": 1e-2}


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096, 16384], help="N")
    parser.add_argument("--vocab", type=int, default=50257, help="V, where no store is given")
    parser.add_argument("--rank", type=int, default=512, help="r")
    parser.add_argument("--batch", type=int, default=32, help="sentences an update")
    parser.add_argument("--updates", type=int, default=4, help="updates a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", type=Path, help="take the sentences from this token store")
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="float32", help="of the readout")
    parser.add_argument("--square", type=int, default=4096, help="side of the matrices that show the GEMM peak")
    parser.add_argument("--copy-megabytes", type=int, default=512)
    args = parser.parse_args(arguments)
    if args.store is not None:
        args.vocab = sentences.open_store(args.store).manifest["tokenizer"]["vocab_size"]
    record = measure.begin()
    shapes = gemm_shapes(700, args.vocab, args.rank) | {"square": (args.square,) * 3}
    record["gemm_flops_per_s"] = measure.gemm_peaks(shapes, args.rounds, args.precision)
    record["copy_bytes_per_s"] = measure.copy_peaks(args.copy_megabytes, args.rounds)
    record["rows"] = []
    for size in args.sizes:
        row = measure_training(size, args, *limits(record))
        record["rows"].append(row)
        print("\n".join(lines_of(row)), flush=True)
        measure.write(args.out, "training", "Training speed", markdown(record), record)
    return record


def gemm_shapes(tokens: int, vocab_size: int, rank: int) -> dict[str, tuple[int, int, int]]:
    """Returns the three large products of an update, (m, k, n)."""
    return {
        "logits": (tokens, rank, vocab_size),
        "states' gradient": (tokens, vocab_size, rank),
        "weights' gradient": (vocab_size, tokens, rank),
    }


def limits(record: dict) -> tuple[float, float]:
    """Returns (FLOP/s, bytes/s): the highest measured in this run, by whichever library."""
    flops = max(measure.best_peak(peaks) for peaks in record["gemm_flops_per_s"].values())
    return flops, measure.best_peak(record["copy_bytes_per_s"])


def measure_training(size: int, args: argparse.Namespace, flops_per_s: float, bytes_per_s: float) -> dict:
    """Returns one row: every contender at one N."""
    run = untrained.initialize(size, args.vocab, args.rank, precision=args.precision)
    compute = run.config.compute
    text = sentences.plan(args.store, args.vocab, args.batch, compute.window_tokens, args.rounds, seed=0)
    windows = [text.batches(i) for i in range(args.rounds)]
    count = min(args.updates, *map(len, windows))  # updates a round
    own = Esnlm(run, text)
    compile_s, working_bytes = own.compile()
    losses, failures, notes, compared, measured = {BASELINE: float(own.run(0, 1)[0])}, {}, [], {}, {}
    in_window = np.array([len(window) for window in windows])
    # "warm" is not counted: as in a run, the updates before have left memory that need not be taken anew.
    own_turns = {"warm": partial(own.run, count=1), "features": own.load, "updates": partial(own.run, count=count)}
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
                raise InputError(f"first loss of {name} {loss:.6f}, of esnlm {losses[BASELINE]:.6f}: not one model")
        seconds, failed = measure.interleave(own_turns | turns, args.rounds)
        failures |= failed
        measured = measured or {name: np.array(seconds[name]) for name in ("features", "updates")}
        features, updates = (np.array(seconds.pop(name)) for name in ("features", "updates"))
        seconds[BASELINE] = list(features * count / in_window + updates)
        del seconds["warm"]
        compared = measure.compare(seconds, BASELINE) | compared  # the first esnlm is the one that is shown
        if not suffix:
            alone, failed, parts_rows = measure_parts(own, count, process, turns, args.rounds)
            failures |= failed
        process.close()
    tokens = np.array([sum(map(sentences.predictions, window[:count])) for window in windows])
    for result in compared.values():
        result["tokens_per_s"] = float(np.median(tokens / result["rounds_s"]))
    per_update = float(np.median(tokens / count))
    rows = float(np.median([sum(map(sentences.rows, window[:count])) / count for window in windows]))
    floor = update_floor(rows, size, args.vocab, args.rank, flops_per_s, bytes_per_s)
    parts = {
        "features": float(np.median(measured["features"] / in_window)),
        "updates": float(np.median(measured["updates"] / count)),
    }
    parts |= {f"{name} alone": float(np.median(seconds)) for name, seconds in alone.items()}
    readout = sum(readout_flops(parts_rows, size, args.vocab, args.rank)) / parts.get("gradient alone", float("nan"))
    return {
        "size": size,
        "vocab_size": args.vocab,
        "rank": args.rank,
        "precision": args.precision,
        "updates_a_round": count,
        "updates_a_window": float(in_window.mean()),
        "tokens_an_update": per_update,
        "rows_an_update": rows,
        "real_share_of_padded": sentences.real_share([batch for window in windows for batch in window]),
        "first_losses": losses,
        "contenders": compared,
        "failures": failures,
        "notes": notes,
        "compile_s": compile_s,
        "working_bytes": working_bytes,
        "compute": {"kernel": compute.kernel, "slots": compute.batch_slots, "window_tokens": compute.window_tokens},
        "floor_s": floor,
        "share_of_floor": sum(floor.values()) * count / compared[BASELINE]["median_s"],
        "parts_s": parts,
        "parts_rows": parts_rows,
        "readout_flops_per_s": readout,
        "readout_share_of_gemm": readout / flops_per_s,
    }


def measure_parts(
    own: "Esnlm", count: int, process, turns: dict, rounds: int
) -> tuple[dict[str, list[float]], dict[str, str], int]:
    """Returns seconds of the parts of an update, what failed, and the rows of the update that some are of."""
    parts, rows = own.parts(count)
    if "torch (b)" in turns:
        parts["torch (b)'s states"] = partial(process.states, "torch (b)")
    alone, failures = measure.interleave(parts, rounds)
    return alone, failures, rows


class Esnlm:
    """The updates of a run, as training/loop.py has them made, on windows that are chosen here.

    The trained arrays of the run are donated.
    """

    def __init__(self, run: esnlm.Run, text: Text):
        training, compute = TrainingConfig(), run.config.compute
        placement = run.config.model.placement(compute, len(run.model.params["readout"]["bias"]))
        optimizer = make_optimizer(training)
        self.text, self.params = text, placement.place(run.model.params)
        self.state = optimizer.init(self.params)
        self.made_by = PrecomputedUpdates(
            model=run.model.for_device(compute),
            compute=compute,
            seed=0,
            store=text.store,
            epochs=text.epochs,
            optimizer=optimizer,
            rates=np.full(1000, training.learning_rate, np.float32),
            on_nonfinite=training.on_nonfinite,
            placement=placement,
            reads_ahead=False,
        )

    def load(self, i: int) -> None:
        """Reads the sentences of the i-th window, which a run does beside the updates, computes their features, and packs the targets."""
        epoch, window = self.text.windows[i]
        self.made_by.load(epoch, window)
        self.made_by.buffer.block_until_ready()

    def run(self, _: int, count: int) -> np.ndarray:
        """Runs the first updates of the window that was loaded, and returns their losses."""
        losses = []
        for u in range(count):
            self.params, self.state, outcome = self.made_by.run(self.params, self.state, u)
            losses.append(outcome.loss)
        jax.block_until_ready((self.params, self.state))
        return np.array([float(loss) for loss in losses])

    def compile(self) -> tuple[float, int]:
        """Compiles for all windows, and loads the first one.

        Returns:
            The seconds that the largest update took to compile, and the bytes that it needs beyond what is there before.
        """
        for i in reversed(range(len(self.text.windows))):
            self.load(i)
        own, largest = self.made_by, max(self.made_by.window.packed, key=lambda packed: len(packed.rows))
        began, given = time.perf_counter(), (largest, own.key, own.frozen)
        program = own._update.lower(self.params, self.state, own.going, own.rates, own.features, *given).compile()
        seconds, sizes = time.perf_counter() - began, set()
        for i in reversed(range(len(self.text.windows))):
            self.load(i)
            for u, packed in enumerate(self.made_by.window.packed):
                if len(packed.rows) not in sizes:  # each size is compiled when it is first met
                    sizes.add(len(packed.rows))
                    self.params, self.state, _ = self.made_by.run(self.params, self.state, u)
        jax.block_until_ready((self.params, self.state))
        return seconds, program.memory_analysis().temp_size_in_bytes

    def parts(self, count: int) -> tuple[dict[str, measure.Contender], int]:
        """Returns the gradient and AdamW as contenders, on the update of median size among the first ones, and its rows."""
        self.load(0)
        own = self.made_by
        sizes = [int((packed.weights > 0).sum()) for packed in own.window.packed[:count]]
        u = int(np.argsort(sizes)[len(sizes) // 2])
        packed = own.window.packed[u]

        def loss_and_gradient(_: int = 0) -> tuple[jax.Array, dict]:
            return jax.block_until_ready(own._gradient(self.params, own.features, packed, own.key, own.frozen))

        loss, gradient = loss_and_gradient()

        def adamw(_: int) -> None:
            self.params, self.state, *_ = jax.block_until_ready(
                own._step(self.params, self.state, own.going, loss, gradient, own.rates)
            )

        return {"gradient": loss_and_gradient, "AdamW": adamw}, int(sizes[u])


class Peers:
    """PyTorch on the same windows, in several ways: {name: object with .update(sentences)}."""

    def __init__(self, size: int, args: argparse.Namespace, windows: list, count: int, as_it_comes: bool):
        if not as_it_comes:
            measure.set_up(one_heap=True)
        self.windows, self.count = windows, count
        model = untrained.initialize(size, args.vocab, args.rank).model
        reservoir, params = model.reservoir, model.params["readout"]
        device = "cuda" if measure.torch.cuda.is_available() else "cpu"
        layout, first_note = peers.fastest_layout(reservoir.w_rec, device, slots=32)
        adamw, second_note = peers.fastest_adamw(params, device)
        frozen = peers.TorchReservoir(reservoir, device, layout)
        onednn, third_note = peers.fastest_products(device, args.precision, (640, args.rank, args.vocab))
        self.notes = [first_note, second_note, third_note]
        packed = partial(peers.PackedWay, frozen, params, args.precision, adamw, onednn=onednn and not as_it_comes)
        self.ways = {"torch (a)": peers.PaperWay(frozen, params, args.precision), "torch (b)": packed()}
        if as_it_comes:
            return
        self.ways["torch (b), BOS once"] = packed(shares_first_row=True)
        self.ways["LSTM (c)"] = peers.Lstm(args.vocab, args.precision, adamw, device, onednn=onednn)

    def close(self) -> None:
        """Ends nothing here; see measure.Apart."""

    def contenders(self) -> tuple[list[str], list[str]]:
        """Returns their names, and what was chosen for them."""
        return list(self.ways), self.notes

    def first_loss(self, name: str) -> float:
        """Makes the very first update, and returns its loss."""
        return float(self.ways[name].update(self.windows[0][0]))

    def updates(self, name: str, i: int) -> float:
        """Makes the first updates of window i, and returns the last loss."""
        for batch in self.windows[i][: self.count]:
            loss = self.ways[name].update(batch)
        return float(loss)  # waits

    def states(self, name: str, _: int) -> None:
        """Computes the states of one update."""
        self.ways[name].features(self.windows[0][0])
        measure.torch_wait()


class NoPeers:
    """Where torch is not installed."""

    def contenders(self) -> tuple[list[str], list[str]]:
        return [], ["torch is not installed: no peers"]

    def close(self) -> None:
        pass


def peers_by_suffix(size: int, args: argparse.Namespace, windows: list, count: int) -> dict[str, Callable]:
    """Returns how peers are started, by the suffix of their names: in processes of their own, one after the other since they are large."""
    arguments = size, args, windows, count
    if measure.torch is None:
        return {"": NoPeers}
    return {
        "": partial(measure.Apart, Peers, *arguments, False),
        ", as it comes": partial(measure.Apart, Peers, *arguments, True),
    }


def readout_flops(rows: float, size: int, vocab_size: int, rank: int) -> tuple[float, float]:
    """Returns those of one update: three products with A, and two with B, whose states need no gradient."""
    return 3 * 2 * rows * vocab_size * rank, 2 * 2 * rows * size * rank


def update_floor(rows, size, vocab_size, rank, flops_per_s, bytes_per_s) -> dict[str, float]:
    """Returns the seconds that an update cannot go below: products at the GEMM peak, AdamW at the copy bandwidth."""
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
        f"- working memory of an update: {row['working_bytes'] / 1e6:,.0f} MB; compiled in {row['compile_s']:.0f} s, once a run",
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
