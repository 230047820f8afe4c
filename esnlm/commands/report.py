"""Prints a table of runs, or writes a page about runs and studies (--html)."""

import argparse
from pathlib import Path

from esnlm.base.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="run directories, with --html also folders of studies",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="also write the table to this .md or .csv file, with JSON beside it",
    )
    page = "write a page with all results of the runs, in place of a table"
    add("--html", type=Path, metavar="FILE", help=page)
    plot = (
        "also draw the losses by words read and by minutes, unfinished runs included, in a .png,"
        " .pdf or .svg file"
    )
    add("--plot", type=Path, metavar="FILE", help=plot)
    add("--overwrite", action="store_true", help="replace existing files")
    add("--seeds", action="store_true", help="make one row of runs that differ only in their seed")
    rows = (
        "one row per run, or per phenomenon or paradigm with the accuracies of all runs (default:"
        " %(default)s)"
    )
    add("--by", choices=["run", "phenomenon", "paradigm"], default="run", help=rows)
    which = "with --by and --html: the report to read, evaluation/blimp-NAME.json"
    add("--scoring", default="paper", metavar="NAME", help=f"{which} (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    from esnlm.base.files import require_writable
    from esnlm.base.remote import run_copy
    from esnlm.reports import plots
    from esnlm.reports.loss_plot import plot_losses
    from esnlm.reports.run_table import SUFFIXES, distinct_runs, report
    from esnlm.runs.directory import RunDirectory

    if options.html is not None and (options.out or options.plot or options.by != "run"):
        raise InputError(
            "--html: the page has all tables and pictures; leave out --out, --plot and --by"
        )
    for file, suffixes in (
        (options.html, [".html"]),
        (options.out, SUFFIXES),
        (options.plot, plots.SUFFIXES),
    ):
        if file is None:
            continue
        if file.suffix.lower() not in suffixes:
            raise InputError(f"{file}: the name must end in {' or '.join(suffixes)}")
        require_writable(file, options.overwrite)
    if options.html is not None:
        from esnlm.reports.page import write_page

        folders = [run_copy(run) for run in options.runs]
        print(write_page(folders, options.html, options.seeds, options.scoring, options.command))
        return
    runs = distinct_runs(run_copy(run, untrained=True) for run in options.runs)
    drawn = options.plot and plot_losses(runs, options.plot, options.seeds)
    finished = [
        run for run in runs if options.plot is None or RunDirectory(run).read_summary() is not None
    ]
    if finished:
        print(
            report(finished, options.out, options.seeds, options.by, options.scoring),
            end="\n" if drawn else "",
        )
    for run in runs:
        if run not in finished:
            print(f"{run}: not finished, so not in the table")
    if drawn:
        print(drawn)
