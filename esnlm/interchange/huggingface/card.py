"""The model card of an exported run: README.md, as the Hugging Face Hub shows it."""

import contextlib
from pathlib import Path
from typing import Any

import yaml

from esnlm.config import Experiment, as_dict
from esnlm.evaluation.evaluate import FORMAT, config_sha256
from esnlm.io.console import counted
from esnlm.io.json_file import parse_json, seal
from esnlm.loaded_run import Run
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.versions import ESNLM

USE = """
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(FOLDER{trust}).eval()
tokenizer = AutoTokenizer.from_pretrained(FOLDER{trust})
```

The tokenizer puts `<|endoftext|>` first, as in training; with `add_special_tokens=False` it does not. Batches are padded on
the right. {code}
"""
OWN_CODE = (
    "The code of the model is in the files `modeling_*.py` of this folder, which need torch and transformers only."
)
NO_CODE = "The model is transformers' own GPT-2."


def card(run: Run, family: str) -> str:
    """Returns the model card of a run at a step: how to load it, its data, its losses, its scores and its settings.

    Losses are those of the end of training, and are left out of the card of an earlier step. Scores are those of the reports
    in evaluation/ that were made of this step.
    """
    directory = RunDirectory(run.directory)
    summary = directory.read_summary() or {}
    words = checkpoint.metadata(directory.checkpoints / str(run.step)).get("words")
    kind = {"esn": "echo-state-network", "jaeger": "echo-state-network"}.get(family, family)
    head = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["esnlm", kind]}
    own = family != "gpt2"
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n",
        f"# {run.name}\n",
        f"{run.config.model.title}: a language model of esnlm {ESNLM}, after update {run.step:,}.",
        USE.format(trust=", trust_remote_code=True" if own else "", code=OWN_CODE if own else NO_CODE),
        *_section("Training", _training(run, summary, words)),
        *_section("Scores on minimal pairs", _scores(directory, run)),
        "## Settings\n",
        f"```yaml\n{yaml.safe_dump(_settings(run.config), sort_keys=False)}```",
    ]
    return "\n".join(parts) + "\n"


def _section(title: str, rows: list[tuple[str, str]]) -> list[str]:
    """Returns the lines of a section with a table, or none where there is nothing to say."""
    if not rows:
        return []
    return [f"## {title}\n", "| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows), ""]


def _training(run: Run, summary: dict[str, Any], words: int | None) -> list[tuple[str, str]]:
    data = as_dict(run.config)["data"]
    of_end = summary if summary.get("step") == run.step else {}
    counts = run.model.counts()
    of_what = f" over {of_end['train_nll_of']}" if "train_nll_of" in of_end else ""
    parent = run.config.parent
    before = (
        None
        if parent.run is None
        else f"{Path(parent.run).name}, step {parent.step}; words and epochs are those since then"
    )
    shown: list[tuple[str, str | None]] = [
        ("goes on from", before),
        ("data", ", ".join(f"{name} {value}" for name, value in data.items() if value not in (None, ""))),
        ("sha256 of the data", _pairs(summary.get("data_sha256"))),
        ("words read", None if words is None else f"{words:,}"),
        ("epochs", _number(of_end.get("epochs"), ",")),
        ("parameters", f"{counts.trainable:,} trained of {counts.total:,}"),
        ("vocabulary", f"{run.tokenizer.vocab_size:,} ids, tokenizer {run.tokenizer.name}"),
        (f"training loss{of_what}, nats per token", _number(of_end.get("train_nll"), ".4f")),
        ("validation loss, nats per token", _number(of_end.get("val_nll"), ".4f")),
        ("validation, bits per byte", _number(of_end.get("val_bits_per_byte"), ".4f")),
        ("status", of_end.get("status")),
    ]
    return [(name, value) for name, value in shown if value]


def _scores(directory: RunDirectory, run: Run) -> list[tuple[str, str]]:
    """Returns the accuracy of each intact report of this run at this step."""
    found = []
    for file in sorted(directory.evaluation.glob("*.json")):
        report = _read_report(file)
        with contextlib.suppress(KeyError, TypeError, ValueError):  # what is no such report is passed over
            if (report["step"], report["config_sha256"]) == (run.step, config_sha256(run)):
                data = report["data"]
                what = f"{counted(data['paradigms'], 'paradigm')}, {counted(data['pairs'], 'pair')}"
                found.append((f"{file.stem}, scoring {report['scoring']['name']}, {what}", _accuracy(report)))
    return found


def _accuracy(report: dict[str, Any]) -> str:
    """Returns the accuracy with its interval, or why there is none."""
    accuracy, interval = report["overall"]["accuracy"], report["overall"]["interval"]
    if accuracy is None:
        return report["status"]
    return f"{accuracy:.2f} %" + (f" (95 %: {interval[0]:.2f} to {interval[1]:.2f})" if interval else "")


def _read_report(file: Path) -> dict[str, Any]:
    """Returns the content of a report on minimal pairs, or {} where it is none or not as it was written."""
    try:
        report = parse_json(file.read_bytes())
    except (OSError, ValueError):
        return {}
    is_report = isinstance(report, dict) and report.get("format") == FORMAT and report.get("sha256") == seal(report)
    return report if is_report else {}


def _settings(experiment: Experiment) -> dict[str, Any]:
    tree = as_dict(experiment)
    return {name: tree[name] for name in ("seed", "data", "model", "training")}


def _pairs(values: Any) -> str | None:
    return None if not isinstance(values, dict) else ", ".join(f"{name} `{value}`" for name, value in values.items())


def _number(value: Any, form: str) -> str | None:
    """Returns a number of a summary as a text. In a summary, one that is not finite is a text already."""
    return format(value, form) if isinstance(value, int | float) else value
