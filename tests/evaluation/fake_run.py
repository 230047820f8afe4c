"""A run whose answers a test chooses, with all that `evaluate` asks of a run."""

import json
from types import SimpleNamespace

import numpy as np

from esnlm.runs.directory import FORMAT


def no_unigram(ids):
    return np.zeros(len(ids) - 1)


def characters(text):
    return [ord(c) for c in text]


def fake_run(
    directory,
    token_log_probs_of_ids,
    unigram=no_unigram,
    encode=characters,
    name="fake",
    step=7,
    **tokenizer,
):
    """A run at `step` in `directory`, where it puts a config.yaml if there is none, with a
    tokenizer of one id a character unless `encode` is another.

    Args:
        token_log_probs_of_ids: of a list of ids, one array of (T - 1,) a sentence.
        tokenizer: what it has besides: name, sha256, vocab_size, bos, eos.
        unigram: log-probabilities of ids, (T - 1,).
    """
    if not (directory / "config.yaml").exists():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "format.json").write_text(json.dumps({"format": FORMAT}))
        (directory / "config.yaml").write_text("seed: 0\n")
    return SimpleNamespace(
        name=name,
        step=step,
        directory=directory,
        tokenizer=SimpleNamespace(
            **{"name": "characters", "sha256": "0" * 64, "vocab_size": 128, "bos": 1, "eos": 2}
            | tokenizer,
            encode_batch=lambda texts: [encode(text) for text in texts],
        ),
        token_log_probs_of_ids=lambda sequences, progress=False: token_log_probs_of_ids(sequences),
        unigram=lambda: SimpleNamespace(
            token_log_probs_of_ids=lambda sequences: list(map(unigram, sequences))
        ),
    )
