"""Logs to Weights & Biases, online or offline according to its environment variables."""

import json
import os
import secrets
from typing import Any

from esnlm.io.console import tell
from esnlm.io.json_file import write_json
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import numbers

UPLOAD_SECONDS = 60  # to finish uploading at the end of the run; `wandb sync` uploads the rest


class WandbTracker:
    """Logs only the settings, all metrics by update, and the summary.

    W&B's variables (WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE, WANDB_DIR, WANDB_NAME, WANDB_RUN_ID)
    take precedence. By default, the W&B run has the name of the run directory and an id stored
    there: a resumed run continues the same W&B run, which ignores steps that it already has.
    """

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'esnlm[wandb]'") from None
        # W&B would ask for a key at the terminal and block training.
        mode = wandb.setup(wandb.Settings(silent=True)).settings.mode
        if mode not in ("offline", "disabled", "dryrun") and not wandb.login(
            prompt=False, verify=False
        ):
            raise PermissionError("no API key; run `wandb login` first, or set WANDB_MODE=offline")
        self._is_complete = False
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "esnlm"),
            name=os.environ.get("WANDB_NAME", directory.path.resolve().name),
            id=_run_id(directory),
            dir=os.environ.get("WANDB_DIR", directory.path),
            resume="allow",
            # an earlier failed run in this process, as in a study, stays separate
            reinit="create_new",
            config=settings,
            allow_val_change=True,  # the run directory may have moved
            settings=wandb.Settings(
                silent=True,
                console="off",
                # Sends no code, repository patch, package list, machine name, machine description
                # or system load.
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                host=os.environ.get("WANDB_HOST", ""),
                x_save_requirements=False,
                x_disable_meta=True,
                x_disable_machine_info=True,
                x_disable_stats=True,
                finish_timeout=float(os.environ.get("WANDB_FINISH_TIMEOUT", UPLOAD_SECONDS)),
                finish_timeout_raises=True,
            ),
        )
        if mode in ("offline", "dryrun"):
            tell(f"W&B is offline; this uploads the run: wandb sync {self._run.settings.sync_dir}")

    def log(self, step: int, values: dict[str, Any]) -> None:
        self._run.log(numbers(values), step=step)

    def summary(self, values: dict[str, Any]) -> None:
        self._run.summary.update(values)
        self._is_complete = True

    def finish(self) -> None:
        self._run.finish(exit_code=0 if self._is_complete else 1)


def _run_id(directory: RunDirectory) -> str:
    """Returns the run's id in W&B, and stores it in the run directory."""
    if directory.wandb_id.exists():
        return json.loads(directory.wandb_id.read_text("utf-8"))["id"]
    run_id = os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
    write_json(directory.wandb_id, {"id": run_id})
    return run_id
