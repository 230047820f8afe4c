"""Trains small runs on one device and on eight simulated ones, in a process of its own, and prints how far they are apart.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.parallel.many_devices FOLDER UPDATES NAME ...       of FAMILIES

Prints a line of JSON for each name: the losses of all updates on one device and on the mesh, and the largest differences of
what the two runs save and of what they score.
"""

import dataclasses
import json
import signal
import sys
from pathlib import Path

import jax
import numpy as np

import esnlm
from esnlm import config_io
from esnlm.config import flatten
from esnlm.data.store import open_store
from esnlm.runs import checkpoint
from esnlm.training.log import TrainingLog
from esnlm.workflows.train import train_run

SENTENCES = 8  # of an update
GRADIENT = "{checkpoint_every: 1000, log_every: 1, batch_size: 8}"
ESN = "family: esn, reservoir: {state_size: 50, mean_degree: 6}"  # 8 devices do not divide 50 units
FAMILIES = {
    "esn": (f"{{{ESN}, readout: {{rank: 8}}}}", GRADIENT),
    "esn full rank": (f"{{{ESN}, readout: {{rank: null}}, dropout: 0.1}}", GRADIENT),
    "esn scaled, clipped": (
        f"{{{ESN}, readout: {{rank: 8, scaling: dynamic}}}}",
        "{learning_rate: 0.3, clip_norm: 0.05, on_nonfinite: skip, log_every: 1, batch_size: 8}",
    ),
    "esn averaged, by words": (
        f"{{{ESN}, readout: {{rank: 8}}}}",
        "{log_every: 1, batch_size: 8, ema: 0.9, schedule: cosine, schedule_by: words, warmup_words: 100}",
    ),
    "esn by unit": ("{family: esn, reservoir: {state_size: 52, mean_degree: 6}, readout: {rank: 8}}", GRADIENT),
    "esn full rank by unit": (
        "{family: esn, reservoir: {state_size: 52, topology: {kind: scale_free, edges: 3}, input_connectivity: 0.1},"
        " readout: {rank: null}, dropout: 0.1}",
        GRADIENT,
    ),
    "stack, dense, by unit": (
        "{family: esn, reservoir: {state_size: 20, connectivity: 0.5, input_connectivity: 1.0, layers: 2},"
        " readout: {rank: 8}, dropout: 0.1}",
        "{log_every: 1, batch_size: 8, ema: 0.9}",
    ),
    "esn+i": (f"{{{ESN}, readout: {{rank: 8}}, train_input: true}}", GRADIENT),
    "esn+i dense": (
        "{family: esn, reservoir: {state_size: 20, connectivity: 0.5, input_connectivity: 1.0, layers: 2},"
        " readout: {rank: null}, train_input: true, dropout: 0.1}",
        GRADIENT,
    ),
    "lstm": ("{family: lstm, width: 20}", GRADIENT),
    "tied lstm": ("{family: lstm, width: 20, tied: true}", GRADIENT),
    "gpt2": ("{family: gpt2, layers: 2, heads: 2, width: 16, positions: 64}", GRADIENT),
    "lms by unit": (
        "{family: esn, reservoir: {state_size: 52, mean_degree: 6}, readout: {rank: null}}",
        "{kind: lms, learning_rate: 0.1, batch_size: 8}",
    ),
    "ridge": (f"{{{ESN}, readout: {{rank: 8}}}}", "{kind: ridge, regularizations: [1.0e-3]}"),
    "rls": (f"{{{ESN}, readout: {{rank: null}}}}", "{kind: rls}"),
    "lms": (f"{{{ESN}, readout: {{rank: null}}}}", "{kind: lms, learning_rate: 0.1, batch_size: 8}"),
}
ONE, MANY, OTHER = {"data": 1, "vocabulary": 1}, {"data": 2, "vocabulary": 4}, {"data": 1, "vocabulary": 8}
UNITS = {  # devices that share a copy of the reservoir: 2 copies of it for MANY, and 1 for 4 devices; else each has one
    "esn by unit": 4,
    "esn full rank by unit": 4,
    "stack, dense, by unit": 4,
    "lms by unit": 2,
}


