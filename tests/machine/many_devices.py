"""Trains small runs on one device and on eight simulated ones, and prints their differences.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
        python -m tests.machine.many_devices FOLDER UPDATES NAME ...

NAME is one of FAMILIES.

Prints a line of JSON for each name: the losses of all updates on one device and on the mesh, the
largest differences of what the two runs save and of what they score, and what the compiled update
gathers.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import esnlm
from esnlm.data.store import open_store
from esnlm.runs import checkpoint
from esnlm.training import config_io
from esnlm.training.config import flatten
from esnlm.training.run import train_run
from esnlm.training.update import Updates

SENTENCES = 8  # of an update
ESN = "family: esn, reservoir: {state_size: %d, mean_degree: 6}"
GRADIENT = "{checkpoint_every: 1000, log_every: 1, batch_size: 8}"
FAMILIES = {
    "esn": (f"{{{ESN % 48}, readout: {{rank: 8}}}}", GRADIENT),
    # 8 devices do not divide 50 units
    "esn, averaged": (
        f"{{{ESN % 50}, readout: {{rank: 8}}}}",
        "{log_every: 1, batch_size: 8, ema: 0.9, clip_norm: 0.1}",
    ),
    "esn, full rank": (f"{{{ESN % 48}, readout: {{rank: null}}, dropout: 0.1}}", GRADIENT),
    "esn+i": (f"{{{ESN % 48}, readout: {{rank: 8}}, train_input: true, dropout: 0.1}}", GRADIENT),
    "lstm": ("{family: lstm, width: 20}", GRADIENT),
    "gpt2": ("{family: gpt2, layers: 2, heads: 2, width: 16, positions: 64}", GRADIENT),
    "deep readout": (
        (
            "{family: deep_readout, reservoir: {state_size: 32, mean_degree: 6}, readout:"
            " {rank: 16, gated_mlp: {blocks: 1, width: 24},"
            " recent_tokens: {count: 3, width: 8}}}"
        ),
        GRADIENT,
    ),
    "ridge": (f"{{{ESN % 48}, readout: {{rank: 8}}}}", "{kind: ridge, regularizations: [1.0e-3]}"),
}
ONE, MANY, OTHER = (
    {"data": 1, "vocabulary": 1},
    {"data": 2, "vocabulary": 4},
    {"data": 1, "vocabulary": 8},
)


def train(folder: Path, name: str, updates: int, mesh: dict[str, int], run: Path) -> None:
    """Trains the run of a name on a mesh."""
    model, training = FAMILIES[name]
    file = folder / "experiment.yaml"
    data = (
        f"{{kind: grammar, sentences: {SENTENCES * updates}, validation_sentences: 20, pairs: 2}}"
    )
    # Windows of 1,000 tokens make a run of 20 updates take two; chunks of 64 make two of most
    # updates.
    compute = f"{{window_tokens: 1000, batch_slots: 4, chunk_tokens: 64, mesh: {json.dumps(mesh)}}}"
    file.write_text(
        f"run: {run}\ndata: {data}\nmodel: {model}\ntraining: {training}\ncompute: {compute}\n"
    )
    assert train_run(config_io.read(file)) == 0


def note_gathered() -> set[int]:
    """Returns a set that collects, from now on, the sizes of arrays that compiled updates on a mesh
    gather."""
    gathered, make = set(), Updates.__init__

    def init(self: Updates, *settings: object) -> None:
        make(self, *settings)
        for name in ("_update", "_gradient", "_step"):
            setattr(self, name, noting(self, getattr(self, name)))

    def noting(updates: Updates, program: Callable) -> Callable:
        seen: list[bool] = []

        def called(*args: object) -> tuple:
            if updates.mesh is not None and not seen:
                seen.append(True)
                text = program.lower(*args).compile().as_text()
                for shape in re.findall(r"= \(?\w+\[([\d,]*)\][^=]* all-gather(?:-start)?\(", text):
                    gathered.add(int(np.prod([int(side) for side in shape.split(",") if side])))
            return program(*args)

        return called

    Updates.__init__ = init
    return gathered


def scores(run: Path, mesh: dict[str, int]) -> list[np.ndarray]:
    """Everything that is scored on a mesh, of the validation text's first sentences."""
    loaded = esnlm.load(run)
    compute = dataclasses.replace(
        loaded.config.compute, mesh=mesh, batch_slots=2, window_tokens=300
    )
    loaded = dataclasses.replace(loaded, config=dataclasses.replace(loaded.config, compute=compute))
    sentences = [
        loaded.tokenizer.decode(ids[1:-1])
        for ids in list(open_store(run / "stores/validation"))[:8]
    ]
    ids = [
        np.array([loaded.tokenizer.bos, *loaded.tokenizer.encode(sentence)])
        for sentence in sentences
    ]
    group = np.arange(loaded.tokenizer.vocab_size) % 3 == 0
    return [
        np.concatenate(loaded.token_log_probs(sentences)),
        np.concatenate(loaded.token_log_probs_of_ids(ids, with_likeliest=True)),
        np.concatenate(loaded.token_log_probs_of_ids(ids, group=group)),
        np.array(loaded.likelihood(sentences).nll),
        np.concatenate(loaded.states(sentences[:2])),
        loaded.word_states(sentences, layers=list(loaded.layers)[::-1]).states,
    ]


def largest_difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    return max(
        float(np.abs(np.asarray(a, np.float64) - b).max())
        for a, b in zip(ours, theirs, strict=True)
    )


def saved(run: Path) -> list[np.ndarray]:
    return [
        array
        for _, array in sorted(
            flatten(checkpoint.restore_latest(run / "checkpoints", print)[1]).items()
        )
    ]


def losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line[key] for line in lines for key in ("train_nll", "val_nll") if key in line]


def main(folder: Path, updates: int, names: list[str]) -> None:
    assert jax.device_count() == 8
    gathered = note_gathered()
    for number, name in enumerate(names):
        one, many = folder / f"{number}_one", folder / f"{number}_many"
        gathered.clear()
        train(folder, name, updates, ONE, one)
        train(folder, name, updates, MANY, many)
        # A run goes on, and is loaded, on other devices.
        summary = json.loads((many / "summary.json").read_text())
        found = {
            "name": name,
            "mesh": summary["device"]["mesh"],
            "one": losses(one),
            "many": losses(many),
            "saved": largest_difference(saved(one), saved(many)),
            "scores": largest_difference(scores(many, ONE), scores(many, OTHER)),
            "gathered": max(gathered, default=0),
            "largest": max(array.size for array in saved(one)),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
