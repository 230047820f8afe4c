"""A minimal-pair report as text, for the terminal and as a Markdown page."""

from collections.abc import Mapping, Sequence

from esnlm.base.console import counted
from esnlm.base.screen import Screen
from esnlm.evaluation.statistics import LEVEL
from esnlm.reports.tables import Table, markdown_table

ANCHORS = {
    "five_gram": "5-gram",
    "lstm": "LSTM",
    "transformer_xl": "TXL",
    "gpt2": "GPT-2",
    "human": "human",
}
LEVELS = {"phenomena": "phenomenon", "paradigms": "paradigm"}


def show(result: dict, screen: Screen | None = None) -> None:
    """Prints a report: a summary, then a table by phenomenon or, if there is only one, by
    paradigm."""
    screen = screen or Screen()
    # 80 columns
    left_out = {"phenomenon"} | ({"pairs", "5-gram", "LSTM", "TXL"} if result["anchors"] else set())
    for line in _headline(result):
        screen.line(line)
    header, rows = accuracy_table(
        result, "phenomena" if result["data"]["phenomena"] > 1 else "paradigms"
    )
    kept = [i for i, name in enumerate(header) if i == 0 or name not in left_out]
    cells = [[row[i] for i in kept] for row in rows]
    screen.table([header[i] for i in kept], cells, bold={"overall"})
    for line in comparison_lines(result):
        screen.line(line)


def markdown(result: dict) -> str:
    """Returns a report as a Markdown page: headline, all phenomena, all paradigms, comparison,
    origin."""
    headline = _headline(result)
    lines = [f"# {headline[0]}", "", *(f"- {line}" for line in headline[1:])]
    for level, name in LEVELS.items():
        lines += [
            "",
            f"## By {name}",
            "",
            *markdown_table(*accuracy_table(result, level), align="lr"),
        ]
    if "comparison" in result:
        lines += ["", "## Comparison", "", *(f"- {line}" for line in comparison_lines(result))]
    if comparison := result.get("comparison"):
        entries = comparison["phenomena"] | comparison["paradigms"]
        lines += ["", *markdown_table(*difference_table(entries), align="lr")]
    lines += [
        "",
        "## Origin",
        "",
        f"- intervals: {result['intervals']}",
        f"- pairs: sha256 {result['data']['sha256']}",
    ]
    lines += [f"- tokenizer: {result['tokenizer']['name']}, sha256 {result['tokenizer']['sha256']}"]
    lines += [f"- {name}: {value}" for name, value in result.get("provenance", {}).items() if value]
    return "\n".join(lines) + "\n"


def entry_of(tree: dict, level: str, name: str) -> dict:
    """Returns the entry of a phenomenon, a paradigm or "overall" in a result, a baseline or the
    anchors."""
    return tree["overall"] if name == "overall" else tree[level][name]


def readable(name: str) -> str:
    """Returns the name of a phenomenon or a paradigm as separate words."""
    return " ".join("NPI" if word == "npi" else word for word in name.split("_"))


def worth_of_a_tie(data: dict) -> str:
    """Returns the worth of a tie in a baseline as text, given the data of a report."""
    is_of_sets = data.get("kinds", {}).get("sets")
    return "half" + (
        " (in a set: one over the number of sentences at the top)" if is_of_sets else ""
    )


def comparison_lines(result: dict) -> list[str]:
    """Returns the comparison with another run on the same pairs, as sentences; empty if the report
    has none."""
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
            f" {overall['difference']:+.2f} points [{_interval(overall['interval'], 2)}], paired"
            " over the same pairs"
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
            _interval(entry["interval"]),
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


def _headline(result: dict) -> list[str]:
    """Returns the main results with their intervals, as sentences."""
    data, overall, scoring, baselines = (
        result["data"],
        result["overall"],
        result["scoring"],
        result["baselines"],
    )
    tie = worth_of_a_tie(data)
    kinds = data.get("kinds", {"pairs": data["pairs"], "sets": 0})
    counts = [counted(kinds["pairs"], "minimal pair")] if kinds["pairs"] else []
    counts += (
        [counted(kinds["sets"], "set of sentences", "sets of sentences")] if kinds["sets"] else []
    )
    lines = [
        f"{result['run']}, step {result['step']}: {', '.join(counts)}, {scoring['name']} scoring",
        f"scoring: {scoring['description']}",
        *(f"{result['status']}: {warning}" for warning in result["warnings"]),
    ]
    ties = (
        f"ties: {overall['ties']:,}; pairs of twice the same sentence: {data['identical_pairs']:,}"
    )
    if overall["accuracy"] is not None:
        mean = f"mean of {data['paradigms']} paradigms" if data["paradigms"] > 1 else "one paradigm"
        lines.append(
            f"accuracy {overall['accuracy']:.2f} % [{_interval(overall['interval'], 2)}], {mean}"
        )
        ties += f"; accuracy with ties as {tie} {_figure(overall['accuracy_ties_half'], 2)}"
    if result.get("chance") is not None:
        lines.append(f"chance {result['chance']:.2f} %")
    by = ", ".join(
        f"{name} {_figure(its['overall']['accuracy'], 2)}" for name, its in baselines.items()
    )
    lines += [ties, f"baselines, ties as {tie}: {by}"]
    if result["status"] == "ok":
        above = {name: its["run_above"]["overall"] for name, its in baselines.items()}
        by = ", ".join(
            f"{name} {e['difference']:+.2f} [{_interval(e['interval'], 2)}]"
            for name, e in above.items()
        )
        lines.append(f"above the baselines, in points, paired: {by}")
    if result["anchors"]:
        by = ", ".join(
            f"{ANCHORS[model]} {value:.1f}" for model, value in result["anchors"]["overall"].items()
        )
        lines.append(f"published with BLiMP: {by}")
    return lines


def accuracy_table(result: dict, level: str) -> Table:
    """Returns the table of accuracies with one row per phenomenon or paradigm, and the overall
    row."""
    baselines, anchors = result["baselines"], result["anchors"]
    counts, normalized = ("pairs", "ties"), result.get("normalized")
    per = [f"per {normalized['by'].removesuffix('s')}"] if normalized else []
    header = [
        LEVELS[level],
        "accuracy",
        "95 %",
        *per,
        *counts,
        *baselines,
        *(ANCHORS.values() if anchors else ()),
    ]
    rows = []
    for name in [*result[level], "overall"]:
        entry = entry_of(result, level, name)
        published = entry_of(anchors, level, name) if anchors else {}
        row = [
            name,
            _figure(entry["accuracy"]) if entry["accuracy"] is not None else result["status"],
            _interval(entry["interval"]) if entry["interval"] else "",
            *([_figure(entry_of(normalized, level, name)["accuracy"])] if normalized else []),
            *(f"{entry[count]:,}" for count in counts),
            *(_figure(entry_of(its, level, name)["accuracy"]) for its in baselines.values()),
            *map(_figure, published.values()),
        ]
        rows.append(row if level == "phenomena" else [*row, entry.get("phenomenon", "")])
    return header if level == "phenomena" else [*header, "phenomenon"], rows


def _figure(value: float | None, decimals: int = 1) -> str:
    return "not defined" if value is None else f"{value:.{decimals}f}"


def _interval(interval: Sequence[float], decimals: int = 1) -> str:
    return f"{interval[0]:.{decimals}f}, {interval[1]:.{decimals}f}"
