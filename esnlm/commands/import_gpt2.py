"""Imports a GPT-2 in Hugging Face's format as a run."""

import argparse
from pathlib import Path

from esnlm.base.console import spinner
from esnlm.base.errors import InputError
from esnlm.base.files import NewFolder, write_json, writing
from esnlm.commands.arguments import Argument, local_path

ARGUMENTS = [
    Argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="folder with config.json, model.safetensors and the tokenizer's files",
    ),
    Argument(
        "--out", type=local_path, metavar="DIR", required=True, help="run directory to create"
    ),
]


def run(args: argparse.Namespace) -> None:
    """Writes the run directory, completely or not at all."""
    from esnlm.base.versions import versions
    from esnlm.data.sources import ImportedData
    from esnlm.machine.compute import backend, describe_device
    from esnlm.models.devices import Machine
    from esnlm.models.huggingface import read_gpt2
    from esnlm.runs import checkpoint
    from esnlm.runs.directory import RunDirectory
    from esnlm.training import config_io
    from esnlm.training.config import Experiment, hash_settings, resolved

    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise InputError(f"{args.out}: exists; name another run directory with --out")
    source = args.folder.resolve().name
    with spinner(f"importing {args.folder}"):
        config, model, tokenizer = read_gpt2(args.folder)
        experiment = Experiment(run=str(args.out), data=ImportedData(source=source), model=config)
        experiment = resolved(experiment, Machine(backend()))
        counts = model.counts()
        summary = {
            "status": "finished",
            "step": 0,
            "imported": source,
            "trainable_params": counts.trainable,
            "total_params": counts.total,
            "total_entries": counts.entries,
            "precision": experiment.compute.precision,
            "versions": versions(),
            "device": describe_device(),
            "config_sha256": hash_settings(experiment, with_seed=True),
        }
        with writing(args.out), NewFolder(args.out) as new:
            directory = RunDirectory(new.path)
            with directory.begin():
                tokenizer.save(directory.tokenizer)
                checkpoint.save(directory.checkpoints / "0", {"params": model.params}, {"step": 0})
                config_io.write(experiment, directory.config)
                write_json(directory.summary, summary)
                directory.manifest.add(*directory.initial_files, directory.summary)
            new.commit()
    print(f"{config.title} is in {args.out}")
