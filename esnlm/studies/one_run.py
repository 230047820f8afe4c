"""One run of a study, as a process of its own makes it."""

from pathlib import Path

from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.evaluate_run import evaluate_run
from esnlm.runs.directory import ANOTHER
from esnlm.workflows.train import train_run


def train_and_score(experiment: Experiment, blimp: Path | None) -> int:
    """Makes one run, as train.py and eval_blimp.py do, and returns the exit status."""
    try:
        status = train_run(experiment)
    except InputError as error:  # What a run advises is not for a study to do, which names its runs itself.
        raise InputError(str(error).replace(ANOTHER, "give the study another folder with --out")) from None
    if status == 0 and blimp is not None:
        evaluate_run(experiment.run, [blimp], overwrite=True)  # an old report is of an earlier update
    return status
