"""How long a run takes from its command to its first update.

    python benchmarks/start_up.py --train stores/train --validation stores/dev [--state-size 1024] [--rounds 3]

Each round is three runs of `esnlm train`, each a process of its own: without a cache of compiled programs, with a cold one, and
with the one that the run before has filled. Each is stopped as soon as its first line of metrics is written, and resumed
once with that cache. Processor time is that of the process until its first
line of metrics, which the process itself is asked for by the system (/proc/PID/stat).
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure

ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = ("no cache", "cold cache", "warm cache")


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def start(arguments: list[str], run: Path, cache: str) -> subprocess.Popen:
    """Starts a run with a folder for its compiled programs, or "off"."""
    command = [sys.executable, "-m", "esnlm", "train", *arguments, "--run", str(run), "--training.log_every", "1"]
    environment = os.environ | {"ESNLM_COMPILATION_CACHE": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def first_update(arguments: list[str], run: Path, cache: str) -> dict[str, float]:
    """Runs until a first line of metrics is added, stops there, and returns what that took."""
    metrics = run / "metrics.jsonl"
    before = metrics.stat().st_size if metrics.exists() else 0
    began = time.perf_counter()
    process = start(arguments, run, cache)
    while not metrics.exists() or metrics.stat().st_size <= before:
        if process.poll() is not None:
            raise RuntimeError(f"esnlm train ended with {process.returncode}: {process.stderr.read()[-300:]}")
        time.sleep(0.02)
    took = {"wall_s": time.perf_counter() - began, "processor_s": processor_seconds(process.pid)}
    process.send_signal(signal.SIGTERM)
    process.communicate()
    return took | {"status": process.returncode}


def main(words: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--train", required=True, help="a token store")
    parser.add_argument("--validation", required=True, help="a token store")
    parser.add_argument("--state-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(words)
    record = measure.begin()
    arguments = ["--config", "configs/esn_at_scale/esn.yaml", "--data.train", str(Path(options.train).resolve())]
    arguments += ["--data.validation", str(Path(options.validation).resolve())]
    arguments += ["--model.reservoir.state_size", str(options.state_size)]
    found: dict[str, list[dict]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for kind in KINDS:
                run, cache = Path(folder, "run"), "off" if kind == "no cache" else str(Path(folder, "cache"))
                found.setdefault(kind, []).append(first_update(arguments, run, cache))
                found.setdefault(f"{kind}, resumed", []).append(first_update(arguments, run, cache))
                shutil.rmtree(run)
    record["rounds"] = found
    rows = [
        [kind, *(statistics.median(row[key] for row in own) for key in ("wall_s", "processor_s"))]
        for kind, own in found.items()
    ]
    text = [
        f"From the command to the first line of metrics, N = {options.state_size:,}: medians of {options.rounds} rounds.",
        "`resumed` is the same command once more on the run that was stopped there.",
        "",
        *measure.table(["", "seconds", "seconds of processor time"], rows),
    ]
    measure.write(options.out, "start_up", "Start-up", text, record)
    return record


if __name__ == "__main__":
    measure.as_command(main)
