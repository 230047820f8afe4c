"""Prints a table of several runs, or writes a page about runs and studies (--html)."""

import argparse
from pathlib import Path

from esnlm.errors import InputError

HELP = "prints a table of several runs, or writes a page about them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run directories, with --html also studies' folders"
    )
    add = parser.add_argument
    add("--out", type=Path, metavar="FILE", help="write it there, too, as Markdown, .tex or .csv, with JSON beside it")
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
    from esnlm.io.remote import run_copy
    from esnlm.reporting.run_table import SUFFIXES

    if options.html is not None and (options.out or options.plot or options.by != "run"):
        raise InputError("--html: a page has all tables and pictures; leave --out, --plot and --by out")
    _require_place(options.html, options.overwrite, ".html")
    _require_place(options.out, options.overwrite, *SUFFIXES)
    _require_place(options.out and options.out.with_suffix(".json"), options.overwrite, ".json")
    _require_place(options.plot, options.overwrite, ".png")
    if options.html is not None:
        from esnlm.reporting.html.page import write_page

        runs = [run_copy(run) for run in options.runs]
        print(write_page(runs, options.html, options.seeds, options.scoring, options.command))
        return
    from esnlm.reporting.run_table import report

    runs, drawn = [run_copy(run, untrained=True) for run in options.runs], ""
    finished = runs
    if options.plot is not None:
        from esnlm.reporting.loss_plot import plot_losses
        from esnlm.runs.directory import RunDirectory

        finished = [run for run in runs if RunDirectory(run).read_summary() is not None]
        drawn = plot_losses(runs, options.plot, options.seeds)
    if finished:
        print(report(finished, options.out, options.seeds, options.by, options.scoring), end="\n" if drawn else "")
    for named, run in zip(options.runs, runs, strict=True):
        if run not in finished:
            print(f"{named}: not finished, and not in the table")
    if drawn:
        print(drawn)


def _require_place(file: Path | None, overwrite: bool, *suffixes: str) -> None:
    """Raises InputError if a file has a name of another kind, cannot be written, or is not to be replaced."""
    from esnlm.io.atomic import require_writable

    if file is None:
        return
    if file.suffix.lower() not in suffixes:
        raise InputError(f"{file}: its name must end in {' or '.join(suffixes)}")
    if file.exists() and not overwrite:
        raise InputError(f"{file}: exists; name another file, or replace it with --overwrite")
    require_writable(file)
