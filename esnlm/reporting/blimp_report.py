"""Reports on minimal pairs: for machines (JSON, a line a pair), for people (terminal, Markdown), and run against run.

`evaluate_run` is the whole of `eval_blimp.py`: load, check that nothing would be lost, score, compare, write, show.
A report is four files of one name: NAME.json, NAME.pairs.jsonl, NAME.md and, with matplotlib, NAME.png.
"""

import hashlib
import io
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import esnlm
from esnlm.errors import InputError
from esnlm.evaluation import conventions, minimal_pairs, statistics
from esnlm.evaluation.minimal_pairs import Evaluation
from esnlm.reporting import blimp_plot
from esnlm.runs.atomic import abandoned, write_files
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import parse_json, seal

ANCHORS = {"five_gram": "5-gram", "lstm": "LSTM", "transformer_xl": "TXL", "gpt2": "GPT-2", "human": "human"}
FEW_PARADIGMS = 20  # up to so many are listed in the terminal too


def evaluate_run(
    run: str | Path,
    data: Sequence[str | Path] | None = None,
    scoring: str = "paper",
    out: str | Path | None = None,
    step: int | None = None,
    untrained: bool = False,
    compare: str | Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> Evaluation:
    """Score minimal pairs with a run, write the report and print it. Nothing is scored before all input is checked.

    run: the run directory. data: folders and files of pairs; without it RUN/minimal_pairs. out: the JSON file,
    otherwise RUN/evaluation/blimp-SCORING.json (with -untrained or -step-N where one was asked for). step: which
    checkpoint; untrained: the same model before its first update. compare: another run directory or report to set
    this one against. overwrite: replace a report of something else. command: to be named in the report.
    Raises InputError.
    """
    conventions.convention(scoring)
    pairs = minimal_pairs.load(data) if data else None
    loaded = esnlm.load(run, step=step, untrained=untrained)
    if pairs is None:
        own = loaded.directory / "minimal_pairs"
        if not own.is_dir():
            raise InputError(f"{loaded.directory}: this run has no minimal pairs of its own: name some with --data")
        RunDirectory(loaded.directory).verify(own)
        pairs = minimal_pairs.load(own)
    suffix = "-untrained" if untrained else "" if step is None else f"-step-{step}"
    path = Path(out) if out else loaded.directory / "evaluation" / f"blimp-{scoring}{suffix}.json"
    names = _names(path)
    if not overwrite:
        _refuse_to_overwrite(names, loaded, scoring, minimal_pairs.digest(pairs))
    other = _read_other(Path(compare), scoring, pairs) if compare else None
    _make_folder(path.parent)

    evaluation = minimal_pairs.evaluate(loaded, pairs, scoring, progress=True)
    if other:
        evaluation.result["comparison"] = _comparison(evaluation, *other)
    evaluation.result["provenance"] = _provenance(command)
    note = write(evaluation, path)
    show(evaluation.result)
    print(f"written: {path} (and .pairs.jsonl, .md{'' if note else ', .png'} beside it){f'; {note}' if note else ''}")
    return evaluation


def write(evaluation: Evaluation, path: str | Path) -> str | None:
    """Write the report's files: each is whole or not there, and the JSON comes last and vouches for the rest.

    Gives a line that says why there is no plot, or None. Raises InputError if `path` does not end in .json.
    """
    names = _names(Path(path))
    result = evaluation.result
    _make_folder(names["json"].parent)
    pairs = "".join(json.dumps(line) + "\n" for line in _pair_lines(evaluation)).encode()
    result["pairs_file"] = {"name": names["pairs"].name, "sha256": hashlib.sha256(pairs).hexdigest()}
    result["sha256"] = seal(result)
    picture = io.BytesIO()
    note = blimp_plot.save(result, picture)
    contents = {
        names["pairs"]: pairs,
        names["md"]: markdown(result),
        names["png"]: None if note else picture.getvalue(),  # that of an earlier report is removed
        names["json"]: json.dumps(result, indent=2, allow_nan=False) + "\n",
    }
    write_files(contents)
    return note


def read(path: str | Path) -> dict:
    """The JSON of a report. Raises InputError if it is none, of a version this library does not know, or changed since."""
    try:
        result = parse_json(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such report") from None
    except ValueError as error:
        raise InputError(f"{path}: not a report of minimal pairs ({error})") from None
    if not isinstance(result, dict) or result.get("format") != "esnlm minimal pairs":
        raise InputError(f"{path}: not a report of minimal pairs")
    if result.get("format_version") != minimal_pairs.FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {result.get('format_version')}, this library reads {minimal_pairs.FORMAT_VERSION}: "
            "score the run again"
        )
    if result.get("sha256") != seal(result) or not _is_complete(result):
        raise InputError(f"{path}: damaged, not as it was written: score the run again")
    return result


def _is_complete(result: dict) -> bool:
    """Whether what is read of a report is there, in the types that it has."""
    try:
        texts = [result["run"], result["status"], result["config_sha256"], result["scoring"]["name"]]
        texts += [
            result["data"]["sha256"],
            result["tokenizer"]["sha256"],
            result["pairs_file"]["name"],
            result["pairs_file"]["sha256"],
        ]
        step, accuracy, name = result["step"], result["overall"]["accuracy"], result["pairs_file"]["name"]
        numbers = [baseline["overall"]["accuracy"] for baseline in result["baselines"].values()]
        numbers += [
            number for interval in [result["overall"]["interval"]] if interval is not None for number in interval
        ]
        known = accuracy is None if result["status"] != "ok" else 0 <= accuracy <= 100
        known = known and type(step) is int and all(number is None or 0 <= number <= 100 for number in numbers)
        return known and all(isinstance(text, str) for text in texts) and name == Path(name).name != ""
    except (AttributeError, KeyError, TypeError):
        return False


def show(result: dict, console: Console | None = None) -> None:
    """Print a report: sentences that say what was measured, and tables by phenomenon and, where few, by paradigm."""
    # Off a terminal rich assumes 80 columns and would cut the figures of the tables.
    console = console or Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False)
    left_out = {"identical"} | ({"pairs", "5-gram", "LSTM", "TXL"} if result["anchors"] else set())  # 80 columns
    for line in _headline(result):
        console.print(line, markup=False)
    levels = ["phenomena"] if result["data"]["phenomena"] > 1 else []
    if result["data"]["paradigms"] <= FEW_PARADIGMS:
        levels.append("paradigms")
    for level in levels:
        header, *rows = _rows(result, level)
        shown = [i for i, name in enumerate(header) if name not in left_out]
        table = Table(box=None, padding=(0, 1), header_style="bold")
        for i in shown:
            table.add_column(header[i], justify="right" if i else "left", no_wrap=i > 0, overflow="fold")
        for row in rows:
            table.add_row(*(row[i] for i in shown), style="bold" if row[0] == "overall" else None)
        console.print(table)
    for line in _comparison_lines(result):
        console.print(line, markup=False)


