"""One time step, h' = (1 - a) h + a tanh(W_rec h + W_in u): esnlm's kernels against other
libraries.

    python benchmarks/recurrence.py
    python benchmarks/recurrence.py --sizes 4096 --slots 1 32 256 --rounds 9
    python benchmarks/recurrence.py --sizes 4096 16384 --slots --cores 1 2

All have the same float32 matrices (32 nonzeros per row), start states and tokens. Each takes some
steps in a row like its users, JAX in one compiled loop and the others in a Python loop, and the
mean step is reported. The final states are compared with SciPy's in float64. The floor is the time
to read W_rec once (values and indices) and to read and write h, at the copy bandwidth measured in
the same run. If these fit into a cache, the share can exceed 1.

PyTorch has its own process, since its threads and JAX's would wait for each other; a call to it for
all steps takes a tenth of a millisecond.

reservoirpy runs one sequence at a time: its step is called once per slot.

--cores measures how the states of many sentences are computed on some cores of a CPU: `at once`, as
in a run, with a window of sentences on each core, and `in turn`, with one window after another, in
which only the element-wise operations use several cores. The floor is the best of one core times
the cores. Each contender has its own process.

Writes recurrence.json and .md under --out.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import measure
import numpy as np
import untrained
from jax import lax

import esnlm
from esnlm.base.errors import InputError
from esnlm.features import stream as streams
from esnlm.machine.matmul import matmul
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import as_scipy
from esnlm.reservoir.cell import ReservoirLayer

if measure.torch is not None:
    import peers
try:
    import reservoirpy.nodes
except ImportError:
    reservoirpy = None

BASELINE = "esnlm"
VOCAB_SIZE = 256  # small, since the input is not measured, and reservoirpy needs it one-hot
WORDS = 8192  # the vocabulary where the input is measured, too


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__, rounds=5)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1024, 4096, 16384, 65536], help="N"
    )
    parser.add_argument("--slots", type=int, nargs="*", default=[1, 8, 32, 256, 1024], help="B")
    parser.add_argument("--cores", type=int, nargs="+", default=[], help="numbers of cores")
    parser.add_argument("--degree", type=float, default=32, help="mean nonzeros per row")
    parser.add_argument(
        "--steps",
        type=int,
        default=32,
        help="at most so many steps in a row, fewer at large N and B",
    )
    parser.add_argument(
        "--dense-up-to", type=int, default=4096, help="largest N for the dense kernel"
    )
    parser.add_argument(
        "--gigabytes",
        type=float,
        default=6.0,
        help="a contender that needs more at once is left out",
    )
    parser.add_argument("--copy-megabytes", type=int, default=512)
    args = parser.parse_args(arguments)
    if not set(args.cores) <= set(range(1, measure.cores() + 1)):
        raise InputError(f"--cores: choose from 1 to {measure.cores()}, the cores of this process")
    record = measure.begin()
    record["copy_bytes_per_s"] = measure.copy_peaks(args.copy_megabytes, args.rounds)
    record["rows"] = []
    record["cores"] = {str(size): measure_cores(size, args) for size in args.sizes}
    for size in args.sizes if args.slots else []:
        run = untrained.initialize(size, VOCAB_SIZE, rank=1, degree=args.degree)
        operands = jax_operands(run.model.reservoir, args.dense_up_to)
        torch_way = None if measure.torch is None else measure.Apart(TorchWay, size, args.degree)
        for slots in args.slots:
            row = measure_step(
                run, operands, torch_way, slots, args, measure.best_peak(record["copy_bytes_per_s"])
            )
            record["rows"].append(row)
            print("\n".join(lines_of(row)), flush=True)
        if torch_way is not None:
            torch_way.close()
    measure.write(args.out, "recurrence", "One step of the recurrence", markdown(record), record)
    return record


def measure_step(
    run: esnlm.Run,
    operands: dict,
    torch_way: measure.Apart | None,
    slots: int,
    args: argparse.Namespace,
    copy_bandwidth: float,
) -> dict:
    """Returns one row: all contenders at one N and B."""
    reservoir, compute = run.model.reservoir, run.config.compute
    size, nonzeros = reservoir.state_size, reservoir.w_rec.nse
    steps = min(args.steps, max(2, (1 << 26) // (size * slots)))
    h, tokens = start(size, slots, steps)
    left_out = too_large(nonzeros, slots, args.gigabytes)
    contenders = {
        BASELINE: jax_steps(
            esnlm_step, run.model.for_device(compute).cell, h, tokens, compute.batch_slots
        )
    }
    contenders |= {
        name: jax_steps(*own, h, tokens, slots)
        for name, own in operands.items()
        if name not in left_out
    }
    contenders["scipy csr"] = scipy_steps(reservoir, h, tokens, np.float32)
    if torch_way is not None:
        torch_way.begin(slots, steps)
        contenders["torch csr"] = torch_way.run
    if reservoirpy is not None:
        contenders["reservoirpy numpy"] = reservoirpy_steps(reservoir, h, tokens)
    final = {}
    seconds, failures = measure.interleave(contenders, args.rounds, last=final)
    per_step = {name: [s / steps for s in own] for name, own in seconds.items()}
    if "torch csr" in seconds:
        final["torch csr"] = torch_way.states()
    floor = floor_seconds(reservoir, slots, copy_bandwidth)
    truth = scipy_steps(reservoir, h, tokens, np.float64)(0)
    compared = measure.compare(per_step, BASELINE)
    for name, result in compared.items():
        result["error"] = float(np.abs(as_numpy(final[name]) - truth).max() / np.abs(truth).max())
        result["share_of_floor"] = floor / result["median_s"]
    row = {"size": size, "slots": slots, "nonzeros": nonzeros, "steps": steps, "floor_s": floor}
    return row | {"contenders": compared, "left_out": left_out | failures}


def measure_cores(size: int, args: argparse.Namespace) -> dict[str, dict]:
    """Returns the states per second of each contender, all rounds, and their median."""
    ways = {
        f"{cores} cores, {way}": measure.Apart(States, size, args.degree, cores, way == "at once")
        for cores in args.cores
        for way in (("in turn", "at once") if cores > 1 else ("in turn",))
    }
    sizes = {name: way.tokens() for name, way in ways.items()}
    seconds, _ = measure.interleave({name: way.read for name, way in ways.items()}, args.rounds)
    found = {name: [sizes[name] / s for s in own] for name, own in seconds.items()}
    for way in ways.values():
        way.close()
    return {name: {"rounds": own, "median": float(np.median(own))} for name, own in found.items()}


class States:
    """The states of some prefetch windows, one after the other, on some cores."""

    windows = 5

    def __init__(self, size: int, degree: float, cores: int, at_once: bool):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        measure.set_up()
        rng = np.random.default_rng(1)
        run = untrained.initialize(size, WORDS, rank=1, degree=degree)
        compute = run.config.compute
        with mock.patch.object(streams, "usable_cores", lambda: cores if at_once else 1):
            self.stream = run.model.for_device(compute).frozen_stream(compute)
        lengths = 1 + rng.geometric(1 / 22, compute.window_tokens // 23)
        self.sentences = [rng.integers(0, WORDS, n).astype(np.int32) for n in lengths]

    def tokens(self) -> int:
        """Returns the number of states."""
        return self.windows * sum(map(len, self.sentences))

    def read(self, _: int) -> None:
        """Computes the states."""
        parts = self.stream.parallel
        windows = [self.sentences[part::parts] for part in range(parts)]
        for buffer, _ in self.stream.read_windows(self.windows * windows):
            last = buffer
        last.block_until_ready()


def start(size: int, slots: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns initial states (N, B) float32 and tokens (T, B) int32."""
    rng = np.random.default_rng(1)
    h = 2 * rng.random((size, slots), dtype=np.float32) - 1
    return h, rng.integers(0, VOCAB_SIZE, (steps, slots)).astype(np.int32)


