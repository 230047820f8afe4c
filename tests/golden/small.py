"""What the golden tests share: a small text, small models, and commands run in this process."""

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from esnlm import commands

# Adjacent entries are singular and plural.
NOUNS = ["cat", "cats", "dog", "dogs", "girl", "girls", "king", "kings", "teacher", "teachers"]
VERBS = ["sleeps", "sleep", "sings", "sing", "works", "work", "laughs", "laugh", "waits", "wait"]
PLACES = [
    "in the garden",
    "near the old house",
    "at school",
    "by the river",
    "with a friend",
    "every day",
]

MODELS = {
    "esn": {"reservoir": {"state_size": 24, "mean_degree": 5}, "readout": {"rank": 6}},
    "esn_i": {
        "train_input": True,
        "dropout": 0.1,
        "reservoir": {
            **{
                "state_size": 16,
                "connectivity": 0.5,
                "input_connectivity": 1.0,
                "activation": "relu",
            },
            **{"leak_min": 0.8, "leak_max": 0.8, "spectral_radius": 0.9},
        },
        "readout": {"rank": None},
    },
    "lstm": {"family": "lstm", "width": 8, "dropout": 0.0},
    "deep_readout": {
        "family": "deep_readout",
        "reservoir": {"state_size": 16, "mean_degree": 4},
        "readout": {
            **{"rank": 8, "normalize": True, "gated_mlp": {"blocks": 1, "width": 8}},
            "recent_tokens": {"count": 2, "width": 8, "tied": True, "decays": [0.6]},
        },
    },
}
UPDATES = 60  # of a whole run: two epochs of 120 sentences, four an update
TRAINING = {
    "epochs": 2,
    "batch_size": 4,
    "learning_rate": 0.01,
    "log_every": 1,
    "checkpoint_every": 10,
}
# Fields that hold a time or a speed, and the hash of a configuration, which covers the run's place.
MEASURED = ("seconds", "tokens_per_second", "peak_memory_bytes", "config_sha256")
RECORDED = Path(__file__).with_name("recorded.json")


def recorded(name: str) -> dict:
    """Returns the recorded figures of a test."""
    return json.loads(RECORDED.read_text())[name]


def training_of(name: str) -> dict:
    """Returns the settings of a model's training that differ from TRAINING."""
    return {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.0} if name == "lstm" else {}


def pairs(count: int) -> Iterator[tuple[str, str]]:
    """Yields sentences with and without agreement, by Lehmer's generator: the same with every
    version of Python."""
    state = 1
    for _ in range(count):
        chosen = []
        for words in (NOUNS, VERBS[::2], PLACES):
            state = state * 48271 % (2**31 - 1)
            chosen.append(state % len(words))
        noun, verb, place = chosen
        right, wrong = VERBS[2 * verb + noun % 2], VERBS[2 * verb + 1 - noun % 2]
        yield tuple(f"The {NOUNS[noun]} {each} {PLACES[place]}." for each in (right, wrong))


def esnlm(*words: object) -> int:
    """Runs `esnlm WORD ...` and returns its exit status."""
    return commands.main([str(word) for word in words])


def make_stores(folder: Path) -> Path:
    """Writes a text of 160 sentences and its token stores train and dev, by a BPE of 330 ids (all
    updates then have one size)."""
    lines = [good for good, _ in pairs(160)]
    for name, part, tokenizer in (
        ("train", lines[:120], "train:330"),
        ("dev", lines[120:], folder / "train/tokenizer"),
    ):
        (folder / f"{name}.txt").write_text("\n".join(part) + "\n")
        how = ("--tokenizer", tokenizer, "--sentences", "line", "--quiet")
        assert (
            esnlm("prepare", "--input", folder / f"{name}.txt", "--out", folder / name, *how) == 0
        )
    return folder


def write_config(run: Path, stores: Path, model: dict, **training: object) -> Path:
    """Writes the configuration of `run` beside it."""
    data = {"kind": "store", "train": str(stores / "train"), "validation": str(stores / "dev")}
    tree = {
        "run": str(run),
        "seed": 3,
        "data": data,
        "model": model,
        "training": TRAINING | training,
    }
    run.with_suffix(".yaml").write_text(yaml.safe_dump(tree))
    return run.with_suffix(".yaml")


def train(run: Path, stores: Path, model: dict, *settings: object, **training: object) -> int:
    """Runs `esnlm train` and returns its exit status."""
    config = write_config(run, stores, model, **training)
    return esnlm("train", "--config", config, "--quiet", *settings)


@contextlib.contextmanager
def stop_at(file: Path) -> Iterator[None]:
    """Sends SIGTERM to this process as soon as a file is there."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set() and not file.exists():
            time.sleep(0.001)
        if not done.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    # of a signal that comes after the end of the training
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        time.sleep(0.01)
        signal.signal(signal.SIGTERM, before)


def metrics(run: Path) -> list[dict]:
    """Returns the lines of metrics.jsonl without what is measured."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key not in MEASURED} for line in lines]


def losses(run: Path) -> list[float]:
    """Returns the loss of each update."""
    return [line["train_nll"] for line in metrics(run) if "train_nll" in line]


def summary(run: Path) -> dict:
    return {
        key: value
        for key, value in json.loads((run / "summary.json").read_text()).items()
        if key not in MEASURED
    }


def copy(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to))


def flip(file: Path) -> None:
    """Flips a bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


# The quickstart's command with little text and an eighth of its units.
QUICKSTART = [
    *("train", "--quiet", "--training.learning_rate", 0.02),
    *("--data.sentences", 5000, "--data.validation_sentences", 200, "--data.pairs", 20),
    *("--model.reservoir.state_size", 128, "--model.readout.rank", 32),
]


def train_quickstart(run: Path) -> Path:
    """Runs the small quickstart."""
    assert esnlm(*QUICKSTART, "--run", run) == 0
    return run
