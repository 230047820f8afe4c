"""Prints a table of runs, or writes a page about runs and studies (--html)."""

import argparse
from pathlib import Path

from esnlm.base.errors import InputError
from esnlm.base.remote import run_copy
from esnlm.commands.arguments import OVERWRITE, Argument, check_output, local_path

ARGUMENTS = [
    Argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="run directories, with --html also folders of studies",
    ),
    Argument(
        "--out",
        type=local_path,
        metavar="FILE",
        help="also write the table to this .md or .csv file, with JSON beside it",
    ),
    Argument(
        "--html",
        type=local_path,
        metavar="FILE",
        help="write a page with all results of the runs, in place of a table",
    ),
    Argument(
        "--plot",
        type=local_path,
        metavar="FILE",
        help="also draw the losses by words read and by minutes, unfinished runs included, in a"
        " .png, .pdf or .svg file",
    ),
    OVERWRITE,
    Argument(
        "--seeds", action="store_true", help="make one row of runs that differ only in their seed"
    ),
    Argument(
        "--by",
        choices=["run", "phenomenon", "paradigm"],
        default="run",
        help="one row per run, or per phenomenon or paradigm with the accuracies of all runs"
        " (default: %(default)s)",
    ),
    Argument(
        "--scoring",
        default="paper",
        metavar="NAME",
        help="with --by and --html: the report to read, evaluation/blimp-NAME.json (default:"
        " %(default)s)",
    ),
]


def run(args: argparse.Namespace) -> None:
    from esnlm.reports import plots
    from esnlm.reports.loss_plot import plot_losses
    from esnlm.reports.run_table import SUFFIXES, distinct_runs, make_tables
    from esnlm.runs.directory import RunDirectory

    if args.html is not None and (args.out or args.plot or args.by != "run"):
        raise InputError(
            "--html: the page has all tables and pictures; leave out --out, --plot and --by"
        )
    check_output(args.html, args.overwrite, [".html"])
    check_output(args.out, args.overwrite, SUFFIXES)
    check_output(args.plot, args.overwrite, plots.SUFFIXES)
    if args.html is not None:
        from esnlm.reports.page import write_page

        folders = [run_copy(run) for run in args.runs]
        print(write_page(folders, args.html, args.seeds, args.scoring, args.command))
        return
    runs = distinct_runs(run_copy(run, untrained=True) for run in args.runs)
    plotted = args.plot and plot_losses(runs, args.plot, args.seeds)
    finished = [
        run for run in runs if args.plot is None or RunDirectory(run).read_summary() is not None
    ]
    if finished:
        table = make_tables(finished, args.out, args.seeds, args.by, args.scoring)
        print(table, end="\n" if plotted else "")
    for run in runs:
        if run not in finished:
            print(f"{run}: not finished, so not in the table")
    if plotted:
        print(plotted)
