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
from esnlm.runs.console import counted
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

## Training

{training}
{scores}## Settings

```yaml
{settings}```
"""
OWN_CODE = "The model's code is in the files `modeling_*.py` of this folder, which need torch and transformers only."
NO_CODE = "The model is transformers' own GPT-2."


def card(run: Run, own_code: bool) -> str:
    """Returns the model card of a run at a step: how to load it, its data, losses, scores and settings.

    The losses are those of the end of training, and absent for an earlier step. The scores are those of the reports in
    evaluation/ on this step.
    """
    directory = RunDirectory(run.directory)
    family, tree = run.config.model.family, as_dict(run.config)
    kind = "echo-state-network" if family in ("esn", "jaeger") else family
    head = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["esnlm", kind]}
    scores = _scores(run, directory)
    return CARD.format(
        head=yaml.safe_dump(head, sort_keys=False),
        name=run.name,
        title=run.config.model.title,
        version=ESNLM,
        step=run.step,
        trust=", trust_remote_code=True" if own_code else "",
        code=OWN_CODE if own_code else NO_CODE,
        training=_table(_training(run, directory, tree["data"])),
        scores=f"## Scores on minimal pairs\n\n{_table(scores)}\n" if scores else "",
        settings=yaml.safe_dump({key: tree[key] for key in ("seed", "data", "model", "training")}, sort_keys=False),
    )


def _table(rows: dict[str, Any]) -> str:
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items()), ""])


def _training(run: Run, directory: RunDirectory, data: dict[str, Any]) -> dict[str, Any]:
    summary = directory.read_summary() or {}
    at_end = summary if summary.get("step") == run.step else {}
    counts, parent = run.model.counts(), run.config.parent
    rows: dict[str, Any] = {
        "data": ", ".join(f"{name} {value}" for name, value in data.items() if value not in (None, ""))
    }
    if parent.run is not None:
        after = f"{Path(parent.run).name}, step {parent.step}; words and epochs are those since then"
        rows = {"goes on from": after} | rows
    sums = summary.get("data_sha256") or {}
    rows["sha256 of the data"] = ", ".join(f"{name} `{value}`" for name, value in sums.items())
    words = checkpoint.metadata(directory.checkpoints / str(run.step)).get("words")
    rows["words read"] = "" if words is None else f"{words:,}"
    rows["epochs"] = at_end.get("epochs", "")
    rows["parameters"] = f"{counts.trainable:,} trained of {counts.total:,}"
    rows["vocabulary"] = f"{run.tokenizer.vocab_size:,} ids, tokenizer {run.tokenizer.name}"
    over = f" over {at_end['train_nll_of']}" if "train_nll_of" in at_end else ""
    rows[f"training loss{over}, nats per token"] = _number(at_end.get("train_nll"))
    rows["validation loss, nats per token"] = _number(at_end.get("val_nll"))
    rows["validation, bits per byte"] = _number(at_end.get("val_bits_per_byte"))
    rows["status"] = at_end.get("status", "")
    return {name: value for name, value in rows.items() if value != ""}


def _number(value: Any) -> str:
    """Returns a number of the summary, where one that is not finite is a text."""
    return "" if value is None else f"{value:.4f}" if isinstance(value, int | float) else value


def _scores(run: Run, directory: RunDirectory) -> dict[str, str]:
    """Returns the accuracy in each report of this run at this step. Other files are passed over."""
    rows = {}
    for file in sorted(directory.evaluation.glob("*.json")):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            report = json.loads(file.read_bytes())
            if (report["step"], report["config_sha256"]) == (run.step, config_sha256(run)):
                data, overall = report["data"], report["overall"]
                what = f"{counted(data['paradigms'], 'paradigm')}, {counted(data['pairs'], 'pair')}"
                accuracy, interval = overall["accuracy"], overall["interval"]
                shown = report["status"] if accuracy is None else f"{accuracy:.2f} %"
                shown += f" (95 %: {interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
                rows[f"{file.stem}, scoring {report['scoring']['name']}, {what}"] = shown
    return rows
