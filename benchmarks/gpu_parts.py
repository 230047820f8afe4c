"""One part of benchmarks/gpu_all.sh, which starts each part in its own process.

    train       `esnlm train` at N = 4,096 on two million words, twice: with an empty and a full
                compilation cache. Once more with a profile of ten updates, stopped when it is
                written. Then `esnlm blimp`.
    speed       tokens per second, in turns, of this model, the same in PyTorch and PyTorch's LSTM,
                in TF32 and bf16
    families    the same for two deep readouts, for esnlm's LSTM and for PyTorch's
    step        one time step by each kernel, dense, and cuSPARSE (PyTorch's CSR); the device's
                peak copies and products
    large       `esnlm train` at N = 65,536 for a minute
    same        whether the runs of `train` are bit-identical, with the stopped one resumed; and
                with XLA's deterministic operations

OUT/PART.json has {"small", "failures", "seconds", FINDING: ...}, and is written after each finding,
the most important first.
"""

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
END = 8  # last seconds of a part, in which it begins nothing new
KERNELS = 20  # number of kernels listed for a profile
STEPS = 16


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True, help="folder of the findings")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder with stores/ and blimp/, and for the runs"
    )
    parser.add_argument(
        "--seconds", type=float, required=True, help="after which this process is killed"
    )
    parser.add_argument(
        "--small", action="store_true", help="tiny sizes, on sentences of a grammar"
    )
    args = parser.parse_args()
    part = Part(args)
    if args.small and not (args.work / "stores").exists():
        make_small_data(args.work)
    part.find("part", PARTS[args.part], part)


class Part:
    """The findings of a part, written to its file as they come, and failures in words."""

    def __init__(self, args: argparse.Namespace):
        self.file, self.work, self.small = args.out / f"{args.part}.json", args.work, args.small
        self.began, self.end = time.monotonic(), time.monotonic() + args.seconds - END
        self.units = 128 if args.small else 4096
        # a CPU does not support TF32
        self.precisions = ("float32",) if args.small else ("tf32", "bf16")
        self.found: dict = {"small": args.small, "gpu": gpu(), "failures": []}
        self.save()

    def left(self) -> float:
        """Returns the seconds left to begin new work."""
        return self.end - time.monotonic()

    def add(self, name: str, finding: object) -> None:
        self.found[name] = finding
        self.save()

    def find(self, name: str, work: Callable, *arguments: object, **options: object) -> None:
        """Adds the result of `work`, if any. Any exception is recorded as a failure."""
        if self.left() <= 0:
            self.found["failures"].append(f"{name}: skipped, out of time")
        else:
            try:
                finding = work(*arguments, **options)
                if finding is not None:
                    self.found[name] = finding
            except Exception as error:
                traceback.print_exc()
                self.found["failures"].append(
                    f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
                )
        self.save()

    def save(self) -> None:
        self.found["seconds"] = round(time.monotonic() - self.began, 1)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.found, indent=1) + "\n", "utf-8")
        new.replace(self.file)


