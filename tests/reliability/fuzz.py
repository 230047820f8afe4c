"""Hostile input, guided by coverage. Needs `pip install atheris`.

    python -m tests.reliability.fuzz [--target NAME ...] [--minutes 10] [--jobs 1] [--seed 0] --out DIR

Every target of tests/hostile.py reads files that an enemy made of good ones, for so many minutes each. They are changed
by libFuzzer's bytes and by pieces of text, and kept where they reach lines that none before did. A finding is an input
for which a target raises anything but an InputError of one line, takes more than SLOW seconds or MEMORY bytes, or dies.
Its files go to DIR/TARGET/findings. Writes DIR/fuzz.json and DIR/fuzz.md.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import atheris

SLOW = 5  # seconds of processor time an input
MEMORY = 2 << 30  # bytes beyond those of the imports
BETWEEN = b"\0\xff--\xff\0"  # the files of an input; a file begins with + or, where it is not there, -
INSTRUMENTED = ["esnlm", "yaml", "jsonargparse", "nltk", "numpy.lib.format"]


def pack(files: dict[str, bytes], names: list[str], sealed: bool) -> bytes:
    parts = [b"+" + files[name] if name in files else b"-" for name in names]
    return BETWEEN.join([b"s" if sealed else b"u", *parts])


def unpack(data: bytes, names: list[str]) -> tuple[dict[str, bytes], bool]:
    flag, *parts = data.split(BETWEEN)
    return {name: part[1:] for name, part in zip(names, parts, strict=False) if part[:1] == b"+"}, flag != b"u"


def work(name: str, folder: Path, minutes: float, seed: int) -> None:
    """Fuzzes one target in this process, until the time is over or it dies."""
    with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
        from tests import hostile
    target, scratch = hostile.TARGETS[name], Path(tempfile.mkdtemp())
    (scratch / "good").mkdir()
    good = target.files(scratch / "good")
    names, stats = sorted(good), Stats(folder / "stats.json")
    (folder / "corpus" / "good").write_bytes(pack(good, names, True))
    (folder / "names.json").write_text(json.dumps(names))  # a checkpoint's are others every time
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    warnings.simplefilter("error")

    def run(data: bytes) -> None:
        files, sealed = unpack(data, names)
        (folder / "running").write_bytes(data)  # what is found if the process dies
        began = time.thread_time()
        try:
            hostile.check(target, target.seal(files) if sealed else files, scratch / "bad")
            seconds = time.thread_time() - began
            if seconds > SLOW:
                stats.find(f"slow: {seconds:.0f} s", "", data, folder)
        except (SystemExit, Exception, BaseException) as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            stats.find(where(error), traceback.format_exc(), data, folder)
        stats.count()

    def custom(data: bytes, most: int, number: int) -> bytes:
        rng = random.Random(number)
        files, sealed = unpack(data, names)
        if not files:
            return pack(good, names, True)
        for _ in range(rng.randrange(1, 4)):
            chosen = rng.choice(sorted(files))
            if rng.randrange(3):
                files[chosen] = hostile.mutate(files[chosen], rng)
            else:
                files[chosen] = atheris.Mutate(files[chosen], 2 * len(files[chosen]) + 64)
        if rng.randrange(50) == 0:
            del files[rng.choice(sorted(files))]
        return pack(files, names, sealed if rng.randrange(10) else not sealed)[:most]

    options = [
        f"-max_total_time={int(60 * minutes)}",
        f"-seed={seed + 1}",
        "-timeout=120",
        "-rss_limit_mb=0",
        "-max_len=200000",
        "-len_control=0",
    ]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={folder}/died-", "-print_final_stats=0", str(folder / "corpus")],
        run,
        custom_mutator=custom,
    )
    atheris.Fuzz()


def where(error: BaseException) -> str:
    """The exception and the last line of esnlm that it came through: one finding a place."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/esnlm/" in frame.filename or "hostile.py" in frame.filename
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} at {place}"


class Stats:
    """Inputs and findings so far, kept in a file, for a process may die."""

    def __init__(self, file: Path):
        self.file = file
        self.inputs, self.findings = 0, {}
        if file.exists():
            self.inputs, self.findings = json.loads(file.read_text()).values()
        self.written = time.monotonic()

    def count(self) -> None:
        self.inputs += 1
        if time.monotonic() - self.written > 1:
            self.write()

    def find(self, kind: str, text: str, data: bytes, folder: Path) -> None:
        known = self.findings.setdefault(
            kind, {"times": 0, "input": hashlib.sha256(data).hexdigest()[:12], "traceback": text[-3000:]}
        )
        known["times"] += 1
        if known["times"] == 1:
            (folder / "findings" / known["input"]).write_bytes(data)
            self.write()

    def write(self) -> None:
        self.written = time.monotonic()
        self.file.write_text(json.dumps({"inputs": self.inputs, "findings": self.findings}))


