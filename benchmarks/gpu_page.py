"""Writes the page of a run of benchmarks/gpu_all.sh from its files.

    python benchmarks/gpu_page.py measured --out results/gpu_h100.md

The page lists what was not measured, with the reason if known.
"""

import argparse
import json
import re
from pathlib import Path

import measure

AHEAD_OF_ROWS = 31  # the 32 sentences of an update share one row after BOS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measured", type=Path, help="folder of the files")
    parser.add_argument("--out", type=Path, required=True, help="the page, .md")
    args = parser.parse_args()
    if not args.measured.is_dir():
        parser.error(f"{args.measured}: no such folder")
    files = {name: args.measured / f"{name}.json" for name in EXPECTED}
    absent = '{"failures": ["the part did not begin"]}'
    found = {
        name: json.loads(file.read_text("utf-8") if file.exists() else absent)
        for name, file in files.items()
    }
    log = args.measured / "log.txt"
    ends = re.findall(
        r"^(\w+): status (\d+), (\d+) of (\d+) s$",
        log.read_text("utf-8") if log.exists() else "",
        re.M,
    )
    for name, status, seconds, share in ends:
        found[name]["seconds"] = int(seconds)
        if status != "0":
            why = (
                f"was killed after its share of {share} s"
                if status == "137"
                else f"ended with status {status}"
            )
            found[name]["failures"].append(f"the part {why}")
    args.out.write_text("\n".join(page(found)) + "\n", encoding="utf-8")


def page(found: dict[str, dict]) -> list[str]:
    gpu = next((part["gpu"] for part in found.values() if part.get("gpu")), None)
    lines = [f"# On {gpu or 'no GPU'}", ""]
    if any(part.get("small") for part in found.values()):
        lines += ["**Tiny sizes, to test the command: the numbers on this page mean nothing.**", ""]
    lines += [
        (
            "Command: `benchmarks/gpu_all.sh`. `benchmarks/gpu_parts.py` describes each part. Times"
            " are medians."
        ),
        "",
    ]
    lines += [
        *trained(found["train"]),
        *models("Tokens a second", found["speed"], update_floor(found)),
    ]
    lines += [*models("Deep readouts", found["families"], {}), *steps(found["step"])]
    lines += [
        "## 65,536 units",
        "",
        *table(HEAD, commands(found["large"], {"large": "a minute of training"})),
    ]
    lines += [*bits(found["same"]), *missing(found)]
    if machine := found["step"].get("machine"):
        versions = ", ".join(
            f"{name} {version}" for name, version in machine["versions"].items() if version
        )
        lines += [
            "",
            (
                f"Machine: {machine['processor']}, {machine['cores']} cores, {gpu}. Versions:"
                f" {versions}"
            ),
        ]
    return lines


def table(head: list[str], rows: list[list]) -> list[str]:
    return [*measure.table(head, rows), ""] if rows else []


def ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


# ---- the sections


HEAD = [
    "whole command",
    "seconds",
    "status",
    "updates",
    "words",
    "tokens/s between lines",
    "first line after, s",
    "val NLL",
]


def commands(part: dict, names: dict[str, str]) -> list[list]:
    rows = []
    for name, title in names.items():
        if run := part.get(name):
            keys = ("wall_s", "status", "step", "words", "tokens_per_s", "first_line_s")
            rows.append([title, *(run.get(key) for key in keys), run["summary"].get("val_nll")])
    return rows


def trained(part: dict) -> list[str]:
    lines = ["## Training and scoring", ""]
    names = {
        "cold": "nothing compiled before",
        "warm": "all compiled before",
        "stopped": "stopped after its profile",
    }
    lines += table(HEAD, commands(part, names))
    if report := part.get("blimp"):
        accuracy = {
            key: value for key, value in report["report"].items() if isinstance(value, float)
        }
        said = ", ".join(f"{key} {value:.4g}" for key, value in accuracy.items())
        lines += [
            (
                f"`esnlm blimp`, {report['files']} files: {report['wall_s']:.1f} s, status"
                f" {report['status']}. {said}"
            ),
            "",
        ]
    if profile := part.get("profile"):
        idle = profile["span_ms"] - profile["busy_ms"]
        lines += [
            (
                f"A profile of {profile['updates']} updates: {profile['span_ms']:.3g} ms, of which"
                f" none of {profile['launches']:,} kernels ran in {idle:.3g} ms"
                f" ({idle / profile['span_ms']:.0%}). The longest:"
            ),
            "",
        ]
        rows = [
            [k["name"], k["ms"] / profile["updates"], k["times"], k["ms"] / profile["all_ms"]]
            for k in profile["kernels"]
        ]
        lines += table(["kernel", "ms an update", "times", "share"], rows)
    return lines


def update_floor(found: dict[str, dict]) -> dict[str, float]:
    """Returns the minimum seconds of an update, by precision: products at peak speed, and AdamW's
    seven passes."""
    models, step = found["speed"].get("models"), found["step"]
    if not models or "copy_bytes_per_s" not in step:
        return {}
    floors, rows = {}, models["tokens_an_update"] - AHEAD_OF_ROWS
    size, rank = (128, 32) if step["small"] else (4096, 512)
    vocab_size = models["vocab_size"]
    for key, peaks in step.items():
        if key.startswith("flops_per_s "):
            flops = max(measure.best_peak(own) for own in peaks.values())
            # Three products with A and two with B, whose states need no gradient. AdamW reads
            # parameter, gradient and both moments, and writes all but the gradient.
            products = 2 * rows * rank * (3 * vocab_size + 2 * size) / flops
            adamw = (
                7
                * 4
                * (vocab_size * (rank + 1) + rank * size)
                / measure.best_peak(step["copy_bytes_per_s"])
            )
            floors[key.removeprefix("flops_per_s ")] = products + adamw
    return floors