def floor_seconds(reservoir: ReservoirLayer, slots: int, copy_bandwidth: float) -> float:
    """Returns the seconds to read W_rec once, values and indices, and to read and write h."""
    size = reservoir.state_size
    return (8 * reservoir.w_rec.nse + 4 * (size + 1) + 8 * size * slots) / copy_bandwidth


def too_large(nonzeros: int, slots: int, gigabytes: float) -> dict[str, str]:
    """Returns skipped contenders with the reason: they would gather too many floats, one per
    nonzero and slot."""
    gathered = 4e-9 * nonzeros * slots
    names = ["esnlm bcoo", "jax BCOO"] + ["esnlm csr"] * (jax.default_backend() != "cpu")
    return (
        dict.fromkeys(names, f"would gather {gathered:.1f} GB at once")
        if gathered > gigabytes
        else {}
    )


# ---- contenders take all steps and return the final states, (N, B) or a list of blocks of slots


def jax_operands(reservoir: ReservoirLayer, dense_up_to: int) -> dict[str, tuple]:
    """Returns {name: (step, its operands)} for all kernels of esnlm, and for the recurrence in
    plain BCOO."""
    kernels = [
        kernel
        for kernel in sparse.KERNELS
        if kernel != "dense" or reservoir.state_size <= dense_up_to
    ]
    found = {f"esnlm {kernel}": (esnlm_step, reservoir.for_device(kernel)) for kernel in kernels}
    plain = (reservoir.w_rec, reservoir.w_in.todense(), reservoir.leak[...][:, None])
    return found | {"jax BCOO": (plain_step, plain)}


