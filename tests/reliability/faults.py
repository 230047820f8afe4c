"""Every call to the disk fails once: of a save, a preparation of text, a training and an evaluation; and what is left.

    python -m tests.reliability.faults --every 5          each fifth call; --continue adds to the figures that are there

A small C library (faults.c), compiled here with cc, stands between the commands and the system. It counts the calls that
write, sync, rename, open for writing, cut, link, remove or make a folder, where they concern the folder of the results:
those of Python, and those of the threads in which Orbax writes arrays. The n-th call fails with EIO, ENOSPC or EROFS. In
a quarter of the cases all later ones fail, too.

The command must end with status 2 and one line `error: ...`, or with status 0 where it could do without. It must say
nothing else that an undisturbed one does not say, except warnings. No checkpoint may be damaged. The same command, given
again without a fault, must come to the result of a command that never met one, bit by bit, and leave no partial file.

Writes faults.json and faults.md under --out. Exit status 1 says that a case failed.
"""

import argparse
import collections
import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.runs import checkpoint
from tests.reliability.compare import compare_files, compare_reports, compare_runs
from tests.reliability.fork_server import ForkServer

CONFIG = """
data: {kind: grammar, sentences: 80, validation_sentences: 20, pairs: 2}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
training: {epochs: 1, log_every: 1, checkpoint_every: 1, keep_checkpoints: 1}
tracking: [csv]
"""
ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS)
NEVER = 2**40  # beyond every call
# A line of what Orbax prints after a failed write for each other write under way, whose event loop it has closed.
LATE_WRITE = re.compile(
    r"Traceback \(most recent call last\):"
    r'|  File ".+/asyncio/base_events\.py", line \d+, in (call_soon_threadsafe|_check_closed)'
    r"|    self\._check_closed\(\)|    raise RuntimeError\('Event loop is closed'\)|    [~^]+"
    r"|RuntimeError: Event loop is closed"
)
PREPARE = ["-m", "esnlm", "prepare", "--tokenizer", "train:280", "--sentences", "line"]
EVALUATE = ["eval_blimp.py", "--data", "finished/minimal_pairs"]


@dataclass(frozen=True)
class Command:
    """A command whose results lie in the folder `case`, beside its input."""

    arguments: list[str]
    repeats: bool  # whether it can be given again after its success
    compare: Callable[[Path], list[str]]  # what differs in `case` from an undisturbed result


