"""Exports a run as a folder that transformers loads without esnlm (docs/export.md)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esnlm.base.console import notice, spinner
from esnlm.base.errors import InputError
from esnlm.base.files import NewFolder, writing
from esnlm.base.remote import run_copy
from esnlm.interchange.huggingface.card import card
from esnlm.interchange.huggingface.tensors import tensors_of
from esnlm.interchange.huggingface.tokenizer import tokenizer_files
from esnlm.interchange.revisions import revision_names, words_of_checkpoints
from esnlm.loaded_run import Run, Step, load
from esnlm.runs.directory import RunDirectory
from esnlm.training import config_io

MODELING = Path(__file__).with_name("modeling_esnlm.py")
DEEP = Path(__file__).with_name("modeling_deep_readout.py")
CODE = {"esnlm": [MODELING], "esnlm_deep_readout": [MODELING, DEEP]}
WEIGHTS, CONFIG = "model.safetensors", "config.json"
# All that a folder may hold.
FILES = {
    *(CONFIG, WEIGHTS, MODELING.name, DEEP.name, "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "README.md"),
}


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
        words = words_of_checkpoints(RunDirectory(newest.directory), permanent=True)
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
