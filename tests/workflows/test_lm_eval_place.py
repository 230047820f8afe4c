"""Where results of lm-evaluation-harness go is looked at before it runs. It need not be installed for this."""

import os
from pathlib import Path

import pytest

from esnlm import commands
from esnlm.errors import InputError
from esnlm.workflows import lm_eval


def test_the_place_of_the_results_is_looked_at_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("folder.json").mkdir()
    assert commands.main(["lm-eval", "--run", "none", "--tasks", "blimp", "--out", "folder.json"]) == 2
    assert capsys.readouterr().err == "error: folder.json: a folder; name a file\n"

    Path("a.samples.jsonl").write_text("somebody's own")
    line = "a.samples.jsonl: is in the way: name another file with --out, or replace it with --overwrite"
    with pytest.raises(InputError, match=f"^{line}$"):
        lm_eval._require_place(Path("a.json"), {}, overwrite=False)
    lm_eval._require_place(Path("a.json"), {}, overwrite=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as where a folder gives no right to write
    with pytest.raises(InputError, match="^new/b.json: the folder cannot be written to; choose another$"):
        lm_eval._require_place(Path("new/b.json"), {}, overwrite=False)
