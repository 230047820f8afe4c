"""The experiments of learning_dynamics_thesis on bottlenecks: alignment, the coordinate check, training curves (S5)."""

from pathlib import Path

from esnlm.runs.console import say
from experiments.bottleneck import report
from experiments.bottleneck.record import Record
from experiments.bottleneck.settings import Curves, parse


def run(settings: dict, out: Path, source: str) -> None:
    """Runs what is left of a study, and writes KIND.json, KIND.md and KIND.png.

    What has been measured is kept at once: the same study goes on in the same folder, and a finished one changes nothing.

    Args:
        settings: the tree of a study file of kind alignment, coordinate_check or training_curves.
        out: the folder to write to.
        source: the study file's name.

    Raises:
        InputError: the settings, the images or the folder cannot be used, or it holds the results of other settings.
    """
    study = parse(settings, source)
    record = Record(out, study, source)
    if record.done:
        say(f"{record.file}: done already")
    else:
        measure = report.of_training_curves if isinstance(study, Curves) else report.of_one_step
        record.finish(*measure(study, record, source))
    print(record.file.with_suffix(".md").read_text(), end="")
