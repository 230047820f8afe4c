"""esnlm lm-eval: BLiMP's 67 tasks on local files give, pair for pair, the answers of `esnlm blimp --scoring lm-eval`."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from esnlm import commands
from tests.interchange.small_run import small_run

pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install -e '.[lm-eval]'")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(small_run(), tmp_path / "run")


def paradigms():
    """The names of BLiMP's 67 paradigms, from the harness's own files."""
    import lm_eval.tasks

    names = (Path(lm_eval.tasks.__file__).parent / "blimp").glob("*.yaml")
    return sorted(file.stem for file in names if file.stem != "_blimp")


def generated_pairs(folder):
    """67 files of three pairs that differ from each other, of sentences of the run's grammar and one of identical ones."""
    rng = np.random.default_rng(0)
    words = ["the", "cats", "sleep", "dogs", "see", "."]
    for number, uid in enumerate(paradigms()):
        sentences = [" ".join(rng.choice(words, rng.integers(2, 7))) for _ in range(6)]
        pairs = [
            *zip(sentences[:3], sentences[3:], strict=True),
            *([(sentences[0], sentences[0])] if number == 0 else []),
        ]
        lines = [{"sentence_good": good, "sentence_bad": bad, "UID": uid} for good, bad in pairs]
        (folder / f"{uid}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def official_pairs(blimp_dir, folder):
    for file in blimp_dir.glob("*.jsonl"):
        (folder / file.name).write_text("".join(file.read_text().splitlines(keepends=True)[::250]))


def read_lines(file):
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def compare(capsys):
    assert commands.main(["lm-eval", "--run", "run", "--tasks", "blimp", "--data", "pairs"]) == 0
    printed = capsys.readouterr().out
    assert commands.main(["blimp", "--run", "run", "--scoring", "lm-eval", "--data", "pairs"]) == 0
    theirs = json.loads(Path("run/evaluation/lm-eval/blimp.json").read_text())
    ours = json.loads(Path("run/evaluation/blimp-lm-eval.json").read_text())
    assert len(theirs["results"]) == 68 and len(ours["paradigms"]) == 67
    for uid, entry in ours["paradigms"].items():
        assert 100 * theirs["results"][f"blimp_{uid}"]["acc,none"] == pytest.approx(entry["accuracy"], abs=1e-9)
    assert 100 * theirs["groups"]["blimp"]["acc,none"] == pytest.approx(ours["overall"]["accuracy"], abs=1e-9)
    assert theirs["data_sha256"] == ours["data"]["sha256"]
    assert f"{ours['overall']['accuracy'] / 100:.4f}" in printed

    samples = read_lines("run/evaluation/lm-eval/blimp.samples.jsonl")
    pairs = read_lines("run/evaluation/blimp-lm-eval.pairs.jsonl")
    by_place = {(sample["task"], sample["doc_id"]): sample for sample in samples}
    assert len(by_place) == len(pairs) == ours["data"]["pairs"]
    return by_place, pairs


def check_pairs(by_place, pairs):
    for pair in pairs:
        sample = by_place[f"blimp_{pair['UID']}", pair["index"]]
        log_probs = [answer[0] for answer in sample["filtered_resps"]]
        # Two programs were compiled for the same numbers, each to float32's precision.
        np.testing.assert_allclose(log_probs, [pair["log_prob_good"], pair["log_prob_bad"]], rtol=1e-6)
        assert sample["acc"] == float(pair["log_prob_good"] >= pair["log_prob_bad"])


def test_blimp_s_tasks_on_generated_pairs(run, tmp_path, capsys):
    (tmp_path / "pairs").mkdir()
    generated_pairs(tmp_path / "pairs")
    check_pairs(*compare(capsys))
    found = json.loads(Path("run/evaluation/lm-eval/blimp.json").read_text())
    expected = dict.fromkeys((f"blimp_{uid}" for uid in paradigms()), 0) | {f"blimp_{paradigms()[0]}": 1}
    assert found["ties"] == expected, "one pair is of the same sentence twice"
    assert found["seeds"] == {"random": 0, "numpy": 1234, "fewshot": 1234}


@pytest.fixture
def own_tasks_only(monkeypatch):
    """Lets the harness know no task of its own: their files are thousands, and take many seconds to read."""
    import lm_eval.tasks

    manager = lm_eval.tasks.TaskManager
    monkeypatch.setattr(
        lm_eval.tasks,
        "TaskManager",
        lambda include_path, **_: manager(include_defaults=False, include_path=include_path),
    )


def test_ties_and_what_cannot_be_generated_are_told(run, tmp_path, capsys, own_tasks_only):
    """What a task asks for is looked at before anything is scored."""
    (tmp_path / "rows.jsonl").write_text('{"question": "the cats", "answer": "sleep", "label": 0}\n' * 2)
    shared = "dataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\ndoc_to_text: question\n"
    choice = "output_type: multiple_choice\ndoc_to_choice: [sleep, sleep]\ndoc_to_target: label\n"
    (tmp_path / "choice.yaml").write_text(f"task: choice\n{shared}{choice}")
    sampled = "output_type: generate_until\ndoc_to_target: answer\ngeneration_kwargs: {until: [.], do_sample: true, temperature: 1, top_p: 0.9}\n"
    (tmp_path / "sampled.yaml").write_text(f"task: sampled\n{shared}{sampled}")
    words = ["lm-eval", "--run", "run", "--out", "found.json", "--tasks"]
    assert commands.main([*words, "choice.yaml", "sampled.yaml"]) == 2
    line = "error: task sampled: a task samples with top_p: a run knows do_sample, temperature, top_k only"
    assert line in capsys.readouterr().err and not Path("found.json").exists()
    assert commands.main([*words, "choice.yaml"]) == 0
    line = "warning: documents with more than one answer of the highest log-probability, of which the harness takes the first: choice 2\n"
    assert line in capsys.readouterr().err
    assert [line["filter"] for line in read_lines("found.samples.jsonl")] == ["none", "none"]


def test_tasks_that_take_no_examples_are_named(run, tmp_path, capsys, own_tasks_only):
    """The harness keeps the 0 of a task's own file, and says so in a line that is hidden here."""
    rows = [json.dumps({"question": "the cats", "answer": answer}) + "\n" for answer in ("sleep", "see", "run")]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    shared = "dataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n"
    shared += "fewshot_split: test\noutput_type: loglikelihood\ndoc_to_text: question\ndoc_to_target: answer\n"
    shared += "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n"
    (tmp_path / "fixed.yaml").write_text(f"task: fixed\nnum_fewshot: 0\n{shared}")
    (tmp_path / "free.yaml").write_text(f"task: free\n{shared}")
    words = ["lm-eval", "--run", "run", "--out", "found.json", "--num-fewshot", "1", "--tasks"]
    line = "num_fewshot is 1, which has no effect on fixed: the harness keeps the 0 of a task's own file"
    assert commands.main([*words, "fixed.yaml"]) == 2
    assert f"error: {line}; leave --num-fewshot out\n" in capsys.readouterr().err and not Path("found.json").exists()
    assert commands.main([*words, "fixed.yaml", "free.yaml"]) == 0
    assert f"warning: {line}\n" in capsys.readouterr().err
    assert json.loads(Path("found.json").read_text())["n-shot"] == {"fixed": 0, "free": 1}


def test_pairs_that_no_task_reads_are_refused(run, tmp_path, capsys):
    (tmp_path / "pairs").mkdir()
    generated_pairs(tmp_path / "pairs")
    assert commands.main(["lm-eval", "--run", "run", "--tasks", "lambada_openai", "--data", "pairs"]) == 2
    line = "--data has minimal pairs for BLiMP's tasks, and lambada_openai has none of these: leave it out"
    assert line in capsys.readouterr().err


def test_blimp_s_tasks_on_official_pairs(run, blimp_dir, tmp_path, capsys):
    (tmp_path / "pairs").mkdir()
    official_pairs(blimp_dir, tmp_path / "pairs")
    check_pairs(*compare(capsys))


def test_results_of_something_else_are_not_overwritten(run, tmp_path, capsys):
    (tmp_path / "pairs").mkdir()
    generated_pairs(tmp_path / "pairs")
    task = [
        "lm-eval",
        "--run",
        "run",
        "--tasks",
        "blimp_wh_island,blimp_passive_1",
        "--data",
        "pairs",
        "--out",
        "a.json",
    ]
    assert commands.main(task) == 0
    assert commands.main(task) == 0, "the same results again"
    assert commands.main([*task, "--limit", "1"]) == 2
    assert "a.json: exists and holds something else" in capsys.readouterr().err
    assert commands.main([*task, "--limit", "1", "--overwrite"]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["n-samples"]["blimp_wh_island"]["effective"] == 1
    assert {file.name for file in tmp_path.iterdir()} == {"run", "pairs", "a.json", "a.samples.jsonl"}


def test_without_the_harness_one_line_says_what_to_install(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert commands.main(["lm-eval", "--run", "run", "--tasks", "blimp"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: lm-evaluation-harness is needed") and line.endswith("pip install 'esnlm[lm-eval]'")