def markdown(result: dict) -> str:
    """The report as a Markdown page: the headline, every phenomenon, every paradigm, the comparison, its origin."""
    headline = _headline(result)
    lines = [f"# {headline[0]}", "", *(f"- {line}" for line in headline[1:])]
    for level in ("phenomena", "paradigms"):
        header, *rows = _rows(result, level)
        lines += ["", f"## By {'phenomenon' if level == 'phenomena' else 'paradigm'}", ""]
        lines += [_markdown_row(header), _markdown_row(["---"] + ["---:"] * (len(header) - 1))]
        lines += [_markdown_row(row) for row in rows]
    if "comparison" in result:
        lines += ["", "## Comparison", "", *(f"- {line}" for line in _comparison_lines(result))]
    if result.get("comparison"):
        lines += _differences(result["comparison"], ("phenomena", "paradigms"))
    if result["status"] == "ok":
        for name, its in result["baselines"].items():
            lines += ["", f"## Above {name} only", *_differences(its["run_above"], ("phenomena",))]
    lines += ["", "## Origin", "", f"- intervals: {result['intervals']}", f"- pairs: sha256 {result['data']['sha256']}"]
    lines += [f"- tokenizer: {result['tokenizer']['name']}, sha256 {result['tokenizer']['sha256']}"]
    lines += [f"- {name}: {value}" for name, value in result.get("provenance", {}).items() if value]
    return "\n".join(lines) + "\n"


def _differences(comparison: dict, levels: Sequence[str]) -> list[str]:
    lines = ["", _markdown_row(["", "difference", "95 %", "p"]), "| --- | ---: | ---: | ---: |"]
    for name, entry in [item for level in levels for item in comparison[level].items()]:
        interval = _interval(entry["interval"])
        lines.append(_markdown_row([name, f"{entry['difference']:+.1f}", interval, f"{entry['p_value']:.2g}"]))
    return lines


