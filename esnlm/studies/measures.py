"""The runs of a study: their commands, their figures, and the check that their settings match the
study."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.models.devices import find_machine
from esnlm.reports import blimp_report, run_table
from esnlm.reports.run_groups import machine
from esnlm.reports.run_table import FIGURES
from esnlm.runs.directory import RunDirectory
from esnlm.training import settings
from esnlm.training.config import Experiment

# Title and digits of each. All come from summary.json except blimp, the overall accuracy on minimal
# pairs in percent.
OF_SUMMARY = (
    *(
        "trainable_params",
        "total_params",
        "total_entries",
        "train_nll",
        "val_nll",
        "val_nll_without_eos",
    ),
    *("val_bits_per_byte", "perplexity", "seconds", "tokens_per_second"),
)
MEASURES = {name: FIGURES[name] for name in OF_SUMMARY} | {"blimp": ("minimal pairs, %", 1)}
# in reports on minimal pairs
BASELINES = {"length": "length only", "unigram": "a unigram model of the training text"}


class Run(NamedTuple):
    """A run of a study."""

    cell: str
    experiment: Experiment
    base: Path  # its configuration file
    settings: list[str]  # `--key=value` in addition to the base, without run and seed

    @property
    def directory(self) -> Path:
        return Path(self.experiment.run)

    @property
    def name(self) -> str:
        return self.directory.name

    def commands(self, blimp: Path | None) -> list[list[str]]:
        """Returns the arguments of `esnlm` to train the run and to score it."""
        own = [f"--run={self.directory}", f"--seed={self.experiment.seed}"]
        train = ["train", "--config", str(self.base), *self.settings, *own]
        score = ["blimp", "--run", str(self.directory), "--data", str(blimp), "--overwrite"]
        return [train] if blimp is None else [train, score]


def read_run(run: Run, pairs: str | None = None) -> dict[str, Any] | None:
    """Returns the figures of a run, with MEASURES as numbers or None; None if it is not finished.

    Args:
        pairs: digest of the minimal pairs to require; None: any pairs.
    """
    directory = RunDirectory(run.directory)
    summary = directory.read_summary()
    if summary is None:
        return None
    known = run_table.figures(summary)
    found: dict[str, Any] = {name: known.get(name) for name in MEASURES}
    if "train_nll_of" in summary and summary["status"] != "diverged":
        found["train_nll"] = None  # not the epoch mean of Ueda et al. 2025a
    versions = ", ".join(
        f"{name} {summary['versions'][name]}" for name in ("esnlm", "jax", "numpy")
    )
    found |= {
        "run": run.name,
        "seed": run.experiment.seed,
        "status": summary["status"],
        "origin": f"{machine(summary['device'])}; {versions}",
        "words": summary.get("words"),
        "vocab_size": len(np.load(directory.unigram, mmap_mode="r"))
        if directory.unigram.exists()
        else None,
        "epochs": summary["epochs"],
        "learning_rate": getattr(run.experiment.training, "learning_rate", None),
        "data_sha256": summary.get("data_sha256"),
        "pairs_sha256": None,
    }
    file = directory.evaluation / "blimp-paper.json"
    report = blimp_report.read(file) if file.exists() else None
    if report and report["step"] == summary["step"] and pairs in (None, report["data"]["sha256"]):
        found["pairs_sha256"] = report["data"]["sha256"]
        found["blimp"] = report["overall"]["accuracy"]  # None if the model has collapsed
        for name in BASELINES:
            found[f"blimp_{name}"] = (
                report["baselines"].get(name, {}).get("overall", {}).get("accuracy")
            )
    return found


def require_same(run: Run) -> None:
    """Raises InputError if the run was begun with other settings, or on other text, than the
    study's."""
    directory, advice = RunDirectory(run.directory), "give the same, or another folder with --out"
    if directory.config.exists():
        free = [key for key in settings.MAY_CHANGE if "precision" not in key]
        machine = find_machine(run.experiment.model, run.experiment.compute)
        settings.check_same(run.experiment, machine, directory, free, advice)
        known = (directory.read_summary() or {}).get("data_sha256") or {}
        for part, sha256 in (run.experiment.data.text_sha256() or {}).items():
            if known.get(part, sha256) != sha256:
                raise InputError(f"{run.directory}: was begun with another {part} text; {advice}")
