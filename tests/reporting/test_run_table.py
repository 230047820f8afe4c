"""The table of several runs: one row a run, or one for all seeds of a model."""

import csv
import json
import shutil

import numpy as np
import pytest

from esnlm.compute import ComputeConfig
from esnlm.config import ParentConfig, TrainingConfig
from esnlm.errors import InputError
from esnlm.reporting import run_table
from esnlm.runs.json_file import seal


def test_a_row_a_run(make_run):
    table = run_table.report([make_run("a", val_nll=5.25), make_run("b", val_nll=6.0, right=4)])
    lines = table.splitlines()
    assert lines[0].startswith("| run | model | trained | all parameters | words | train NLL | val NLL |")
    assert lines[2].startswith("| a | ESN 1,024 | 1,200 | 3,000 | 100 | 5.750 | 5.250 |") or lines[2].startswith(
        "| a |"
    )
    assert [line.split(" | ")[3] for line in lines[-2:]] == ["100.00", "50.00"]
    assert "±" not in table


def test_a_study_and_no_folder_at_all_are_told_apart(tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "table.json").write_text('{"format": "esnlm study"}')
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "table.json").write_text("[]")
    for name, line in (
        ("none", "none: no run directory; name one that train.py made"),
        ("report", "report: no run in this directory; name one that train.py made"),
        ("study", "study: the folder of a study; name its runs, or give --html for a page of the study"),
    ):
        with pytest.raises(InputError, match=f"{line}$"):
            run_table.report([tmp_path / name])


def test_a_run_that_has_not_come_to_its_end_has_no_row(make_run):
    run = make_run("going")
    (run / "summary.json").write_text('{"status": "interrupted", "step": 7}')
    with pytest.raises(
        InputError, match="going: not a finished run; train it to its end with train.py, or draw its losses so far"
    ):
        run_table.report([run])
    assert run_table.identify(run)["summary"] is None


@pytest.mark.parametrize(
    "names, expected",
    [
        (["esn-seed0", "esn-seed10"], "esn (2 seeds)"),
        (["gpt2", "gpt2-seed1"], "gpt2 (2 seeds)"),
        (["a10-seed1", "a10-seed2"], "a10 (2 seeds)"),
        (["x,lr=0.003", "x,lr=0.003-b"], "x,lr=0.003 and 1 more seed"),
        (["seed0", "seed1"], "seed0 and 1 more seed"),
        (["run10", "run11", "run12"], "run10 and 2 more seeds"),
    ],
)
def test_runs_of_several_seeds_have_the_name_that_stands_before_the_seed(names, expected):
    assert run_table.name_group([{"run": name} for name in names]) == expected


def test_runs_without_minimal_pairs_have_no_table_of_scores(make_run):
    run = make_run("a")
    shutil.rmtree(run / "evaluation")
    table = run_table.report([run])
    assert "val NLL" in table and "accuracy" not in table


def test_results_of_other_commands_beside_the_reports_are_passed_over(make_run):
    run = make_run("a")
    table = run_table.report([run])
    (run / "evaluation" / "dev.json").write_text('{"format": "esnlm likelihood", "format_version": 1}')
    assert run_table.report([run]) == table
    for damaged in ('{"format": "esnlm minimal pairs"', '{"format": "esnlm minimal pairs"}', "[]"):
        (run / "evaluation" / "dev.json").write_text(damaged)
        with pytest.raises(InputError, match=r"dev\.json: (not a report of minimal pairs|format version None)"):
            run_table.report([run])


def test_runs_that_differ_in_their_seed_are_one_row_with_their_spread(make_run, tmp_path):
    runs = [make_run(f"esn-seed{i}", seed=i, val_nll=5 + i / 10, right=6 + i) for i in range(3)]
    table = run_table.report([*runs, make_run("other", learning_rate=3e-3)], tmp_path / "table.csv", seeds=True)
    losses, scores = table.split("\n\n")[:2]
    assert [line.split(" | ")[0] for line in losses.splitlines()[2:]] == ["| esn (3 seeds)", "| other"]
    assert "| 5.100 ± 0.100 |" in losses and "| 1,200 |" in losses  # a count that is the same in all has no spread
    # 75, 87.5 and 100 %: mean 87.5, deviation 12.5, and t(0.975, 2 degrees) = 4.3027 for the interval of the mean.
    half = 4.302653 * 12.5 / np.sqrt(3)
    assert f"| 87.50 ± 12.50 | {87.5 - half:.2f} - {87.5 + half:.2f} |" in scores
    assert table.splitlines()[-3] == run_table.SEEDS_NOTE

    [first, second] = csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    assert (first["run"], first["runs"], second["runs"]) == ("esn (3 seeds)", "3", "1")
    assert float(first["val NLL"]) == pytest.approx(5.1) and float(first["val NLL, sd"]) == pytest.approx(0.1)
    assert float(first["blimp-paper, sd"]) == pytest.approx(12.5) and second["val NLL, sd"] == ""
    assert [run["seed"] for run in json.loads((tmp_path / "table.json").read_text())] == [0, 1, 2, 0]


