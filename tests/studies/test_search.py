"""A search: its file, its trials one by one and side by side, stopped and gone on with, its table, picture and best settings."""

import dataclasses
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from esnlm import config_io
from esnlm.config import as_dict
from esnlm.errors import InputError
from esnlm.reporting.html import study as html_study
from esnlm.runs.directory import RunDirectory
from esnlm.studies import folder, search, search_plot, search_run, search_table, search_trials, study
from esnlm.studies.search_trials import NO_OPTUNA, Trial, Trials
from esnlm.workflows.train import INTERRUPTED, train_run
from tests.studies.pool import PoolHere

BASE = """
data: {kind: grammar, sentences: 60, validation_sentences: 20, pairs: 2}
model: {reservoir: {state_size: 16, mean_degree: 4}, readout: {rank: 4}}
training: {log_every: 1}
"""
SEARCH = """
kind: search
note: A note.
base: base.yaml
search:
  training.learning_rate: {low: 1e-4, high: 1.0e-1, log: true}
  model.reservoir.leak_min: {choices: [0, 0.5, 1]}
  model.reservoir.state_size: {low: 8, high: 16}
trials: 3
"""


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna", reason="needs Optuna: pip install -e '.[search]'")


def write(folder, text=SEARCH, name="find"):
    folder.mkdir(exist_ok=True)
    (folder / "base.yaml").write_text(BASE)
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


def parse(file, overrides=()):
    return search.parse_search(study.read_study(file), file, overrides)


@pytest.fixture
def fake(optuna, monkeypatch):
    """Runs that are not trained: their NLL follows from the learning rate. [numbers of the trials that were run]."""
    done = []

    def do(pool, job):
        experiment = job.arguments[0]
        done.append(int(job.name.removeprefix("trial-")))
        Path(experiment.run).mkdir(parents=True)
        nll = 3 + abs(math.log10(experiment.training.learning_rate) + 2)  # best at 0.01
        summary = dict.fromkeys(("train_nll", "val_nll", "perplexity"), nll) | {"status": "finished", "step": 2}
        device = {"kind": "cpu", "count": 1, "cores": 2}
        versions = dict.fromkeys(("esnlm", "jax", "numpy"), "1")
        summary |= {"device": device, "versions": versions, "val_bits_per_byte": None, "seconds": 1.0}
        RunDirectory(Path(experiment.run)).summary.write_text(json.dumps(summary))
        return 0

    monkeypatch.setattr(PoolHere, "do", do)
    monkeypatch.setattr(search_run, "Pool", PoolHere)
    monkeypatch.setattr(search_table, "read_measures", read_measures)
    return done


def read_measures(run):
    summary = json.loads((run.directory / "summary.json").read_text())
    return dict.fromkeys(search_table.MEASURES) | {"origin": "a CPU"} | summary


def test_three_trials_are_ranked_and_the_best_settings_can_be_trained(optuna, tmp_path, capsys):
    file, out = write(tmp_path), tmp_path / "out"
    assert study.run_study(file, out, command="the command") == 0
    printed = capsys.readouterr().out
    assert printed == (out / "table.md").read_text() and printed.startswith("# find (out)\n"), "as a grid's"
    table = json.loads((out / "table.json").read_text())
    assert (table["study"], table["kind"], table["command"], table["note"]) == (
        "find",
        "search",
        "the command",
        "A note.",
    )
    trials = table["trials"]
    assert sorted(trial["number"] for trial in trials) == [0, 1, 2]
    assert [trial["objective"] for trial in trials] == sorted(trial["objective"] for trial in trials)
    for trial in trials:
        run = RunDirectory(out / "runs" / trial["run"])
        assert run.read_summary()["val_nll"] == trial["objective"] == trial["measures"]["val_nll"]
        experiment = config_io.read(run.config)
        assert experiment.training.learning_rate == trial["values"]["training.learning_rate"]
        assert experiment.model.reservoir.leak_min == trial["values"]["model.reservoir.leak_min"]
        assert experiment.model.reservoir.state_size == trial["values"]["model.reservoir.state_size"] <= 16
        assert list(trial["reports"].values()) == [trial["objective"]], "the validation at the end of the epoch"
    best = config_io.read(out / "best.yaml")
    first = config_io.read(out / "runs" / trials[0]["run"] / "config.yaml")
    assert best.run == str(out / "best") and best.training == first.training and best.model == first.model
    assert (out / "table.png").exists()
    assert "| val NLL | learning_rate | leak_min | state_size |" in (out / "table.md").read_text()
    assert (out / "table.csv").read_text().splitlines()[1].startswith(f"{trials[0]['run']},complete,")
    assert html_study.runs(out, html_study.read(out)) == [out / "runs" / trial["run"] for trial in trials]
    before = (out / "table.json").read_text()
    assert study.run_study(file, out, command="the command") == 0, "a finished search is shown"
    assert (out / "table.json").read_text() == before