def models(title: str, part: dict, floors: dict[str, float]) -> list[str]:
    lines, found = [f"## {title}", ""], part.get("models")
    if not found:
        return lines
    contenders, count = found["contenders"], found["updates_a_round"]
    rounds = len(next(iter(contenders.values()))["rounds_s"])
    lines += [
        (
            f"Each in its own process, in turns, {rounds} rounds of {count} updates of"
            f" {found['batch_size']} sentences ({found['tokens_an_update']:.0f} tokens per update,"
            f" V = {found['vocab_size']:,})."
        ),
        "",
    ]
    peers = {name: own for name, own in contenders.items() if "(torch)" in name}
    heads = [f"times as fast as {name}" for name in peers]
    rows = []
    for name, own in contenders.items():
        floor = floors.get(name.split(", ")[1]) if "esn" in name and ", " in name else None
        cells = [
            own["tokens_per_s"],
            1e3 * own["median_s"] / count,
            ratio(own["median_s"] / count, floor),
            f"{own['first_loss']:.5f}" if "first_loss" in own else None,
        ]
        rows.append(
            [name, *cells, *(ratio(peer["median_s"], own["median_s"]) for peer in peers.values())]
        )
    lines += table(["", "tokens/s", "ms an update", "times its floor", "first loss", *heads], rows)
    return (
        lines
        + [f"- {name}: {own['title']}" for name, own in peers.items() if own.get("title")]
        + [""]
    )


def steps(part: dict) -> list[str]:
    lines = ["## One time step", ""]
    copy = max(
        (v for v in part.get("copy_bytes_per_s", {}).values() if isinstance(v, float)), default=None
    )
    if copy:
        lines += [f"Copies move {copy / 1e12:.3g} TB/s, read and written.", ""]
    for key, peaks in part.items():
        if key.startswith("flops_per_s "):
            said = [
                f"{shape} {library} {value / 1e12:.3g}"
                for shape, own in peaks.items()
                for library, value in own.items()
            ]
            lines += [f"TFLOP/s in {key.removeprefix('flops_per_s ')}: {', '.join(said)}.", ""]
    for own in part.get("steps", []):
        once, gathered = (
            (1e3 * own[key] / copy) if copy else None for key in ("once_bytes", "gathered_bytes")
        )
        lines += [
            (
                f"N = {own['size']:,}, {own['slots']:,} sentences, {own['nonzeros']:,} nonzeros. At"
                " the speed of a copy, reading W_rec once and reading and writing h would take"
                f" {measure.show(once)} ms, and reading a row of h for each nonzero"
                f" {measure.show(gathered)} ms."
            ),
            "",
        ]
        by_time = sorted(own.get("ms", {}).items(), key=lambda item: item[1])
        csr = own.get("ms", {}).get("PyTorch CSR")
        rows = [
            [
                name,
                ms,
                ratio(ms, once),
                ratio(ms, gathered),
                ratio(csr, ms),
                own.get("error", {}).get(name),
            ]
            for name, ms in by_time
        ]
        head = [
            "",
            "ms",
            "times once",
            "times the gather",
            "times as fast as cuSPARSE",
            "error after 16 steps",
        ]
        lines += table(head, rows)
        lines += [f"- {name}: {why}" for name, why in own.get("failures", {}).items()]
    return lines


def bits(part: dict) -> list[str]:
    lines = ["## The same bits", ""]
    for what in ("made twice", "resumed", "made twice, deterministic operations"):
        if own := part.get(what):
            at = f", stopped at update {own['stopped_at']}" if "stopped_at" in own else ""
            differ = ", ".join(
                f"{name} by {value:.1e} of the largest" for name, value in own["differ"].items()
            )
            said = (
                f"{len(own['differ'])} of {own['arrays']} arrays differ: {differ}"
                if differ
                else f"all {own['arrays']} arrays are the same"
            )
            lines.append(f"- {what}{at}, after {own['update']:,} updates: {said}")
    return [*lines, ""]


EXPECTED = {
    "train": ("cold", "warm", "profile", "blimp"),
    "speed": ("models",),
    "families": ("models",),
    "step": ("copy_bytes_per_s", "steps"),
    "large": ("large",),
    "same": ("made twice", "resumed", "made twice, deterministic operations"),
}


def missing(found: dict[str, dict]) -> list[str]:
    lines = []
    for name, part in found.items():
        failures = [
            *part["failures"],
            *(f"{k}: {v}" for k, v in part.get("models", {}).get("failures", {}).items()),
        ]
        for key in ("cold", "warm", "stopped", "blimp", "large"):
            finished = part.get(key, {}).get("summary", {}).get("status") == "finished"
            if part.get(key, {}).get("status", 0) not in (0, 75) and not finished:
                failures.append(
                    f"{key} ended with status {part[key]['status']} after"
                    f" {part[key]['wall_s']:.0f} s"
                )
        absent = [key for key in EXPECTED[name] if key not in part]
        lines += [f"- {name}: {failure}" for failure in failures]
        lines += [f"- {name}: no finding {', '.join(absent)}"] * bool(absent)
    spent = ", ".join(
        f"{name} {part['seconds']:.0f}" for name, part in found.items() if "seconds" in part
    )
    return [
        "## Not measured",
        "",
        *(lines or ["Nothing was left out."]),
        "",
        f"Seconds of the parts: {spent}.",
    ]


if __name__ == "__main__":
    main()
