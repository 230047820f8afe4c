"""What stands below a table of runs, so that no figure is taken for what it is not."""

import csv
import json

import numpy as np
import pytest

from esnlm.errors import InputError
from esnlm.io.json_file import seal
from esnlm.reporting import run_table


def test_a_report_of_an_earlier_update_is_told_of(make_run):
    run = make_run("a")
    summary = json.loads((run / "summary.json").read_text())
    step = json.loads((run / "evaluation" / "blimp-paper.json").read_text())["step"]
    (run / "summary.json").write_text(json.dumps(summary | {"step": step + 1000}))
    line = f"a: blimp-paper is of update {step:,}, and the run ended at {step + 1000:,}"
    assert line in run_table.report([run]) and line in run_table.report([run], by="phenomenon")


def test_a_report_of_another_configuration_is_told_of(make_run):
    """As where a run was deleted and trained again with other settings, and its evaluation/ was kept."""
    run = make_run("a")
    line = "a: blimp-paper is of a run of another configuration: score this one again with eval_blimp.py --overwrite"
    assert line not in run_table.report([run])
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("seed: 0", "seed: 3"))
    assert line in run_table.report([run]) and line in run_table.report([run], by="phenomenon")


def test_other_pairs_are_not_passed_over(make_run):
    runs = [make_run("a"), make_run("b", seed=1)]
    assert "same pairs" not in run_table.report(runs)
    file = runs[1] / "evaluation" / "blimp-paper.json"
    report = json.loads(file.read_text())
    report["data"]["sha256"] = "0" * 64
    file.write_text(json.dumps(report | {"sha256": seal(report)}))
    assert run_table.report(runs).endswith("\n\nblimp-paper: not all runs were scored on the same pairs\n")


def test_other_conventions_are_not_passed_over(make_run, tmp_path):
    """A report may have any name, so that one name does not say that two were scored alike."""
    runs = [make_run("a-seed0"), make_run("a-seed1", seed=1, scoring="lm-eval"), make_run("b", learning_rate=3e-3)]
    line = "\n\nblimp-paper: not all runs were scored by the same convention"
    assert "convention" not in run_table.report([runs[0], runs[2]])
    assert run_table.report(runs).endswith(f"{line}\n") and f"{line}\n" in run_table.report(runs, by="phenomenon")
    table = run_table.report(runs, seeds=True)
    assert f"{line}; there is no mean of it over a (2 seeds)\n" in table
    assert "| b | blimp-paper |" in table and "| a (2 seeds) | blimp-paper |" not in table
    run_table.report(runs, tmp_path / "table.csv", seeds=True)
    a, b = csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    assert (a["blimp-paper"], a["blimp-paper, sd"], b["blimp-paper"]) == ("", "", "100.0")
    with pytest.raises(
        InputError, match=r"^a \(2 seeds\): its reports evaluation/blimp-paper.json were scored by different"
    ):
        run_table.report(runs, seeds=True, by="phenomenon")


def change_summary(run, **figures):
    file = run / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | figures))
    return run


def test_times_on_other_devices_are_not_passed_over(make_run):
    cpu = {"platform": "cpu", "kind": "cpu", "count": 1, "cores": 2}
    gpu = {"platform": "gpu", "kind": "NVIDIA H200", "count": 1, "cores": 16}
    same = [change_summary(make_run(name, seed=i), device=cpu) for i, name in enumerate("ab")]
    assert "different devices" not in run_table.report(same)
    line = "times are of different devices, cpu x 1, 2 cores and NVIDIA H200 x 1, 16 cores: minutes and tokens/s do not compare the models"
    other = change_summary(make_run("c"), device=gpu)
    assert run_table.report([*same, other]).endswith(f"\n\n{line}\n")
    moved = change_summary(make_run("d"), device=gpu, earlier_devices=[cpu])
    assert run_table.report([moved]).endswith(f"\n\n{line}\n"), "one run, resumed on another machine"


def test_losses_on_other_sentences_are_not_passed_over(make_run):
    """One tokenizer drops a sentence that another keeps, so that bits per byte are of two texts."""

    def run(name, nats, words, size, text="a"):
        folder = make_run(name, text=text)
        figures = {"val_bits_per_byte": nats / np.log(2) / size, "val_nats_per_word": nats / words}
        file = folder / "summary.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | figures))
        return folder

    same = [run("a", 1000.0, 200, 1100), run("b", 987.654321, 200, 1100)]
    assert "the same sentences" not in run_table.report(same)
    other = run("c", 1000.0, 190, 1060)
    assert run_table.report([*same, other]).endswith(
        "\n\nnot all runs were validated on the same sentences: their words have 5.5000 bytes in a and 5.5789 in c."
        " Compare them on one text (esnlm likelihood --text)\n"
    )
    made_up = run("d", 1000.0, 190, 1060, text=None)
    assert "the same sentences" not in run_table.report([*same, made_up])


def test_losses_of_other_tokens_are_not_passed_over(make_run):
    same = [make_run("a", text="t"), make_run("b", text="t")]
    unknown = make_run("imported")  # it has no data.json
    assert "tokenizers" not in run_table.report([*same, unknown])
    runs = [*same, make_run("c", text="u", tokenizer="bytes")]
    line = "\n\nthe runs are of different tokenizers: only bits per byte and nats per word compare their losses\n"
    assert line in run_table.report(runs)
    assert "tokenizers" not in run_table.report(runs, by="phenomenon"), "accuracies compare them"


def test_a_mean_over_a_diverged_run_says_so(make_run):
    runs = [make_run(f"a-seed{seed}", seed=seed, val_nll=5.0 + 600 * seed) for seed in (0, 1)]
    file = runs[1] / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"status": "diverged"}))
    line = "\n\na-seed1 diverged: a train or validation NLL is not finite or above 10 ln V"
    assert f"{line}; the mean over seeds counts it all the same\n" in run_table.report(runs, seeds=True)
    assert f"{line}\n" in run_table.report(runs) and "a-seed0 diverged" not in run_table.report(runs)


def test_a_report_that_some_seeds_lack_is_told_of(make_run):
    runs = [make_run(f"a-seed{seed}", seed=seed) for seed in range(3)]
    assert "no such report" not in run_table.report(runs, seeds=True)
    (runs[1] / "evaluation" / "blimp-paper.json").unlink()
    table = run_table.report(runs, seeds=True)
    assert table.endswith("\n\nblimp-paper: 1 of 3 runs of a (3 seeds) has no such report\n")
    assert "accuracy" not in table, "a mean over fewer runs would not be that of the row above"
    assert "no such report" not in run_table.report(runs)
