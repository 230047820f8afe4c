"""Finished runs to report on, with names and sentences that try to run scripts."""

import json

import numpy as np
import pytest

from esnlm.commands import run_command
from esnlm.data.sources import StoreData
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import evaluate
from esnlm.reports import blimp_report
from esnlm.reports.report import Report
from esnlm.runs.directory import FORMAT
from esnlm.training import config_io
from esnlm.training.config import Experiment, TrainingConfig
from esnlm.training.run import train_run
from tests.evaluation.fake_run import fake_run

ATTACK = "<img src=x onerror=hacked=1>"  # a name of a folder cannot hold a slash
WORSE = (
    "</script></style></title><script>hacked=2</script><iframe src=https://example.org/></iframe>"
)
SMALL = """
data: {kind: grammar, sentences: 200, validation_sentences: 20, pairs: 2}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}
training: {log_every: 1}
"""


@pytest.fixture
def make_run(tmp_path):
    """Makes the directory of a finished run: `right` of 8 minimal pairs, 4 in each of two
    paradigms, are right.

    `others` are other settings of the experiment, and `text` and `tokenizer` stand for the sha256
    of its text and of its tokenizer, where it has a token store. Whatever the convention `scoring`
    is, its report is blimp-paper.json.
    """

    def make(
        name,
        seed=0,
        val_nll=5.0,
        right=8,
        learning_rate=1e-3,
        text=None,
        tokenizer="words",
        scoring="paper",
        **others,
    ):
        folder = tmp_path / name
        folder.mkdir()
        others.setdefault("training", TrainingConfig(learning_rate=learning_rate))
        if text is not None:
            others["data"] = StoreData(train=f"{text}/train", validation=f"{text}/dev")
            known = {"train": text, "validation": text, "tokenizer": tokenizer}
            (folder / "data.json").write_text(json.dumps(known))
        experiment = Experiment(run=str(folder), seed=seed, **others)
        config_io.write(experiment, folder / "config.yaml")
        (folder / "format.json").write_text(json.dumps({"format": FORMAT}))
        summary = {
            "status": "finished",
            "trainable_params": 1200,
            "total_params": 3000,
            "words": 100,
        }
        summary |= {
            "train_nll": val_nll + 0.5,
            "val_nll": val_nll,
            "seconds": 90.0,
            "tokens_per_second": 1000.0,
        }
        (folder / "summary.json").write_text(json.dumps(summary))

        sentences = [f"{side}{i}" for i in range(8) for side in "gb"]
        worth = {f"g{i}": -1.0 if i < right else -3.0 for i in range(8)} | {
            f"b{i}": -2.0 for i in range(8)
        }
        number = {sentence: i for i, sentence in enumerate(sentences)}
        run = fake_run(
            folder,
            lambda sequences: [
                np.array([worth[sentences[ids[1] - 2]], 0.0][: len(ids) - 1]) for ids in sequences
            ],
            encode=lambda text: [number[text.strip()] + 2],
            **{"sha256": "1" * 64, "vocab_size": len(sentences) + 2, "bos": 0, "eos": 1},
        )
        config_io.write(experiment, folder / "config.yaml")  # fake_run wrote one of its own
        pairs = [
            minimal_pairs.Pair(
                "one" if i < 4 else "two", i % 4, f"g{i}", f"b{i}", "binding", "syntax", str(i)
            )
            for i in range(8)
        ]
        report = Report(folder / "evaluation" / "blimp-paper.json")
        blimp_report.write(evaluate(run, pairs, scoring), report)
        return folder

    return make


def write_pairs(file):
    """Writes minimal pairs of 12 paradigms, of which half are wrong whatever the model: 4 are the
    other 4 turned round."""
    lines = []
    for number in range(12):
        for i in range(4):
            good, bad = f"The cats sleep {WORSE} {i}.", f"The cats sleeps {i}."
            sides = (good, bad) if i % 2 else (bad, good)
            pair = {
                "sentence_good": sides[0],
                "sentence_bad": sides[1],
                "linguistics_term": f"{WORSE}{number % 3}",
            }
            lines.append(
                pair | {"UID": f'paradigm_{number}"><script>hacked=3</script>', "field": "syntax"}
            )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture(scope="session")
def full_run(tmp_path_factory):
    """The directory of a run that was trained, scored and diagnosed."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "small.yaml").write_text(SMALL)
    run = folder / f"run {ATTACK}"
    assert train_run(config_io.read(folder / "small.yaml", ["--run", str(run)])) == 0
    pairs = write_pairs(folder / "pairs.jsonl")
    words = ["--run", str(run), "--data", str(pairs), "--overwrite"]
    assert run_command("blimp", words, f"esnlm blimp {WORSE}") == 0
    assert run_command("diagnose", ["--run", str(run)], f"esnlm diagnose {ATTACK}") == 0
    return run