def test_all_trials_are_of_one_text_and_one_set_of_pairs(optuna, tmp_path):
    base = f"run: {tmp_path / 'made'}\n{BASE}"
    made = RunDirectory(tmp_path / "made")
    (tmp_path / "made.yaml").write_text(base)
    assert train_run(config_io.read(tmp_path / "made.yaml")) == 0
    for name in ("train", "validation"):
        shutil.copytree(made.stores / name, tmp_path / "stores" / name)
    file, out = write(tmp_path / "study", SEARCH.replace("trials: 3", "trials: 1")), tmp_path / "out"
    stores = f"data: {{kind: store, train: {tmp_path}/stores/train, validation: {tmp_path}/stores/validation}}"
    (tmp_path / "study" / "base.yaml").write_text(BASE.replace(BASE.splitlines()[1], stores))
    pairs = sorted(made.minimal_pairs.glob("*.jsonl"))
    assert study.run_study(file, out, blimp=pairs[0]) == 0

    more = write(tmp_path / "study", SEARCH)
    (tmp_path / "study" / "base.yaml").write_text(BASE.replace(BASE.splitlines()[1], stores))
    with pytest.raises(InputError, match="trial-0000/evaluation/blimp-paper.json: is of other minimal pairs than"):
        study.run_study(more, out, blimp=pairs[1])
    shutil.rmtree(tmp_path / "stores" / "train")
    shutil.copytree(tmp_path / "stores" / "validation", tmp_path / "stores" / "train")
    with pytest.raises(InputError, match="trial-0000: was trained with another train text than lies here; "):
        study.run_study(more, out, blimp=pairs[0])
    assert len(json.loads((out / "table.json").read_text())["trials"]) == 1


def test_a_search_that_was_stopped_asks_for_the_same_trials(fake, monkeypatch, tmp_path, capsys):
    file, whole = write(tmp_path, SEARCH.replace("trials: 3", "trials: 14")), tmp_path / "whole"
    assert study.run_study(file, whole) == 0 and fake == list(range(14))
    values = {trial["number"]: trial["values"] for trial in json.loads((whole / "table.json").read_text())["trials"]}
    assert len({str(each) for each in values.values()}) == 14
    fake.clear()
    do = PoolHere.do

    def stop_at_the_fifth(pool, job):
        if len(fake) == 5:
            monkeypatch.setattr(PoolHere, "asked", True)
            return INTERRUPTED
        return do(pool, job)

    monkeypatch.setattr(PoolHere, "do", stop_at_the_fifth)
    out = tmp_path / "out"
    assert study.run_study(file, out) == INTERRUPTED
    assert capsys.readouterr().err.endswith("\nstopped; the same command goes on\n")
    assert "| trial-0005 | under way |" in (out / "table.md").read_text()
    monkeypatch.setattr(PoolHere, "asked", False)
    monkeypatch.setattr(PoolHere, "do", do)
    assert study.run_study(file, out) == 0
    assert fake == list(range(14)), "the fifth is gone on with, and none is repeated"
    found = {trial["number"]: trial["values"] for trial in json.loads((out / "table.json").read_text())["trials"]}
    assert found == values, "as if it had not been stopped"


