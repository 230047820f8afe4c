"""`esnlm likelihood`, from the run directory to the table and the JSON file."""

import os
from collections.abc import Sequence
from pathlib import Path

from esnlm import loaded_run
from esnlm.data.encode import encode_file
from esnlm.data.store import TokenStore, open_store
from esnlm.errors import InputError
from esnlm.evaluation.evaluate import config_sha256
from esnlm.evaluation.likelihood import Likelihood, of_ngrams
from esnlm.io.atomic import require_writable
from esnlm.io.console import stage, working
from esnlm.io.json_file import write_json
from esnlm.io.remote import full_name
from esnlm.loaded_run import Run, Step
from esnlm.models.ngrams import NgramModel
from esnlm.reporting import likelihood_table
from esnlm.training.summary import describe_device, versions

FORMAT = {"format": "esnlm likelihood", "format_version": 1}
FIGURES = ("nll", "nll_without_eos", "bits_per_byte", "nats_per_word", "perplexity", "nats", "eos_nats")
COUNTS = ("sentences", "tokens", "words", "bytes")
UNITS = (
    "nll and nll_without_eos: nats per predicted token; nats and eos_nats: sums over the text; tokens: those that are predicted,"
    " EOS among them and BOS not; words: between white space; bytes: of the sentences in UTF-8, without EOS"
)


def measure_run(
    run: str | Path,
    stores: Sequence[Path] = (),
    texts: Sequence[Path] = (),
    step: Step = None,
    untrained: bool = False,
    out: Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
) -> dict:
    """Measures texts with a run and prints a table. All input is checked before anything is measured.

    Args:
        run: the run directory.
        stores: token stores made with the run's tokenizer.
        texts: text files of one sentence a line.
        step: the checkpoint of this step; None: the newest.
        untrained: whether to measure the model as it was before its first update.
        out: a JSON file for the figures.
        overwrite: whether to replace it where it exists.
        command: what the JSON file names as its origin.

    Returns:
        The figures, as the JSON file has them.

    Raises:
        InputError: the run, a text or the place of the JSON file is not usable.
    """
    if not stores and not texts:
        raise InputError("nothing to measure: give token stores (--store), texts (--text) or both")
    if out is not None:
        _require_place(out, overwrite)
    with working(f"loading {run}"):
        loaded = loaded_run.load(run, step=step, untrained=untrained)
    opened = [(full_name(store), open_store(store)) for store in stores]
    opened += [(str(text), encode_file(text, loaded.tokenizer)) for text in texts]
    for _, text in opened:
        loaded.require_store(text)
    baselines, notes = _baselines(loaded)
    result = {
        **FORMAT,
        "run": loaded.name,
        "step": loaded.step,
        "config_sha256": config_sha256(loaded),
        "tokenizer": {name: getattr(loaded.tokenizer, name) for name in ("name", "sha256", "vocab_size")},
        "units": UNITS,
        "texts": [_measure(loaded, baselines, path, text) for path, text in opened],
        "notes": notes,
        "provenance": {"command": command, "versions": versions(), "device": describe_device()},
    }
    likelihood_table.show(result)  # first, so that it is not lost where the file cannot be written
    if out is not None:
        write_json(out, result)
    return result


def _require_place(out: Path, overwrite: bool) -> None:
    """Raises an InputError where the figures cannot be written to a file, or would replace one unasked."""
    if out.suffix != ".json" or out.is_dir():
        raise InputError(f"{out}: no name for a JSON file; give one such as dev.json")
    if not overwrite and os.path.lexists(out):
        raise InputError(f"{out}: exists; name another file with --out, or replace it with --overwrite")
    require_writable(out)


def _baselines(run: Run) -> tuple[dict[str, NgramModel], list[str]]:
    """Returns the models to stand beside a run, and a line for each that is not to be had."""
    if (unigram := run.unigram()) is None:
        return {}, ["no unigram and no bigram model: this run was imported, and its training text is not known"]
    baselines: dict[str, NgramModel] = {"unigram": unigram}
    try:
        with stage("counting the training text for the bigram model"):
            bigram = run.bigram()
    except InputError as error:
        return baselines, [f"no bigram model, which needs the run's training store: {error}"]
    return baselines | ({} if bigram is None else {"bigram": bigram}), []


def _measure(run: Run, baselines: dict[str, NgramModel], path: str, text: TokenStore) -> dict:
    """Returns what the JSON file says of a text: where it lies, its size, and the figures of each model."""
    found = {"model": run.likelihood(text, progress=True)}
    found |= {name: of_ngrams(model, text) for name, model in baselines.items()}
    is_store = text.folder.is_dir()
    return {
        "path": path,
        "kind": "store" if is_store else "text, one sentence a line",
        "sha256": text.manifest["sha256"]["tokens.bin"] if is_store else text.manifest["text_sha256"],
        **{name: getattr(found["model"], name) for name in COUNTS},
        "models": {name: _figures(likelihood) for name, likelihood in found.items()},
    }


def _figures(likelihood: Likelihood) -> dict[str, float]:
    return {name: getattr(likelihood, name) for name in FIGURES}
