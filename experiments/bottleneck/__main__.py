"""Runs a study: reads its file, measures what is missing, and writes the report.

python -m experiments.bottleneck FILE [--small] [--out DIR]
"""

import shlex
import sys
from pathlib import Path
from typing import Any

from esnlm.base.console import info
from esnlm.base.errors import InputError
from esnlm.base.settings import read_tree
from esnlm.commands.arguments import Parser
from esnlm.machine.process import exit_with
from experiments.bottleneck import curves, one_step, report, settings
from experiments.bottleneck.record import Record
from experiments.bottleneck.settings import CurvesSettings


def main() -> None:
    parser = Parser(
        "python -m experiments.bottleneck",
        description="Runs a study of Utsunomiya 2025 on bottlenecks.",
    )
    add = parser.add_argument
    add(
        "file",
        type=Path,
        metavar="FILE",
        help="a study, such as those in experiments/bottleneck/studies",
    )
    add(
        "--small",
        action="store_true",
        help="take the sizes of the file's section `small`, for two cores",
    )
    add("--out", type=Path, metavar="DIR", help="where the results go (default: studies/NAME)")
    options = parser.parse_args()
    file, small = options.file, options.small
    tree = read_tree(file, "name a study file, such as those in experiments/bottleneck/studies")
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if kind not in settings.KINDS:
        raise InputError(f"{file}: kind is {kind!r}: choose from {', '.join(settings.KINDS)}")
    smaller = tree.pop("small", {})
    out = options.out or Path("studies") / (f"{file.stem}_small" if small else file.stem)
    run(
        tree | smaller if small else tree,
        out,
        str(file),
        f"{parser.prog} {shlex.join(sys.argv[1:])}",
    )


def run(tree: dict[str, Any], out: Path, source: str, command: str = "") -> None:
    """Does the remaining measurements of a study, writes KIND.json, KIND.md and KIND.png, and
    prints the Markdown.

    Every measurement is saved at once, so a stopped study resumes in the same folder, and a
    finished study changes nothing.

    Args:
        tree: the settings of a study of one of settings.KINDS.
        out: the folder for the results.
        source: the study file's name, for errors.
        command: the command that runs this study, for the record.

    Raises:
        InputError: the settings, the images or the folder cannot be used, or it holds the results
            of other settings.
    """
    study = settings.parse(tree, source)
    record = Record(out, study, command)
    if record.done and record.file.with_suffix(".md").exists():
        info(f"{record.file}: done already")
    elif isinstance(study, CurvesSettings):
        curves.measure_missing(study, record, source)
        record.finish(*report.report_training_curves(study, record))
    else:
        one_step.measure_missing(study, record, source)
        record.finish(*report.report_one_step(study, record))
    print(record.file.with_suffix(".md").read_text("utf-8"), end="")


if __name__ == "__main__":
    sys.exit(exit_with(main))
