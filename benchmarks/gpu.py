"""All that is measured on a GPU, in one command of at most ten minutes.

    python -m pip install -e .        # or PYTHONPATH=. : esnlm must be importable
    python benchmarks/gpu.py --out results/h200
    python benchmarks/gpu.py --small --out gpu-results      # tries it at tiny sizes, on a CPU too (four minutes on two cores)

Each section is a process of its own, so that one that fails, hangs or fills the memory costs the others nothing:

    ceilings             matrix products (float32, TF32, bf16) and copies: what the machine can do
    update               an update of 32 sentences (733 predictions from 702 rows) at each precision, against its floor
    errors               states and log-probabilities against float64, and pair answers that change
    training             tokens a second against PyTorch on the same device, see training.py
    recurrence           one time step with every kernel of esnlm
    recurrence-torch     torch.sparse CSR, which is cuSPARSE
    recurrence-cusparse  plain BCOO with JAX's cuSPARSE lowering, which must be switched on before anything is traced

Every section writes gpu.SECTION.json after each finding. The end writes gpu.json and gpu.md and prints the tables. All
sections together take at most --minutes, and what one section leaves goes to the later ones.
"""

import argparse
import json
import subprocess
import sys
import time
import traceback
from functools import cache
from itertools import product
from pathlib import Path

import jax
import measure
import numpy as np
import precision as precision_benchmark
import recurrence as recurrence_benchmark
import sentences
import training as training_benchmark
import untrained

from esnlm.evaluation.sequences import sum_log_probs
from esnlm.io.atomic import write_file
from esnlm.reservoir import sparse
from esnlm.training.batches import EpochPlan

PRECISIONS = ("tf32", "bf16", "float32")  # most wanted first
PLAIN_KERNELS = tuple(kernel for kernel in sparse.KERNELS if kernel != "fused")


def trainable_precisions() -> tuple[str, ...]:
    """Returns those that training takes: a CPU, on which --small tries this script, has no TF32."""
    return tuple(precision for precision in PRECISIONS if precision != "tf32" or jax.default_backend() != "cpu")


SHARES = {  # of the time that is left when a section begins, relative to the sections after it
    "ceilings": 4,
    "update": 5,
    "errors": 3,
    "training": 12,
    "recurrence": 5,
    "recurrence-torch": 2,
    "recurrence-cusparse": 2,
}
START = 15  # seconds of a section in which it begins nothing new: its process starts, and ends, in them
STEPS, PREDICTIONS = 16, 733


class Scale:
    """The sizes to measure at, most wanted first."""

    def __init__(self, small: bool):
        self.small = small
        self.square, self.megabytes = (128, 4) if small else (8192, 4096)
        self.sizes = (64, 128) if small else (4096, 65536, 16384, 1024, 1 << 20)
        self.slots = (8, 32) if small else (1024, 256, 4096, 32)
        self.degree = 8 if small else 32  # mean nonzeros of a row, where nothing is trained
        self.most_states = 1 << 30  # N * B: 4 GB
        self.dense_up_to = 64 if small else 16384
        self.gigabytes = 1 if small else 40
        self.vocab, self.rank = (500, 32) if small else (50257, 512)
        self.trained = (64, 128) if small else (4096, 65536)
        self.rounds = 2 if small else 3
        self.most_updates = 2 if small else 1000  # a window's, or those of a round
        self.errors_size, self.errors_vocab, self.pairs = (64, 200, 50) if small else (1024, 5000, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--sections", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--section", choices=SHARES, help=argparse.SUPPRESS)  # what a section's process is started with
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.section:
        Section(args).run()
    else:
        run_all(args)


