"""Small run directories of any model, with random weights, and their logits."""

import functools
import tempfile
from pathlib import Path

import jax
import numpy as np

from esnlm.data.tokenizer import train_bpe, word_tokenizer
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from tests import oracle

TEXT = [
    "The cats sleep.",
    "A cat that the dogs saw sleeps in the house.",
    "the the cat",
    "Dogs, cats; houses!",
]
SENTENCES = [*TEXT, "x", "  déjà vu 中文\n\t"]
ESN = [
    "--model.reservoir.state_size",
    "24",
    "--model.reservoir.mean_degree",
    "5",
    "--model.readout.rank",
    "6",
]


@functools.cache
def bpe():
    return train_bpe(TEXT * 3, 280)


@functools.cache
def words():
    return word_tokenizer(["The", " cats", " sleep", " cat", " the", "the", " dogs", " house"])


@functools.cache
def small_run() -> Path:
    """Returns the directory of a run of one layer. Tests that write into it copy it first."""
    return write_run(Path(tempfile.mkdtemp()) / "run", [], bpe())


def write_run(folder, settings, tokenizer, words_of=None):
    """Writes a run directory with random weights.

    Args:
        folder: where to.
        settings: `--section.key value` words.
        tokenizer: of the run.
        words_of: the steps of checkpoints that are kept for good, and the words that each has read.
            Without it there is one checkpoint, of step 0, which is not kept.
    """
    (folder.parent / "small.yaml").write_text("seed: 3\n")
    experiment = config_io.read(
        folder.parent / "small.yaml", settings if "--model.family" in settings else ESN + settings
    )
    config, vocab_size = experiment.model, tokenizer.vocab_size
    directory = RunDirectory(folder)
    folder.mkdir()
    with directory.begin():
        tokenizer.save(directory.tokenizer)
        frozen, record = config.initialize_frozen(vocab_size, experiment.seed)
        if frozen:
            checkpoint.save(directory.frozen, frozen, record)
        for step in words_of or [0]:
            params = config.initialize(vocab_size, experiment.seed + step, frozen).params
            if "readout" in params:  # so large that the logits differ
                params["readout"] = jax.tree.map(lambda array: 4 * array, params["readout"])
            metadata = {"step": step} | (
                {"words": words_of[step], "permanent": True} if words_of else {}
            )
            checkpoint.save(directory.checkpoints / str(step), {"params": params}, metadata)
        config_io.write(experiment, directory.config)
        directory.manifest.add(directory.config, directory.tokenizer)
    return folder


def logits_of(run, sentences):
    """Returns the logits after BOS and each token of a sentence, (T, V), as esnlm computes them
    when it generates."""
    model, found = run.model.for_device(run.config.compute), []
    readout = {"bias": 0} | model.readout_arrays(model.params)
    for sentence in sentences:
        read = model.reader(1, 64)
        ids = [run.tokenizer.bos, *run.tokenizer.encode(sentence)]
        features = np.concatenate([np.asarray(read(np.array([i]))) for i in ids])
        found.append(oracle.logits(readout, features))
    return found
