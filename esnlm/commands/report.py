"""Prints a table of several runs, or writes a page about runs and studies (--html)."""

import argparse
from pathlib import Path

from esnlm.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="run directories, with --html also studies' folders")
    add("--out", type=Path, metavar="FILE", help="write it there, too, as Markdown or .csv, with JSON beside it")
    page = "write a page of everything that is known of the runs, in place of a table"
    add("--html", type=Path, metavar="FILE", help=page)
    plot = "also draw the losses by words read and by minutes of training; runs that are not finished are drawn, too"
    add("--plot", type=Path, metavar="FILE.png", help=plot)
    add("--overwrite", action="store_true", help="replace files that are there")
    add("--seeds", action="store_true", help="make one row of runs that differ in nothing but their seed")
    rows = "what the rows are (default: %(default)s); of phenomena and paradigms, the accuracies of each run"
    add("--by", choices=["run", "phenomenon", "paradigm"], default="run", help=rows)
    which = "with --by and --html: which report, evaluation/blimp-NAME.json"
    add("--scoring", default="paper", metavar="NAME", help=f"{which} (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    from esnlm.io.atomic import require_writable
    from esnlm.io.remote import run_copy
    from esnlm.reporting.loss_plot import plot_losses
    from esnlm.reporting.run_table import SUFFIXES, report
    from esnlm.runs.directory import RunDirectory

    if options.html is not None and (options.out or options.plot or options.by != "run"):
        raise InputError("--html: a page has all tables and pictures; leave --out, --plot and --by out")
    for file, suffixes in ((options.html, [".html"]), (options.out, SUFFIXES), (options.plot, [".png"])):
        if file is None:
            continue
        if file.suffix.lower() not in suffixes:
            raise InputError(f"{file}: its name must end in {' or '.join(suffixes)}")
        require_writable(file, options.overwrite)
    if options.html is not None:
        from esnlm.reporting.html.page import write_page

        runs = [run_copy(run) for run in options.runs]
        print(write_page(runs, options.html, options.seeds, options.scoring, options.command))
        return
    runs = [run_copy(run, untrained=True) for run in options.runs]
    drawn = options.plot and plot_losses(runs, options.plot, options.seeds)
    finished = [run for run in runs if options.plot is None or RunDirectory(run).read_summary() is not None]
    if finished:
        print(report(finished, options.out, options.seeds, options.by, options.scoring), end="\n" if drawn else "")
    for run in runs:
        if run not in finished:
            print(f"{run}: not finished, and not in the table")
    if drawn:
        print(drawn)
