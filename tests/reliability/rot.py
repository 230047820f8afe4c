"""Rot: every file of a run directory and of a token store is damaged in turn, and commands are asked to use it.

    python -m tests.reliability.rot

A run is trained to its end, and the same one is stopped half-way. Then each file is damaged, in a fresh copy each
time: one bit is flipped, or the file is cut to half, or it is deleted (and once an empty folder has the name of a later
step).
Then training is resumed, or the finished run is given to train.py again, or it is loaded and scores minimal pairs.
What happened is one of

    refused      status 2 and one line that names the file (or, of a checkpoint, its folder)
    warned       a warning names it, and the result is the undamaged one's
    told         a warning names it, and what is lost is lost: another log, another step
    harmless     nothing is said, and the result is the undamaged one's: the file was not needed, or holds the same
    silent       nothing is said, and the result is another one: a fault
    failed       anything else: a traceback, a refusal that names no file

Writes rot.json and rot.md under --out. Exit status 1 says that something was silent or failed.
"""

import argparse
import collections
import contextlib
import functools
import io
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from unittest import mock

import jax

import esnlm
from benchmarks import measure
from esnlm import config_io
from esnlm.evaluate_run import evaluate_run
from esnlm.process import exit_with
from esnlm.runs import checkpoint
from esnlm.runs.metrics import Metrics
from esnlm.workflows.train import train_run
from tests.reliability.compare import read_summary, timeless

CONFIG = """
data: {{kind: grammar, sentences: 200, validation_sentences: 40, pairs: 2}}
model: {{reservoir: {{state_size: {size}, mean_degree: 4}}, readout: {{rank: 4}}}}
training: {{epochs: 2, log_every: 1, checkpoint_every: 4, on_nonfinite: stop}}  # stop: one update a compiled call
"""
STOP = 9  # of 14 updates: the run is asked to stop when the line of this one is written


