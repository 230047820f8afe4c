"""Kill anywhere: a training, the preparation of its text and its evaluation are killed and begun again until done.

    python -m tests.reliability.kills

A child process, forked so that it has the imports behind it, runs the real command. SIGKILL ends it at a random moment,
or where the run directory shows that something in particular is under way. The same command then starts again. What
comes out must be what an undisturbed process makes, byte for byte, apart from the fields in `compare.TIMES`. Where a
kill fell is read from the child's own stack, which it writes down (by Python's faulthandler, from C) just before it is
killed. The package knows nothing of this.

Writes kills.json and kills.md under --out. Exit status 1 says that something differed.
"""

import argparse
import collections
import ctypes
import faulthandler
import inspect
import json
import os
import random
import re
import runpy
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import FunctionType, ModuleType

import jax
import numpy as np

from benchmarks import measure
from esnlm.data.prepare import prepare
from esnlm.data.store import StoreWriter, open_store
from esnlm.data.tokenizer import train_bpe
from esnlm.evaluate_run import evaluate_run
from esnlm.evaluation import scoring
from esnlm.evaluation.evaluate import evaluate
from esnlm.process import exit_with
from esnlm.reporting import blimp_report, run_results
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import batches, log
from esnlm.training.precomputed import PrecomputedUpdates
from esnlm.workflows.train import train_run
from tests.reliability.compare import REPOSITORY, TIMES, compare_files, compare_reports, compare_runs

PARENT_DEATH_SIGNAL = 1  # an option of prctl: no child outlives this program
IMPORTED = (train_run, evaluate_run, prepare)  # before any fork; none of it starts JAX's own threads
# The first of these that is on the main thread's stack says what was under way: a function, or any of a module.
PHASES: list[tuple[FunctionType | ModuleType, str]] = [
    (checkpoint.save, "save"),
    (checkpoint.prune, "removal of an old checkpoint"),
    (scoring.total_nll, "validation"),
    (run_results, "results"),
    (PrecomputedUpdates.load, "features"),
    (PrecomputedUpdates.run, "updates"),
    (log, "updates"),
    (blimp_report.write, "evaluation: report"),
    (evaluate, "evaluation: scoring"),
    (evaluate_run, "evaluation: loading"),
    (StoreWriter.finish, "preparation: store put in its place"),
    (train_bpe, "preparation: vocabulary"),
    (prepare, "preparation: text"),
    (train_run, "opening"),
]
# What to wait for before a kill, and how often it is chosen.
TARGETS = {"save": 8, "features": 5, "updates": 3, "validation": 2, "results": 1, "start": 2}


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--kills", type=int, default=50, help="of trainings, at least; runs are made until there are so many")
    add("--other-kills", type=int, default=8, help="of the preparation, and again of the evaluation")
    add("--size", type=int, default=4096, help="N")
    add("--vocab", type=int, default=8192, help="V")
    add("--text", type=Path, help="one sentence a line, enough for a vocabulary of V (default: it is made up)")
    add("--sentences", type=int, default=320, help="of it to train on")
    add("--checkpoint-every", type=int, default=2, help="updates")
    add("--window-tokens", type=int, default=4096, help="states of a window")
    add("--seed", type=int, default=0, help="of the moments")
    add("--seconds", type=float, default=840, help="begin no further kill after so long")
    add("--out", type=Path, default=measure.MEASURED)
    args = parser.parse_args(arguments)
    record = {"command": measure.command(), "load_before": measure.load()}
    with tempfile.TemporaryDirectory() as folder:
        record |= kill_all(Path(folder), args, random.Random(args.seed), time.monotonic() + args.seconds)
    record["machine"] = measure.machine()
    measure.write(args.out, "kills", "Killed anywhere", markdown(record), record)
    return record