def train(folder: Path, name: str, updates: int, mesh: dict[str, int], run: Path) -> None:
    """Trains or resumes the run of a name on a mesh; stops for SIGTERM as train.py does."""
    model, training = FAMILIES[name]
    file = folder / "experiment.yaml"
    data = f"{{kind: grammar, sentences: {SENTENCES * updates}, validation_sentences: 40, pairs: 2}}"
    # Windows of 1,000 tokens make a run of 20 updates take two; chunks of 64 make two of most updates.
    compute = f"{{window_tokens: 1000, batch_slots: 4, chunk_tokens: 64, mesh: {json.dumps(mesh)}}}"
    file.write_text(f"run: {run}\ndata: {data}\nmodel: {model}\ntraining: {training}\ncompute: {compute}\n")
    train_run(config_io.read(file))


def train_on_three_meshes(folder: Path, updates: int, run: Path) -> None:
    """Trains a run on eight devices, is stopped, goes on with one, is stopped, and ends with eight, of which four share a reservoir."""
    push, last = TrainingLog.push, 0

    def push_and_stop(self: TrainingLog, *arguments: object) -> None:
        push(self, *arguments)
        if self.state.step >= last:
            signal.raise_signal(signal.SIGTERM)

    TrainingLog.push = push_and_stop
    TrainingLog.updates_per_call = lambda self: 4
    for third, mesh in enumerate((OTHER, ONE, MANY | {"units": 4}), start=1):
        last = third * updates // 3 if third < 3 else updates + 1
        train(folder, "esn by unit", updates, mesh, run)
    TrainingLog.push = push


def scores(run: Path, mesh: dict[str, int]) -> list[np.ndarray]:
    """Everything that is scored on a mesh, of the validation text's first sentences."""
    loaded = esnlm.load(run)
    compute = dataclasses.replace(loaded.config.compute, mesh=mesh, batch_slots=2, window_tokens=300)
    loaded = dataclasses.replace(loaded, config=dataclasses.replace(loaded.config, compute=compute))
    sentences = [loaded.tokenizer.decode(ids[1:-1]) for ids in list(open_store(run / "stores/validation"))[:20]]
    ids = [np.array([loaded.tokenizer.bos, *loaded.tokenizer.encode(sentence)]) for sentence in sentences]
    group = np.arange(loaded.tokenizer.vocab_size) % 3 == 0
    return [
        np.concatenate(loaded.token_log_probs(sentences)),
        np.concatenate(loaded.token_log_probs_of(ids, with_likeliest=True)),
        np.concatenate(loaded.group_log_probs_of(ids, group)),
        np.array(loaded.likelihood(sentences).nll),
        np.concatenate(loaded.states(sentences[:2])),
    ]


def largest_difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    return max(float(np.abs(np.asarray(a, np.float64) - b).max()) for a, b in zip(ours, theirs, strict=True))


def saved(run: Path) -> list[np.ndarray]:
    return [array for _, array in sorted(flatten(checkpoint.restore_latest(run / "checkpoints", print)[1]).items())]


def losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line[key] for line in lines for key in ("train_nll", "val_nll") if key in line]


def main(folder: Path, updates: int, names: list[str]) -> None:
    assert jax.device_count() == 8
    for number, name in enumerate(names):
        one, many = folder / f"{number}_one", folder / f"{number}_many"
        units = {"units": UNITS[name]} if name in UNITS else {}
        if name == "three meshes":
            train(folder, "esn by unit", updates, ONE, one)
            train_on_three_meshes(folder, updates, many)
        else:
            train(folder, name, updates, ONE, one)
            train(folder, name, updates, MANY | units, many)
        summary = json.loads((many / "summary.json").read_text())
        found = {
            "name": name,
            "mesh": summary["device"]["mesh"],
            "one": losses(one),
            "many": losses(many),
            "saved": largest_difference(saved(one), saved(many)),
            "scores": largest_difference(scores(many, ONE), scores(many, OTHER | units)),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
