"""The results that a training ends with."""

import json

from esnlm.reports import blimp_report
from esnlm.reports.run_results import show_results
from esnlm.training.run import train_run
from tests.golden.small import esnlm
from tests.training.small import read, train


def test_a_report_on_other_pairs_is_not_replaced_by_that_of_the_training(tmp_path, rendered):
    """As where a run was stopped, scored on BLiMP, and went on."""
    run = train(tmp_path, "run", show_results=show_results)
    pair = {
        "sentence_good": "The cats sleep.",
        "sentence_bad": "The cats sleeps.",
        "UID": "agreement",
        "pairID": "0",
    }
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair))
    pairs = tmp_path / "pairs.jsonl"
    assert esnlm("blimp", "--run", run, "--data", pairs, "--overwrite") == 0
    kept = (run / "evaluation" / "blimp-paper.json").read_bytes()
    (run / "summary.json").unlink()
    assert train_run(read(tmp_path, "run"), show_results=show_results) == 0
    assert (run / "evaluation" / "blimp-paper.json").read_bytes() == kept
    assert blimp_report.read(run / "evaluation" / "blimp-paper-own.json")["data"]["pairs"] > 1
    assert (run / "plots" / "loss.png").stat().st_size > 10_000
