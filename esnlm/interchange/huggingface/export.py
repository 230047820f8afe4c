"""Exports a run as a folder that transformers loads without esnlm (docs/export.md)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from esnlm.base.console import notice, spinner
from esnlm.base.errors import InputError
from esnlm.base.files import NewFolder, writing
from esnlm.base.remote import run_copy
from esnlm.base.versions import ESNLM
from esnlm.evaluation.evaluate import config_sha256
from esnlm.interchange.babylm import revision_names
from esnlm.interchange.huggingface.conversion import tensors_of, tokenizer_files
from esnlm.loaded_run import Run, Step, load
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io
from esnlm.training.config import as_dict

MODELING = Path(__file__).with_name("modeling_esnlm.py")
DEEP = Path(__file__).with_name("modeling_deep_readout.py")
CODE = {"esnlm": [MODELING], "esnlm_deep_readout": [MODELING, DEEP]}
WEIGHTS, CONFIG = "model.safetensors", "config.json"
# All that a folder may hold.
FILES = {
    *(CONFIG, WEIGHTS, MODELING.name, DEEP.name, "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "README.md"),
}
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


def export(run: str | Path, out: str | Path, step: Step = None, overwrite: bool = False) -> Run:
    """Writes the folder of one checkpoint, completely or not at all, and returns its run.

    `step` is as in `esnlm.load`. Raises InputError if the run cannot be loaded or exported, or
    `out` exists.
    """
    with _new_folder(Path(out), overwrite) as folder:
        loaded = _load(run, step)
        _warn_of_precision(loaded)
        _write(loaded, folder)
    return loaded


def export_checkpoints(run: str | Path, out: str | Path, overwrite: bool = False) -> dict[str, int]:
    """Writes a folder for each checkpoint kept for good, and `main` for the newest one.

    Returns the step of each folder by name. Names are those of BabyLM's branches, `chck_1M`, ...,
    or `step_N` for a checkpoint at none of BabyLM's counts.
    """
    with _new_folder(Path(out), overwrite) as folder:
        run = run_copy(run, every_step=True)
        newest = _load(run, None)
        words = checkpoint.words_by_step(RunDirectory(newest.directory).checkpoints, permanent=True)
        if not words:
            raise InputError(
                f"{newest.directory}: no kept checkpoints; only training.checkpoint_words keeps"
                " them"
            )
        _warn_of_precision(newest)
        steps = {name: step for step, name in revision_names(words).items()} | {"main": newest.step}
        for name, step in steps.items():
            (folder / name).mkdir()
            _write(newest if step == newest.step else _load(run, step), folder / name)
    return steps


def _load(run: str | Path, step: Step) -> Run:
    with spinner(f"loading {run}" if step is None else f"loading {run}, step {step}"):
        return load(run, step)


def _warn_of_precision(run: Run) -> None:
    """Warns if the export, in float32, differs from the run by more than rounding."""
    # Reads the settings as trained, since loading on a CPU replaces tf32 by float32.
    compute = config_io.read_begun(RunDirectory(run.directory).config).compute
    precisions = {"multiplies": compute.precision, "rounds its states": compute.state_precision}
    for verb, precision in precisions.items():
        if precision != "float32":
            notice(
                f"this run {verb} in {precision}, the export in float32: their log-probabilities"
                " differ"
            )


@contextmanager
def _new_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a hidden folder, which becomes `out` at the end of the block unless it raises."""
    files = [file for file in out.rglob("*") if file.is_file()]
    if files and not overwrite:
        raise InputError(
            f"{out}: exists; name another folder with --out, or replace it with --overwrite"
        )
    if strange := [file for file in files if file.name not in FILES]:
        raise InputError(
            f"{strange[0]}: not written by an export; name another folder with --out, or empty"
            " this one"
        )
    with writing(out), NewFolder(out) as new:
        yield new.path
        new.commit(replace=overwrite)


@spinner("writing the weights")
def _write(run: Run, folder: Path) -> None:
    """Writes the files of a run into an empty folder."""
    try:
        import safetensors
        import safetensors.numpy
        import tokenizers  # noqa: F401
    except ImportError:
        raise InputError(
            "exporting a model needs safetensors and tokenizers: pip install 'esnlm[hf]'"
        ) from None

    tokenizer = run.tokenizer
    tensors, config = tensors_of(run.model, tokenizer.vocab_size)
    code = CODE.get(config["model_type"], [])
    # The embedding of transformers' GPT-2 has no row for a padding token.
    special = {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos}
    special["pad_token_id"] = tokenizer.vocab_size if code else tokenizer.eos
    contents = {
        CONFIG: json.dumps(config | special, indent=2) + "\n",
        "generation_config.json": json.dumps(special, indent=2) + "\n",
        "README.md": card(run),
        **tokenizer_files(tokenizer, pad_is_eos=not code),
        **{file.name: file.read_text(encoding="utf-8") for file in code},
    }
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    try:
        safetensors.numpy.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:
        raise InputError(f"{WEIGHTS}: cannot be written: {error}") from None
    # safetensors makes its file readable for the owner only. Copy the permissions of the other
    # files.
    (folder / WEIGHTS).chmod((folder / CONFIG).stat().st_mode)


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
    rows = _describe_training(run, tree["data"]) | _scores(run)
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


def _describe_training(run: Run, data: dict[str, Any]) -> dict[str, Any]:
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