def jax_steps(step, operands, h, tokens, width):
    blocks = [slice(i, i + width) for i in range(0, h.shape[1], width)]
    inputs = [(jnp.asarray(h[:, block]), jnp.asarray(tokens[:, block])) for block in blocks]
    return lambda _: jax.block_until_ready([_scan(step, operands, *block) for block in inputs])


@partial(jax.jit, static_argnames="step")
def _scan(step, operands, h, tokens):
    return lax.scan(lambda h, now: (step(operands, h, now), None), h, tokens)[0]


def esnlm_step(cell, h, tokens):
    return cell.step(h, tokens)


def plain_step(operands, h, tokens):
    w_rec, w_in, leak = operands
    return (1 - leak) * h + leak * jnp.tanh(w_rec @ h + w_in[:, tokens])


def dense_operands(reservoir: ReservoirLayer, precision: str) -> tuple:
    """Returns (step, its operands) for a dense product in a precision."""
    w_rec = reservoir.w_rec.todense()
    if precision == "bf16":
        w_rec = w_rec.astype(jnp.bfloat16)  # once, instead of in each step
    return partial(dense_step, precision=precision), (
        w_rec,
        reservoir.w_in.todense(),
        reservoir.leak[...][:, None],
    )


def dense_step(operands, h, tokens, precision):
    w_rec, w_in, leak = operands
    return (1 - leak) * h + leak * jnp.tanh(matmul(w_rec, h, (1, 0), precision) + w_in[:, tokens])


def scipy_steps(
    reservoir: ReservoirLayer, h: np.ndarray, tokens: np.ndarray, dtype: type
) -> measure.Contender:
    w_rec, w_in = (
        as_scipy(matrix).astype(dtype) for matrix in (reservoir.w_rec, reservoir.w_in.todense())
    )
    leak, start = np.asarray(reservoir.leak[...], dtype)[:, None], h.astype(dtype)

    def run(_):
        h = start
        for now in tokens:
            h = (1 - leak) * h + leak * np.tanh(w_rec @ h + w_in[:, now])
        return h

    return run


