"""Weights & Biases, online or offline, as its own environment variables say."""

import json
import os
import secrets
from typing import Any

from esnlm.io.console import tell
from esnlm.io.json_file import write_json
from esnlm.runs.directory import RunDirectory
from esnlm.runs.trackers import numbers

UPLOAD_SECONDS = 60  # for what is left to upload when the run ends; `wandb sync` uploads the rest


class WandbTracker:
    """Sends the settings, every figure by update, and the summary; nothing else.

    W&B's own variables (WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE, WANDB_DIR, WANDB_NAME, WANDB_RUN_ID) are respected.
    Otherwise the run has the name of the run directory, and an id that is kept there: a resumed run goes on in the same
    run of W&B, which ignores a step that it has already.
    """

    def __init__(self, directory: RunDirectory, settings: dict[str, Any], step: int) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'esnlm[wandb]'") from None
        # W&B would ask for a key at the terminal, and the training wait for an answer.
        mode = wandb.setup(wandb.Settings(silent=True)).settings.mode
        if mode not in ("offline", "disabled", "dryrun") and not wandb.login(prompt=False, verify=False):
            raise PermissionError("no API key; run `wandb login` first, or set WANDB_MODE=offline")
        self._is_complete = False
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "esnlm"),
            name=os.environ.get("WANDB_NAME", directory.path.resolve().name),
            id=_run_id(directory),
            dir=os.environ.get("WANDB_DIR", directory.path),
            resume="allow",
            reinit="create_new",  # One that failed before in this process, as in a study, is another run.
            config=settings,
            allow_val_change=True,  # as where the run directory has moved
            settings=wandb.Settings(
                silent=True,
                console="off",
                # No code, no patch of the repository, no list of packages, no name, description or load of the machine.
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
    """Returns the id that the run has in W&B, and keeps it in the run directory."""
    if directory.wandb_id.exists():
        return json.loads(directory.wandb_id.read_text())["id"]
    run_id = os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
    write_json(directory.wandb_id, {"id": run_id})
    return run_id
