"""The table of several runs: what they are, their losses and their scores."""

from pathlib import Path

from esnlm import config_io
from esnlm.errors import InputError, require
from esnlm.reporting.blimp_report import read as read_report
from esnlm.reporting.tables import markdown_table
from esnlm.runs.atomic import write_files
from esnlm.runs.directory import RunDirectory
from esnlm.runs.json_file import json_text


def report(runs: list[Path], out: Path | None = None) -> str:
    """Returns Markdown tables of finished runs, from their summaries and the reports in their evaluation/ folders.

    Only bits per byte and nats per word compare runs of different vocabularies.

    Args:
        runs: run directories.
        out: a Markdown file to write the tables to, and the same as JSON beside it. What is there is replaced.

    Raises:
        InputError: a directory is not that of a finished run, or `out` cannot be written.
    """
    require(
        out is None or not (out.suffix.lower() == ".json" or out.is_dir()),
        f"{out}: no name for a Markdown file; give one such as table.md, and table.json will stand beside it",
    )
    rows = [row(Path(run)) for run in runs]
    table = "\n".join([*_losses(rows), "", *_scores(rows)]) + "\n"
    if out is not None:
        write_files({out: table, out.with_suffix(".json"): json_text(rows)})
    return table


def row(run: Path) -> dict:
    """Reads a finished run: {run, model, summary, minimal_pairs}, the last by the names of the reports in evaluation/.

    Raises:
        InputError: the directory is not that of a finished run.
    """
    directory = RunDirectory(run)
    summary = directory.read_summary()
    if summary is None:
        raise InputError(f"{directory.path}: not a finished run; train it to its end with train.py")
    experiment = config_io.read(directory.config)
    scores = {}
    for file in sorted(directory.evaluation.glob("*.json")):
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
    """Returns the lines of the table of what the runs are and lose."""
    references = {"unigram": "unigram model", "bigram": "bigram model", "true entropy": "the grammar's entropy"}
    header = ["run", "model", "trained", "all parameters", "words", "train NLL", "val NLL", *references]
    header += ["bits/byte", "nats/word", "minutes", "tokens/s"]
    cells = []
    for row in rows:
        summary = row["summary"]
        known = summary.get("references", {})
        # The training NLL of a regression is that of a sample under the finished readout, not a mean over updates.
        train_nll = None if "regression" in summary else summary.get("train_nll")
        minutes = summary["seconds"] / 60 if "seconds" in summary else None
        cells.append(
            [
                row["run"],
                row["model"],
                f"{summary['trainable_params']:,}",
                f"{summary['total_params']:,}",
                f"{summary['words']:,}" if "words" in summary else "",
                _figure(train_nll, 3),
                _figure(summary.get("val_nll"), 3),
                *(_figure(known.get(name), 3) for name in references.values()),
                *(_figure(summary.get(name), 3) for name in ("val_bits_per_byte", "val_nats_per_word")),
                _figure(minutes, 1),
                f"{summary['tokens_per_second']:,.0f}" if "tokens_per_second" in summary else "",
            ]
        )
    return markdown_table(header, cells, align="llr")


def _scores(rows: list[dict]) -> list[str]:
    """Returns the lines of the table of what the runs score on minimal pairs."""
    cells = []
    for row in rows:
        for name, score in row["minimal_pairs"].items():
            interval = "" if score["interval"] is None else " - ".join(f"{bound:.2f}" for bound in score["interval"])
            accuracy, length, unigram = (_figure(score[key], 2) for key in ("accuracy", "length", "unigram"))
            cells.append([row["run"], name, f"{score['step']:,}", accuracy, interval, length, unigram])
    header = ["run", "minimal pairs", "step", "accuracy, %", "95 %", "length only", "unigram"]
    return markdown_table(header, cells, align="llr")


def _figure(value: float | str | None, digits: int) -> str:
    return "" if value is None else f"{float(value):.{digits}f}"
