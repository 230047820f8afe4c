"""Resident memory of `esnlm prepare` by input read.

    python benchmarks/prepare_memory.py --text corpus/train --size 2e9 --tokenizer gpt2 --sentences line

The text files are cut into blocks of lines, which are shuffled anew in each repetition until the size is reached. The
command runs on that file as a user starts it. Its processes are looked at four times a second (Linux: /proc).

Writes prepare_memory.json and .md under --out.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure

BLOCK = 60_000  # bytes, to the end of a line


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--text", type=Path, required=True, help="a folder of text files")
    parser.add_argument("--size", type=float, default=2e9, help="bytes to prepare")
    parser.add_argument("--tokenizer", default="gpt2")
    parser.add_argument("--sentences", choices=("punkt", "line"), nargs="+", default=["line"])
    parser.add_argument("--punkt-data", help="as of esnlm prepare")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--rows", type=int, default=10, help="in the table of each case")
    args = parser.parse_args(arguments)
    record = measure.begin() | {"cases": []}
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch, "text.txt")
        write_text(text, sorted(path for path in args.text.iterdir() if path.is_file()), int(args.size))
        for sentences in args.sentences:
            for workers in args.workers:
                command = [sys.executable, "-m", "esnlm", "prepare", "--input", text, "--out", Path(scratch, "store")]
                command += ["--tokenizer", args.tokenizer, "--sentences", sentences, "--workers", str(workers)]
                command += ["--punkt-data", args.punkt_data] if args.punkt_data else []
                began = time.perf_counter()
                samples = watch([*map(str, command), "--overwrite"], text)
                case = {"sentences": sentences, "workers": workers, "seconds": time.perf_counter() - began}
                case["samples"] = thin(samples, text.stat().st_size, args.rows)
                record["cases"].append(case)
                print(case, flush=True)
    measure.write(args.out, "prepare_memory", "Memory of `esnlm prepare`", markdown(record), record)
    return record


def write_text(out: Path, files: list[Path], size: int) -> None:
    """Writes `size` bytes of the files' blocks, in another order in each repetition."""
    blocks = []
    for text in (file.read_bytes() for file in files):
        start = 0
        while start < len(text):
            end = text.find(b"\n", start + BLOCK) + 1 or len(text)
            blocks.append(text[start:end].removesuffix(b"\n") + b"\n")
            start = end
    shuffled, done = random.Random(0), 0
    with open(out, "wb") as file:
        while done < size:
            shuffled.shuffle(blocks)
            for block in blocks:
                done += file.write(block)
                if done >= size:
                    break


def watch(command: list[str], text: Path) -> list[tuple[int, int, int]]:
    """Runs the command. Returns (bytes of the text read, resident bytes of its process, of its workers) as time goes."""
    samples = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            time.sleep(0.25)
            try:
                if (read := position(process.pid, text)) is not None:
                    samples.append((read, resident(process.pid), sum(map(resident, children(process.pid)))))
            except OSError:  # it has just ended
                continue
        said = process.stderr.read() if process.stderr else ""
    if process.returncode:
        raise RuntimeError(said)
    print(said, end="", flush=True)
    return samples


def position(process: int, file: Path) -> int | None:
    """Returns how far a process has read in a file, or None where the file is not open."""
    for link in Path(f"/proc/{process}/fd").iterdir():
        if link.exists() and link.samefile(file):
            return int(Path(f"/proc/{process}/fdinfo/{link.name}").read_text().split()[1])
    return None


def resident(process: int) -> int:
    """Returns the resident bytes of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def children(process: int) -> list[int]:
    """Returns the processes that any thread of a process has started."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def thin(samples: list[tuple[int, int, int]], size: int, rows: int) -> list[tuple[int, int, int]]:
    """Returns for each of equal parts of the text how far it goes, and the most memory in it."""
    found = []
    for part in range(rows):
        low, high = size * part // rows, size * (part + 1) // rows
        within = [sample for sample in samples if low <= sample[0] < high]
        if within:
            found.append((high, max(sample[1] for sample in within), max(sample[2] for sample in within)))
    return found


def markdown(record: dict) -> list[str]:
    lines = ["The most resident memory in each part of the input.", ""]
    for case in record["cases"]:
        head = ["input read, MB", "the command, MB", "its workers, MB"]
        rows = [[read // 10**6, command / 1e6, workers / 1e6] for read, command, workers in case["samples"]]
        lines += [f"`--sentences {case['sentences']} --workers {case['workers']}`, {case['seconds']:.0f} s:", ""]
        lines += [*measure.table(head, rows), ""]
    return lines


if __name__ == "__main__":
    measure.as_command(main)
