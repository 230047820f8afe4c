"""Reports: written whole or not at all, read back, compared, shown and plotted."""

import hashlib
import json

import numpy as np
import pytest

from esnlm.base.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import evaluate
from esnlm.reports import blimp_report
from esnlm.reports.report import Report
from tests.evaluation.fake_run import fake_run

WIN, LOSE = (-1.0, -2.0), (-2.0, -1.0)


def evaluation(folder, results, uid="my_paradigm", phenomenon="binding"):
    """An evaluation of one paradigm in which pair i has the two log-probabilities results[i]."""
    score = {
        f"{side}{i}": value
        for i, both in enumerate(results)
        for side, value in zip("gb", both, strict=True)
    }
    number = {sentence: i for i, sentence in enumerate(score)}

    def token_log_probs_of_ids(sequences):
        return [np.array([list(score.values())[ids[1] - 2], 0.0]) for ids in sequences]

    tokenizer = {"sha256": "1" * 64, "vocab_size": len(score) + 2, "bos": 0, "eos": 1}
    run = fake_run(
        folder, token_log_probs_of_ids, encode=lambda text: [number[text] + 2], **tokenizer
    )
    pairs = [
        minimal_pairs.Pair(uid, i, f"g{i}", f"b{i}", phenomenon, "syntax", str(i))
        for i in range(len(results))
    ]
    return evaluate(run, pairs)


def test_a_report_is_three_files(tmp_path):
    found = evaluation(tmp_path, [WIN, LOSE, (-3.0, -3.0), WIN])
    blimp_report.write(found, Report(tmp_path / "out" / "a.b.json"))
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["a.b.json", "a.b.md", "a.b.pairs.jsonl"]
    result = blimp_report.read(tmp_path / "out" / "a.b.json")
    assert result == found.result
    assert (result["format_version"], result["run"], result["step"]) == (1, "fake", 7)
    assert result["scoring"]["name"] == "paper" and "BOS" in result["scoring"]["description"]
    pairs = (tmp_path / "out" / "a.b.pairs.jsonl").read_bytes()
    assert result["pairs_file"] == {
        "name": "a.b.pairs.jsonl",
        "sha256": hashlib.sha256(pairs).hexdigest(),
    }
    lines = [json.loads(line) for line in pairs.splitlines()]
    first = {
        "UID": "my_paradigm",
        "index": 0,
        "pairID": "0",
        "sentence_good": "g0",
        "sentence_bad": "b0",
    }
    first |= {"log_prob_good": -1.0, "log_prob_bad": -2.0, "tokens_good": 3, "tokens_bad": 3}
    assert lines[0] == first | {"right": True, "tie": False}
    assert [(line["right"], line["tie"]) for line in lines[1:]] == [
        (False, False),
        (False, True),
        (True, False),
    ]


def test_numbers_that_json_has_no_word_for_are_null(tmp_path):
    found = evaluation(tmp_path, [(np.nan, -1.0), (-1.0, -np.inf)])
    blimp_report.write(found, Report(tmp_path / "a.json"))
    lines = [json.loads(line) for line in (tmp_path / "a.pairs.jsonl").read_text().splitlines()]
    assert [(line["log_prob_good"], line["log_prob_bad"], line["right"]) for line in lines] == [
        (None, -1.0, None),
        (-1.0, None, True),
    ]


def test_a_failure_leaves_no_file_and_keeps_the_old_report(tmp_path, monkeypatch):
    blimp_report.write(evaluation(tmp_path, [WIN]), Report(tmp_path / "a.json"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(blimp_report, "markdown", lambda result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        blimp_report.write(evaluation(tmp_path, [LOSE]), Report(tmp_path / "a.json"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_markdown_has_every_phenomenon_and_paradigm(tmp_path):
    text = blimp_report.markdown(evaluation(tmp_path, [WIN, LOSE, WIN, WIN]).result)
    assert text.startswith("# fake, step 7: 4 minimal pairs, paper scoring\n")
    for name in ("binding", "my_paradigm", "overall"):
        assert f"| {name} | 75.0 | " in text
    assert "sha256 " + "1" * 64 in text


def test_published_figures_are_shown_with_pairs_of_blimp_only(tmp_path, blimp_dir):
    official = minimal_pairs.load(blimp_dir / "transitive.jsonl")[:3]
    own = [pair._replace(good=f"{pair.good}!", bad=f"{pair.bad}!") for pair in official]
    run = fake_run(tmp_path, lambda sequences: [-1.0 * ids[1:] for ids in sequences])
    text = blimp_report.markdown(evaluate(run, official).result)
    assert "GPT-2 86.0, human 99.0" in text
    assert "GPT-2" not in blimp_report.markdown(evaluate(run, own).result)


def test_a_report_with_another_figure_is_refused(tmp_path):
    path = tmp_path / "a.json"
    blimp_report.write(evaluation(tmp_path, [WIN, LOSE]), Report(path))
    path.write_text(path.read_text().replace('"accuracy": 50.0', '"accuracy": 90.0'))
    with pytest.raises(InputError, match=f"^{path}: damaged"):
        blimp_report.read(path)