def test_one_seed_counts_once(make_run):
    with pytest.raises(InputError) as error:
        run_table.report([make_run("a"), make_run("b")], seeds=True)
    assert str(error.value) == "a and b: the same settings and the same seed, 0; name one of them"


def test_runs_of_one_name_are_told_apart_by_their_paths(make_run, tmp_path):
    """A name may also be the key of a note: it is that of one run."""
    runs = []
    for folder, words in (("a", 200), ("b", 190)):
        run = make_run("first", seed=len(runs), text="t")
        summary = json.loads((run / "summary.json").read_text())
        figures = {"val_bits_per_byte": 1.5, "val_nats_per_word": 1000 / words}
        (run / "summary.json").write_text(json.dumps(summary | figures))
        (tmp_path / folder).mkdir()
        runs.append(run.rename(tmp_path / folder / "first"))
    table = run_table.report([*runs, make_run("other", learning_rate=3e-3)])
    assert [line.split(" | ")[0] for line in table.splitlines()[2:5]] == [f"| {runs[0]}", f"| {runs[1]}", "| other"]
    assert f"bytes in {runs[0]} and" in table, "of different sentences"
    assert run_table.report(runs, by="phenomenon").startswith(f"| phenomenon | {runs[0]} | {runs[1]} |")


def names_of_groups(*runs):
    groups = run_table.group_by_seed([run_table.identify(run) for run in runs], runs)
    return [run_table.name_group(group) for group in groups]


def test_seeds_of_another_precision_or_another_text_are_not_pooled(make_run):
    first = make_run("a-seed0", text="t")
    rounded = make_run("b-seed1", seed=1, text="t", compute=ComputeConfig(precision="bf16"))
    other_text = make_run("c-seed2", seed=2, text="u")
    assert names_of_groups(first, rounded, other_text) == ["a-seed0", "b-seed1", "c-seed2"]


def test_seeds_are_pooled_however_they_were_logged_and_saved(make_run):
    saved = TrainingConfig(checkpoint_words=(1000,), log_every=5)
    runs = [make_run("a-seed0", text="t"), make_run("a-seed1", seed=1, text="t", training=saved)]
    assert names_of_groups(*runs) == ["a (2 seeds)"]


def test_a_run_that_goes_on_from_another_is_no_seed_of_it(make_run):
    """But it is one of a run that goes on from another seed of its parent."""
    parents = [make_run("a-seed0"), make_run("a-seed1", seed=1)]
    on = [make_run(f"more-seed{i}", seed=i, parent=ParentConfig(run=str(parents[i]))) for i in (0, 1)]
    assert f"more-seed1 goes on from {parents[1]}: its words are those since then" in run_table.report(on)
    early = make_run("early", seed=2, parent=ParentConfig(run=str(parents[0]), step=5))
    assert names_of_groups(*parents, *on, early) == ["a (2 seeds)", "more (2 seeds)", "early"]
    summary = (parents[0] / "summary.json").read_text()
    (parents[0] / "summary.json").write_text(json.dumps(json.loads(summary) | {"config_sha256": "of another run"}))
    assert names_of_groups(*on) == ["more-seed0", "more-seed1"], "another run lies there now"
    (parents[0] / "summary.json").write_text(summary)
    shutil.rmtree(parents[0])
    assert names_of_groups(*on) == ["more-seed0", "more-seed1"], "what is gone is known by its path"


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


def test_accuracies_by_paradigm_with_a_column_a_model(make_run, tmp_path):
    runs = [make_run("a-0", right=6), make_run("a-1", seed=1, right=8), make_run("b", learning_rate=1e-2, right=4)]
    table = run_table.report(runs, tmp_path / "table.tex", seeds=True, by="paradigm")
    assert table.splitlines()[:5] == [
        "| paradigm | a-0 and 1 more seed | b |",
        "| --- | ---: | ---: |",
        "| one | 100.0 ± 0.0 | 100.0 |",
        "| two | 75.0 ± 35.4 | 0.0 |",
        "| overall | 87.5 ± 17.7 | 50.0 |",
    ]
    assert r"two & 75.0 $\pm$ 35.4 & 0.0 \\" in (tmp_path / "table.tex").read_text().splitlines()
    run_table.report(runs, tmp_path / "all_digits.csv", seeds=True, by="paradigm")
    rows = list(csv.DictReader((tmp_path / "all_digits.csv").read_text().splitlines()))
    assert [row["paradigm"] for row in rows] == ["one", "two", "overall"]
    assert float(rows[1]["a-0 and 1 more seed"]) == 75 and float(rows[1]["a-0 and 1 more seed, sd"]) == pytest.approx(
        50 / np.sqrt(2)
    )
    assert (rows[1]["b"], rows[1]["b, sd"]) == ("0.0", "")
    assert "| binding | 75.0 |" in run_table.report(runs[:1], by="phenomenon")