def test_more_trials_are_added_and_another_search_is_refused(fake, tmp_path):
    out = tmp_path / "out"
    assert study.run_study(write(tmp_path), out) == 0
    assert study.run_study(write(tmp_path, SEARCH.replace("trials: 3", "trials: 5")), out) == 0 and fake == list(
        range(5)
    )
    for old, new, key in (
        ("high: 16", "high: 12", "search"),
        ("note:", "seed: 4\nnote:", "seed"),
        ("note:", "objective: perplexity\nnote:", "objective"),
    ):
        with pytest.raises(
            InputError, match=f"out: the search was begun with another {key} than .*find.yaml has now; "
        ):
            study.run_study(write(tmp_path, SEARCH.replace(old, new)), out)
    with pytest.raises(InputError, match="begun with another base than"):
        study.run_study(write(tmp_path), out, overrides=["--training.epochs", "2"])


def test_a_trial_that_promises_nothing_is_given_up(fake, monkeypatch, tmp_path, capsys):
    """The losses of the seventh and all later trials are higher than those before, at each step."""
    done, do = fake, PoolHere.do

    def train_slowly(pool, job):
        number = int(job.name.removeprefix("trial-"))
        run = Path(job.arguments[0].run)
        if job.name in pool.stopped:
            done.append(number)
            return INTERRUPTED
        lines = (run / "metrics.jsonl").read_text().splitlines() if run.exists() else []
        if number >= 6 and len(lines) < 2:
            run.mkdir(parents=True, exist_ok=True)
            lines.append(json.dumps({"step": 1 + len(lines), "train_nll": 9.0}))
            (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines) + '{"half')
            return None
        status = do(pool, job) if not lines else 0
        if status == 0:
            told = [{"step": step, "train_nll": 5.0 + number / 100} for step in (1, 2)]
            (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in told))
        return status

    monkeypatch.setattr(PoolHere, "do", train_slowly)
    text = SEARCH.replace("trials: 3", "trials: 7\npruner: median\nprune_by: train_nll").replace(
        "high: 16", "high: 8.5"
    )
    text = text.replace("  model.reservoir.state_size: {low: 8, high: 8.5}\n", "")
    file, out = write(tmp_path, text), tmp_path / "out"
    # 60 sentences are two updates of 32: there is nothing to be saved after the second.
    assert study.run_study(file, out) == 0
    assert done == list(range(7))
    assert "trial-0006: given up after update 1\n" in capsys.readouterr().err
    assert "| trial-0006 | given up after update 1 |  |" in (out / "table.md").read_text()
    last = json.loads((out / "table.json").read_text())["trials"][-1]
    assert (last["number"], last["state"], last["objective"]) == (6, "pruned", 9.0)
    tree = html_study.read(out)
    shown = re.sub("(<[^>]*>)+", "|", html_study.render(tree))
    assert "|A note.|trial|state|val NLL|learning_rate|leak_min|train NLL|" in shown
    assert "|trial-0006|given up after update 1|" in shown and len(html_study.runs(out, tree)) == 6


def test_what_cannot_be_used_together_fails_and_the_search_goes_on(fake, tmp_path, capsys):
    """leak_min above leak_max is refused only where both are at their ends."""
    text = (
        "{kind: search, base: base.yaml, trials: 12, search: {model.reservoir.leak_max: {choices: [1, 0.3]},"
        " model.reservoir.leak_min: {choices: [0, 0.5]}}}"
    )
    file, out = write(tmp_path, text), tmp_path / "out"
    assert study.run_study(file, out) == 0
    trials = json.loads((out / "table.json").read_text())["trials"]
    wrong = [
        trial
        for trial in trials
        if trial["values"] == {"model.reservoir.leak_max": 0.3, "model.reservoir.leak_min": 0.5}
    ]
    assert wrong and all(trial["state"] == "fail" for trial in wrong) and len(fake) == 12 - len(wrong)
    assert all(
        "leak" in trial["error"] and "find.yaml: leak_max=0.3, leak_min=0.5: " in trial["error"] for trial in wrong
    )
    assert "| failed |" in (out / "table.md").read_text()


