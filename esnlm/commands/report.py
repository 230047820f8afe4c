"""Prints a table of several runs, or writes a page that tells of runs and studies (--html)."""

import argparse
from pathlib import Path

HELP = "prints a table of several runs, or writes a page about them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run directories, with --html also studies' folders"
    )
    add = parser.add_argument
    add("--out", type=Path, metavar="FILE", help="write it there, too, as Markdown, .tex or .csv, with JSON beside it")
    add(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a page of everything that is known of the runs, in place of a table",
    )
    plot = "also draw the losses by words read and by minutes of training; runs that are not finished are drawn, too"
    add("--plot", type=Path, metavar="FILE.png", help=plot)
    add("--overwrite", action="store_true", help="replace FILE.png if it is there")
    add("--seeds", action="store_true", help="make one row of runs that differ in nothing but their seed")
    rows = "what the rows are (default: %(default)s); of phenomena and paradigms, the accuracies of each run"
    add("--by", choices=["run", "phenomenon", "paradigm"], default="run", help=rows)
    which = "with --by and --html: which report, evaluation/blimp-NAME.json"
    add("--scoring", metavar="NAME", help=f"{which} (default: paper)")


def run(options: argparse.Namespace) -> None:
    from esnlm.errors import require
    from esnlm.io.remote import run_copy

    whole = options.html is None and options.by == "run"
    require(
        not (whole and options.scoring), "--scoring: the table by run has every report; give it with --by or --html"
    )
    line = "--overwrite: tables and pages replace what is theirs without it; give it with --plot"
    require(options.plot is not None or not options.overwrite, line)
    scoring = options.scoring or "paper"
    if options.html is not None:
        require(options.out is None and options.by == "run", "--html: a page has all tables; leave --out and --by out")
        require(options.plot is None, "--html: a page has its own pictures; leave --plot out")
        from esnlm.reporting.html.page import write_page

        print(
            write_page([run_copy(run) for run in options.runs], options.html, options.seeds, scoring, options.command)
        )
        return
    from esnlm.reporting.run_table import report

    runs = [run_copy(run, untrained=True) for run in options.runs]
    if options.plot is None:
        print(report(runs, options.out, options.seeds, options.by, scoring), end="")
        return
    from esnlm.reporting.losses_plot import plot_losses
    from esnlm.runs.directory import RunDirectory

    finished = [run for run in runs if RunDirectory(run).read_summary() is not None]
    require(bool(finished) or options.out is None, "--out: none of the runs is finished, so that there is no table")
    drawn = plot_losses(runs, options.plot, options.seeds, options.overwrite)
    if finished:
        print(report(finished, options.out, options.seeds, options.by, scoring))
    for named, run in zip(options.runs, runs, strict=True):
        if run not in finished:
            print(f"{named}: not finished, and not in the table")
    print(drawn)
