"""Makes a run directory from a GPT-2 that was trained elsewhere."""

from pathlib import Path

from esnlm.base.errors import InputError
from esnlm.base.files import NewFolder, write_json
from esnlm.data.sources import ImportedData
from esnlm.machine.compute import backend, in_float32
from esnlm.models.devices import Machine
from esnlm.models.huggingface import read_gpt2
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import Experiment, hash_settings, resolved
from esnlm.training.summary import describe_device, versions


@in_float32
def import_gpt2(folder: Path, out: Path) -> Experiment:
    """Writes the run directory `out` from a Hugging Face folder, completely or not at all, and
    returns its experiment.

    Raises:
        InputError: the folder cannot be read as a GPT-2, or `out` exists.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists; name another run directory with --out")
    config, model, tokenizer = read_gpt2(folder)
    asked = Experiment(run=str(out), data=ImportedData(source=folder.resolve().name), model=config)
    experiment = resolved(asked, Machine(backend()))
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
        "config_sha256": hash_settings(experiment, with_seed=True),
    }
    try:
        with NewFolder(out) as new:
            directory = RunDirectory(new.path)
            with directory.begin():
                tokenizer.save(directory.tokenizer)
                checkpoint.save(directory.checkpoints / "0", {"params": model.params}, {"step": 0})
                config_io.write(experiment, directory.config)
                write_json(directory.summary, summary)
                directory.manifest.add(*directory.initial_files, directory.summary)
            new.commit()
    except OSError as error:
        raise InputError(
            f"{out}: cannot write the run directory: {error.strerror}; choose another with --out"
        ) from None
    return experiment
