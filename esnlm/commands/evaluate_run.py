"""Scores minimal pairs with a run, from the run directory to the written report."""

from collections.abc import Sequence
from pathlib import Path

from esnlm import loaded_run
from esnlm.base import processes
from esnlm.base.console import working
from esnlm.base.errors import InputError
from esnlm.base.remote import run_copy
from esnlm.evaluation import conventions, minimal_pairs
from esnlm.evaluation.evaluate import Evaluation, evaluate
from esnlm.loaded_run import Step
from esnlm.machine.compute import in_float32
from esnlm.reports import blimp_report
from esnlm.reports.report import Report
from esnlm.runs.directory import RunDirectory


@in_float32
def evaluate_run(
    run: str | Path,
    data: Sequence[str | Path] | None = None,
    good: str | None = None,
    bad: Sequence[str] | None = None,
    group: str | None = None,
    phenomenon: str | None = None,
    label: str | None = None,
    pair: str | None = None,
    scoring: str = "paper",
    normalize: str = "none",
    out: str | Path | None = None,
    step: Step = None,
    untrained: bool = False,
    compare: str | Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> Evaluation:
    """Scores minimal pairs with a run, writes the report and prints it. Checks all input before it
    scores.

    The arguments are the options of `esnlm blimp`; the report names `command` as its origin. The
    defaults are the run's own pairs, BLiMP's columns, the newest checkpoint, and
    RUN/evaluation/blimp-SCORING.json. Raises InputError if the run, the pairs, the report to
    compare with or the path of the report is not usable.
    """
    conventions.get(scoring)
    if (good or bad or group or phenomenon or label) and not data:
        raise InputError("--good, --bad, --group, --phenomenon, --label: need --data")
    if (label is None) != (pair is None):
        raise InputError(
            "--label and --pair belong together: a table with one sentence per row needs both"
        )
    usual = minimal_pairs.Columns()
    own = good or ("sentence" if label else usual.good), tuple(bad or usual.bad)
    columns = minimal_pairs.Columns(*own, group, phenomenon, label, pair)
    pairs = minimal_pairs.load(data, columns) if data else None
    with working(f"loading {run}"):
        loaded = loaded_run.load(run, step=step, untrained=untrained)
    directory = RunDirectory(loaded.directory)
    pairs, bigram = (_own_pairs(directory), loaded.bigram()) if pairs is None else (pairs, None)
    # a generated text is small and always available
    baselines = {} if bigram is None else {"bigram": bigram}
    suffix = "-untrained" if untrained else "" if step is None else f"-step-{loaded.step}"
    file = Path(out) if out else directory.evaluation / f"blimp-{scoring}{suffix}.json"
    report = Report(file, command)
    compare_with = None
    if compare:
        data_sha256 = minimal_pairs.digest(pairs)
        compare_with = blimp_report.read_to_compare(
            run_copy(compare, untrained=True), scoring, data_sha256, len(pairs)
        )
    other = compare_with[0] if compare_with else None
    blimp_report.check_place(report, loaded, scoring, pairs, normalize, other, overwrite)

    evaluation = evaluate(
        loaded, pairs, scoring, baselines, compare_with, progress=True, normalize=normalize
    )
    if not processes.is_rank0():
        return evaluation
    written = blimp_report.write(evaluation, report)
    blimp_report.show(evaluation.result)
    print(written)
    return evaluation


def _own_pairs(directory: RunDirectory) -> list[minimal_pairs.Pair]:
    """Returns the run's own minimal pairs. Raises InputError if it has none or if they changed."""
    if not directory.minimal_pairs.is_dir():
        raise InputError(f"{directory.path}: this run has no minimal pairs of its own: give --data")
    directory.verify(directory.minimal_pairs)
    return minimal_pairs.load(directory.minimal_pairs)
