"""Writes a run as a folder that transformers loads, also where esnlm is not installed.

config.json               the settings, and which classes of the files below read them
generation_config.json    the ids of special tokens
model.safetensors         every weight, the frozen ones of the reservoir too
modeling_esnlm.py         the model in PyTorch; not of a GPT-2, which transformers has
modeling_deep_readout.py  of a deep readout, which needs both
tokenizer.json, tokenizer_config.json
README.md                 the model card
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esnlm import config_io
from esnlm.errors import InputError, require
from esnlm.interchange.huggingface.card import card
from esnlm.interchange.huggingface.tensors import tensors_of
from esnlm.interchange.huggingface.tokenizer import tokenizer_files
from esnlm.interchange.revisions import remarks, revision_name, words_of_checkpoints
from esnlm.io.atomic import NewFolder
from esnlm.io.console import tell, working
from esnlm.io.remote import run_copy
from esnlm.loaded_run import Run, Step, load
from esnlm.runs import checkpoint
from esnlm.runs.directory import RunDirectory

MODELING = Path(__file__).with_name("modeling_esnlm.py")
DEEP = Path(__file__).with_name("modeling_deep_readout.py")
WEIGHTS, CONFIG = "model.safetensors", "config.json"
FILES = {
    CONFIG,
    WEIGHTS,
    MODELING.name,
    DEEP.name,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "README.md",
}
LAST = "main"  # the name of the newest checkpoint beside those at word counts, as of a repository's branch


def export(run: str | Path, out: str | Path, step: Step = None, overwrite: bool = False) -> Run:
    """Writes the folder of one checkpoint, whole or not at all, and returns the run that it was made of.

    Args:
        run: the run directory.
        out: the folder to make.
        step: the checkpoint; None: the newest that verifies.
        overwrite: whether to replace an earlier export.

    Raises:
        InputError: the run cannot be loaded or exported, or `out` is taken.
    """
    _require_packages()
    out = Path(out)
    _require_free(out, overwrite)
    with working(f"loading {run}"):
        loaded = load(run, step)
    _tell_of_precision(loaded)
    with _new_folder(out, overwrite) as folder:
        _write(loaded, folder)
    return loaded


def export_all(run: str | Path, out: str | Path, overwrite: bool = False) -> dict[str, int]:
    """Writes a folder for each checkpoint that was kept for good, named as BabyLM names branches, and one for the newest.

    Returns:
        The step of each folder, by its name: `chck_1M`, ..., or `step_N` where a checkpoint is at none of BabyLM's word
        counts, and `main` for the newest.

    Raises:
        InputError: the run cannot be loaded or exported, no checkpoint was kept for good, or `out` is taken.
    """
    _require_packages()
    out = Path(out)
    _require_free(out, overwrite)
    run = run_copy(run, every_step=True)
    with working(f"loading {run}"):
        newest = load(run)
    directory = RunDirectory(newest.directory)
    words = {step: read for step, read in words_of_checkpoints(directory).items() if _is_permanent(directory, step)}
    require(
        bool(words),
        f"{directory.checkpoints}: no checkpoint was kept for good, as training.checkpoint_words asks for; leave"
        " --all-checkpoints out to export the newest one",
    )
    _tell_of_precision(newest)
    for line in remarks(newest, words):
        tell(line)
    found = {}
    with _new_folder(out, overwrite) as folder:
        for name, step in ({revision_name(step, words): step for step in sorted(words)} | {LAST: newest.step}).items():
            (folder / name).mkdir()
            its_run = newest
            if step != newest.step:
                with working(f"loading {run}, step {step}"):
                    its_run = load(run, step)
            _write(its_run, folder / name)
            found[name] = step
    return found


def _tell_of_precision(run: Run) -> None:
    """Says where the exported model, which computes in float32, is not the run to the last digits that count."""
    # Of the configuration, since a CPU, which has no tf32, takes float32 in its place.
    trained = config_io.read_begun(RunDirectory(run.directory).config).compute
    if trained.state_precision != "float32":
        tell("this run rounds its states to bf16, and the export does not: their log-probabilities differ by that")
    if trained.precision != "float32":
        tell(
            f"this run multiplies in {trained.precision}, and the export in float32: their log-probabilities differ by that"
        )


@contextmanager
def _new_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a hidden folder that takes the name `out` at the end of the block, unless the block is left by an error."""
    try:
        with NewFolder(out) as new:
            yield new.path
            new.commit(replace=overwrite)
    except OSError as error:
        raise InputError(f"{out}: cannot write the folder: {error.strerror}; choose another with --out") from None


@working("writing the weights")
def _write(run: Run, folder: Path) -> None:
    """Writes the files of a run into an empty folder."""
    import safetensors
    import safetensors.numpy

    tokenizer, family = run.tokenizer, run.config.model.family
    tensors, config = tensors_of(run.model, tokenizer.vocab_size)
    checkpoint.require_free_space(folder, sum(array.nbytes for array in tensors.values()))
    code = {"esnlm": [MODELING], "esnlm_deep_readout": [MODELING, DEEP]}.get(config["model_type"], [])
    is_own = bool(code)
    special = {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos}
    # A table of transformers' GPT-2 has no row for a token that pads.
    special["pad_token_id"] = tokenizer.vocab_size if is_own else tokenizer.eos
    contents: dict[str, str] = {
        CONFIG: _json(config | special),
        "generation_config.json": _json(special),
        "README.md": card(run, family),
        **tokenizer_files(tokenizer, pad_is_eos=not is_own),
    }
    contents |= {file.name: file.read_text(encoding="utf-8") for file in code}
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    try:
        safetensors.numpy.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        # safetensors lets nobody but the owner read its file. The weights may be read by whoever may read the rest.
        (folder / WEIGHTS).chmod((folder / CONFIG).stat().st_mode)
    except safetensors.SafetensorError as error:
        raise InputError(f"{folder / WEIGHTS}: cannot be written: {error}; choose another folder with --out") from None


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _require_packages() -> None:
    try:
        import safetensors.numpy  # noqa: F401
        import tokenizers  # noqa: F401
    except ImportError:
        raise InputError("exporting a model needs safetensors and tokenizers: pip install 'esnlm[hf]'") from None


def _require_free(out: Path, overwrite: bool) -> None:
    """Raises an InputError where the folder is taken, or holds anything that no export wrote."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    require(overwrite, f"{out}: exists; name another folder with --out, or ask to overwrite it (--overwrite)")
    require(out.is_dir(), f"{out}: is no folder; name another with --out")
    folders = [out] if (out / CONFIG).exists() else sorted(out.iterdir())
    for folder in folders:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        strange = sorted(names - FILES) or ([] if CONFIG in names else [folder.name])
        require(
            not strange,
            f"{out}: holds {strange[0] if strange else ''}, which no export wrote; name another folder with --out, or empty"
            " this one",
        )


def _is_permanent(directory: RunDirectory, step: int) -> bool:
    return bool(checkpoint.metadata(directory.checkpoints / str(step)).get("permanent"))
