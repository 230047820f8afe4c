"""A run of a study, the figures of a finished one, and whether it is the run that the study asks for."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.config import Experiment
from esnlm.errors import InputError
from esnlm.reporting import blimp_report
from esnlm.runs.directory import RunDirectory
from esnlm.training import settings

# Title and digits of each. All are in summary.json but blimp, the overall accuracy on minimal pairs in percent.
MEASURES = {
    "trainable_params": ("trained", 0),
    "total_params": ("all parameters", 0),
    "total_entries": ("all entries", 0),  # zeros of sparse matrices too
    "train_nll": ("train NLL", 3),
    "val_nll": ("val NLL", 3),
    "val_nll_without_eos": ("val NLL without EOS", 3),  # papers seldom say which of the two they give
    "val_bits_per_byte": ("bits/byte", 3),
    "perplexity": ("perplexity", 2),
    "blimp": ("minimal pairs, %", 1),
    "seconds": ("seconds", 0),
    "tokens_per_second": ("tokens/s", 0),
}
BASELINES = {"length": "length only", "unigram": "a unigram model of the training text"}  # of reports on minimal pairs


class Run(NamedTuple):
    """A run of a study."""

    cell: str
    experiment: Experiment
    base: Path  # its configuration file
    settings: list[str]  # `--key=value` beside the base, without run and seed

    @property
    def directory(self) -> Path:
        return Path(self.experiment.run)

    @property
    def name(self) -> str:
        return self.directory.name

    def commands(self, blimp: Path | None) -> list[list[str]]:
        """Returns the words after `esnlm` of the commands that train the run and score it."""
        own = [f"--run={self.directory}", f"--seed={self.experiment.seed}"]
        train = ["train", "--config", str(self.base), *self.settings, *own]
        score = ["blimp", "--run", str(self.directory), "--data", str(blimp), "--overwrite"]
        return [train] if blimp is None else [train, score]


def read_run(run: Run, pairs: str | None = None) -> dict[str, Any] | None:
    """Returns the figures of a run, with MEASURES as numbers or None; None if it is not finished.

    Args:
        pairs: digest of the minimal pairs that count; None: those that the run was scored on.
    """
    directory = RunDirectory(run.directory)
    summary = directory.read_summary()
    if summary is None:
        return None
    # float also reads "inf" and "nan", which are texts in JSON
    figures = {name: None if summary.get(name) is None else float(summary[name]) for name in MEASURES}
    if "regression" in summary or ("train_nll_of" in summary and summary["status"] != "diverged"):
        figures["train_nll"] = None  # not the mean over an epoch of Ueda et al. 2025a
    device, versions = summary["device"], summary["versions"]
    found = {
        "run": run.name,
        "seed": run.experiment.seed,
        "status": summary["status"],
        "origin": f"{device['kind']} x {device['count']}, {device['cores']} core{'s' * (device['cores'] != 1)}; "
        + ", ".join(f"{name} {versions[name]}" for name in ("esnlm", "jax", "numpy")),
        "words": summary.get("words"),
        "vocab_size": len(np.load(directory.unigram, mmap_mode="r")) if directory.unigram.exists() else None,
        "epochs": summary["epochs"],
        "learning_rate": getattr(run.experiment.training, "learning_rate", None),
        "data_sha256": summary.get("data_sha256"),
        "pairs_sha256": None,
    }
    file = directory.evaluation / "blimp-paper.json"
    report = blimp_report.read(file) if file.exists() else None
    if report and report["step"] == summary["step"] and pairs in (None, report["data"]["sha256"]):
        found["pairs_sha256"] = report["data"]["sha256"]
        figures["blimp"] = report["overall"]["accuracy"]  # None for a model that has collapsed
        for name in BASELINES:
            found[f"blimp_{name}"] = report["baselines"].get(name, {}).get("overall", {}).get("accuracy")
    return found | figures


def require_same(run: Run) -> None:
    """Raises InputError if the run was begun with other settings, or on other text, than the study has now."""
    directory, advice = RunDirectory(run.directory), "give the same, or another folder with --out"
    if directory.config.exists():
        free = [key for key in settings.MAY_CHANGE if "precision" not in key]
        settings.require_same(run.experiment, directory, free, advice)
        known = (directory.read_summary() or {}).get("data_sha256") or {}
        for part, sha256 in (run.experiment.data.text_sha256() or {}).items():
            if known.get(part, sha256) != sha256:
                raise InputError(f"{run.directory}: was begun with another {part} text than now; {advice}")