@dataclass(frozen=True)
class Case:
    """The calls of a command from the n-th on, or that call alone, fail."""

    command: str
    n: int

    @property
    def error(self) -> int:
        """The error: the same one each time that this case is tried."""
        return random.Random(f"{self.command} {self.n}").choice(ERRORS)

    @property
    def lasts(self) -> bool:
        """Whether all later calls fail, too."""
        return random.Random(f"{self.n} {self.command}").random() < 0.25


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Runs the sweep that the arguments ask for, and writes its record."""
    from benchmarks import measure

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--every", type=int, default=1, metavar="K", help="try each K-th call of a command (default: all)")
    add("--calls", type=int, nargs="+", metavar="N", help="try these calls only")
    add("--only", choices=COMMANDS, nargs="+", default=list(COMMANDS), help="the commands to try (default: all)")
    add("--seconds", type=float, default=float("inf"), help="begin no further case after so long")
    add("--continue", dest="goes_on", action="store_true", help="keep the cases of faults.json and try others")
    add("--out", type=Path, default=measure.MEASURED)
    args = parser.parse_args(arguments)
    record = measure.begin() | {"calls": {}, "rows": []}
    if args.goes_on and (args.out / "faults.json").exists():
        before = json.loads((args.out / "faults.json").read_text())
        record |= {"calls": before["calls"], "rows": before["rows"]}
        record["command"] = f"{before['command']} && {record['command']}"
    deadline = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as scratch, ForkServer(compile_library(Path(scratch))) as server:
        folder = Path(scratch).resolve()
        tried = {(row["command"], row["n"]) for row in record["rows"]}
        cases = []
        for name in args.only:
            record["calls"][name] = undisturbed(folder, server, name)
            total = sum(record["calls"][name].values())
            cases += [Case(name, n) for n in args.calls or range(1, total + 1, args.every) if n <= total]
        random.Random(0).shuffle(cases)  # so that a sweep that is cut short has tried some of everything
        for case in cases:
            if (case.command, case.n) in tried or time.monotonic() > deadline:
                continue
            record["rows"].append(row := try_case(folder, server, case))
            shown = f"status {row['status']}  {'; '.join(row['faults']) or 'as it must be'}"
            print(f"{case.command} {case.n}  {row['call']}  {row['error']}  {shown}", flush=True)
            if len(record["rows"]) % 20 == 0:  # so that nothing is lost when the sweep is stopped
                measure.write(args.out, "faults", "Every call to the disk fails", markdown(record), record)
    measure.write(args.out, "faults", "Every call to the disk fails", markdown(record), record)
    return record


def compile_library(folder: Path) -> Path:
    """Compiles faults.c with cc."""
    source, library = Path(__file__).with_name("faults.c"), folder / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def _compare_checkpoint(folder: Path) -> list[str]:
    one, other = (checkpoint.digest(checkpoint.restore(folder / name / "3")[0]) for name in ("saving", "case"))
    return [] if one == other else ["case/3"]


def _compare_training(folder: Path) -> list[str]:
    return compare_runs(folder / "training" / "run", folder / "case" / "run")


def _compare_store(folder: Path) -> list[str]:
    return compare_files(folder / "preparation" / "store", folder / "case" / "store")


def _compare_report(folder: Path) -> list[str]:
    reports = folder / "case" / "reports"
    for file in (folder / "evaluation" / "reports").iterdir():
        shutil.copy(file, reports / file.name.replace("killed", "once", 1))
    return compare_reports(reports)


COMMANDS = {
    "saving": Command(["-m", "tests.reliability.save_arrays", "case/3"], False, _compare_checkpoint),
    "preparation": Command([*PREPARE, "--input", "text", "--out", "case/store"], False, _compare_store),
    "training": Command(["train.py", "--config", "run.yaml", "--run", "case/run"], True, _compare_training),
    "evaluation": Command([*EVALUATE, "--run", "finished", "--out", "case/reports/killed.json"], True, _compare_report),
}


def undisturbed(folder: Path, server: ForkServer, name: str) -> dict[str, int]:
    """Runs a command without a fault, keeps its results and what it says, and returns how many calls of each kind it makes."""
    (folder / "run.yaml").write_text(CONFIG)
    (folder / "text").write_text("The cats sleep in the garden and the dogs bark at the old man.\n" * 200)
    if name == "evaluation" and not (folder / "finished").exists():
        empty(folder / "case")
        _call_well(folder, server, "training")
        (folder / "case" / "run").rename(folder / "finished")
    empty(folder / "case")
    told = _call_well(folder, server, name)
    (folder / f"{name}.told").write_text(told)
    (folder / "case").rename(folder / name)
    return dict(collections.Counter(line.split(" ", 3)[1] for line in read_log(folder)))


def _call_well(folder: Path, server: ForkServer, name: str) -> str:
    status, told = call(folder, server, COMMANDS[name].arguments)
    if status:
        raise RuntimeError(f"{name}, undisturbed: status {status}: {told}")
    return told


def try_case(folder: Path, server: ForkServer, case: Case) -> dict[str, Any]:
    """Lets a command meet a fault, gives it again, and returns what came of it."""
    command = COMMANDS[case.command]
    empty(folder / "case")
    status, told = call(folder, server, command.arguments, case)
    failed = [line.split(" ", 3) for line in read_log(folder) if line.split(" ", 3)[2] == "1"]
    faults = judge(status, told, (folder / f"{case.command}.told").read_text())
    steps = folder / "case" / "run" / "checkpoints"
    faults += [
        f"{step}: {bad}" for step in checkpoint.all_steps(steps) if (bad := checkpoint.verify(steps / str(step)))
    ]
    if status or command.repeats:
        again, told_then = call(folder, server, command.arguments)
        faults += [f"afterwards: status {again}: {told_then[-500:]}"] if again else []
    if not faults:
        faults += [f"left behind: {path.name}" for path in (folder / "case").rglob(".*.partial-*")]
        faults += [line.replace(str(folder), "") for line in command.compare(folder)]
    errors = [line for line in told.splitlines() if line.startswith(("error: ", "warning: "))][:1]
    return {
        "command": case.command,
        "n": case.n,
        "call": f"{failed[0][1]} {hide_random(failed[0][3])}" if failed else "not reached",
        "error": errno.errorcode[case.error],
        "lasts": case.lasts,
        "status": status,
        "told": hide_random(errors[0].replace(str(folder), "")) if errors else "",
        "faults": faults,
    }


def call(folder: Path, server: ForkServer, arguments: list[str], case: Case | None = None) -> tuple[int, str]:
    """Runs a command, with the fault of a case or without one. Returns its exit status and stderr."""
    first, last = (case.n, NEVER if case.lasts else case.n) if case else (NEVER, NEVER)
    fault = [str(folder / "case"), first, last, case.error if case else 0, str(folder / "log")]
    return server.run(folder, arguments, fault)


def read_log(folder: Path) -> list[str]:
    """Returns the lines of faults.c: a call's number, its kind, 1 where it failed, and its file."""
    return (folder / "log").read_text(errors="replace").splitlines()


