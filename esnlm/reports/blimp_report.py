"""Reports on minimal pairs: written, read back, compared, and as text.

A report is NAME.json (the result), NAME.pairs.jsonl (one line per pair) and NAME.md.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from esnlm.base.console import counted
from esnlm.base.errors import InputError
from esnlm.base.files import seal, spell_nonfinite
from esnlm.base.screen import Screen
from esnlm.base.versions import check_format
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.conventions import ScorableRun
from esnlm.evaluation.evaluate import (
    FORMAT,
    FORMAT_VERSION,
    ComparedRun,
    Evaluation,
    config_sha256,
)
from esnlm.evaluation.statistics import LEVEL
from esnlm.reports.figures import format_figure, format_interval
from esnlm.reports.report import Report, Table, markdown_table
from esnlm.runs.directory import RunDirectory

ANCHORS = {
    "five_gram": "5-gram",
    "lstm": "LSTM",
    "transformer_xl": "TXL",
    "gpt2": "GPT-2",
    "human": "human",
}
LEVELS = {"phenomena": "phenomenon", "paradigms": "paradigm"}


def write(evaluation: Evaluation, report: Report) -> str:
    """Writes the files of a report, the JSON last, and returns the line to print.

    Adds `pairs_file`, `provenance` and `sha256` to the result of the evaluation.
    """
    result, pairs_file = evaluation.result, report.file.with_suffix(".pairs.jsonl")
    pairs = "".join(json.dumps(line) + "\n" for line in _pair_lines(evaluation)).encode()
    result["pairs_file"] = {"name": pairs_file.name, "sha256": hashlib.sha256(pairs).hexdigest()}
    return report.write(result, markdown(result), others={pairs_file: pairs}, sealed=True)


def read(path: str | Path) -> dict:
    """Reads the result of a report. Raises InputError if the file is missing or changed."""
    again = "score the run again with --overwrite"
    try:
        result = json.loads(Path(path).read_bytes())
        if result["format"] != FORMAT:
            raise ValueError
        version = result["format_version"]
    except FileNotFoundError:
        raise InputError(f"{path}: no such report; score the run first") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not a minimal-pair report") from None
    writer = result.get("provenance", {}).get("versions", {}).get("esnlm")
    check_format(Path(path), version, FORMAT_VERSION, again, writer)
    if result.get("sha256") != seal(result):
        raise InputError(f"{path}: damaged or edited: {again}")
    return result


def read_all(folder: Path) -> dict[str, dict]:
    """Reads the reports in a folder, by the names of their files. Ignores other JSON files."""
    files = sorted(folder.glob("*.json"))
    return {
        file.stem: read(file)
        for file in files
        if FORMAT in file.read_text("utf-8", errors="replace")
    }


def read_pairs(path: Path, result: dict) -> list[dict]:
    """Reads the pairs of a report, given its JSON file and its result from `read`."""
    pairs = path.with_name(result["pairs_file"]["name"])
    content = pairs.read_bytes() if pairs.is_file() else b""
    if hashlib.sha256(content).hexdigest() != result["pairs_file"]["sha256"]:
        raise InputError(
            f"{pairs}: missing, or not the file that belongs to {path.name}: score that run again"
        )
    return [json.loads(line) for line in content.splitlines()]


def read_to_compare(path: Path, scoring: str, data_sha256: str, count: int) -> ComparedRun:
    """Reads a report on the same `count` pairs under the same convention.

    `path` may be a run directory with such a report, and `data_sha256` is the digest of the pairs.
    """
    if path.is_dir():
        path = RunDirectory(path).evaluation / f"blimp-{scoring}.json"
    result = read(path)
    if (other := result["scoring"]["name"]) != scoring:
        raise InputError(
            f"{path}: scored as {other!r}, this one as {scoring!r}: compare like with like"
        )
    if result["data"]["sha256"] != data_sha256:
        raise InputError(f"{path}: a report on other pairs: compare runs on the same pairs")
    if result["status"] != "ok":
        raise InputError(
            f"{path}: its accuracy is {result['status']}, so it cannot be compared with"
        )
    right = np.array([line["right"] for line in read_pairs(path, result)], bool)
    assert len(right) == count  # implied by the digest
    summary = {name: result[name] for name in ("run", "step")}
    return ComparedRun(summary | {"accuracy": result["overall"]["accuracy"]}, right)


def check_place(
    report: Report,
    run: ScorableRun,
    scoring: str,
    pairs: Sequence[minimal_pairs.Pair],
    normalize: str,
    compared: ComparedRun | None,
    overwrite: bool,
) -> None:
    """Checks the place of a report: the new one may not lack results of the old one."""
    path, other = report.file, compared.summary if compared else None
    if path.is_file() and not overwrite:
        old = read(path)
        matches = {
            "another configuration": old["config_sha256"] == config_sha256(run),
            "another step": old["step"] == run.step,
            "another --scoring": old["scoring"]["name"] == scoring,
            "other pairs": old["data"]["sha256"] == minimal_pairs.digest(pairs),
            "another --normalize": old.get("normalized", {"by": normalize})["by"] == normalize,
            "another --compare": (old.get("comparison") or {"with": other})["with"] == other,
        }
        if different := [name for name, is_same in matches.items() if not is_same]:
            advice = "name another file with --out, or replace it with --overwrite"
            raise InputError(f"{path}: holds a report with {' and '.join(different)}: {advice}")
    report.check()


def show(result: dict, screen: Screen | None = None) -> None:
    """Prints a report: its headline, a table, and the comparison if it has one."""
    screen = screen or Screen()
    for line in headline(result):
        screen.line(line)
    header, rows = accuracy_table(result, main_level(result))
    # A terminal has 80 columns.
    wide = {"phenomenon"} | ({"pairs", "5-gram", "LSTM", "TXL"} if result["anchors"] else set())
    columns = [i for i, name in enumerate(header) if i == 0 or name not in wide]
    lines = [[row[i] for i in columns] for row in [header, *rows]]
    screen.table(lines[0], lines[1:], bold={"overall"})
    for line in comparison_lines(result):
        screen.line(line)


def main_level(result: dict) -> str:
    """Returns the level of the short table: phenomena or, if there is only one, paradigms."""
    return "phenomena" if result["data"]["phenomena"] > 1 else "paradigms"


def markdown(result: dict) -> str:
    """Returns a report as a Markdown page: headline, all phenomena, all paradigms, comparison."""
    title, *sentences = headline(result)
    lines = [f"# {title}", "", *(f"- {line}" for line in sentences)]
    for level, name in LEVELS.items():
        table = markdown_table(*accuracy_table(result, level), align="lr")
        lines += ["", f"## By {name}", "", *table]
    if "comparison" in result:
        lines += ["", "## Comparison", "", *(f"- {line}" for line in comparison_lines(result))]
    if comparison := result.get("comparison"):
        entries = comparison["phenomena"] | comparison["paradigms"]
        lines += ["", *markdown_table(*difference_table(entries), align="lr")]
    tokenizer = result["tokenizer"]
    method = [
        f"- intervals: {result['intervals']}",
        f"- pairs: sha256 {result['data']['sha256']}",
        f"- tokenizer: {tokenizer['name']}, sha256 {tokenizer['sha256']}",
    ]
    return "\n".join([*lines, "", "## Method", "", *method, ""])


def baseline_accuracy(result: dict, name: str) -> float | None:
    """Returns the overall accuracy of a baseline, None if the report lacks it."""
    return result["baselines"].get(name, {}).get("overall", {}).get("accuracy")


def entry_of(tree: dict, level: str, name: str) -> dict:
    """Returns an entry of a result, a baseline or the anchors; `name` may be "overall"."""
    return tree["overall"] if name == "overall" else tree[level][name]


def readable(name: str) -> str:
    """Returns the name of a phenomenon or a paradigm as separate words."""
    return " ".join("NPI" if word == "npi" else word for word in name.split("_"))


def describe_tie_credit(data: dict) -> str:
    """Returns the credit for a tie in a baseline as text, from the `data` of a report."""
    has_sets = data.get("kinds", {}).get("sets")
    return "half" + (" (in a set: one over the number of sentences at the top)" if has_sets else "")


def comparison_lines(result: dict) -> list[str]:
    """Returns the comparison with another run as sentences; empty if the report has none."""
    if "comparison" not in result:
        return []
    comparison = result["comparison"]
    if comparison is None:
        return [f"no comparison: the accuracy is {result['status']}"]
    overall, other = comparison["overall"], comparison["with"]
    paradigms = comparison["paradigms"].values()
    clear = [entry for entry in paradigms if entry["p_value_holm"] <= 1 - LEVEL]
    better = sum(entry["difference"] > 0 for entry in clear)
    return [
        (
            f"against {other['run']}, step {other['step']} ({other['accuracy']:.2f} %):"
            f" {overall['difference']:+.2f} points [{format_interval(overall['interval'], 2)}],"
            " paired over the same pairs"
        ),
        (
            f"only this run right: {counted(overall['only_this'], 'pair')}, only the other:"
            f" {overall['only_other']:,} (McNemar's exact test, pairs pooled: p ="
            f" {overall['p_value']:.2g})"
        ),
        (
            f"paradigms in which this run is better: {better}, in which it is worse:"
            f" {len(clear) - better}, of {len(paradigms)} (the same test at 5 %, after Holm's"
            " correction)"
        ),
    ]


def difference_table(entries: Mapping[str, dict]) -> Table:
    """Returns the table of paired differences, one row per entry of `statistics.compare`."""
    rows = [
        [
            name,
            f"{entry['difference']:+.1f}",
            format_interval(entry["interval"]),
            *(f"{entry[count]:,}" for count in ("only_this", "only_other")),
            *(f"{entry[p]:.2g}" for p in ("p_value", "p_value_holm")),
        ]
        for name, entry in entries.items()
    ]
    return [
        "",
        "difference",
        "95 %",
        "only this right",
        "only the other",
        "McNemar's p",
        "p after Holm",
    ], rows


def headline(result: dict) -> list[str]:
    """Returns the main results with their intervals, as sentences."""
    data, overall, scoring = result["data"], result["overall"], result["scoring"]
    tie, accuracy, baselines = describe_tie_credit(data), overall["accuracy"], result["baselines"]
    kinds = data.get("kinds", {"pairs": data["pairs"], "sets": 0})
    counts = [counted(kinds["pairs"], "minimal pair")] if kinds["pairs"] else []
    if kinds["sets"]:
        counts.append(counted(kinds["sets"], "set of sentences", "sets of sentences"))
    lines = [
        f"{result['run']}, step {result['step']}: {', '.join(counts)}, {scoring['name']} scoring",
        f"scoring: {scoring['description']}",
        *(f"{result['status']}: {warning}" for warning in result["warnings"]),
    ]
    ties = (
        f"ties: {overall['ties']:,}; pairs of twice the same sentence: {data['identical_pairs']:,}"
    )
    if accuracy is not None:
        mean = f"mean of {data['paradigms']} paradigms" if data["paradigms"] > 1 else "one paradigm"
        interval = format_interval(overall["interval"], 2)
        lines.append(f"accuracy {format_figure('blimp', accuracy)} % [{interval}], {mean}")
        ties += f"; accuracy with ties as {tie} {_accuracy('blimp', overall['accuracy_ties_half'])}"
    if result.get("chance") is not None:
        lines.append(f"chance {result['chance']:.2f} %")
    values = {name: baseline_accuracy(result, name) for name in baselines}
    values_of = ", ".join(f"{name} {_accuracy('blimp', v)}" for name, v in values.items())
    lines += [ties, f"baselines, ties as {tie}: {values_of}"]
    if result["status"] == "ok":
        leads = {name: baseline["run_above"]["overall"] for name, baseline in baselines.items()}
        leads_of = ", ".join(
            f"{name} {lead['difference']:+.2f} [{format_interval(lead['interval'], 2)}]"
            for name, lead in leads.items()
        )
        lines.append(f"above the baselines, in points, paired: {leads_of}")
    if result["anchors"]:
        published = result["anchors"]["overall"].items()
        values_of = ", ".join(
            f"{ANCHORS[model]} {format_figure('accuracy', v)}" for model, v in published
        )
        lines.append(f"published with BLiMP: {values_of}")
    return lines


def accuracy_table(result: dict, level: str) -> Table:
    """Returns the table of accuracies: a row per phenomenon or paradigm, and the overall row."""
    normalized, anchors, baselines = (
        result.get("normalized"),
        result["anchors"],
        result["baselines"],
    )
    counts = ("pairs", "ties")
    header = [
        LEVELS[level],
        "accuracy",
        "95 %",
        *([f"per {normalized['by'].removesuffix('s')}"] if normalized else []),
        *counts,
        *baselines,
        *(ANCHORS.values() if anchors else []),
        *(["phenomenon"] if level == "paradigms" else []),
    ]
    rows = []
    for name in [*result[level], "overall"]:
        entry = entry_of(result, level, name)
        by_length = [entry_of(normalized, level, name)["accuracy"]] if normalized else []
        others = [entry_of(baseline, level, name)["accuracy"] for baseline in baselines.values()]
        others += entry_of(anchors, level, name).values() if anchors else []
        row = [
            name,
            format_figure("accuracy", entry["accuracy"]) or result["status"],
            format_interval(entry["interval"] or ()),
            *(_accuracy("accuracy", value) for value in by_length),
            *(f"{entry[count]:,}" for count in counts),
            *(_accuracy("accuracy", value) for value in others),
            entry.get("phenomenon", ""),
        ]
        rows.append(row[: len(header)])
    return header, rows


def _accuracy(name: str, value: float | None) -> str:
    return format_figure(name, value) or "not defined"


def _pair_lines(evaluation: Evaluation) -> Iterator[dict]:
    """Yields the lines of NAME.pairs.jsonl, with None for numbers that are not finite."""
    right = evaluation.right
    for i, pair in enumerate(evaluation.pairs):
        good, bad = float(evaluation.log_prob_good[i]), float(evaluation.log_prob_bad[i])
        yield {
            "UID": pair.uid,
            "index": pair.number,
            "pairID": pair.pair_id,
            "sentence_good": pair.good,
            "sentence_bad": pair.bad,
            "log_prob_good": good if np.isfinite(good) else None,
            "log_prob_bad": bad if np.isfinite(bad) else None,
            "tokens_good": int(evaluation.tokens_good[i]),
            "tokens_bad": int(evaluation.tokens_bad[i]),
            **spell_nonfinite(evaluation.details.get(i, {})),
            "right": None if np.isnan(evaluation.outcome[i]) else bool(right[i]),
            "tie": bool(evaluation.outcome[i] == 0.5),
        }
