"""Records a tiny store, runs and a report of the esnlm that is imported, with the figures that they
give. tests/old_runs has an archive for each version whose formats later ones read.

    PYTHONPATH=CHECKOUT python tests/old_runs/record.py /old/runs
    tar -C /old/runs -cJf tests/old_runs/VERSION.tar.xz .

Orbax writes the path of the folder into its files.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np

import esnlm
from esnlm import commands
from esnlm.data.grammar import sentences

TEXTS = ["The dogs near my cat sleep.", "The woman who the men like laughs."]
LIGHT = """
data: {kind: store, train: train, validation: dev}
model:
  family: deep_readout
  reservoir: {state_size: 8, mean_degree: 4}
  readout:
    rank: 8
    normalize: true
    recent_tokens: {count: 2, width: 8, tied: true, decays: [0.6, 0.9]}
    ngrams: {orders: [2], buckets: 64, width: 4, initial_scale: 0, multiplier: 8}
    gated_mlp: {blocks: 1, width: 8}
training: {epochs: 2, batch_size: 8, learning_rate: 0.01, keep_checkpoints: 1}
"""
ESN = """
run: esn
data: {kind: store, train: train, validation: dev, context: document, piece: 16}
model: {reservoir: {state_size: 24, mean_degree: 4}, readout: {rank: 4}}
training: {epochs: 1, batch_size: 4, learning_rate: 0.01, log_every: 1, checkpoint_every: 20, keep_checkpoints: 1}
"""


def call(*words: str) -> None:
    assert commands.main(list(words)) in (0, None), words


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.chdir(folder)
    for name, count in ("train", 160), ("dev", 40):
        lines = list(sentences(count, seed=0, split="train" if name == "train" else "validation"))
        documents = ["\n".join(lines[start : start + 8]) for start in range(0, count, 8)]
        records = (json.dumps({"text": text}) for text in documents)
        Path(f"{name}.jsonl").write_text("\n".join(records))
        tokenizer = "train:300" if name == "train" else "train/tokenizer"
        words = ["--tokenizer", tokenizer, "--sentences", "line", "--min-length", "3"]
        call("prepare", "--input", f"{name}.jsonl", "--out", name, *words)
        Path(f"{name}.jsonl").unlink()
    for name, text in ("light", LIGHT), ("esn", ESN):
        Path(f"{name}.yaml").write_text(text)
    call("train", "--config", "light.yaml", "--run", "light")
    pairs = [{"sentence_good": "The dogs sleep.", "sentence_bad": "The dogs sleeps."}]
    pairs.append({"sentence_good": "My cat smiles.", "sentence_bad": "My cat smile."})
    rows = (json.dumps(pair | {"UID": "agreement"}) for pair in pairs)
    Path("agreement.jsonl").write_text("\n".join(rows) + "\n")
    call("blimp", "--run", "light", "--data", "agreement.jsonl", "--out", "report.json")

    call("train", "--config", "esn.yaml", "--run", "whole")
    esnlm.train("esn.yaml", [lambda step, metrics: step >= 20])
    tokenizer = esnlm.tokenizer("train/tokenizer")
    rows, columns = np.indices((8, tokenizer.vocab_size))
    matrices = 0.5 * np.roll(np.eye(8), 1, axis=0), np.sin(rows + 3.0 * columns)
    reservoir = esnlm.Reservoir.from_matrices(*matrices, leak=0.7, reads_tokens=True)
    experiment = {"run": "given", "model": {"readout": {"rank": 4}}, "training": {"batch_size": 8}}
    esnlm.train(experiment, sentences=lines, tokenizer=tokenizer, reservoir=reservoir)
    figures = {}
    for name in ("light", "esn", "whole", "given"):
        run = esnlm.load(name)
        figures[name] = {
            "log_probs": [float(value) for value in run.log_probs(TEXTS)],
            "state": [float(value) for value in run.states(TEXTS[:1])[0][-1]],
            "summary": json.loads((Path(name) / "summary.json").read_text()),
        }
    shutil.rmtree("whole")
    for pictures in Path().glob("*/plots"):
        shutil.rmtree(pictures)
    Path("figures.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