def test_other_pairs_are_not_passed_over(make_run):
    runs = [make_run("a"), make_run("b", seed=1)]
    assert "same pairs" not in run_table.report(runs)
    file = runs[1] / "evaluation" / "blimp-paper.json"
    report = json.loads(file.read_text())
    report["data"]["sha256"] = "0" * 64
    file.write_text(json.dumps(report | {"sha256": seal(report)}))
    assert run_table.report(runs).endswith("\n\nblimp-paper: not all runs were scored on the same pairs\n")


def test_other_conventions_are_not_passed_over(make_run):
    """A report may have any name, so that one name does not say that two were scored alike."""
    runs = [make_run("a-seed0"), make_run("a-seed1", seed=1, scoring="lm-eval"), make_run("b", learning_rate=3e-3)]
    line = "\n\nblimp-paper: not all runs were scored by the same convention"
    assert "convention" not in run_table.report([runs[0], runs[2]])
    assert run_table.report(runs).endswith(f"{line}\n") and f"{line}\n" in run_table.report(runs, by="phenomenon")
    table = run_table.report(runs, seeds=True)
    assert f"{line}; there is no mean of it over a (2 seeds)\n" in table
    assert "| b | blimp-paper |" in table and "| a (2 seeds) | blimp-paper |" not in table
    with pytest.raises(
        InputError, match=r"^a \(2 seeds\): its runs' reports evaluation/blimp-paper.json were scored by different"
    ):
        run_table.report(runs, seeds=True, by="phenomenon")


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
        "\n\nnot all runs were validated on the same sentences: their words have 5.5000 bytes in a and 5.5789 in c. To compare their losses"
        " or bits per byte, score both on one text (esnlm likelihood --text)\n"
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


def test_a_diverged_run_has_its_row(make_run):
    run = make_run("a")
    file = run / "summary.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"status": "diverged", "val_nll": "nan", "train_nll": "inf"})
    )
    assert "| 100 | inf | nan |" in run_table.report([run])


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


@pytest.mark.parametrize(("there", "lost"), [("table.csv", "table.csv"), ("table.json", "table.json")])
def test_a_table_replaces_nothing_but_a_table(make_run, tmp_path, there, lost):
    run = make_run("a")
    (tmp_path / there).write_text("{}")
    with pytest.raises(InputError) as caught:
        run_table.report([run], tmp_path / "table.csv")
    assert str(caught.value) == f"{tmp_path / lost}: exists and is no table of runs; name another file with --out"
    assert (tmp_path / there).read_text() == "{}"

    (tmp_path / there).unlink()
    run_table.report([run], tmp_path / "table.csv")
    run_table.report([run], tmp_path / "table.csv")  # an earlier table is replaced


@pytest.mark.parametrize("by", ["run", "phenomenon", "paradigm"])
@pytest.mark.parametrize("suffix", ["md", "tex", "csv"])
def test_figures_of_another_table_do_not_make_notes_a_table(make_run, tmp_path, suffix, by):
    runs = [make_run("a"), make_run("b", seed=1, right=4)]
    table = tmp_path / f"table.{suffix}"
    for _ in range(2):  # the second replaces the first
        run_table.report(runs, table, seeds=True, by=by)  # with a note, by which a .tex file begins
    notes = tmp_path / ("table.csv" if suffix == "md" else "table.md")
    notes.write_text("my notes\n")
    with pytest.raises(InputError, match=rf"{notes.name}: exists and is no table of runs"):
        run_table.report(runs, notes)
    assert notes.read_text() == "my notes\n"


def test_an_empty_list_is_no_table(make_run, tmp_path):
    (tmp_path / "table.json").write_text("[]")
    with pytest.raises(InputError, match=r"table\.json: exists and is no table of runs"):
        run_table.report([make_run("a")], tmp_path / "table.md")


def test_a_table_of_another_kind_is_refused(make_run, tmp_path):
    with pytest.raises(InputError, match=r"table.xlsx: no name for a table; give one such as table.md"):
        run_table.report([make_run("a")], tmp_path / "table.xlsx")