def replay(name: str, folder: Path) -> None:
    """Reads the whole corpus again, and prints how many lines of the target's modules it reaches, and of how many."""
    from tests import hostile

    target, scratch = hostile.TARGETS[name], Path(tempfile.mkdtemp())
    names = json.loads((folder / "names.json").read_text())
    own, reached, arcs = {module.__file__ for module in target.modules}, set(), set()

    def trace(frame, event, _):
        if frame.f_code.co_filename not in own:
            return None
        last = frame.f_lineno

        def line(frame, event, _):
            nonlocal last
            if event == "line":
                place = frame.f_code.co_filename
                reached.add((place, frame.f_lineno))
                arcs.add((place, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line

    for file in sorted((folder / "corpus").iterdir()):
        files, sealed = unpack(file.read_bytes(), names)
        files = target.seal(files) if sealed else files
        sys.settrace(trace)
        try:
            hostile.check(target, files, scratch / "bad")
        except BaseException:  # noqa: B036 - counted as it was found
            pass
        finally:
            sys.settrace(None)
    print(json.dumps({"lines": len(reached), "of": sum(len(lines_of(file)) for file in own), "arcs": len(arcs)}))


def lines_of(file: str) -> set[int]:
    """The lines inside functions: those that a call can reach."""
    found, codes = set(), [compile(Path(file).read_text(), file, "exec")]
    while codes:
        code = codes.pop()
        inner = [each for each in code.co_consts if hasattr(each, "co_lines")]
        codes += inner
        if code.co_flags & 2:  # optimised: a function's, not a class's or the module's
            found |= {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
    return found


def fuzz(name: str, minutes: float, seed: int, out: Path) -> dict:
    """One target, begun again with what it has where it dies."""
    folder = out / name
    for part in ("corpus", "findings"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "stats.json").unlink(missing_ok=True)
    began, deaths = time.monotonic(), {}
    while (left := minutes - (time.monotonic() - began) / 60) > 0.02:
        options = ["--work", str(folder), "--target", name, "--minutes", str(left), "--seed", str(seed + len(deaths))]
        with open(folder / "log.txt", "w") as log:
            status = subprocess.run(
                [sys.executable, "-m", "tests.reliability.fuzz", *options], stdout=log, stderr=log
            ).returncode
        if status == 0:
            break
        data = (folder / "running").read_bytes() if (folder / "running").exists() else b""
        key = hashlib.sha256(data).hexdigest()[:12]
        (folder / "findings" / key).write_bytes(data)
        deaths[key] = {"times": 1, "input": key, "traceback": (folder / "log.txt").read_text(errors="replace")[-2000:]}
        if len(deaths) >= 10:
            break
    spent = (time.monotonic() - began) / 60
    stats = Stats(folder / "stats.json")
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability.fuzz", "--replay", str(folder), "--target", name],
        capture_output=True,
        text=True,
    )
    coverage = (
        json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"lines": None, "of": None, "arcs": None}
    )
    findings = stats.findings | {f"died: {key}": death for key, death in deaths.items()}
    return {
        "target": name,
        "inputs": stats.inputs,
        "minutes": round(spent, 1),
        "corpus": len(os.listdir(folder / "corpus")),
        **coverage,
        "findings": findings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", nargs="+", help="names of tests/hostile.py (default: all)")
    parser.add_argument("--minutes", type=float, default=10, help="for each target (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="targets at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.target[0], options.work, options.minutes, options.seed)
    if options.replay:
        return replay(options.target[0], options.replay)
    from tests import hostile

    if options.out is None:
        parser.error("the following arguments are required: --out")
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with ThreadPoolExecutor(options.jobs) as pool:  # each waits for processes of its own
        for row in pool.map(
            lambda name: fuzz(name, options.minutes, options.seed, options.out), options.target or hostile.TARGETS
        ):
            rows.append(row)
            print(json.dumps(row | {"findings": list(row["findings"])}), file=sys.stderr)
            write(rows, options)


def write(rows: list[dict], options: argparse.Namespace) -> None:
    (options.out / "fuzz.json").write_text(
        json.dumps({"minutes": options.minutes, "seed": options.seed, "targets": rows}, indent=1) + "\n"
    )
    lines = [
        "# Hostile input",
        "",
        "| target | inputs | minutes | lines reached | of | arcs | findings |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [
            row["target"],
            f"{row['inputs']:,}",
            row["minutes"],
            row["lines"],
            row["of"],
            row["arcs"],
            len(row["findings"]),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for row in rows:
        lines += [
            f"- {row['target']}: {kind} ({found['times']:,} times, {found['input']})"
            for kind, found in row["findings"].items()
        ]
    lines += [
        "",
        f"`python -m tests.reliability.fuzz --minutes {options.minutes:g} --jobs {options.jobs} --seed {options.seed}`",
    ]
    (options.out / "fuzz.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
