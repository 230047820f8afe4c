"""Which runs of a study count as finished."""

import json

import pytest

from esnlm.base.errors import InputError
from experiments.finished_runs import finished_runs, split_name


def test_interrupted_and_diverged_runs_are_left_out(tmp_path, capsys):
    for status in ("finished", "interrupted", "diverged"):
        (tmp_path / status).mkdir()
        (tmp_path / status / "summary.json").write_text(json.dumps({"status": status}))
    (tmp_path / "training").mkdir()
    assert finished_runs(tmp_path) == {tmp_path / "finished": {"status": "finished"}}
    assert capsys.readouterr().err == f"{tmp_path / 'diverged'}: left out, as it diverged\n"
    with pytest.raises(InputError, match="no finished run; name the folder `runs`"):
        finished_runs(tmp_path / "finished")


def test_the_name_of_a_run_has_its_model_and_seed():
    assert split_name("esn-1024-documents-seed2") == ("esn-1024-documents", 2)
