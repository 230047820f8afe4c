"""Runs a study: reads its file, measures what is missing, and writes the report."""

import shlex
from pathlib import Path
from typing import Any

from esnlm.errors import InputError
from esnlm.io.console import say
from esnlm.io.yaml_file import read_tree
from experiments.bottleneck import curves, one_step, report, settings
from experiments.bottleneck.record import Record
from experiments.bottleneck.settings import CurvesSettings


def run_file(file: Path, out: Path | None = None, small: bool = False) -> None:
    """Runs the study of a YAML file.

    Args:
        file: the study file.
        out: the folder for the results; by default studies/NAME, or studies/NAME_small.
        small: use the values of the file's section `small` instead of those outside of it.

    Raises:
        InputError: the file, its settings, the images or the folder cannot be used.
    """
    tree = read_tree(file, "name a study file, such as those in experiments/bottleneck/studies")
    if not isinstance(tree, dict) or tree.get("kind") not in settings.KINDS:
        kind = tree.get("kind") if isinstance(tree, dict) else None
        raise InputError(f"{file}: kind is {kind!r}: choose from {', '.join(settings.KINDS)}")
    smaller = tree.pop("small", {})
    name = f"{file.stem}_small" if small else file.stem
    chosen = ["--small"] * small + (["--out", str(out)] if out is not None else [])
    command = shlex.join(["python", "-m", "experiments.bottleneck", str(file), *chosen])
    run(tree | smaller if small else tree, out or Path("studies") / name, str(file), command)


def run(tree: dict[str, Any], out: Path, source: str, command: str = "") -> None:
    """Does the remaining measurements of a study, writes KIND.json, KIND.md and KIND.png, and prints the Markdown.

    Every measurement is saved at once, so a stopped study resumes in the same folder, and a finished study changes
    nothing.

    Args:
        tree: the settings of a study of kind alignment, coordinate_check or training_curves.
        out: the folder for the results.
        source: the study file's name, for errors.
        command: the command that runs this study, for the record.

    Raises:
        InputError: the settings, the images or the folder cannot be used, or it holds the results of other settings.
    """
    study = settings.parse(tree, source)
    record = Record(out, study, command)
    if record.done and record.file.with_suffix(".md").exists():
        say(f"{record.file}: done already")
    elif isinstance(study, CurvesSettings):
        curves.measure_missing(study, record, source)
        record.finish(*report.report_training_curves(study, record))
    else:
        one_step.measure_missing(study, record, source)
        record.finish(*report.report_one_step(study, record))
    print(record.file.with_suffix(".md").read_text(), end="")
