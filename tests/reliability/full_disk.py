"""Disks that are full or read-only, folders without permission, limits on file sizes: what the commands say, and keep.

    python -m tests.reliability.full_disk          as root on Linux: it mounts a small tmpfs of its own

Each case makes a command fail: preparing a store, beginning a training, logging, saving, evaluating. The command must end
with status 2. The last thing that it says must be one line `error: ...` that names a file and says what to free or change.
Nothing half-written may stay, and every checkpoint that was saved must verify. Then the hindrance is taken away and the
same command given again: its result must be that of a run that never met one, bit by bit.

Writes full_disk.json and full_disk.md under --out. Exit status 1 says that a case failed.
"""

import argparse
import ctypes
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax

from benchmarks import measure
from esnlm.runs import checkpoint
from tests.reliability.compare import REPOSITORY, compare_runs

CONFIG = """
data: {{kind: grammar, sentences: 300, validation_sentences: 40, pairs: 2}}
model: {{reservoir: {{state_size: {size}, mean_degree: 4}}, readout: {{rank: 16}}}}
training: {{epochs: 2, log_every: 1, checkpoint_every: 3}}
"""
ROOM = "32m"
DROP_BOUND, DAC_OVERRIDE = 24, 1  # of prctl: even root's processes then obey the rights of folders


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, help="N")
    parser.add_argument("--only", default="", help="a regular expression: the cases to try (default: all)")
    parser.add_argument("--out", type=Path, default=measure.MEASURED)
    args = parser.parse_args(arguments)
    record = measure.begin()
    with tempfile.TemporaryDirectory() as folder, Disk(Path(folder) / "disk") as disk:
        record["rows"] = try_all(disk, Path(folder), args)
    measure.write(args.out, "full_disk", "Disks that refuse", markdown(record["rows"]), record)
    return record


class Disk:
    """A tmpfs that can be filled, and made read-only."""

    def __init__(self, path: Path):
        self.path, self.ballast = path, path / "ballast"

    def __enter__(self) -> "Disk":
        self.path.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(self.path)], check=True, capture_output=True
        )
        return self

    def __exit__(self, *exception) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)

    def fill(self, but: int) -> None:
        """Leaves `but` KiB."""
        free = os.statvfs(self.path)
        with open(self.ballast, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - but * 1024))

    def release(self) -> None:
        self.remount("rw")
        self.ballast.unlink(missing_ok=True)
        for folder in [self.path, *self.path.rglob("*")]:
            if folder.is_dir():
                folder.chmod(0o755)


