"""One run of a study speaks as a part of the study."""

import pytest

from esnlm import config_io
from esnlm.errors import InputError
from esnlm.runs.directory import RunDirectory
from esnlm.studies.one_run import train_and_score


def test_what_a_run_advises_is_advice_on_the_study(tmp_path):
    """A study names its runs itself, and refuses --run."""
    experiment = config_io.from_dict({"run": str(tmp_path / "run"), "model": {"reservoir": {"state_size": 64}}})
    message = "another training is writing to this run directory; give the study another folder with --out"
    with RunDirectory(tmp_path / "run").locked(), pytest.raises(InputError, match=message):
        train_and_score(experiment, None)
