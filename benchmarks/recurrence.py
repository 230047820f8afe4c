"""One step of the recurrence, h' = (1 - a) h + a tanh(W h + W_in u): esnlm's kernels against everyone else's.

    python benchmarks/recurrence.py
    python benchmarks/recurrence.py --sizes 4096 --slots 1 32 256 --rounds 9

The same float32 matrices for all (32 nonzeros a row), the same start states, the same tokens. Everyone takes some steps
in a row as their users would, JAX in one compiled loop and the others in a Python loop; a step is the mean of those.
The final states are compared with SciPy's in float64. The floor is W read once (values and indices) and h read and
written, at the copy bandwidth measured in the same run; where that fits into a cache the share can pass 1.

reservoirpy runs one sequence at a time. It is timed at its kindest: NumPy, its own step called once a slot; JAX, its
own run over time, which it leaves uncompiled, under jax.vmap and jax.jit.

Writes recurrence.json and .md under --out.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import measure
import numpy as np
import scipy.sparse
from jax import lax
from jax.experimental.sparse import BCOO

from esnlm.features.stream import default_batch_slots
from esnlm.reservoir import sparse
from esnlm.reservoir.random_matrix import bernoulli_positions
from esnlm.reservoir.weights import Reservoir

if measure.torch is not None:
    import peers
try:
    import reservoirpy.nodes
except ImportError:
    reservoirpy = None
try:
    import reservoirpy.jax.nodes as reservoirpy_jax
except ImportError:
    reservoirpy_jax = None

BASELINE = "esnlm"
VOCAB_SIZE = 256  # small: the input is no part of the question, and reservoirpy wants it one-hot


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096, 16384, 65536], help="N")
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 8, 32, 256, 1024], help="B")
    parser.add_argument("--degree", type=float, default=32, help="mean nonzeros per row")
    parser.add_argument("--steps", type=int, default=32, help="at most so many steps in a row, fewer at large N and B")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dense-up-to", type=int, default=4096, help="largest N for the dense kernel")
    parser.add_argument("--gigabytes", type=float, default=6.0, help="a contender that needs more at once is left out")
    parser.add_argument("--copy-megabytes", type=int, default=512)
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    args = parser.parse_args(arguments)
    measure.set_up()
    record = {"command": measure.command(), "load_before": measure.load(), "machine": measure.machine()}
    record["copy_bytes_per_s"] = measure.copy_peaks(args.copy_megabytes, args.rounds)
    record["rows"] = []
    for size in args.sizes:
        reservoir = random_reservoir(size, VOCAB_SIZE, args.degree, seed=0)
        operands = jax_operands(reservoir, args.dense_up_to)
        for slots in args.slots:
            row = measure_step(reservoir, operands, slots, args, measure.best_peak(record["copy_bytes_per_s"]))
            record["rows"].append(row)
            print("\n".join(lines_of(row)), flush=True)
    record["load_after"] = measure.load()
    measure.write(args.out, "recurrence", "One step of the recurrence", markdown(record), record)
    return record


def random_reservoir(size: int, vocab_size: int, degree: float, seed: int) -> Reservoir:
    """A reservoir as the papers draw it, but scaled by the circular law's radius, sqrt(degree), instead of its own."""
    rng = np.random.default_rng([seed, size])

    def matrix(columns, scale):
        row, column = bernoulli_positions(size, columns, degree / size, rng)
        values = rng.standard_normal(len(row), dtype=np.float32) * np.float32(scale)
        parts = (values, np.stack([row, column], axis=1))
        return BCOO(parts, shape=(size, columns), indices_sorted=True, unique_indices=True)

    leak = rng.uniform(0, 1, size).astype(np.float32)
    return Reservoir(matrix(size, 0.99 / np.sqrt(degree)), matrix(vocab_size, 1.0), leak)