def torch_steps(
    reservoir: ReservoirLayer,
    h: np.ndarray,
    tokens: np.ndarray,
    layout: str = "csr",
    precision: str = "float32",
) -> Callable:
    own = peers.TorchReservoir(reservoir, layout)
    start, tokens = (measure.torch.from_numpy(x).to(measure.TORCH_DEVICE) for x in (h, tokens))

    def run(_):
        measure.torch_precision(precision)
        h = start
        for now in tokens:
            h = own.fast_step(h, now)
        measure.torch_wait()
        return h

    return run


class TorchWay:
    """PyTorch's CSR on the matrices of one size."""

    def __init__(self, size: int, degree: float):
        measure.set_up()
        self.reservoir = untrained.initialize(
            size, VOCAB_SIZE, rank=1, degree=degree
        ).model.reservoir

    def begin(self, slots: int, steps: int) -> None:
        """Prepares `steps` steps of `slots` slots."""
        self.take_steps = torch_steps(
            self.reservoir, *start(self.reservoir.state_size, slots, steps)
        )

    def run(self, i: int) -> None:
        """Takes all steps."""
        self.final = self.take_steps(i)

    def states(self) -> np.ndarray:
        """Returns the final states (N, B)."""
        return as_numpy(self.final)


class JaxWays:
    """Steps of one library in its own process, for benchmarks/gpu_parts.py: esnlm's kernels, and
    dense products."""

    def __init__(self, slots: int, steps: int):
        measure.set_up()
        self.slots, self.steps = slots, steps

    machine, copies = (
        staticmethod(measure.machine),
        staticmethod(partial(measure.copy_peaks, rounds=5)),
    )

    def products(self, precision: str, small: bool) -> dict:
        """Returns the highest FLOP/s of a large square product and of logits."""
        shapes = {"square": (128,) * 3, "logits": (733, 512, 500)}
        if not small:
            shapes = {"square": (8192,) * 3, "logits": (733, 512, 50304)}
        return measure.gemm_peaks(shapes, 3, precision)

    def turns(
        self, reservoir: ReservoirLayer, h: np.ndarray, tokens: np.ndarray
    ) -> dict[str, Callable]:
        """Returns the contenders; dense float32 up to 16,384 units, for the memory."""
        ways = {
            name: own for name, own in jax_operands(reservoir, 16384).items() if name != "jax BCOO"
        }
        ways |= {
            f"dense {precision}": dense_operands(reservoir, precision)
            for precision in ("bf16", "tf32")
        }
        return {name: jax_steps(*own, h, tokens, self.slots) for name, own in ways.items()}

    def time(self, size: int) -> dict:
        """Returns ms per step by contender, errors over the largest state, and the minimum and
        gathered bytes."""
        reservoir = untrained.initialize(
            size, VOCAB_SIZE, rank=1, degree=min(32, size // 4)
        ).model.reservoir
        h, tokens = start(size, self.slots, self.steps)
        truth, final = scipy_steps(reservoir, h[:, :4], tokens[:, :4], np.float64)(0), {}
        seconds, failures = measure.interleave(self.turns(reservoir, h, tokens), 3, last=final)
        errors = {
            name: np.abs(as_numpy(final[name])[:, :4] - truth).max() / np.abs(truth).max()
            for name in seconds
        }
        return {
            "slots": self.slots,
            "nonzeros": reservoir.w_rec.nse,
            "once_bytes": floor_seconds(reservoir, self.slots, copy_bandwidth=1),
            "gathered_bytes": 4 * reservoir.w_rec.nse * self.slots,
            "ms": {name: 1e3 * float(np.median(own)) / self.steps for name, own in seconds.items()},
            "error": {name: float(error) for name, error in errors.items()},
            "failures": failures,
        }


class TorchWays(JaxWays):
    """PyTorch's CSR, which is cuSPARSE on a GPU, and its dense products."""

    def turns(
        self, reservoir: ReservoirLayer, h: np.ndarray, tokens: np.ndarray
    ) -> dict[str, Callable]:
        """Returns the contenders."""
        ways = {
            "CSR": ("csr", "float32"),
            "dense bf16": ("dense bf16", "bf16"),
            "dense tf32": ("dense", "tf32"),
        }
        return {
            f"PyTorch {name}": torch_steps(reservoir, h, tokens, *way) for name, way in ways.items()
        }


def reservoirpy_steps(reservoir: ReservoirLayer, h: np.ndarray, tokens: np.ndarray) -> Callable:
    weights = {
        "W": as_scipy(reservoir.w_rec).astype(np.float32),
        "Win": as_scipy(reservoir.w_in).astype(np.float32),
    }
    node = reservoirpy.nodes.Reservoir(
        lr=np.asarray(reservoir.leak[...]), dtype=np.float32, **weights
    )
    one_hot, starts = np.eye(reservoir.vocab_size, dtype=np.float32), np.ascontiguousarray(h.T)

    def run(_):
        states = []
        for slot, start in enumerate(starts):
            state = {"out": start}
            for token in tokens[:, slot]:
                state = node._step(state, one_hot[token])
            states.append(state["out"])
        return np.stack(states, axis=1)

    return run


def as_numpy(states) -> np.ndarray:
    if isinstance(states, list):
        return np.concatenate([np.asarray(block) for block in states], axis=1)
    return np.asarray(states.cpu() if hasattr(states, "cpu") else states)


# ---- the table


def lines_of(row: dict) -> list[str]:
    title = f"N = {row['size']:,}, B = {row['slots']:,}: floor {1e3 * row['floor_s']:.3g} ms"
    results = sorted(row["contenders"].items(), key=lambda item: item[1]["median_s"])
    cells = [
        [
            name,
            1e3 * r["median_s"],
            1e3 * r["min_s"],
            1e3 * r["max_s"],
            r["slower"],
            r["share_of_floor"],
            r["error"],
        ]
        for name, r in results
    ]
    head = ["", "ms per step", "least", "most", f"x {BASELINE}", "floor / time", "error"]
    return [
        title,
        "",
        *measure.table(head, cells),
        *(f"- {k}: {v}" for k, v in row["left_out"].items()),
        "",
    ]


def lines_of_cores(size: str, ways: dict[str, dict]) -> list[str]:
    if not ways:
        return []
    fewest, *_ = ways
    one = max(ways[fewest]["rounds"]) / int(fewest.split()[0])  # the best of one core
    cells = []
    for name, found in ways.items():
        rounds, median = found["rounds"], found["median"]
        share = median / (one * int(name.split()[0]))
        cells.append([name, median, min(rounds), max(rounds), share])
    head = ["", "states/s", "least", "most", "of the floor"]
    return [f"N = {int(size):,}, the sentences of windows", "", *measure.table(head, cells), ""]


def markdown(record: dict) -> list[str]:
    absent = [] if reservoirpy is not None else ["reservoirpy is not installed"]
    absent += [] if measure.torch is not None else ["torch is not installed"]
    copies = ", ".join(
        f"{name} {value / 1e9:.1f}" for name, value in record["copy_bytes_per_s"].items()
    )
    return [
        (
            "Milliseconds per step, medians of rounds in which the contenders take turns; float32,"
            " the same matrices."
        ),
        (
            "`esnlm` is what a run uses: its choice of kernel, in blocks of slots that fit the"
            " cache; kernels by name take"
        ),
        (
            "all slots at once. Error: the largest of the final states against SciPy's float64,"
            " over the largest state."
        ),
        f"Copy bandwidth in GB/s, read and written: {copies}.",
        *absent,
        "",
        *(line for row in record["rows"] for line in lines_of(row)),
        *(line for size, ways in record["cores"].items() for line in lines_of_cores(size, ways)),
    ]


if __name__ == "__main__":
    measure.as_command(main)