def run_all(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    # This process leaves the device to those of the sections, one of which says what the machine is.
    record = {"command": measure.command(), "load_before": measure.load(), "machine": None, "sections": {}}
    for i, name in enumerate(args.sections):
        file = args.out / f"gpu.{name}.json"
        file.unlink(missing_ok=True)
        left = deadline - time.monotonic()
        seconds = left * SHARES[name] / sum(SHARES[later] for later in args.sections[i:])
        began = time.monotonic()
        options = ["--section", name, "--out", str(args.out), "--seconds", str(seconds - START)]
        options += ["--small"] * args.small
        print(f"{name}: at most {seconds:.0f} s", flush=True)
        try:
            code = subprocess.run([sys.executable, __file__, *options], timeout=seconds).returncode
        except subprocess.TimeoutExpired:
            code = "out of time"
        found = json.loads(file.read_text()) if file.exists() else {"findings": [], "failures": []}
        if code != 0:
            found["failures"].append(f"the section ended with {code}")
        record["sections"][name] = found | {"wall_s": time.monotonic() - began}
        record["machine"] = record["machine"] or found.get("machine")
    lines = markdown(record)
    if record["machine"]:
        measure.write(args.out, "gpu", "On one GPU", lines, record)
    print("\n".join(lines))


class Section:
    """One section in its process: findings (dicts), written to a file as they come, and failures in words."""

    def __init__(self, args: argparse.Namespace):
        self.name, self.file = args.section, args.out / f"gpu.{args.section}.json"
        self.out, self.scale = args.out, Scale(args.small)
        self.deadline = time.monotonic() + args.seconds
        self.found = {"findings": [], "failures": []}

    def run(self) -> None:
        measure.set_up()
        try:
            if self.name == "recurrence-torch" and measure.torch is None:
                raise ModuleNotFoundError("torch is not installed")
            if self.name == "recurrence-cusparse":
                jax.config.update("jax_bcoo_cusparse_lowering", True)
            self.found["machine"] = measure.machine()
            SECTIONS[self.name](self)
        except ModuleNotFoundError as error:
            self.found["failures"].append(str(error))
        except Exception as error:  # the section is over, what it found stays
            traceback.print_exc()
            self.found["failures"].append(measure.one_line(error))
        self.save()

    def attempt(self, what: str, finding, *arguments) -> None:
        """Adds finding(*arguments), a list of dicts, or says why there is none. Skipped when time is nearly up."""
        if time.monotonic() > self.deadline:
            self.found["failures"].append(f"{what}: skipped, out of time")
        else:
            try:
                self.found["findings"] += finding(*arguments)
            except Exception as error:  # whatever it is, the rest goes on
                traceback.print_exc()
                self.found["failures"].append(f"{what}: {measure.one_line(error)}")
        self.save()

    def save(self) -> None:
        stats = jax.devices()[0].memory_stats()
        self.found["peak_bytes"] = stats["peak_bytes_in_use"] if stats else None
        write_file(self.file, json.dumps(self.found, indent=1))

    def ceilings(self) -> tuple[dict[str, float], float]:
        """Returns (FLOP/s by precision, bytes/s) as the first section found them; NaN where it found none."""
        file = self.out / "gpu.ceilings.json"
        findings = json.loads(file.read_text())["findings"] if file.exists() else []
        flops = {f["precision"]: f["best_flops_per_s"] for f in findings if "precision" in f}
        copies = [measure.best_peak(f["copy_bytes_per_s"]) for f in findings if "copy_bytes_per_s" in f]
        return {p: flops.get(p, float("nan")) for p in PRECISIONS}, max(copies, default=float("nan"))


# ---- sections


def ceilings(section: Section) -> None:
    scale = section.scale
    shapes = training_benchmark.gemm_shapes(768, scale.vocab, scale.rank) | {"square": (scale.square,) * 3}

    def gemm(precision):
        peaks = measure.gemm_peaks(shapes, 5, precision)
        best = max(map(measure.best_peak, peaks.values()))
        return [{"precision": precision, "peaks": peaks, "best_flops_per_s": best}]

    section.attempt("copy", lambda: [{"copy_bytes_per_s": measure.copy_peaks(scale.megabytes, 5)}])
    for precision in PRECISIONS:
        section.attempt(precision, gemm, precision)


def recurrence_steps(section: Section) -> None:
    """Measures esnlm's kernels; in the cuSPARSE section plain BCOO alone, in torch's section its CSR alone."""
    scale, (_, bandwidth) = section.scale, section.ceilings()
    wanted = {"recurrence": "esnlm", "recurrence-cusparse": "jax BCOO", "recurrence-torch": "torch"}[section.name]

    @cache
    def build(size):
        reservoir = narrow_reservoir(scale, size)
        operands = {} if wanted == "torch" else recurrence_benchmark.jax_operands(reservoir, scale.dense_up_to)
        return reservoir, {name: own for name, own in operands.items() if name.startswith(wanted)}

    def measure_step(size, slots):
        reservoir, operands = build(size)
        h, tokens = recurrence_benchmark.start(size, slots, STEPS)
        left_out = {}
        if wanted == "esnlm":
            left_out = recurrence_benchmark.too_large(reservoir.w_rec.nse, slots, scale.gigabytes)
        operands = {name: own for name, own in operands.items() if name not in left_out}
        turns = {name: recurrence_benchmark.jax_steps(*own, h, tokens, slots) for name, own in operands.items()}
        if wanted == "torch":
            turns["torch csr"] = recurrence_benchmark.torch_steps(reservoir, h, tokens)
        turns = {name: lambda _, run=run: run() for name, run in turns.items()}
        seconds, failures = measure.interleave(turns, scale.rounds)
        milliseconds = {name: 1e3 * float(np.median(own)) / STEPS for name, own in seconds.items()}
        floor = 1e3 * recurrence_benchmark.floor_seconds(reservoir, slots, bandwidth)
        return [{"size": size, "slots": slots, "floor_ms": floor, "ms": milliseconds, "left_out": left_out | failures}]

    for slots, size in product(scale.slots, scale.sizes):
        if size * slots <= scale.most_states:
            section.attempt(f"N {size:,}, B {slots:,}", measure_step, size, slots)


def narrow_reservoir(scale: Scale, size: int):
    """Returns the reservoir that recurrence.py measures."""
    return untrained.initialize(size, recurrence_benchmark.VOCAB_SIZE, rank=1, degree=scale.degree).model.reservoir


def update(section: Section) -> None:
    """Measures windows as large as the device's, of updates that all have the same size."""
    scale, (flops, bandwidth) = section.scale, section.ceilings()

    def measure_update(size, precision):
        run = untrained.initialize(size, scale.vocab, scale.rank, precision=precision)
        count = min(scale.most_updates, run.config.compute.window_tokens // PREDICTIONS)
        text = equal_updates(count, scale)
        own = training_benchmark.Esnlm(run, text)
        compile_s, working_bytes = own.compile()
        turns = {"features": own.load, "updates": lambda i: own.run(i, count)}
        seconds, failures = measure.interleave(turns, scale.rounds)
        parts, broken = measure.interleave(own.parts(count)[0], scale.rounds)
        section.found["failures"] += [
            f"N {size:,}, {precision}, {part}: {why}" for part, why in (failures | broken).items()
        ]
        milliseconds = {name: 1e3 * float(np.median(own)) / count for name, own in seconds.items()}
        milliseconds |= {name: 1e3 * float(np.median(own)) for name, own in parts.items()}
        floor = training_benchmark.update_floor(
            sentences.rows(text.batches(0)[0]), size, scale.vocab, scale.rank, flops[precision], bandwidth
        )
        finding = {"size": size, "precision": precision, "ms": milliseconds, "floor_ms": 1e3 * sum(floor.values())}
        return [finding | {"working_bytes": working_bytes, "compile_s": compile_s}]

    for precision, size in product(trainable_precisions(), scale.trained):
        section.attempt(f"N {size:,}, {precision}", measure_update, size, precision)


def equal_updates(count: int, scale: Scale) -> sentences.Text:
    """Returns a window for each round: always the same updates, of 32 sentences that begin alike and PREDICTIONS in all."""
    rng = np.random.default_rng(0)
    lengths = [len(part) for part in np.array_split(np.arange(PREDICTIONS), 32)]
    store = sentences.as_store(
        [np.append(0, rng.integers(0, scale.vocab, n)).astype(np.int32) for n in count * lengths]
    )
    epoch = EpochPlan(list(np.arange(len(store)).reshape(count, 32)), np.full(count, PREDICTIONS), [range(count)])
    return sentences.Text(store, [epoch], [(0, range(count))] * scale.rounds)


def training(section: Section) -> None:
    """Measures whole windows; torch.compile, which may take long, comes last."""
    scale, (flops, bandwidth) = section.scale, section.ceilings()

    def measure_training(size, precision, compiled):
        options = argparse.Namespace(vocab=scale.vocab, rank=scale.rank, batch=32, store=None, rounds=scale.rounds)
        options.updates, options.precision, options.compiled = scale.most_updates, precision, compiled
        return [training_benchmark.measure_training(size, options, flops[precision], bandwidth)]

    cases = [(size, precision, False) for size in scale.trained for precision in ("tf32", "float32")]
    cases += [(scale.trained[0], "bf16", False), (scale.trained[0], "tf32", True)]
    for case in [case for case in cases if case[1] in trainable_precisions()]:
        section.attempt("N {:,}, {}, compiled {}".format(*case), measure_training, *case)


def errors(section: Section) -> None:
    """Compares with float64 on the host, from the same float32 weights."""
    scale = section.scale
    size, vocab_size = scale.errors_size, scale.errors_vocab
    run = untrained.initialize(size, vocab_size, scale.rank)
    pairs = sentences.draw_pairs(scale.pairs, vocab_size, seed=1)

    def states(kernel):
        narrow = narrow_reservoir(scale, size)
        h, tokens = recurrence_benchmark.start(size, 32, 200)
        truth = recurrence_benchmark.scipy_steps(narrow, h, tokens, np.float64)()
        operands = recurrence_benchmark.jax_operands(narrow, size)[f"esnlm {kernel}"]
        own = recurrence_benchmark.as_numpy(recurrence_benchmark.jax_steps(*operands, h, tokens, 32)())
        return [{"kernel": kernel, "error_after_200_steps": float(np.abs(own - truth).max() / np.abs(truth).max())}]

    def log_probs(precision):
        settings = precision_benchmark.PRECISIONS[precision]
        own = precision_benchmark.with_precision(run, **settings).token_log_probs_of(pairs)
        error = max(float(np.abs(a - b).max()) for a, b in zip(own, truth, strict=True))
        sums = sum_log_probs(own)
        changed = np.mean((sums[::2] > sums[1::2]) != (right[::2] > right[1::2]))
        return [{"precision": precision, "largest_error_nats": error, "answers_changed": float(changed)}]

    for kernel in sparse.KERNELS if jax.default_backend() == "gpu" else PLAIN_KERNELS:
        section.attempt(f"states, {kernel}", states, kernel)
    truth, _ = precision_benchmark.float64_log_probs(run.model, pairs)
    right = sum_log_probs(truth)
    for precision in (*PRECISIONS, "bf16 states"):
        section.attempt(f"log-probabilities, {precision}", log_probs, precision)


SECTIONS = {
    "ceilings": ceilings,
    "recurrence": recurrence_steps,
    "recurrence-cusparse": recurrence_steps,
    "recurrence-torch": recurrence_steps,
    "update": update,
    "training": training,
    "errors": errors,
}


# ---- the tables


def markdown(record: dict) -> list[str]:
    def findings(name):
        return record["sections"].get(name, {}).get("findings", [])

    lines = ["Medians of a few rounds. `floor`: see benchmarks/gpu.py, recurrence.py and training.py.", ""]
    peaks = [f for f in findings("ceilings") if "precision" in f]
    lines += measure.table(
        ["TFLOP/s", *(peaks[0]["peaks"] if peaks else [])],
        [[f["precision"], *(measure.best_peak(own) / 1e12 for own in f["peaks"].values())] for f in peaks],
    )
    for finding in findings("ceilings"):
        if "copy_bytes_per_s" in finding:
            copies = ", ".join(f"{name} {value / 1e12:.3g}" for name, value in finding["copy_bytes_per_s"].items())
            lines += ["", f"Copy, TB/s read and written: {copies}"]

    steps = {}
    for name in ("recurrence", "recurrence-cusparse", "recurrence-torch"):
        for f in findings(name):
            row = steps.setdefault((f["size"], f["slots"]), {"floor": f["floor_ms"]})
            row |= {"BCOO by cuSPARSE" if key == "jax BCOO" else key: value for key, value in f["ms"].items()}
    names = list(dict.fromkeys(name for row in steps.values() for name in row))
    lines += ["", "One time step of the recurrence, ms:", ""]
    rows = [[*key, *(row.get(name) for name in names)] for key, row in sorted(steps.items())]
    lines += measure.table(["N", "B", *names], rows)

    lines += ["", f"An update of 32 sentences, {PREDICTIONS} predictions, ms (features: its share of a window's):", ""]
    head = [
        "N",
        "",
        "features",
        "update",
        "of it gradient",
        "AdamW",
        "floor",
        "update / floor",
        "working GB",
        "compiled in s",
    ]
    lines += measure.table(
        head,
        [
            [f["size"], f["precision"], *map(f["ms"].get, ("features", "updates", "gradient", "AdamW"))]
            + [
                f["floor_ms"],
                f["ms"].get("updates", float("nan")) / f["floor_ms"],
                f["working_bytes"] / 1e9,
                f["compile_s"],
            ]
            for f in findings("update")
        ],
    )
    lines += ["", "Training, tokens/s (times esnlm's time):", ""]
    trained = findings("training")
    names = list(dict.fromkeys(name for f in trained for name in f["contenders"]))

    def of_each(cell):
        return [[f["size"], f["precision"], *(cell(f, name) for name in names)] for f in trained]

    def speed(f, name):
        found = f["contenders"].get(name)
        return found and f"{found['tokens_per_s']:,.0f} ({found['slower']:.3g})"

    def memory(f, name):
        found = f["working_bytes"].get(name)
        return found and found / 1e9

    lines += measure.table(["N", "", *names], of_each(speed))
    lines += ["", "Memory that an update takes beyond parameters, states and moments, GB:", ""]
    lines += measure.table(["N", "", *names], of_each(memory))
    lines += ["", "Against float64:", ""]
    for f in findings("errors"):
        if "kernel" in f:
            lines.append(f"- states, {f['kernel']}: {f['error_after_200_steps']:.1e} of the largest after 200 steps")
        else:
            lines.append(
                f"- log-probabilities, {f['precision']}: at most {f['largest_error_nats']:.1e} nats a token;"
                f" {f['answers_changed']:.2%} of the pair answers change"
            )
    lines += ["", "Sections:", ""]
    for name, section in record["sections"].items():
        peak = section.get("peak_bytes")
        memory = f", JAX's peak {peak / 1e9:.1f} GB" if peak else ""
        lines.append(f"- {name}: {section['wall_s']:.0f} s{memory}")
        lines += [f"  - {failure}" for failure in section["failures"]]
    return lines


if __name__ == "__main__":
    measure.as_command(main)
