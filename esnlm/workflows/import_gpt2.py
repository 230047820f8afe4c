"""A run directory made of a model that was trained elsewhere."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import jax

from esnlm import config as configuration
from esnlm.compute import choose_compute
from esnlm.config import Experiment, ImportedData
from esnlm.errors import InputError
from esnlm.models.huggingface import read_gpt2
from esnlm.runs import checkpoint
from esnlm.runs.atomic import write_atomically
from esnlm.runs.directory import RunDirectory
from esnlm.training.summary import describe_device, hash_config, versions


def import_gpt2(folder: Path, out: Path) -> Experiment:
    """Writes the run directory `out`, whole or not at all, from a Hugging Face folder (models/huggingface.py).

    Raises:
        InputError: the folder cannot be read as a GPT-2, or `out` exists.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists; name another run directory with --out")
    config, model, tokenizer = read_gpt2(folder)
    experiment = Experiment(run=str(out), data=ImportedData(source=folder.resolve().name), model=config)
    experiment = dataclasses.replace(
        experiment, compute=choose_compute(experiment.compute, experiment.model, jax.default_backend())
    )
    counts = model.counts()
    summary = {
        "status": "finished",
        "step": 0,
        "imported": folder.resolve().name,
        "trainable_params": counts.trainable,
        "total_params": counts.total,
        "total_entries": counts.entries,
        "precision": experiment.compute.precision,
        "versions": versions(),
        "device": describe_device(),
        "config_sha256": hash_config(experiment),
    }
    partial = RunDirectory(out.with_name(f".{out.name}.partial-{os.getpid()}"))
    try:
        partial.path.mkdir(parents=True)
        tokenizer.save(partial.tokenizer)
        checkpoint.save(partial.checkpoints / "0", {"params": model.params}, {"step": 0})
        configuration.write(experiment, partial.config)
        write_atomically(partial.summary, json.dumps(summary, indent=1) + "\n")
        partial.update_manifest(*partial.fixed_files, partial.summary)
        if out.exists():
            out.rmdir()
        partial.path.rename(out)
    except OSError as error:
        raise InputError(
            f"{out}: cannot write the run directory: {error.strerror}; choose another with --out"
        ) from None
    finally:
        shutil.rmtree(partial.path, ignore_errors=True)
    return experiment