def measure_step(
    reservoir: Reservoir, operands: dict, slots: int, args: argparse.Namespace, copy_bandwidth: float
) -> dict:
    """One row: every contender at one N and B."""
    size, nonzeros = reservoir.state_size, reservoir.w_rec.nse
    steps = min(args.steps, max(2, (1 << 26) // (size * slots)))
    h, tokens = start(size, slots, steps)
    left_out = too_large(nonzeros, slots, args.gigabytes)
    width = default_batch_slots(size, jax.default_backend())
    contenders = {BASELINE: jax_steps(*operands["esnlm " + chosen_kernel(reservoir)], h, tokens, width)}
    contenders |= {name: jax_steps(*own, h, tokens, slots) for name, own in operands.items() if name not in left_out}
    contenders["scipy csr"] = scipy_steps(reservoir, h, tokens, np.float32)
    if measure.torch is not None:
        contenders["torch csr"] = torch_steps(reservoir, h, tokens)
    if reservoirpy is not None:
        contenders["reservoirpy numpy"] = reservoirpy_steps(reservoir, h, tokens)
    if reservoirpy_jax is not None and "reservoirpy jax" not in left_out:
        contenders["reservoirpy jax"] = reservoirpy_jax_steps(reservoir, h, tokens)
    final = {}

    def run(name, _):
        final[name] = contenders[name]()

    seconds, failures = measure.interleave({name: partial(run, name) for name in contenders}, args.rounds)
    per_step = {name: [s / steps for s in own] for name, own in seconds.items()}
    floor = floor_seconds(reservoir, slots, copy_bandwidth)
    truth = scipy_steps(reservoir, h, tokens, np.float64)()
    compared = measure.compare(per_step, BASELINE)
    for name, result in compared.items():
        result["error"] = float(np.abs(as_numpy(final[name]) - truth).max() / np.abs(truth).max())
        result["share_of_floor"] = floor / result["median_s"]
    row = {"size": size, "slots": slots, "nonzeros": nonzeros, "steps": steps, "floor_s": floor}
    return row | {"contenders": compared, "left_out": left_out | failures}


def start(size: int, slots: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """States (N, B) float32 and tokens (T, B) int32 to begin with."""
    rng = np.random.default_rng(1)
    h = 2 * rng.random((size, slots), dtype=np.float32) - 1
    return h, rng.integers(0, VOCAB_SIZE, (steps, slots)).astype(np.int32)


def floor_seconds(reservoir: Reservoir, slots: int, copy_bandwidth: float) -> float:
    """W read once, values and indices, and h read and written."""
    size = reservoir.state_size
    return (8 * reservoir.w_rec.nse + 4 * (size + 1) + 8 * size * slots) / copy_bandwidth


def too_large(nonzeros: int, slots: int, gigabytes: float) -> dict[str, str]:
    """Contenders that write a float for each nonzero and slot, where that is more than may be asked for."""
    gathered = 4e-9 * nonzeros * slots
    names = ["esnlm bcoo", "jax BCOO", "reservoirpy jax"] + ["esnlm csr"] * (jax.default_backend() != "cpu")
    return dict.fromkeys(names, f"would gather {gathered:.1f} GB at once") if gathered > gigabytes else {}


# ---- contenders: functions that take all steps and return the final states, (N, B) or a list of blocks of slots


def jax_operands(reservoir: Reservoir, dense_up_to: int) -> dict[str, tuple]:
    """{name: (step, its operands)}: every kernel of esnlm, and the recurrence in plain BCOO."""
    kernels = [kernel for kernel in sparse.KERNELS if kernel != "dense" or reservoir.state_size <= dense_up_to]
    found = {f"esnlm {kernel}": (esnlm_step, reservoir.for_device(kernel)) for kernel in kernels}
    plain = (reservoir.w_rec, reservoir.w_in.todense(), reservoir.leak[...][:, None])
    return found | {"jax BCOO": (plain_step, plain)}


def chosen_kernel(reservoir: Reservoir) -> str:
    return sparse.choose_kernel(reservoir.state_size, reservoir.w_rec.nse, jax.default_backend())


def jax_steps(step, operands, h, tokens, width):
    blocks = [slice(i, i + width) for i in range(0, h.shape[1], width)]
    inputs = [(jnp.asarray(h[:, block]), jnp.asarray(tokens[:, block])) for block in blocks]
    return lambda: jax.block_until_ready([_scan(step, operands, *block) for block in inputs])


@partial(jax.jit, static_argnames="step")
def _scan(step, operands, h, tokens):
    return lax.scan(lambda h, now: (step(operands, h, now), None), h, tokens)[0]


def esnlm_step(dynamics, h, tokens):
    return dynamics.step(h, tokens)


def plain_step(operands, h, tokens):
    w_rec, w_in, leak = operands
    return (1 - leak) * h + leak * jnp.tanh(w_rec @ h + w_in[:, tokens])


def scipy_steps(reservoir: Reservoir, h: np.ndarray, tokens: np.ndarray, dtype: type) -> Callable[[], np.ndarray]:
    w_rec, w_in = as_scipy(reservoir.w_rec, dtype), as_scipy(reservoir.w_in, dtype).toarray()
    leak, start = np.asarray(reservoir.leak[...], dtype)[:, None], h.astype(dtype)

    def run():
        h = start
        for now in tokens:
            h = (1 - leak) * h + leak * np.tanh(w_rec @ h + w_in[:, now])
        return h

    return run


def torch_steps(reservoir: Reservoir, h: np.ndarray, tokens: np.ndarray) -> Callable:
    device = "cuda" if measure.torch.cuda.is_available() else "cpu"
    own = peers.TorchReservoir(reservoir, device)
    start, tokens = (measure.torch.from_numpy(x).to(device) for x in (h, tokens))

    def run():
        h = start
        for now in tokens:
            h = own.fast_step(h, now)
        measure.torch_wait()
        return h

    return run


def reservoirpy_steps(reservoir: Reservoir, h: np.ndarray, tokens: np.ndarray) -> Callable:
    weights = {"W": as_scipy(reservoir.w_rec, np.float32), "Win": as_scipy(reservoir.w_in, np.float32)}
    node = reservoirpy.nodes.Reservoir(lr=np.asarray(reservoir.leak[...]), dtype=np.float32, **weights)
    one_hot, starts = np.eye(reservoir.vocab_size, dtype=np.float32), np.ascontiguousarray(h.T)

    def run():
        states = []
        for slot, start in enumerate(starts):
            state = {"out": start}
            for token in tokens[:, slot]:
                state = node._step(state, one_hot[token])
            states.append(state["out"])
        return np.stack(states, axis=1)

    return run


def reservoirpy_jax_steps(reservoir: Reservoir, h: np.ndarray, tokens: np.ndarray) -> Callable:
    node = reservoirpy_jax.Reservoir(
        lr=reservoir.leak[...], W=reservoir.w_rec, Win=reservoir.w_in, dtype=jnp.float32, units=reservoir.state_size
    )
    run_all = jax.jit(jax.vmap(lambda start, series: node._run({"out": start}, series)[0]["out"]))
    starts, series = jnp.asarray(h.T), jax.nn.one_hot(tokens.T, reservoir.vocab_size)  # (B, N), (B, T, V)
    return lambda: run_all(starts, series).block_until_ready().T


def as_numpy(states) -> np.ndarray:
    if isinstance(states, list):
        return np.concatenate([np.asarray(block) for block in states], axis=1)
    return np.asarray(states.cpu() if hasattr(states, "cpu") else states)


def as_scipy(matrix: BCOO, dtype: type) -> scipy.sparse.csr_array:
    row, column = np.asarray(matrix.indices).T
    return scipy.sparse.csr_array((np.asarray(matrix.data, dtype), (row, column)), shape=matrix.shape)


# ---- the table


def lines_of(row: dict) -> list[str]:
    title = f"N = {row['size']:,}, B = {row['slots']:,}: floor {1e3 * row['floor_s']:.3g} ms"
    results = sorted(row["contenders"].items(), key=lambda item: item[1]["median_s"])
    cells = [
        [name, 1e3 * r["median_s"], 1e3 * r["min_s"], 1e3 * r["max_s"], r["slower"], r["share_of_floor"], r["error"]]
        for name, r in results
    ]
    head = ["", "ms a step", "least", "most", f"x {BASELINE}", "floor / time", "error"]
    return [title, "", *measure.table(head, cells), *(f"- {k}: {v}" for k, v in row["left_out"].items()), ""]


def markdown(record: dict) -> list[str]:
    absent = [] if reservoirpy is not None else ["reservoirpy is not installed"]
    absent += [] if reservoirpy_jax is not None else ["reservoirpy's JAX backend does not exist in what is installed"]
    absent += [] if measure.torch is not None else ["torch is not installed"]
    names = list(dict.fromkeys(name for row in record["rows"] for name in row["contenders"]))
    overview = [
        [row["size"], row["slots"], 1e3 * row["floor_s"]]
        + [1e3 * row["contenders"][name]["median_s"] if name in row["contenders"] else None for name in names]
        for row in record["rows"]
    ]
    copies = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in record["copy_bytes_per_s"].items())
    return [
        "Milliseconds a step, medians of rounds in which the contenders take turns; float32, the same matrices.",
        "`esnlm` is what a run uses: its choice of kernel, in blocks of slots that fit the cache; kernels by name take",
        "all slots at once. Error: the largest of the final states against SciPy's float64, over the largest state.",
        f"Copy bandwidth in GB/s, read and written: {copies}.",
        *absent,
        "",
        *measure.table(["N", "B", "floor", *names], overview),
        "",
        *(line for row in record["rows"] for line in lines_of(row)),
    ]


if __name__ == "__main__":
    main()
