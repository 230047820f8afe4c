"""Scores minimal pairs (BLiMP) with a trained run.

--data reads JSON lines, tables, Zorro's files and sets of sentences, compressed or not;
docs/minimal_pairs.md describes them. The default are the pairs of the run's own data.
"""

import argparse

from esnlm.base import processes
from esnlm.base.errors import InputError
from esnlm.base.remote import run_copy
from esnlm.commands.arguments import (
    PAIRS,
    PROCESSES,
    RUN,
    SCORING,
    SEVERAL,
    STEP,
    UNTRAINED,
    Argument,
    OneOf,
    join_processes,
    load_run,
    local_path,
)
from esnlm.evaluation.conventions import NORMALIZATIONS

ARGUMENTS = [
    RUN,
    PAIRS,
    Argument(
        "--good",
        metavar="COLUMN",
        help="column or field of the grammatical sentence (default: sentence_good)",
    ),
    Argument(
        "--bad",
        **SEVERAL,
        metavar="COLUMN",
        help="column(s) of the ungrammatical sentence (default: sentence_bad)",
    ),
    Argument(
        "--group",
        "--paradigm",
        metavar="COLUMN",
        help="column of the paradigm (default: UID or paradigm, or the file's name)",
    ),
    Argument(
        "--phenomenon",
        metavar="COLUMN",
        help="column of the phenomenon (default: linguistics_term or phenomenon)",
    ),
    Argument(
        "--label",
        metavar="COLUMN",
        help="column of grammaticality, in a table with one sentence per row (in --good)",
    ),
    Argument(
        "--pair",
        metavar="COLUMN",
        help="column of the pair's number or name in its paradigm, in such a table",
    ),
    SCORING,
    Argument(
        "--normalize",
        default="none",
        choices=NORMALIZATIONS,
        help="also report the accuracy by log p per token or per byte (default: %(default)s)",
    ),
    Argument(
        "--out",
        type=local_path,
        metavar="FILE",
        help="JSON report to write (default: DIR/evaluation/blimp-SCORING.json)",
    ),
    OneOf(
        STEP,
        UNTRAINED,
    ),
    Argument("--compare", metavar="RUN_OR_REPORT", help="run or report to compare with"),
    Argument("--overwrite", action="store_true", help="replace a report made with other settings"),
    *PROCESSES,
]


def run(args: argparse.Namespace) -> None:
    """Scores the pairs, writes the report and prints it. Checks all input before it scores."""
    join_processes(args, stops_together=False)
    from esnlm.evaluation import minimal_pairs
    from esnlm.evaluation.evaluate import evaluate
    from esnlm.reports import blimp_report
    from esnlm.reports.report import Report
    from esnlm.runs.directory import RunDirectory

    if (args.good or args.bad or args.group or args.phenomenon or args.label) and not args.data:
        raise InputError("--good, --bad, --group, --phenomenon, --label: need --data")
    if (args.label is None) != (args.pair is None):
        raise InputError(
            "--label and --pair belong together: a table with one sentence per row needs both"
        )
    default = minimal_pairs.Columns()
    columns = minimal_pairs.Columns(
        good=args.good or ("sentence" if args.label else default.good),
        bad=tuple(args.bad or default.bad),
        group=args.group,
        phenomenon=args.phenomenon,
        label=args.label,
        pair=args.pair,
    )
    pairs = minimal_pairs.load(args.data, columns) if args.data else None
    loaded = load_run(args)
    directory = RunDirectory(loaded.directory)
    bigram = None
    if pairs is None:
        if not directory.minimal_pairs.is_dir():
            raise InputError(
                f"{directory.path}: this run has no minimal pairs of its own: give --data"
            )
        directory.verify(directory.minimal_pairs)
        pairs = minimal_pairs.load(directory.minimal_pairs)
        bigram = loaded.bigram()  # a generated text is small and always available
    name = f"blimp-{args.scoring}"
    if args.untrained:
        name += "-untrained"
    elif args.step is not None:
        name += f"-step-{loaded.step}"
    report = Report(args.out or directory.evaluation / f"{name}.json", args.command)
    compare_with = None
    if args.compare:
        compare_with = blimp_report.read_to_compare(
            run_copy(args.compare, untrained=True),
            args.scoring,
            minimal_pairs.digest(pairs),
            len(pairs),
        )
    blimp_report.check_place(
        report, loaded, args.scoring, pairs, args.normalize, compare_with, args.overwrite
    )

    evaluation = evaluate(
        loaded,
        pairs,
        args.scoring,
        {} if bigram is None else {"bigram": bigram},
        compare_with,
        progress=True,
        normalize=args.normalize,
    )
    if processes.is_rank0():
        written = blimp_report.write(evaluation, report)
        blimp_report.show(evaluation.result)
        print(written)