def _headline(result: dict) -> list[str]:
    data, overall = result["data"], result["overall"]
    scoring = result["scoring"]
    lines = [
        f"{result['run']}, step {result['step']}: {data['pairs']:,} minimal pairs, {scoring['name']} scoring",
        f"scoring: {scoring['description']}",
    ]
    lines += [f"{result['status']}: {warning}" for warning in result["warnings"]]
    mean = f"mean of {data['paradigms']} paradigms" if data["paradigms"] > 1 else "one paradigm"
    if overall["accuracy"] is not None:
        lines.append(f"accuracy {overall['accuracy']:.2f} % [{_interval(overall['interval'], 2)}], {mean}")
    ties = f"ties: {overall['ties']:,}; pairs of twice the same sentence: {data['identical_pairs']:,}"
    if overall["accuracy"] is not None:
        ties += f"; accuracy with ties as half {_figure(overall['accuracy_ties_half'], 2)}"
        ties += f", without identical pairs {_figure(overall['accuracy_without_identical'], 2)}"
    lines.append(ties)
    by = ", ".join(f"{name} {_figure(its['overall']['accuracy'], 2)}" for name, its in result["baselines"].items())
    lines.append(f"baselines, ties as half: {by}")
    if result["status"] == "ok":
        above = {name: its["run_above"]["overall"] for name, its in result["baselines"].items()}
        by = ", ".join(
            f"{name} {its['difference']:+.2f} [{_interval(its['interval'], 2)}]" for name, its in above.items()
        )
        lines.append(f"above the baselines, in points, paired: {by}")
    if result["anchors"]:
        by = ", ".join(f"{ANCHORS[model]} {value:.1f}" for model, value in result["anchors"]["overall"].items())
        lines.append(f"published with BLiMP: {by}")
    return lines


def _rows(result: dict, level: str) -> Iterator[list[str]]:
    """Header, one row a phenomenon or paradigm, and the overall row, as text."""
    baselines, anchors = result["baselines"], result["anchors"]
    yield [
        "phenomenon" if level == "phenomena" else "paradigm",
        *("accuracy", "95 %", "pairs", "ties", "identical"),
        *baselines,
        *(ANCHORS.values() if anchors else ()),
    ]
    for name in [*result[level], "overall"]:
        entry = result["overall"] if name == "overall" else result[level][name]
        beside = [its["overall"] if name == "overall" else its[level][name] for its in baselines.values()]
        published = (anchors["overall"] if name == "overall" else anchors[level][name]) if anchors else {}
        yield [
            name,
            _figure(entry["accuracy"]) if entry["accuracy"] is not None else result["status"],
            _interval(entry["interval"]) if entry["interval"] else "",
            *(f"{entry[count]:,}" for count in ("pairs", "ties", "identical")),
            *(_figure(its["accuracy"]) for its in beside),
            *(_figure(value) for value in published.values()),
        ]


def _pair_lines(evaluation: Evaluation) -> Iterator[dict]:
    right = _right(evaluation)
    for i, pair in enumerate(evaluation.pairs):
        yield {
            "UID": pair.uid,
            "index": pair.index,
            "pairID": pair.pair_id,
            "sentence_good": pair.good,
            "sentence_bad": pair.bad,
            "log_prob_good": _finite(evaluation.log_prob_good[i]),
            "log_prob_bad": _finite(evaluation.log_prob_bad[i]),
            "tokens_good": int(evaluation.tokens_good[i]),
            "tokens_bad": int(evaluation.tokens_bad[i]),
            "right": None if np.isnan(evaluation.outcome[i]) else bool(right[i]),
            "tie": bool(evaluation.outcome[i] == 0.5),
        }


def _right(evaluation: Evaluation) -> np.ndarray:
    """Whether each pair counts as right under the scoring's rule for ties, (n,) bool."""
    least = 0.5 if evaluation.result["scoring"]["ties_count_as"] == 1 else 1.0
    return evaluation.outcome >= least