def test_a_run_that_fails_is_tried_again(fake, monkeypatch, tmp_path, capsys):
    do = PoolHere.do
    monkeypatch.setattr(PoolHere, "do", lambda pool, job: -9 if job.name == "trial-0001" else do(pool, job))
    file, out = write(tmp_path), tmp_path / "out"
    assert study.run_study(file, out, jobs=1) == 1
    printed, told = capsys.readouterr()
    line = f"trial-0001: ended with status -9 ({out}/logs/trial-0001.log)\n"
    assert (
        printed == "" and told.endswith(f"1 of 3 trials failed; the same command goes on:\n{line}") and fake == [0, 2]
    )
    monkeypatch.setattr(PoolHere, "do", do)
    assert study.run_study(file, out, jobs=1) == 0 and fake == [0, 2, 1]


@pytest.mark.parametrize(("jobs", "begun"), [(None, 1), (1, 3)])
def test_no_trial_is_asked_for_where_all_fail(jobs, begun, fake, monkeypatch, tmp_path):
    """Else a full disk would use up all proposals, each made without a result."""
    do = PoolHere.do
    monkeypatch.setattr(PoolHere, "do", lambda pool, job: 5)
    file, out = write(tmp_path, SEARCH.replace("trials: 3", "trials: 8")), tmp_path / "out"
    assert study.run_study(file, out, jobs=jobs) == 5, "the status of the trial"
    assert len(json.loads((out / "table.json").read_text())["trials"]) == begun
    monkeypatch.setattr(PoolHere, "do", do)
    assert study.run_study(file, out, jobs=jobs) == 0 and sorted(fake) == list(range(8))


def test_trials_that_always_fail_do_not_stop_a_search(fake, monkeypatch, tmp_path, capsys):
    """The same command takes them up again first, and goes on to new ones whatever they do."""
    do, wrong = PoolHere.do, {"trial-0000", "trial-0001", "trial-0002"}
    monkeypatch.setattr(PoolHere, "do", lambda pool, job: 5 if job.name in wrong else do(pool, job))
    file, out = write(tmp_path, SEARCH.replace("trials: 3", "trials: 6")), tmp_path / "out"
    assert study.run_study(file, out, jobs=1) == 5 and fake == []
    assert "no further trial was begun after 3 failures in a row" in capsys.readouterr().err
    assert study.run_study(file, out, jobs=1) == 5 and fake == [3, 4, 5]
    assert "no further trial" not in capsys.readouterr().err


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_trial_with_the_higher_losses_is_given_up_whichever_way_the_objective_goes(direction, optuna, tmp_path):
    text = SEARCH.replace("trials: 3", "trials: 9\npruner: median\nprune_by: train_nll")
    its = parse(write(tmp_path, text.replace("base:", f"out: {tmp_path}/out\nbase:")))
    if direction == "maximize":
        its = dataclasses.replace(its, objective="blimp", direction="maximize")
    assert its.direction == direction
    its.out.mkdir()

    def measure(number, *losses):
        its.directory(number).mkdir(parents=True)
        lines = [json.dumps({"step": step, "train_nll": loss}) for step, loss in enumerate(losses, start=1)]
        (its.directory(number) / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))

    with Trials(its) as trials:
        for _ in range(6):
            number = trials.ask()
            measure(number, 6.0, 5.8)
            assert trials.report(number) is None
            trials.complete(number, 60.0)
        better, worse = trials.ask(), trials.ask()
        measure(better, 5.0, 4.0)
        measure(worse, 9.0, 9.5)
        assert (trials.report(better), trials.report(worse)) == (None, 2)
        trials.prune(worse)
        assert trials.all()[worse].reports == {1: 9.0, 2: 9.5} and trials.all()[worse].objective == 9.5


@pytest.mark.parametrize("status, accuracy", [("diverged", 99.0), ("finished", None)], ids=["diverged", "collapsed"])
def test_a_model_that_is_of_no_use_wins_no_search(status, accuracy, fake, monkeypatch, tmp_path, capsys):
    """A diverged model may be right by chance. One that has collapsed was scored, and has no accuracy."""

    def of_no_use(run):
        first = run.directory.name == "trial-0000"
        return read_measures(run) | {"blimp": accuracy if first else 60.0}

    def do(pool, job):
        code = done(pool, job)
        file = RunDirectory(Path(job.arguments[0].run)).summary
        if job.name == "trial-0000":
            file.write_text(json.dumps(json.loads(file.read_text()) | {"status": status}))
        return code

    done = PoolHere.do
    monkeypatch.setattr(PoolHere, "do", do)
    monkeypatch.setattr(search_table, "read_measures", of_no_use)
    text = SEARCH.replace("trials: 3", "trials: 3\nobjective: blimp")
    assert study.run_study(write(tmp_path, text), tmp_path / "out") == 0
    trials = json.loads((tmp_path / "out" / "table.json").read_text())["trials"]
    assert [trial["objective"] for trial in trials if trial["number"] == 0] == ["-inf"]
    assert trials[0]["number"] != 0, "the best stands first"