def gpu() -> str | None:
    """Returns the name, driver and memory of the GPU."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return (
            subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip() or None
        )
    except OSError:
        return None


def make_small_data(work: Path) -> None:
    """Writes stores and minimal pairs of the grammar under the names of the real ones."""
    import esnlm
    from esnlm.data import grammar, grammar_pairs

    text = list(grammar.sentences(12_000, seed=0))
    esnlm.prepare(text, work / "stores" / "gpt2", tokenizer="words")
    esnlm.prepare(text[:3000], work / "stores" / "bpe8k", tokenizer="words")
    held_out = list(grammar.sentences(2000, seed=0, split="validation"))
    esnlm.prepare(
        held_out, work / "stores" / "gpt2_dev", tokenizer=work / "stores" / "gpt2" / "tokenizer"
    )
    grammar_pairs.write_pairs(grammar_pairs.minimal_pairs(100, seed=0), work / "blimp")


# ---- commands of esnlm


def esnlm_command(
    part: Part,
    *words: object,
    seconds: float,
    until: Callable[[], bool] = lambda: False,
    xla: str = "",
) -> dict:
    """Runs a command. It gets SIGTERM after `seconds`, or when `until` returns true, and then has
    20 more seconds."""
    command = [sys.executable, "-m", "esnlm", *map(str, words)]
    environment = os.environ | {"ESNLM_COMPILATION_CACHE": str(part.work / "compiled")}
    if xla:
        environment["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), xla])
    print("$", *command[1:], flush=True)
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    while process.poll() is None and time.monotonic() - began < seconds and not until():
        time.sleep(0.05)
    if asked := process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    wall = time.monotonic() - began
    return {
        "command": " ".join(["esnlm", *map(str, words)]),
        "status": status,
        "asked_to_stop": asked,
        "wall_s": wall,
    }


def train(
    part: Part, name: str, size: int, seconds: float, text: str = "gpt2", more: tuple = (), **how
) -> dict:
    """Trains or resumes a run, and returns its outcome."""
    run, stores = part.work / "runs" / name, part.work / "stores"
    given = ["--data.train", stores / text, "--data.validation", stores / "gpt2_dev"]
    given += ["--model.reservoir.state_size", size, "--compute.precision", part.precisions[0]]
    given += [
        "--training.log_every",
        40 if part.small else 200,
        "--training.checkpoint_every",
        1_000_000,
    ]
    given += ["--model.readout.rank", 32] if part.small else []
    config = ROOT / "configs" / "esn_at_scale" / "esn.yaml"
    found = esnlm_command(
        part, "train", "--config", config, "--run", run, *given, *more, seconds=seconds, **how
    )
    return found | progress(run)


def progress(run: Path) -> dict:
    """Returns the progress and speed of a run, from its metrics and its summary."""
    file = run / "metrics.jsonl"
    lines = (
        [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    )
    lines = [line for line in lines if "tokens_per_second" in line]
    times = [line["tokens"] / line["tokens_per_second"] for line in lines]
    # after the run was ready to train: most of it compiles
    found: dict = {"first_line_s": times[0] if times else None}
    if lines:
        found |= {key: lines[-1].get(key) for key in ("step", "tokens", "words", "train_nll")}
    if len(lines) > 1 and times[-1] > times[0]:
        found["tokens_per_s"] = (lines[-1]["tokens"] - lines[0]["tokens"]) / (times[-1] - times[0])
    file = run / "summary.json"
    kept = ("status", "step", "val_nll", "seconds", "peak_memory_bytes", "device", "versions")
    summary = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return found | {"summary": {key: summary[key] for key in kept if key in summary}}


def train_and_score(part: Part) -> None:
    share = part.left()
    for name, of_share in (("cold", 0.42), ("warm", 0.3)):
        part.find(name, train, part, name, part.units, share * of_share)
    part.find("profile", profile, part)
    part.find("blimp", score, part)


def score(part: Part) -> dict:
    pairs, report = part.work / "blimp", part.work / "blimp.json"
    given = ["--run", part.work / "runs" / "warm", "--data", pairs, "--out", report]
    found = esnlm_command(part, "blimp", *given, seconds=max(part.left() - 5, 1))
    whole = json.loads(report.read_text("utf-8")) if report.exists() else {}
    # all but tables
    short = {key: value for key, value in whole.items() if isinstance(value, int | float | str)}
    return found | {"files": len(list(pairs.glob("*.jsonl"))), "report": short}


def profile(part: Part) -> dict:
    """Trains once more until the profile of ten updates is written, and reduces it to a table."""
    first = 41 if part.small else 201
    traces = partial(
        (part.work / "runs" / "stopped" / "profile" / "plugins" / "profile").glob,
        "*/*.trace.json.gz",
    )
    more = ("--profile", f"{first}:{first + 9}")
    seconds = max(1, min(part.left() - 25, 60))
    part.add(
        "stopped",
        train(part, "stopped", part.units, seconds, more=more, until=lambda: any(traces())),
    )
    if not (written := list(traces())):
        raise ValueError("the run ended before its profile was written")
    return longest_kernels(
        json.loads(gzip.decompress(max(written).read_bytes()))["traceEvents"]
    ) | {"updates": 10}


def longest_kernels(events: list[dict]) -> dict:
    """Returns the kernels of a trace with the longest total times, and the time without a running
    kernel.

    On a GPU kernels are taken from its streams; on a CPU they are the compiled operations.
    """
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"
    }
    spans = [e for e in events if e.get("ph") == "X"]
    own = [e for e in spans if threads.get((e["pid"], e.get("tid")), "").startswith("Stream #")]
    if not own:
        own = [
            e
            for e in spans
            if "hlo_op" in e.get("args", {})
            and not e["name"].startswith(("while", "cond", "call", "end: "))
        ]
    if not own:
        raise ValueError("the trace has no kernel")
    took, times, busy, end = defaultdict(float), defaultdict(int), 0.0, 0.0
    for event in sorted(own, key=lambda e: e["ts"]):
        took[event["name"]] += event["dur"] / 1e3
        times[event["name"]] += 1
        busy += max(0.0, event["ts"] + event["dur"] - max(end, event["ts"]))
        end = max(end, event["ts"] + event["dur"])
    longest = sorted(took, key=took.__getitem__, reverse=True)[:KERNELS]
    return {
        "span_ms": (end - min(e["ts"] for e in own)) / 1e3,
        "busy_ms": busy / 1e3,
        "launches": len(own),
        "all_ms": sum(took.values()),
        "kernels": [{"name": name, "ms": took[name], "times": times[name]} for name in longest],
    }


# ---- benchmarks


def measure_models(part: Part, configs: list[str], store: str, precisions: tuple[str, ...]) -> None:
    """Times models in turns by benchmarks/families.py, each in its own process."""
    import families
    import measure

    from esnlm.training import config_io

    given = argparse.Namespace(
        store=part.work / "stores" / store, precisions=precisions, patience=0.7 * part.left()
    )
    given.torch_esn, given.compiled = store == "gpt2", store == "gpt2" and not part.small
    given.updates, given.rounds = (3, 2) if part.small else (40, 5)
    experiments = {}
    for name in configs:
        settings = ["--run=unused"]
        if name == "esn_at_scale/esn":
            settings += [f"--model.reservoir.state_size={part.units}"] + [
                "--model.readout.rank=32"
            ] * part.small
        experiments[Path(name).name] = config_io.read(ROOT / "configs" / f"{name}.yaml", settings)
    if measure.torch is None:
        part.found["failures"].append("PyTorch is not installed: its models were not measured")
    families.measure_families(experiments, given, lambda found: part.add("models", found))


def speed(part: Part) -> None:
    measure_models(part, ["esn_at_scale/esn"], "gpt2", part.precisions)


def deep_readouts(part: Part) -> None:
    names = ("light_twice_the_bigrams", "wide_bigrams", "lstm_without_dropout")
    measure_models(part, [f"frontier/{name}" for name in names], "bpe8k", part.precisions[:1])


def step(part: Part) -> None:
    """Times steps by benchmarks/recurrence.py, JAX's and PyTorch's one after the other, since dense
    matrices fill the memory."""
    import measure
    import recurrence

    steps: dict[int, dict] = {}

    def time_step(process: measure.Apart, size: int) -> None:
        own = steps.setdefault(size, {"size": size, "ms": {}, "error": {}, "failures": {}})
        for key, value in process.time(size).items():
            own[key] = own[key] | value if key in ("ms", "error", "failures") else value
        part.add("steps", list(steps.values()))

    sizes = (64, 128, 256) if part.small else (4096, 65536, 16384)
    libraries = [recurrence.JaxWays] + [recurrence.TorchWays] * (measure.torch is not None)
    for ways in libraries:
        process = measure.Apart(ways, 32 if part.small else 1024, STEPS)
        part.find("machine", process.machine)
        if ways is recurrence.JaxWays:
            part.find("copy_bytes_per_s", process.copies, 8 if part.small else 2048)
        for size in sizes:
            part.find(f"N {size:,}, {ways.__name__}", time_step, process, size)
        if ways is libraries[-1]:
            for precision in part.precisions:
                part.find(f"flops_per_s {precision}", process.products, precision, part.small)
        process.close()
    if measure.torch is None:
        part.found["failures"].append("PyTorch is not installed: cuSPARSE was not measured")
        part.save()


# ---- a large reservoir, and the same bits


def large(part: Part) -> None:
    """Trains until a minute after the first line of metrics, or as long as the part lasts."""
    metrics = part.work / "runs" / "large" / "metrics.jsonl"
    since: list[float] = []

    def until() -> bool:
        if not since and metrics.exists() and metrics.stat().st_size:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] > (5 if part.small else 60)

    size = 512 if part.small else 65536
    part.add("large", train(part, "large", size, part.left() - 12, until=until))


def same(part: Part) -> None:
    """Compares the arrays of runs at their last update. Missing runs are made, and stopped runs
    resumed, first."""
    stopped_at = None
    for name in ("cold", "warm", "stopped"):
        summary = progress(part.work / "runs" / name)["summary"]
        if summary.get("status") == "interrupted" and name == "stopped":
            stopped_at = summary["step"]
        if summary.get("status") in ("interrupted", None):
            train(part, name, part.units, max(1, part.left() - 12))
        if name == "warm":
            part.find("made twice", difference, part, "cold", "warm")
    if stopped_at is None:
        part.found["failures"].append("resumed: the run had not been stopped in the part train")
    else:
        part.find("resumed", difference, part, "warm", "stopped", stopped_at=stopped_at)

    def deterministic() -> dict:
        for name in ("one", "other"):
            train(
                part,
                name,
                part.units,
                part.left() - 12,
                text="gpt2_dev",
                xla="--xla_gpu_deterministic_ops=true",
            )
        return difference(part, "one", "other")

    if not part.small:
        part.find("made twice, deterministic operations", deterministic)


def difference(part: Part, one: str, other: str, **more: object) -> dict:
    """Returns the arrays that differ between the last checkpoints of two runs, with their largest
    differences."""
    import jax
    import numpy as np

    from esnlm.runs import checkpoint

    jax.config.update("jax_platforms", "cpu")  # the device is for the runs
    (step, first, _), (other_step, second, _) = (
        checkpoint.restore_latest(part.work / "runs" / name / "checkpoints")
        for name in (one, other)
    )
    if step != other_step:
        raise ValueError(f"{one} is at update {step} and {other} at {other_step}")
    found: dict = {"update": step, "arrays": 0, "differ": {}} | more
    named, of_other = (jax.tree_util.tree_leaves_with_path(arrays) for arrays in (first, second))
    for (path, a), (_, b) in zip(named, of_other, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        found["arrays"] += 1
        if a.tobytes() != b.tobytes():
            largest = np.abs(a.astype(np.float64) - b).max() / max(np.abs(a).max(), 1e-30)
            found["differ"][jax.tree_util.keystr(path)] = float(largest)
    return found


PARTS = {
    "train": train_and_score,
    "speed": speed,
    "families": deep_readouts,
    "step": step,
    "large": large,
    "same": same,
}

if __name__ == "__main__":
    main()