def judge(status: int, told: str, undisturbed: str) -> list[str]:
    """Returns what is wrong with how a command ended, given what it says undisturbed."""
    if status == 2 and "checkpoint not saved: " in told:
        told = "".join(line for line in told.splitlines(keepends=True) if not LATE_WRITE.fullmatch(line.rstrip("\n")))
    known = {_without_numbers(line) for line in undisturbed.splitlines()}
    others = [line for line in told.splitlines() if _without_numbers(line) not in known]
    errors = [line for line in others if line.startswith("error: ")]
    strange = [line for line in others if not line.startswith(("error: ", "warning: "))]
    faults = [] if status in (0, 2) else [f"status {status}"]
    if status == 2 and not (len(errors) == 1 and told.endswith(f"{errors[0]}\n")):
        faults.append(f"not one line: {told[-1000:]}")
    elif strange or (errors and status == 0):
        faults.append(f"also said: {' | '.join(strange or errors)[:1000]}")
    return faults


def _without_numbers(line: str) -> str:
    return re.sub(r"[\d.,:]+", "#", line)


def hide_random(text: str) -> str:
    """Replaces what is random in the names of partial files."""
    return re.sub(r"(partial|tmp)-[0-9a-z]+", r"\1-...", text)


def empty(folder: Path) -> None:
    """Makes a folder, without what was in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def markdown(record: dict[str, Any]) -> list[str]:
    """Returns the page: the figures, a table of the calls, and every case that was not as it must be."""
    from benchmarks import measure

    record["rows"].sort(key=lambda row: (list(COMMANDS).index(row["command"]), row["n"]))
    rows, table = record["rows"], []
    for command, calls in record["calls"].items():
        own = [row for row in rows if row["command"] == command]
        for kind, number in sorted(calls.items()):
            of_kind = [row for row in own if row["call"].split()[0] == kind]
            by_error = collections.Counter(row["error"] for row in of_kind)
            ends = [sum(row["status"] == status for row in of_kind) for status in (2, 0)]
            faults = sum(bool(row["faults"]) for row in of_kind)
            table.append(
                [command, kind, number, len(of_kind), *(by_error[errno.errorcode[e]] for e in ERRORS), *ends, faults]
            )
    good, missed = sum(not row["faults"] for row in rows), sum(row["call"] == "not reached" for row in rows)
    lasting = sum(row["lasts"] for row in rows)
    total = sum(sum(calls.values()) for calls in record["calls"].values())
    names = [errno.errorcode[error] for error in ERRORS]
    return [
        f"{len(rows) - missed} of the {total} calls that the commands make were let fail, one in each case;"
        f" in {lasting} cases all later calls failed, too. {good} of {len(rows)} cases are as they must be.",
        *(
            [f"{missed} cases ended before their call was reached: threads make the number of calls vary."]
            * bool(missed)
        ),
        "",
        *measure.table(["command", "call", "made", "let fail", *names, "status 2", "status 0", "faults"], table),
        "",
        *(
            f"- {row['command']} {row['n']}, {row['call']}, {row['error']}: {'; '.join(row['faults'])}"
            for row in rows
            if row["faults"]
        ),
    ]


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.exit(1 if any(row["faults"] for row in main()["rows"]) else 0)