def test_a_diverged_trial_is_the_worst(fake, optuna, tmp_path):
    its = parse(write(tmp_path, SEARCH.replace("base:", f"out: {tmp_path}/out\nbase:")))
    its.out.mkdir()
    with Trials(its) as trials:
        for value in (5.0, math.nan):
            trials.complete(trials.ask(), value)
        assert [trial.objective for trial in search_table.rank(its, trials.all())] == [5.0, math.inf]


def test_a_search_of_diverged_trials_has_no_best_one(fake, optuna, tmp_path):
    its = parse(write(tmp_path, SEARCH.replace("base:", f"out: {tmp_path}/out\nbase:")))
    its.out.mkdir()
    (its.out / "best.yaml").write_text("of trials that a former command had\n")
    with Trials(its) as trials:
        trials.complete(trials.ask(), math.nan)
        search_table.write_results(its, trials.all(), "the command")
    assert json.loads((its.out / "table.json").read_text())["best"] is None and not (its.out / "best.yaml").exists()
    assert "best.yaml" not in (its.out / "table.md").read_text()


def test_a_second_process_is_refused(fake, tmp_path):
    file, out = write(tmp_path), tmp_path / "out"
    assert study.run_study(file, out) == 0
    with folder.held_alone(out), pytest.raises(InputError, match="out: another process is at this search; wait for it"):
        study.run_study(file, out)


def test_a_search_has_no_parts(tmp_path):
    with pytest.raises(InputError, match="find.yaml: a search builds on the results of all its trials: give --jobs"):
        study.run_study(write(tmp_path), tmp_path / "out", part=study.Part(0, 2))


def test_a_train_nll_that_may_be_of_a_part_of_an_epoch_is_no_objective(tmp_path):
    file = write(tmp_path, SEARCH.replace("note:", "objective: train_nll\nnote:"))
    with pytest.raises(InputError, match="objective is train_nll: training.stop_after may end a run within an epoch"):
        parse(file, ["--training.stop_after", "2"])
    assert parse(file).objective == "train_nll"
    with pytest.raises(InputError, match="objective is train_nll: a readout by regression has none; choose val_nll"):
        parse(
            write(tmp_path, file.read_text().replace("search:", "search:\n  training.kind: {choices: [adamw, ridge]}"))
        )


def test_the_plan_trains_nothing(optuna, tmp_path, capsys):
    assert study.run_study(write(tmp_path), tmp_path / "out", only_plan=True) == 0
    assert (
        capsys.readouterr().out.startswith("0 of 3 trials are done; one takes 0:0") and not (tmp_path / "out").exists()
    )


