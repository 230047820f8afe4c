"""Writes the model card of an exported run: README.md for the Hugging Face Hub."""

import json
from pathlib import Path
from typing import Any

import yaml

from esnlm.base.versions import ESNLM
from esnlm.evaluation.evaluate import config_sha256
from esnlm.loaded_run import Run
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training.config import as_dict

CARD = """---
{head}---

# {name}

{title}: a language model of esnlm {version}, after update {step:,}.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True).eval()
tokenizer = AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)
```

The tokenizer adds `<|endoftext|>` at the beginning, as in training, unless
`add_special_tokens=False`. Batches are padded on the right. Except for transformers' own GPT-2, the
model's code is in the files `modeling_*.py` of this folder.

## Training and scores

| | |
| --- | --- |
{table}

## Settings

```yaml
{settings}```
"""
# Figures of the summary, which are those of the last step only.
AT_END = ("epochs", "train_nll", "val_nll", "val_bits_per_byte", "status")


def card(run: Run) -> str:
    """Returns the model card of a run at a step.

    Losses are from the end of training, and absent for earlier steps. Scores are from this step's
    reports in evaluation/.
    """
    family, tree = run.config.model.family, as_dict(run.config)
    kind = "echo-state-network" if family in ("esn", "jaeger") else family
    head = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["esnlm", kind],
    }
    rows = _training(run, tree["data"]) | _scores(run)
    return CARD.format(
        head=yaml.safe_dump(head, sort_keys=False),
        name=run.name,
        title=run.config.model.title,
        version=ESNLM,
        step=run.step,
        table="\n".join(
            f"| {name} | {value} |" for name, value in rows.items() if value is not None
        ),
        settings=yaml.safe_dump(
            {key: tree[key] for key in ("seed", "data", "model", "training")}, sort_keys=False
        ),
    )


def _training(run: Run, data: dict[str, Any]) -> dict[str, Any]:
    directory, counts, parent = RunDirectory(run.directory), run.model.counts(), run.config.parent
    summary = directory.read_summary() or {}
    rows: dict[str, Any] = {
        "data": ", ".join(f"{name} {value}" for name, value in data.items() if value)
    }
    if parent.run is not None:
        rows["continues"] = (
            f"{Path(parent.run).name}, step {parent.step}; words and epochs are counted since then"
        )
    rows |= {
        f"sha256, {part}": digest for part, digest in (summary.get("data_sha256") or {}).items()
    }
    rows["parameters"] = f"{counts.trainable:,} trained of {counts.total:,}"
    rows["vocabulary"] = f"{run.tokenizer.vocab_size:,} ids, tokenizer {run.tokenizer.name}"
    rows["words read"] = checkpoint.metadata(directory.checkpoints / str(run.step)).get("words")
    if summary.get("step") == run.step:
        rows |= {name: summary.get(name) for name in AT_END}
    return rows


def _scores(run: Run) -> dict[str, Any]:
    """Returns the accuracies from this run's reports at this step."""
    rows = {}
    for file in sorted(RunDirectory(run.directory).evaluation.glob("blimp-*.json")):
        report = json.loads(file.read_bytes())
        if (report["step"], report["config_sha256"]) == (run.step, config_sha256(run)):
            accuracy = report["overall"]["accuracy"]
            rows[f"{file.stem}, {report['data']['pairs']:,} pairs"] = (
                None if accuracy is None else f"{accuracy:.2f} %"
            )
    return rows