def kill_all(folder: Path, args: argparse.Namespace, rng: random.Random, deadline: float) -> dict:
    write_text(folder, args)
    kills, differences = [], []

    preparation = [
        "-m",
        "esnlm",
        "prepare",
        "--input",
        "text",
        "--tokenizer",
        f"train:{args.vocab}",
        "--sentences",
        "line",
        "--workers",
        "2",
    ]
    preparation += ["--overwrite", "--out"]
    span = once(folder, [*preparation, "store"])
    while len(kills) < args.other_kills and time.monotonic() < deadline:
        kills += kill(folder, [*preparation, "again"], "preparation", rng, waits_for=None, longest=span)
    once(folder, [*preparation, "again"])
    differences += compare_files(folder / "store", folder / "again")
    for part in ("train", "dev"):
        options = ["--input", part, "--out", f"{part}-store", "--tokenizer", "store/tokenizer", "--sentences", "line"]
        once(folder, ["-m", "esnlm", "prepare", *options])

    train = ["train.py", "--config", "config.yaml", "--run"]
    seconds = once(folder, [*train, "undisturbed"])
    edges = window_edges(folder, args)
    of_training, runs = [], 0
    while len(of_training) < args.kills and time.monotonic() < deadline:
        runs, done = runs + 1, False
        run = folder / f"killed-{runs}"
        while not done and len(of_training) < args.kills and time.monotonic() < deadline:
            target = rng.choices(list(TARGETS), TARGETS.values())[0]
            before = half_saved(run)
            found = kill(folder, [*train, run.name], target, rng, Watch(run, target, edges).reached, longest=8.0)
            done = not found
            if half_saved(run) - before and found[0]["phase"] != "removal of an old checkpoint":
                found[0]["phase"] = "save"  # surer than the stack: Orbax's own threads may be at work
            of_training += [one | position(run, edges) for one in found]
        once(folder, [*train, run.name])
    for one in of_training:
        if one["phase"] == "updates" and one["logged"] in edges:
            # Features of the window that begins there, or its first update: the device works, and Python waits.
            one["phase"] = "features"

    evaluate = ["eval_blimp.py", "--data", "pairs", "--run", "undisturbed", "--out"]
    span, others = once(folder, [*evaluate, "reports/once.json"]), []
    while len(others) < args.other_kills and time.monotonic() < deadline:
        others += kill(folder, [*evaluate, "reports/killed.json"], "evaluation", rng, waits_for=None, longest=span)
    once(folder, [*evaluate, "reports/killed.json"])
    differences += compare_reports(folder / "reports")
    for number in range(1, runs + 1):  # last: reading checkpoints starts threads, and who has them should not fork
        differences += compare_runs(folder / "undisturbed", folder / f"killed-{number}")
    return {"runs": runs, "undisturbed_s": seconds, "kills": kills + of_training + others, "differences": differences}


def write_text(folder: Path, args: argparse.Namespace) -> None:
    """text, train and dev of it, config.yaml and pairs/ for the commands, which all run in `folder`."""
    rng = np.random.default_rng(0)
    if args.text:
        with open(args.text, encoding="utf-8") as file:
            lines = list(file)
    else:
        syllables = [
            a + b
            for a in ["b", "c", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "st", "tr"]
            for b in ["a", "e", "i", "o", "u", "ai", "en", "ul"]
        ]
        words = ["".join(rng.choice(syllables, rng.integers(1, 7))) for _ in range(max(100, 2 * args.vocab))]
        frequency = 1 / np.arange(30, len(words) + 30)
        frequency /= frequency.sum()
        lines = [" ".join(rng.choice(words, rng.integers(6, 24), p=frequency)) + ".\n" for _ in range(3000)]
    for name, part in {"text": lines, "train": lines[: args.sentences], "dev": lines[-100:]}.items():
        (folder / name).write_text("".join(part))
    (folder / "config.yaml").write_text(
        "data: {kind: store, train: train-store, validation: dev-store}\n"
        f"model: {{reservoir: {{state_size: {args.size}, mean_degree: {min(32, args.size // 4)}}}, readout: {{rank: 16}}}}\n"
        f"training: {{epochs: 2, log_every: 1, checkpoint_every: {args.checkpoint_every}}}\n"
        f"compute: {{window_tokens: {args.window_tokens}}}\n"
    )
    (folder / "pairs").mkdir()
    with open(folder / "pairs" / "order.jsonl", "w") as file:
        for i, line in enumerate(lines[-200:]):
            backwards = " ".join(reversed(line.rstrip(".\n").split()))
            pair = {"sentence_good": line.strip(), "sentence_bad": f"{backwards}.", "pairID": str(i), "UID": "order"}
            file.write(json.dumps(pair | {"field": "syntax", "linguistics_term": "order"}) + "\n")