def flip(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    position = rng.randrange(8 * len(content))
    content[position // 8] ^= 1 << position % 8
    file.write_bytes(content)


def truncate(file: Path, rng: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def delete(file: Path, rng: random.Random) -> None:
    file.unlink()


def empty_folder(file: Path, rng: random.Random) -> None:
    file.mkdir()


DAMAGES = {"one bit flipped": flip, "cut to half": truncate, "deleted": delete, "an empty folder": empty_folder}


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64, help="N")
    parser.add_argument("--flips", type=int, default=2, help="places where a bit of each file is flipped")
    parser.add_argument("--only", default="", help="a regular expression: the files to damage (default: all)")
    parser.add_argument("--out", type=Path, default=measure.MEASURED)
    args = parser.parse_args(arguments)
    record = measure.begin()
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", f"{folder}/cache")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        record["rows"] = damage_all(Path(folder), args)
    measure.write(args.out, "rot", "Damaged files", markdown(record["rows"]), record)
    return record


def damage_all(folder: Path, args: argparse.Namespace) -> list[dict]:
    (folder / "run.yaml").write_text(CONFIG.format(size=args.size))
    run, write = folder / "run", Metrics.write
    train = functools.partial(train_run, config_io.read(folder / "run.yaml", ["--run", str(run)]))

    def write_and_stop(self, **values):
        write(self, **values)
        if values["step"] == STOP:
            signal.raise_signal(signal.SIGTERM)

    def evaluate():
        evaluate_run(run, overwrite=True)

    with quiet():
        train()
        run.rename(folder / "finished")
        with mock.patch.object(Metrics, "write", write_and_stop):
            train()
        run.rename(folder / "stopped")
    commands = {
        "train.py, resumed": (folder / "stopped", train, end_of_run),
        "train.py, finished": (folder / "finished", train, end_of_run),
        "load and eval_blimp.py": (folder / "finished", evaluate, evaluation),
    }
    rows = []
    for name, (original, command, result) in commands.items():
        shutil.copytree(original, run)
        status, told = attempt(command)
        assert status == 0, told
        expected = result(run)
        shutil.rmtree(run)
        files = [
            str(file.relative_to(original))
            for file in sorted(original.rglob("*"))
            if file.is_file() and file.stat().st_size
        ]
        for file, damage, i in cases([file for file in files if re.search(args.only, file)], args.flips):
            shutil.copytree(original, run)
            DAMAGES[damage](run / file, random.Random(f"{file} {i}"))
            status, told = attempt(command)
            outcome = judge(Path(file), status, told, same_as(expected, result, run))
            rows.append(
                {"file": file, "damage": damage, "command": name, "outcome": outcome, "told": last_line(told, folder)}
            )
            shutil.rmtree(run)
    return rows


def same_as(expected, result, run: Path):
    return lambda: result(run) == expected


def cases(files: list[str], flips: int):
    for file in files:
        for damage in list(DAMAGES)[:3]:
            yield from ((file, damage, i) for i in range(flips if damage == "one bit flipped" else 1))
    yield "checkpoints/99", "an empty folder", 0


@contextlib.contextmanager
def quiet():
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        yield text


def attempt(command) -> tuple[int, str]:
    """Exit status and what was told; a traceback has status 1."""
    with quiet() as text, warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            status = exit_with(lambda: command() and 0)
        except Exception:
            status = 1
            traceback.print_exc(file=text)
    return status, text.getvalue()


def judge(file: Path, status: int, told: str, same) -> str:
    lines = [line for line in told.splitlines() if line.startswith(("error: ", "warning: "))]
    names = {file.name, "frozen" if file.parts[0] == "frozen" else file.name}
    if file.parts[0] == "checkpoints":
        names = {f"checkpoints/{file.parts[1]}"}
    named = any(name in line for line in lines for name in names)
    if status == 2:
        return "refused" if named and sum(line.startswith("error: ") for line in lines) == 1 else "failed"
    if status:
        return "failed"
    if named:
        return "warned" if same() else "told"
    return "harmless" if same() else "silent"


def end_of_run(run: Path) -> tuple:
    """Step, parameters, summary and metrics."""
    newest = checkpoint.latest_step(run / "checkpoints", lambda line: None)
    arrays = checkpoint.restore(run / "checkpoints" / str(newest))[0]
    metrics = (
        [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text(errors="replace").splitlines()]
        if readable(run)
        else None
    )
    return newest, checkpoint.digest(arrays), read_summary(run), metrics


def readable(run: Path) -> bool:
    try:
        return all(isinstance(json.loads(line), dict) for line in (run / "metrics.jsonl").read_text().splitlines())
    except (OSError, ValueError):
        return False


def evaluation(run: Path) -> dict:
    """The report, but for who made it, and every weight that was loaded."""
    report = json.loads((run / "evaluation" / "blimp-paper.json").read_text())
    return {key: value for key, value in report.items() if key not in ("provenance", "sha256")} | {
        "step": esnlm.load(run).step
    }


def last_line(told: str, folder: Path) -> str:
    lines = [line for line in told.splitlines() if line.startswith(("error: ", "warning: "))] or told.splitlines()[-1:]
    return lines[0].replace(str(folder), "")[:300] if lines else ""


def group(file: str) -> str:
    """The kind of file: those of a folder together, those of the newest and the older checkpoints apart."""
    parts = Path(file).parts
    return (
        "/".join([*parts[:2], ""])
        if parts[0] in ("checkpoints", "stores")
        else f"{parts[0]}/"
        if len(parts) > 1
        else file
    )


def markdown(rows: list[dict]) -> list[str]:
    commands = list(dict.fromkeys(row["command"] for row in rows))
    table = []
    for kind in dict.fromkeys(group(row["file"]) for row in rows):
        cells = []
        for command in commands:
            counts = collections.Counter(
                row["outcome"] for row in rows if group(row["file"]) == kind and row["command"] == command
            )
            cells.append(", ".join(f"{outcome} {count}" for outcome, count in counts.most_common()))
        table.append([kind, len({row["file"] for row in rows if group(row["file"]) == kind}), *cells])
    faults = [row for row in rows if row["outcome"] in ("silent", "failed")]
    files = len({row["file"] for row in rows if row["damage"] != "an empty folder"})
    return [
        f"{files} files and an empty folder, {len(rows)} damaged copies; silent or failed: {len(faults)}.",
        '"Told": a warning names the file, and the command goes on without what is lost, such as lines of the metrics, or the last step.',
        "",
        *measure.table(["file", "files", *commands], table),
        "",
        *(f"- {row['outcome']}: {row['file']}, {row['damage']}, {row['command']}: {row['told']}" for row in faults),
    ]


if __name__ == "__main__":
    sys.exit(1 if any(row["outcome"] in ("silent", "failed") for row in main()["rows"]) else 0)