def try_all(disk: Disk, folder: Path, args: argparse.Namespace) -> list[dict]:
    (folder / "run.yaml").write_text(CONFIG.format(size=args.size))
    (folder / "text").write_text("The cats sleep in the garden and the dogs bark at the old man.\n" * 20_000)
    train = ["train.py", "--config", str(folder / "run.yaml"), "--run"]
    finished = folder / "finished"
    call(folder, [*train, str(finished)])
    run, store = disk.path / "run", disk.path / "store"
    training = [*train, str(run)]
    preparing = [
        "-m",
        "esnlm",
        "prepare",
        "--input",
        str(folder / "text"),
        "--tokenizer",
        "train:280",
        "--sentences",
        "line",
        "--out",
        str(store),
    ]
    scoring = [
        "eval_blimp.py",
        "--run",
        str(finished),
        "--data",
        str(finished / "minimal_pairs"),
        "--out",
        str(disk.path / "scores" / "x.json"),
    ]

    def unwritable(path: Path):
        return lambda: path.chmod(0o555)

    def after(step: int, hinder):
        """Hinders once a checkpoint is there."""

        def wait(process: subprocess.Popen) -> None:
            while process.poll() is None and not (run / "checkpoints" / str(step)).exists():
                time.sleep(0.001)
            hinder()

        return wait

    # name: (command, hindrance before it, hindrance while it runs, limits of its process)
    cases = {
        f"start of a training, {room} KiB free": (training, lambda room=room: disk.fill(room), None, None)
        for room in (0, 16, 64, 256, 512)
    }
    cases |= {
        f"training, {room} KiB free after the second checkpoint": (
            training,
            None,
            after(6, lambda room=room: disk.fill(room)),
            None,
        )
        for room in (0, 1, 8, 100, 200)
    }
    cases |= {
        "start of a training, read-only": (training, lambda: disk.remount("ro"), None, None),
        "start of a training, no permission": (training, unwritable(disk.path), None, without_override),
        "training, no permission after the first checkpoint": (
            training,
            None,
            after(3, unwritable(run / "checkpoints")),
            without_override,
        ),
        "training, no permission for the run directory then": (
            training,
            None,
            after(3, unwritable(run)),
            without_override,
        ),
        "training, files of at most 20 KiB": (training, None, None, limit(20)),
        "training, files of at most 2 KiB": (training, None, None, limit(2)),
        **{
            f"preparation, {room} KiB free": (preparing, lambda room=room: disk.fill(room), None, None)
            for room in (0, 8, 64, 400)
        },
        "preparation, read-only": (preparing, lambda: disk.remount("ro"), None, None),
        "preparation, no permission": (preparing, unwritable(disk.path), None, without_override),
        "preparation, files of at most 64 KiB": (preparing, None, None, limit(64)),
        **{
            f"evaluation, {room} KiB free": (scoring, lambda room=room: disk.fill(room), None, None)
            for room in (0, 4, 16)
        },
        "evaluation, read-only": (scoring, lambda: disk.remount("ro"), None, None),
        "evaluation, no permission": (scoring, unwritable(disk.path), None, without_override),
        "evaluation, files of at most 2 KiB": (scoring, None, None, limit(2)),
    }
    rows = []
    for name, (command, before, meanwhile, limits) in cases.items():
        if not re.search(args.only, name):
            continue
        subprocess.run(["find", str(disk.path), "-mindepth", "1", "-delete"], check=True)
        if before:
            before()
        status, told = call(folder, command, meanwhile, limits)
        faults = judge(status, told)
        faults += [
            f"left behind: {path.name}"
            for path in disk.path.rglob(".*")
            if re.search(r"partial|part$|\.tmp-", path.name)
        ]
        faults += [
            f"{step}: {problem}"
            for step in checkpoint.all_steps(run / "checkpoints")
            if (problem := checkpoint.verify(run / "checkpoints" / str(step)))
        ]
        disk.release()
        status, told_then = call(folder, command)
        if status:
            faults.append(f"afterwards: {told_then[-300:]}")
        elif command is training:
            faults += compare_runs(finished, run)
        error = [line for line in told.splitlines() if line.startswith("error: ")][-1:]
        rows.append({"case": name, "told": (error or [""])[0].replace(str(folder), ""), "faults": faults})
        print(rows[-1], flush=True)
    return rows


def limit(kib: int):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (kib * 1024, kib * 1024))


def without_override() -> None:
    ctypes.CDLL(None).prctl(DROP_BOUND, DAC_OVERRIDE, 0, 0, 0)


def call(folder: Path, command: list[str], meanwhile=None, limits=None) -> tuple[int, str]:
    """Status and stderr of a command."""
    program = [str(REPOSITORY / command[0])] if command[0].endswith(".py") else command[:1]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
    with open(folder / "stderr", "w") as stderr:
        process = subprocess.Popen(
            [sys.executable, *program, *command[1:]],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=limits,
        )
        if meanwhile:
            meanwhile(process)
        process.wait()
    return process.returncode, (folder / "stderr").read_text()


def judge(status: int, told: str) -> list[str]:
    """What is wrong with how a command ended."""
    faults = [] if status == 2 else [f"status {status}"]
    errors = [line for line in told.splitlines() if line.startswith("error: ")]
    if len(errors) != 1 or not told.endswith(f"{errors[0]}\n") or "Traceback" in told:
        faults.append(f"not one line: {told[-500:]}")
    elif not re.search("free|choose|lift|name another|change", errors[0]):
        faults.append("no advice")
    return faults


def markdown(rows: list[dict]) -> list[str]:
    table = [[row["case"], row["told"].removeprefix("error: "), "; ".join(row["faults"]) or "none"] for row in rows]
    good = sum(not row["faults"] for row in rows)
    return [
        f"{good} of {len(rows)} cases as they must be.",
        "",
        *measure.table(["case", "what the command says", "faults"], table),
        "",
    ]


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(1 if any(row["faults"] for row in main()["rows"]) else 0)
