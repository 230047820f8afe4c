"""The model card of an exported run: README.md, as the Hugging Face Hub shows it."""

import contextlib
import json
from pathlib import Path
from typing import Any

import yaml

from esnlm.config import as_dict
from esnlm.evaluation.evaluate import config_sha256
from esnlm.loaded_run import Run
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.versions import ESNLM

CARD = """---
{head}---

# {name}

{title}: a language model of esnlm {version}, after update {step:,}.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(FOLDER{trust}).eval()
tokenizer = AutoTokenizer.from_pretrained(FOLDER{trust})
```

The tokenizer puts `<|endoftext|>` first, as in training; with `add_special_tokens=False` it does not. Batches are padded on
the right. {code}

## Training and scores

| | |
| --- | --- |
{table}

## Settings

```yaml
{settings}```
"""
OWN_CODE = "The model's code is in the files `modeling_*.py` of this folder, which need torch and transformers only."
NO_CODE = "The model is transformers' own GPT-2."
# Entries of the summary, which tells how training ended.
AT_END = {
    "epochs": "epochs",
    "train_nll": "training loss, nats per token",
    "val_nll": "validation loss, nats per token",
    "val_bits_per_byte": "validation, bits per byte",
    "status": "status",
}


def card(run: Run, own_code: bool) -> str:
    """Returns the model card of a run at a step: how to load it, its data, losses, scores and settings.

    The losses are those of the end of training, and absent for an earlier step. The scores are those of the reports in
    evaluation/ on this step.
    """
    family, tree = run.config.model.family, as_dict(run.config)
    kind = "echo-state-network" if family in ("esn", "jaeger") else family
    head = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["esnlm", kind]}
    rows = _training(run, tree["data"]) | _scores(run)
    return CARD.format(
        head=yaml.safe_dump(head, sort_keys=False),
        name=run.name,
        title=run.config.model.title,
        version=ESNLM,
        step=run.step,
        trust=", trust_remote_code=True" if own_code else "",
        code=OWN_CODE if own_code else NO_CODE,
        table="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        settings=yaml.safe_dump({key: tree[key] for key in ("seed", "data", "model", "training")}, sort_keys=False),
    )


def _training(run: Run, data: dict[str, Any]) -> dict[str, str]:
    directory, counts, parent = RunDirectory(run.directory), run.model.counts(), run.config.parent
    summary = directory.read_summary() or {}
    rows = {"data": ", ".join(f"{name} {value}" for name, value in data.items() if value not in (None, ""))}
    if parent.run is not None:
        rows["goes on from"] = f"{Path(parent.run).name}, step {parent.step}; words and epochs are those since then"
    for part, digest in (summary.get("data_sha256") or {}).items():
        rows[f"sha256, {part}"] = f"`{digest}`"
    rows["parameters"] = f"{counts.trainable:,} trained of {counts.total:,}"
    rows["vocabulary"] = f"{run.tokenizer.vocab_size:,} ids, tokenizer {run.tokenizer.name}"
    if (words := checkpoint.metadata(directory.checkpoints / str(run.step)).get("words")) is not None:
        rows["words read"] = f"{words:,}"
    if summary.get("step") == run.step:
        known = {title: summary[key] for key, title in AT_END.items() if summary.get(key) is not None}
        rows |= {title: f"{value:.4f}" if isinstance(value, float) else str(value) for title, value in known.items()}
    return rows


def _scores(run: Run) -> dict[str, str]:
    """Returns the accuracy in each report of this run at this step. Other files are passed over."""
    rows = {}
    for file in sorted(RunDirectory(run.directory).evaluation.glob("*.json")):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            report = json.loads(file.read_bytes())
            if (report["step"], report["config_sha256"]) == (run.step, config_sha256(run)):
                accuracy, interval = report["overall"]["accuracy"], report["overall"]["interval"]
                shown = report["status"] if accuracy is None else f"{accuracy:.2f} %"
                shown += f" (95 %: {interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
                rows[f"{file.stem}, scoring {report['scoring']['name']}, {report['data']['pairs']:,} pairs"] = shown
    return rows