def _read_other(path: Path, scoring: str, own: Sequence[minimal_pairs.Pair]) -> tuple[dict, np.ndarray]:
    """The report to compare with, and which pairs it has right: (n,) bool."""
    if path.is_dir():
        path = RunDirectory(path).evaluation / f"blimp-{scoring}.json"
        if not path.exists():
            raise InputError(f"{path}: no such report to compare with: score that run first, or name a report's .json")
    result = read(path)
    if result["scoring"]["name"] != scoring:
        theirs = result["scoring"]["name"]
        raise InputError(f"{path}: scored as {theirs!r}, this one as {scoring!r}: compare like with like")
    if result["data"]["sha256"] != minimal_pairs.digest(own):
        raise InputError(f"{path}: a report on other pairs: runs are compared on the same ones")
    if result["status"] != "ok":
        raise InputError(f"{path}: its accuracy is {result['status']}: there is nothing to compare with")
    pairs = path.with_name(result["pairs_file"]["name"])
    content = pairs.read_bytes() if pairs.exists() else b""
    if hashlib.sha256(content).hexdigest() != result["pairs_file"]["sha256"]:
        raise InputError(f"{pairs}: missing, or not the file {path.name} was written with: score that run again")
    try:
        right = [parse_json(line)["right"] for line in content.splitlines()]
    except (ValueError, KeyError, TypeError):
        right = []
    if len(right) != len(own) or not all(isinstance(each, bool) for each in right):
        raise InputError(f"{pairs}: not the outcomes of these {len(own):,} pairs: score that run again")
    return result, np.array(right)


def _comparison(evaluation: Evaluation, other: dict, other_right: np.ndarray) -> dict | None:
    result = evaluation.result
    if result["status"] != "ok":
        return None
    members = minimal_pairs.members(evaluation.pairs)
    phenomenon_of = {pair.uid: pair.phenomenon for pair in evaluation.pairs}
    return {
        "with": {"run": other["run"], "step": other["step"], "accuracy": other["overall"]["accuracy"]},
        **statistics.compare(_right(evaluation), other_right, members, phenomenon_of),
    }


def _comparison_lines(result: dict) -> list[str]:
    if "comparison" not in result:
        return []
    comparison = result["comparison"]
    if comparison is None:
        return [f"no comparison: the accuracy is {result['status']}"]
    overall, other = comparison["overall"], comparison["with"]
    return [
        f"against {other['run']}, step {other['step']} ({other['accuracy']:.2f} %): "
        f"{overall['difference']:+.2f} points [{_interval(overall['interval'], 2)}], paired over the same pairs",
        f"only this run right: {overall['only_this']:,} pairs, only the other: {overall['only_other']:,} "
        f"(McNemar's exact test, pairs pooled: p = {overall['p_value']:.2g})",
    ]


def _refuse_to_overwrite(names: dict[str, Path], run: Any, scoring: str, data_sha256: str) -> None:
    """InputError unless the report's files are free, or hold what would be written again."""
    path = names["json"]
    if path.exists():
        old = read(path)
        same = {
            "run": (old["run"], run.name),
            "configuration": (old["config_sha256"], minimal_pairs.config_sha256(run)),
            "step": (old["step"], run.step),
            "scoring": (old["scoring"]["name"], scoring),
            "tokenizer": (old["tokenizer"]["sha256"], run.tokenizer.sha256),
            "pairs": (old["data"]["sha256"], data_sha256),
        }
        differing = [name for name, (theirs, ours) in same.items() if theirs != ours]
        if differing:
            raise InputError(
                f"{path}: holds a report of another {', '.join(differing)}: name another file with --out, or replace "
                "it with --overwrite"
            )
    # A killed process may have written some files of a report, but not its JSON: these are no one else's.
    elif (stray := [name for name in names.values() if name.exists()]) and not any(map(abandoned, names.values())):
        raise InputError(f"{stray[0]}: is in the way: name another file with --out, or replace it with --overwrite")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: no folder can be made here ({error.strerror}): name another with --out") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: this folder cannot be written to: name another with --out")


def _names(path: Path) -> dict[str, Path]:
    if path.suffix != ".json" or path.is_dir():
        raise InputError(f"{path}: the report's name must be a file that ends in .json")
    suffixes = {"pairs": ".pairs.jsonl", "md": ".md", "png": ".png", "json": ".json"}
    return {kind: path.with_suffix(suffix) for kind, suffix in suffixes.items()}


def _provenance(command: str | None) -> dict:
    import jax

    versions = {"python": platform.python_version(), "esnlm": esnlm.__version__, "jax": jax.__version__}
    return {
        "command": command,
        "versions": versions | {"numpy": np.__version__},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}",
    }


def _figure(value: float | None, decimals: int = 1) -> str:
    return "not defined" if value is None else f"{value:.{decimals}f}"


def _interval(interval: Sequence[float], decimals: int = 1) -> str:
    return f"{interval[0]:.{decimals}f}, {interval[1]:.{decimals}f}"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
