"""Several runs side by side: what they are, what they lose, what they score."""

from pathlib import Path

from esnlm import config as configuration
from esnlm.errors import InputError
from esnlm.reporting.blimp_report import read as read_report
from esnlm.runs.atomic import write_file
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import write_json


def report(runs: list[Path], out: Path | None = None) -> str:
    """A Markdown table of finished runs, from their summaries and the reports in their evaluation/ folders.

    Only bits per byte and nats per word compare runs of different vocabularies.

    Args:
        runs: run directories.
        out: a Markdown file to write it to; beside it the same as JSON. Replaced where it exists.

    Raises:
        InputError: a directory is not that of a finished run.
    """
    rows = [row(Path(run)) for run in runs]
    table = "\n".join([*_losses(rows), "", *_scores(rows)]) + "\n"
    if out is not None:
        write_json(out.with_suffix(".json"), rows)
        write_file(out, table)
    return table


def row(run: Path) -> dict:
    """A finished run: {run, model, summary, minimal_pairs}, the last by the name of the report in evaluation/.

    Raises:
        InputError: it is not that of a finished run.
    """
    directory = RunDirectory(run)
    summary = directory.read_summary()
    if summary is None or summary["status"] == "interrupted":
        raise InputError(f"{directory.path}: not a finished run; train it to its end with train.py")
    experiment = configuration.read(directory.config)
    scores = {}
    for file in sorted((directory.path / "evaluation").glob("*.json")):
        found = read_report(file)
        baselines = found["baselines"]
        figures = {
            name: baselines[name]["overall"]["accuracy"] if name in baselines else None
            for name in ("length", "unigram")
        }
        scores[file.stem] = found["overall"] | figures | {"step": found["step"], "status": found["status"]}
    found = {"run": directory.path.name, "model": experiment.model.title, "summary": summary, "minimal_pairs": scores}
    try:
        _losses([found]), _scores([found])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{directory.summary}: damaged, not as train.py wrote it; restore it from a copy of the run"
        ) from None
    return found


def _losses(rows: list[dict]) -> list[str]:
    lines = [
        "| run | model | trained | all parameters | words | train NLL | val NLL | unigram | bigram | true entropy | bits/byte | nats/word | minutes | tokens/s |",
        "| --- " + "| --- " + "| ---: " * 12 + "|",
    ]
    for row in rows:
        summary = row["summary"]
        known = summary.get("references", {})
        cells = [
            row["run"],
            row["model"],
            f"{summary['trainable_params']:,}",
            f"{summary['total_params']:,}",
            f"{summary['words']:,}" if "words" in summary else "",
            ""
            if "regression" in summary
            else _figure(summary.get("train_nll"), 3),  # of a sample there, under the finished readout
            _figure(summary.get("val_nll"), 3),
            *(_figure(known.get(name), 3) for name in ("unigram model", "bigram model", "the grammar's entropy")),
            *(_figure(summary.get(name), 3) for name in ("val_bits_per_byte", "val_nats_per_word")),
            _figure(summary["seconds"] / 60 if "seconds" in summary else None, 1),
            f"{summary['tokens_per_second']:,.0f}" if "tokens_per_second" in summary else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _scores(rows: list[dict]) -> list[str]:
    lines = [
        "| run | minimal pairs | step | accuracy, % | 95 % | length only | unigram |",
        "| --- | --- " + "| ---: " * 5 + "|",
    ]
    for row in rows:
        for name, score in row["minimal_pairs"].items():
            interval = "" if score["interval"] is None else " - ".join(f"{bound:.2f}" for bound in score["interval"])
            figures = [_figure(score[key], 2) for key in ("accuracy", "length", "unigram")]
            lines.append(
                f"| {row['run']} | {name} | {score['step']:,} | {figures[0]} | {interval} | {figures[1]} | {figures[2]} |"
            )
    return lines


def _figure(value: float | str | None, digits: int) -> str:
    return "" if value is None else f"{float(value):.{digits}f}"
