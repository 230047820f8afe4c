"""The tables that a training ends with."""

import json

from esnlm import config_io
from esnlm.evaluate_run import evaluate_run
from esnlm.reporting import blimp_report, run_results
from esnlm.workflows.train import train_run
from tests.golden import small


def test_what_is_known_of_the_validation_text_stands_before_what_it_is_compared_with():
    summary = {"train_nll": 2.0, "val_nll": 1.5, "val_nll_without_eos": 1.75, "val_bits_per_byte": 0.5}
    rows = run_results._losses(summary | {"references": {"unigram model": 4.0}})
    assert [row[0] for row in rows] == [
        "training, mean over the last epoch",
        "validation",
        "validation, without EOS",
        "unigram model",
        "validation, bits per byte",
    ]
    assert rows[3] == ["unigram model", "4.0000", "54.60", "+2.5000"]


def test_a_report_on_other_pairs_is_not_replaced_by_that_of_the_training(tmp_path, capsys, rendered):
    """As where a run was stopped, scored on BLiMP, and went on."""
    run = small.train_quickstart(tmp_path / "run")
    pair = {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps.", "UID": "agreement", "pairID": "0"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair))
    evaluate_run(run, [tmp_path / "pairs.jsonl"], overwrite=True)
    kept = (run / "evaluation" / "blimp-paper.json").read_bytes()
    (run / "summary.json").unlink()
    assert train_run(config_io.read(run / "config.yaml", ["--run", str(run)])) == 0
    assert (run / "evaluation" / "blimp-paper.json").read_bytes() == kept
    assert blimp_report.read(run / "evaluation" / "blimp-paper-own.json")["data"]["pairs"] > 1
    assert (run / "plots" / "loss.png").stat().st_size > 10_000
    assert "this report is blimp-paper-own.json: blimp-paper.json is none on these pairs" in capsys.readouterr().out