def start(folder: Path, arguments: list[str]) -> int:
    """Starts a command in a process that has the imports behind it, in which nothing can be lost; its process id."""
    (folder / "stack").unlink(missing_ok=True)
    if child := os.fork():
        return child
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    faulthandler.register(signal.SIGUSR1, file=open("stack", "w"))  # noqa: SIM115 - open until the process ends
    jax.config.update("jax_compilation_cache_dir", str(folder / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    sys.argv = arguments
    status = 1
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(REPOSITORY / arguments[0]), run_name="__main__")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def status_of(child: int, flags: int = 0) -> int | None:
    """Exit status of a child, minus the signal's number where one ended it; None while it runs."""
    ended, status = os.waitpid(child, flags)
    return os.waitstatus_to_exitcode(status) if ended else None


def once(folder: Path, arguments: list[str]) -> float:
    """Runs a command to its end and returns the seconds it took."""
    began = time.monotonic()
    require_good(status_of(start(folder, arguments)), folder, arguments)
    seconds = time.monotonic() - began
    print(f"{seconds:.1f} s  {' '.join(arguments)}", flush=True)
    return seconds


def require_good(status: int, folder: Path, arguments: list[str]) -> None:
    if status:
        raise RuntimeError(f"{' '.join(arguments)}: status {status}: {(folder / 'stderr').read_text()[-2000:]}")


def kill(folder: Path, arguments: list[str], target: str, rng: random.Random, waits_for, longest: float) -> list[dict]:
    """Starts a command and kills it. Returns the kill, or nothing where the command came to its end before.

    Args:
        waits_for: a function that returns None, or, once it is time, the longest delay until the kill in seconds. None
            asks for a kill at a random moment within `longest` seconds of the start.
    """
    child, began = start(folder, arguments), time.monotonic()
    moment = began + rng.uniform(0, longest) if waits_for is None else None
    while (status := status_of(child, os.WNOHANG)) is None:
        now = time.monotonic()
        if moment is None and (delay := waits_for()) is not None:
            moment = now + rng.uniform(0, delay)
        if moment is not None and now >= moment and (folder / "stack").exists():
            os.kill(child, signal.SIGUSR1)
            limit = time.monotonic() + 0.05
            while time.monotonic() < limit and "exit_with" not in _read(folder / "stack"):
                time.sleep(0.0002)
            os.kill(child, signal.SIGKILL)
            # SIGUSR1 may be what ended it: faulthandler reads the frames of threads that run on, and may crash over it.
            if (status := status_of(child)) < 0:
                found = {"target": target, "phase": phase(_read(folder / "stack")), "after_s": round(now - began, 2)}
                print(found, flush=True)
                return [found]
            break
        time.sleep(0.001)
    require_good(status, folder, arguments)
    return []


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def phase(stacks: str) -> str:
    """Returns what the main thread was doing, from faulthandler's lines `File ".../checkpoint.py", line 80 in save`."""
    for stack in stacks.split("hread 0x"):
        frames = set(re.findall(r'File "(.+)", line \d+ in (\S+)', stack))
        if is_on_stack(exit_with, frames):
            return next((name for place, name in PHASES if is_on_stack(place, frames)), "start")
    return "start"


def is_on_stack(place: FunctionType | ModuleType, frames: set[tuple[str, str]]) -> bool:
    """Whether a function, or any of a module, is among frames (file, function)."""
    if isinstance(place, ModuleType):
        return any(file == place.__file__ for file, _ in frames)
    code = inspect.unwrap(place).__code__
    return (code.co_filename, code.co_name) in frames


class Watch:
    """Tells from the run directory when a target is reached, and how long it lasts."""

    def __init__(self, run: Path, target: str, edges: dict[int, bool]):
        self.run, self.target, self.edges = RunDirectory(run), target, edges
        self.at_start, self.before = last_line(self.run), half_saved(run)

    def reached(self) -> float | None:
        if self.target == "start":
            return 8.0
        if self.target == "save":
            return 0.03 if half_saved(self.run.path) - self.before else None
        line = last_line(self.run)
        if line == self.at_start:
            return None
        step = line.get("step", 0)
        if self.target == "updates":
            return 2.0
        if self.target == "features":
            return 0.08 if step in self.edges and not self.edges[step] else None
        if self.target == "validation":
            return (
                1.5
                if self.edges.get(step) and "val_nll" not in line and (self.run.checkpoints / str(step)).exists()
                else None
            )
        return 1.5 if "val_nll" in line and step == max(self.edges) else None  # results


def half_saved(run: Path) -> set[Path]:
    """The hidden folders of saves, and of removals, that are under way or were cut off."""
    return set((run / "checkpoints").glob(".*.partial-*"))


def last_line(run: RunDirectory) -> dict:
    """The last whole line of metrics.jsonl."""
    for line in reversed(_read(run.metrics).splitlines()):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return {}


def window_edges(folder: Path, args: argparse.Namespace) -> dict[int, bool]:
    """The updates after which a window ends, and whether the epoch does, too."""
    lengths, edges, begin = open_store(folder / "train-store").lengths, {}, 0
    for epoch in range(2):
        plan = batches.plan_epoch(lengths, 0, epoch, 32, args.window_tokens)
        edges |= {begin + window.stop: window.stop == len(plan.updates) for window in plan.windows}
        begin += len(plan.updates)
    return edges


def position(run: Path, edges: dict[int, bool]) -> dict:
    """The update that was logged last, the one that the next start resumes at, and whether that is inside a window."""
    resumes = checkpoint.latest_step(run / "checkpoints", lambda line: None) if (run / "checkpoints").exists() else None
    inside = bool(resumes) and resumes not in edges
    return {
        "logged": last_line(RunDirectory(run)).get("step", 0),
        "resumes_at": resumes or 0,
        "resumes_inside_a_window": inside,
    }


def markdown(record: dict) -> list[str]:
    kills = record["kills"]
    counts = collections.Counter(kill["phase"] for kill in kills)
    inside = sum(kill.get("resumes_inside_a_window", False) for kill in kills)
    of_training = sum("logged" in kill for kill in kills)
    rows = [[name, count] for name, count in sorted(counts.items(), key=lambda item: -item[1])]
    return [
        f"{len(kills)} kills (SIGKILL): {of_training} of trainings, over {record['runs']} runs; the others of the preparation and of"
        f" the evaluation. {inside} times the next start had to resume inside a window of features.",
        "",
        f"Differences from undisturbed processes, but for {', '.join(TIMES)}: {record['differences'] or 'none'}.",
        "",
        *measure.table(["where the kill fell", "kills"], rows),
    ]


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # of this process only: the children have the device
    sys.exit(1 if main()["differences"] else 0)