def test_without_optuna_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=f"^{re.escape(NO_OPTUNA)}$"):
        study.run_study(write(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_reports_are_what_metrics_hold_so_far(tmp_path):
    assert search_trials.read_reports(tmp_path, "val_nll") == {}
    lines = [
        '{"step": 1, "train_nll": 6.0}',
        '{"step": 2, "val_nll": 5.5}',
        '{"step": 4, "val_nll": "nan"}',
        '{"step": 6, "v',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert str(search_trials.read_reports(tmp_path, "val_nll")) == "{2: 5.5, 4: nan}"
    assert search_trials.read_reports(tmp_path, "train_nll") == {1: 6.0}


def trials_of(*objectives, **more):
    values = {"training.learning_rate": 0.01, "model.reservoir.leak_min": 0.5, "model.reservoir.state_size": 9}
    return [Trial(number, "complete", values, objective, **more) for number, objective in enumerate(objectives)]


def test_the_rank_follows_the_direction(tmp_path):
    text = SEARCH.replace("note:", "objective: blimp\nnote:")
    given_up = Trial(3, "pruned", {}, 1.0)
    under_way = Trial(4, "running", {}, None)
    for its, order in ((parse(write(tmp_path)), [1, 0, 2, 3, 4]), (parse(write(tmp_path, text)), [2, 0, 1, 3, 4])):
        trials = [under_way, given_up, *trials_of(5.0, 4.0, 6.0)]
        assert [trial.number for trial in search_table.rank(its, trials)] == order


def test_the_picture_needs_a_result(tmp_path, rendered):
    pytest.importorskip("matplotlib")
    its = parse(write(tmp_path))
    assert search_plot.plot_search(its, []) is None
    assert search_plot.plot_search(its, trials_of(math.inf)) is None
    assert search_plot.plot_search(its, trials_of(math.inf, 3.0, 500.0)).startswith(b"\x89PNG")


def test_the_type_of_a_setting_decides_whether_numbers_are_whole(tmp_path):
    space = parse(write(tmp_path)).space
    assert space["training.learning_rate"] == search.Range(0.0001, 0.1, log=True, whole=False), "1e-4 is a number"
    assert space["model.reservoir.state_size"] == search.Range(8, 16, log=False, whole=True)
    for key, ends in (
        ("model.reservoir.leak_min", "low: 0, high: 1"),
        ("training.clip_norm", "low: 1, high: 2"),
    ):  # null in the base
        text = f"{{kind: search, base: base.yaml, trials: 1, search: {{{key}: {{{ends}}}}}}}"
        assert not parse(write(tmp_path, text)).space[key].whole


def test_settings_of_the_command_line_are_for_every_trial(tmp_path):
    file = write(tmp_path)
    its = parse(file, ["--training.epochs", "3", "--seed", "5"])
    experiment = its.make_experiment({"model.reservoir.leak_min": 0.5}, Path("run"))
    assert (experiment.training.epochs, experiment.seed, experiment.run) == (3, 5, "run")
    assert experiment.model.reservoir.leak_min == 0.5
    assert as_dict(its.experiment)["training"]["epochs"] == 3
    for setting in ("--training.learning_rate=1", "--run", "--model.reservoir={state_size: 12}"):
        with pytest.raises(InputError, match=f"command line: {setting.partition('=')[0]} is for .*find.yaml to set"):
            parse(file, [setting, "3"])


def axis(text):
    return f"kind: search\nbase: base.yaml\ntrials: 3\nsearch: {{training.learning_rate: {text}}}"


@pytest.mark.parametrize(
    "text, line",
    [
        ("kind: search", "base is None: name a configuration file"),
        ("kind: search\nbase: base.yaml", "search is None: it must hold settings"),
        ("kind: search\nbase: base.yaml\nsearch: []", r"search is \[\]: it must hold settings"),
        (SEARCH + "sampler: tpe", "unknown key sampler: choose from kind, note, base, search"),
        (SEARCH.replace("trials: 3", ""), "trials is None: it must be a whole number from 1 to 1,000"),
        (SEARCH.replace("trials: 3", "trials: 0"), "trials is 0: it must be a whole number"),
        (SEARCH + "seed: -1", "seed is -1: it must be an integer from 0 up"),
        (SEARCH + "objective: nll", "objective is 'nll': choose val_nll, val_bits_per_byte"),
        (SEARCH + "direction: down", "direction is 'down': choose minimize, maximize"),
        (SEARCH + "pruner: hyperband", "pruner is 'hyperband': choose none, median"),
        (SEARCH + "prune_by: blimp", "prune_by is 'blimp': choose val_nll, train_nll"),
        (SEARCH.replace("A note.", "3"), "note is 3: it must be a text"),
        (axis("3"), "search.training.learning_rate is 3: give low and high"),
        (axis("{low: 1}"), "search.training.learning_rate is .*: give low and high"),
        (axis("{low: 1, high: 2, step: 1}"), "unknown key search.training.learning_rate.step: choose from low, high, log"),
        (axis("{low: small, high: 2}"), "search.training.learning_rate.low is 'small': it must be a number"),
        (axis("{low: .nan, high: 2}"), "search.training.learning_rate.low is nan: it must be a number"),
        (axis("{low: 2, high: 1}"), "search.training.learning_rate: low is 2 and high 1: high must be above low"),
        (axis("{low: 0, high: 1, log: true}"), "low is 0: it must be above 0 on a logarithmic scale"),
        (axis("{low: 1, high: 2, log: 3}"), "search.training.learning_rate.log is 3: it must be true or false"),
        (axis("{choices: [1]}"), r"choices is \[1\]: list two or more different values"),
        (axis("{choices: [1, 1]}"), "list two or more different values"),
        (axis("{choices: [1, 2], low: 1}"), "unknown key search.training.learning_rate.low: choose from choices"),
        (axis("{low: -1, high: 1}"), "find.yaml: learning_rate=-1.0: training.learning_rate is -1.0"),
        (axis("{choices: [1, fast]}"), "find.yaml: learning_rate=fast: "),
        (axis("{low: 1, high: 2}").replace("training.learning_rate", "training.rate"), "find.yaml: rate=1: training.rate: adamw has no such"),
        (axis("{low: 1, high: 2}").replace("training.learning_rate", "seed"), "search.seed: seed cannot be searched: leave it out"),
        (axis("{choices: [9, 10]}").replace("training.learning_rate", "data.validation_sentences"), "losses on other validation text cannot"),
        (axis("{low: 1.5, high: 2}").replace("learning_rate", "epochs"), "search.training.epochs: the setting takes whole numbers"),
        (SEARCH + "blimp: pairs\n", "pairs: the base generates its corpus and has minimal pairs of its own"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_one_line_and_leaves_nothing(text, line, monkeypatch, tmp_path):
    monkeypatch.setattr(search_run, "require_optuna", lambda: None)
    with pytest.raises(InputError, match=line) as caught:
        study.run_study(write(tmp_path, text), tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_a_search_is_written_to_this_machine(tmp_path):
    with pytest.raises(InputError, match="find.yaml: out is gs://bucket/x: a study is written to this machine only"):
        study.run_study(write(tmp_path, SEARCH + "out: gs://bucket/x"))


def test_what_the_objective_is_measured_on_is_needed(tmp_path):
    file = write(tmp_path, SEARCH + "objective: blimp\n")
    (tmp_path / "base.yaml").write_text("data: {kind: store, train: stores/a, validation: stores/b}")
    with pytest.raises(InputError, match="find.yaml: objective is blimp: name minimal pairs, with blimp or --blimp$"):
        parse(file)
    (tmp_path / "find.yaml").write_text(SEARCH)
    (tmp_path / "base.yaml").write_text("data: {kind: store, train: stores/a}")
    with pytest.raises(
        InputError, match="find.yaml: objective is val_nll: name validation text, with data.validation$"
    ):
        parse(file)


def test_a_storage_of_something_else_is_refused(fake, tmp_path):
    file, out = write(tmp_path), tmp_path / "out"
    assert study.run_study(file, out) == 0
    (out / "search.db").write_text("something else")
    with pytest.raises(
        InputError, match="search.db: cannot be used .no SQLite file.; choose another folder with --out$"
    ) as caught:
        study.run_study(file, out)
    assert "\n" not in str(caught.value)


SEARCHES = Path(__file__).resolve().parents[2] / "configs" / "studies"


@pytest.mark.parametrize("name", ["real_text/search"])
def test_the_example_can_be_read(name):
    its = parse(SEARCHES / f"{name}.yaml")
    assert [key.rpartition(".")[2] for key in its.space] == ["learning_rate", "leak_min", "spectral_radius"]


@pytest.mark.slow
def test_trials_side_by_side_are_given_up_and_gone_on_with(optuna, tmp_path):
    """The whole of it, in processes of its own."""
    import subprocess

    file, out = write(tmp_path, SEARCH.replace("trials: 3", "trials: 4")), tmp_path / "out"
    command = [sys.executable, "-m", "esnlm", "study", str(file), "--out", str(out), "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert len(json.loads((out / "table.json").read_text())["trials"]) == 4
    assert (out / "logs" / "trial-0003.log").exists()
    shutil.rmtree(out / "runs" / "trial-0002")
    assert subprocess.run(command, capture_output=True).returncode == 0, "what is known of a trial is in the storage"
