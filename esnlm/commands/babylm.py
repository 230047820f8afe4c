"""Writes prediction files for BabyLM's zero-shot evaluation, as its pipeline does for causal
models."""

import argparse
import hashlib
import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from esnlm.base.console import info
from esnlm.base.errors import InputError
from esnlm.base.files import writing
from esnlm.base.remote import run_copy
from esnlm.commands.arguments import (
    OVERWRITE,
    RUN,
    SEVERAL,
    STEP,
    Argument,
    OneOf,
    load_run,
    local_path,
)

if TYPE_CHECKING:
    from esnlm.loaded_run import Run

MAIN = "main"  # the revision of the newest checkpoint
SCORING = {
    False: (
        "without-bos: the sentence alone, without BOS, EOS or leading space; its first token is not"
        " scored"
    ),
    True: "babylm: BOS and the text; every token after BOS can be scored",
}
TIES = "a tie counts as right (the pipeline chooses the first sentence)"

ARGUMENTS = [
    RUN,
    Argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder full_eval or fast_eval of the pipeline",
    ),
    Argument(
        "--out",
        type=local_path,
        metavar="DIR",
        help="folder for the predictions (default: RUN/evaluation/babylm)",
    ),
    Argument(
        "--model-name",
        metavar="NAME",
        help="name of the model's folder inside --out (default: the name of the run)",
    ),
    Argument(
        "--sets",
        **SEVERAL,
        metavar="SET",
        help="data sets, e.g. blimp_filtered ewok_fast (default: all in --data)",
    ),
    OneOf(
        STEP,
        Argument(
            "--checkpoints",
            action="store_true",
            help="score the checkpoints at 1M, 2M, ... words, as revisions chck_1M, chck_2M, ..."
            " (default: the newest, as revision main)",
        ),
    ),
    Argument(
        "--without-bos",
        dest="bos",
        action="store_false",
        help="no BOS before each text, as with tokenizers that add none; the first token is then"
        " not scored",
    ),
    OVERWRITE,
]


def run(args: argparse.Namespace) -> None:
    """Scores the sets, writes the prediction files and prints the scores. Reads all data first."""
    from esnlm.evaluation.evaluate import config_sha256
    from esnlm.interchange import babylm
    from esnlm.loaded_run import load
    from esnlm.reports.report import Report
    from esnlm.runs.directory import RunDirectory

    if args.checkpoints or args.step is not None:
        args.run = run_copy(args.run, every_step=True)
    newest = load_run(args)
    steps = _steps_by_revision(args, newest)
    folders = babylm.find_sets(args.data, args.sets)
    sets = {name: babylm.read(name, folder) for name, folder in folders.items()}

    out = args.out or RunDirectory(newest.directory).evaluation / "babylm"
    model = out / (args.model_name or newest.name)
    for revision, name in product(steps, sets):
        file = babylm.predictions_file(model, revision, name)
        if file.exists() and not args.overwrite:
            raise InputError(
                f"{file}: exists; name another folder with --out, or replace it with --overwrite"
            )
        with writing(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)

    results = []
    for revision, step in steps.items():
        loaded = newest if step == newest.step else load(args.run, step=step)
        for name, items in sets.items():
            info(f"{revision}: {name}")
            texts = [
                pair
                for item in items
                for pair in zip(item.sentences, item.completions, strict=True)
            ]
            log_probs = babylm.completion_log_probs(loaded, texts, args.bos)
            predictions, scores = babylm.choose(babylm.FOLDERS[name], items, log_probs)
            data = b"".join(file.read_bytes() for file in babylm.files_of(folders[name]))
            result = {
                "model": model.name,
                "run": newest.name,
                "config_sha256": config_sha256(newest),
                "scoring": f"{SCORING[args.bos]}; {TIES}",
                "revision": revision,
                "step": step,
                "set": name,
                "data_sha256": hashlib.sha256(data).hexdigest(),
                **scores,
            }
            results.append(result)
            file = babylm.predictions_file(model, revision, name)
            report = Report(file.with_name("scores.json"), args.command)
            report.write(result, others={file: json.dumps(predictions)})
    print(f"{newest.name}: BabyLM's sets, scoring {SCORING[args.bos]}; {TIES}")
    _print_table(results)
    print(f"written: {len(results)} sets below {model}")


def _steps_by_revision(args: argparse.Namespace, run: "Run") -> dict[str, int]:
    """Returns the steps to score, by the names of their revisions."""
    from esnlm.interchange.babylm import revision_names
    from esnlm.runs import checkpoint
    from esnlm.runs.directory import RunDirectory

    if not args.checkpoints and args.step is None:
        return {MAIN: run.step}
    names = revision_names(checkpoint.words_by_step(RunDirectory(run.directory).checkpoints))
    if not args.checkpoints:
        return {names.get(run.step, f"step_{run.step}"): run.step}
    steps = {name: step for step, name in names.items() if name.startswith("chck_")}
    if not steps:
        raise InputError(
            f"{args.run}: no checkpoint at 1M, 2M, ... words: save them with"
            " training.checkpoint_words"
        )
    return steps


def _print_table(results: list[dict]) -> None:
    from esnlm.base.screen import Screen

    rows = []
    for result in results:
        for metric, score in result["scores"].items() or [("", "")]:
            value = f"{score:.2f}" if isinstance(score, float) else score
            rows.append(
                [
                    result["revision"],
                    result["set"],
                    metric.replace("_", " "),
                    "not defined" if value is None else value,
                    f"{result['items']:,}",
                    str(result.get("ties", "")),
                ]
            )
    Screen().table(["revision", "set", "score", "value", "items", "ties"], rows)
