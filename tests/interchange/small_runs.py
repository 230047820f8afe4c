"""Small run directories of any model, without training, and what esnlm itself makes of them."""

from functools import cache

import jax
import numpy as np

from esnlm import config_io
from esnlm.data.tokenizer import train_bpe, word_tokenizer
from esnlm.readout import linear
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory

TEXT = ["The cats sleep.", "A cat that the dogs saw sleeps in the house.", "the the cat", "Dogs, cats; houses!"]
SENTENCES = [*TEXT, "x", "  déjà vu 中文\n\t"]


@cache
def bpe():
    return train_bpe(TEXT * 3, 280)


@cache
def words():
    return word_tokenizer(["The", " cats", " sleep", " cat", " the", "the", " dogs", " house"])


def write_run(folder, settings, tokenizer, steps=(0,), words_of=None):
    """Writes a run directory with random weights.

    Args:
        folder: where to.
        settings: `--section.key value` words.
        tokenizer: of the run.
        steps: the checkpoints, each with weights of its own.
        words_of: how many words a checkpoint has read, by step: such a checkpoint is kept for good.
    """
    small = ["--model.reservoir.state_size", "24", "--model.reservoir.mean_degree", "5"]
    rank = ["--model.readout.rank", "6"]
    given = {word for word in settings if word.startswith("--")}
    is_esn = "--model.family" not in given
    (folder.parent / "small.yaml").write_text("seed: 3\n")
    overrides = [*(small if is_esn else []), *(rank if is_esn else []), *settings]
    experiment = config_io.read(folder.parent / "small.yaml", overrides)
    config, vocab_size = experiment.model, tokenizer.vocab_size
    directory = RunDirectory(folder)
    folder.mkdir()
    with directory.begin():
        tokenizer.save(directory.tokenizer)
        frozen, record = config.initialize_frozen(vocab_size, experiment.seed)
        if frozen:
            checkpoint.save(directory.frozen, frozen, record)
        for step in steps:
            params = config.initialize(vocab_size, experiment.seed + step, frozen).params
            if "readout" in params:  # so large that the logits differ
                params["readout"] = jax.tree.map(lambda array: 4 * array, params["readout"])
            metadata = {"step": step} | ({"words": words_of[step], "permanent": True} if words_of else {})
            checkpoint.save(directory.checkpoints / str(step), {"params": params}, metadata)
        config_io.write(experiment, directory.config)
        directory.manifest.add(directory.config, directory.tokenizer)
    return folder


def logits_of(run, ids):
    """Returns the logits after each id, (T, V), as esnlm computes them."""
    ready = run.model.for_device(run.config.compute)
    read, readout = ready.reader(1, len(ids)), ready.readout_arrays(run.model.params)
    return np.concatenate([np.asarray(linear.logits(readout, read(np.array([i])), "float32")) for i in ids])
