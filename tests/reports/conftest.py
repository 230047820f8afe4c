"""Finished runs to report on."""

import dataclasses
import json

import numpy as np
import pytest

from esnlm.data.sources import StoreData
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import evaluate
from esnlm.reports import blimp_report
from esnlm.runs.directory import FORMAT
from esnlm.training import config_io
from esnlm.training.config import Experiment, TrainingConfig
from tests.evaluation.fake_run import fake_run


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
        experiment = dataclasses.replace(Experiment(), run=str(folder), seed=seed, **others)
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
        blimp_report.write(
            evaluate(run, pairs, scoring), folder / "evaluation" / "blimp-paper.json"
        )
        return folder

    return make
