"""Running tasks of lm-evaluation-harness with a run, from the run directory to the written results."""

import hashlib
import json
import logging
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.errors import InputError, require
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import config_sha256
from esnlm.evaluation.minimal_pairs import Pair
from esnlm.io.atomic import abandoned, require_writable, write_files, writing
from esnlm.io.console import counted, warn, working
from esnlm.io.json_file import json_text, parse_json
from esnlm.io.screen import Screen
from esnlm.loaded_run import Run, Step, load
from esnlm.provenance import provenance
from esnlm.runs.directory import RunDirectory

FORMAT = "esnlm lm-eval"
FORMAT_VERSION = 1
FEW_TASKS = 20  # up to so many tasks of a group are printed too, and so many names of tasks stand in a line
# The harness's own defaults. Some tasks shuffle their answers as they are loaded.
SEEDS = {"random": 0, "numpy": 1234, "fewshot": 1234}
LONGEST_NAME = 100


def evaluate_with_lm_eval(
    run: str | Path,
    tasks: Sequence[str],
    data: Sequence[str | Path] | None = None,
    out: str | Path | None = None,
    step: Step = None,
    untrained: bool = False,
    num_fewshot: int | None = None,
    limit: int | None = None,
    add_bos_token: bool = False,
    overwrite: bool = False,
    command: str | None = None,
) -> dict:
    """Runs tasks of the harness, writes the results and prints them. All input is checked before anything is scored.

    Args:
        run: the run directory.
        tasks: names of tasks, groups and tags of the harness.
        data: folders and files of minimal pairs for BLiMP's tasks; None: the harness downloads its own.
        out: the JSON file; None: RUN/evaluation/lm-eval/TASKS.json, with -untrained or -step-N where one was asked for.
        step: the checkpoint of this step; None: the newest.
        untrained: whether to take the model as it was before its first update.
        num_fewshot: examples before each question; None: as the task says. A task that says 0 itself, as BLiMP's do, keeps it.
        limit: documents of a task at most, for a trial.
        add_bos_token: whether BOS stands before contexts that are not empty, too.
        overwrite: whether to replace results of another run, step or task.
        command: what the file names as its origin.

    Returns:
        What was written.

    Raises:
        InputError: lm-evaluation-harness is not installed, the run, the tasks, the data or the place is not usable, or
            `num_fewshot` has no effect.
    """
    require(limit is None or limit >= 1, f"limit is {limit}: it must be at least 1")
    require(num_fewshot is None or num_fewshot >= 0, f"num_fewshot is {num_fewshot}: it must be at least 0")
    if out is not None:
        require(Path(out).suffix == ".json", f"{out}: no name for the results; give one that ends in .json")
        require(not Path(out).is_dir(), f"{out}: a folder; name a file")  # before anything is loaded
    pairs = _load_pairs(data) if data else None
    if pairs is not None:
        os.environ.setdefault("TQDM_DISABLE", "1")  # The harness shows a bar for each of the 67 tasks.
    try:
        import lm_eval

        from esnlm.interchange.lm_eval import EsnLM
        from esnlm.interchange.lm_eval_tasks import load_tasks
    except ImportError as error:
        raise InputError(f"lm-evaluation-harness is needed ({error}): pip install 'esnlm[lm-eval]'") from None
    logging.getLogger("lm_eval").setLevel(logging.ERROR)

    with working(f"loading {run}"):
        loaded = load(run, step=step, untrained=untrained)
    path = _path(loaded, tasks, out, step, untrained)
    asked = {
        "run": loaded.name,
        "config_sha256": config_sha256(loaded),
        "step": loaded.step,
        "tokenizer": {name: getattr(loaded.tokenizer, name) for name in ("name", "sha256", "vocab_size")},
        "tasks": list(tasks),
        "data_sha256": None if pairs is None else minimal_pairs.digest(pairs),
        "settings": {"num_fewshot": num_fewshot, "limit": limit, "add_bos_token": add_bos_token},
    }
    with working("reading the tasks"):
        random.seed(SEEDS["random"])
        np.random.seed(SEEDS["numpy"])
        task_dict = load_tasks(tasks, pairs)
    without = _tasks_without_examples(task_dict["tasks"], num_fewshot)
    line = f"num_fewshot is {num_fewshot}, which has no effect on {_listed(without)}: the harness keeps the 0 of a task's own file"
    require(not without or len(without) < len(task_dict["tasks"]), f"{line}; leave --num-fewshot out")
    _require_place(path, asked, overwrite)
    if without:
        warn(line)
    model = EsnLM(loaded, add_bos_token=add_bos_token, progress=True)
    for name, task in task_dict["tasks"].items():
        _set_fewshot(task, num_fewshot)
        if task.get_config("output_type") == "generate_until":
            try:
                model.generation_settings(task.get_config("generation_kwargs") or {})
            except InputError as error:
                raise InputError(f"task {name}: {error}") from None

    began = time.perf_counter()
    found = lm_eval.evaluate(model, task_dict, limit=limit)
    result = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **asked,
        "seconds": round(time.perf_counter() - began, 3),
        **{name: found.get(name, {}) for name in ("results", "groups", "versions", "n-shot", "n-samples")},
        "higher_is_better": found.get("higher_is_better", {}),
        "ties": _count_ties(found["samples"]),
        "seeds": SEEDS,
        "provenance": provenance(command, "lm_eval"),
    }
    samples = "".join(json.dumps(line) + "\n" for line in _sample_lines(found["samples"])).encode()
    beside = _samples_file(path)
    result["samples_file"] = {"name": beside.name, "sha256": hashlib.sha256(samples).hexdigest()}
    text = json_text(json.loads(json.dumps(result, default=str)))
    write_files({beside: samples, path: text})
    _show(result)
    if any(result["ties"].values()):
        tied = ", ".join(f"{task} {count:,}" for task, count in result["ties"].items() if count)
        warn(
            f"documents with more than one answer of the highest log-probability, of which the harness takes the first: {tied}"
        )
    print(f"written: {path} (and {beside.name} beside it)")
    return result


def _load_pairs(data: Sequence[str | Path]) -> list[Pair]:
    """Reads minimal pairs. Raises InputError for anything else, such as a set of more than two sentences."""
    items = minimal_pairs.load(data)
    pairs = [item for item in items if isinstance(item, Pair) and isinstance(item.bad, str)]
    others = {item.uid for item in items} - {pair.uid for pair in pairs}
    require(
        len(pairs) == len(items),
        f"{', '.join(sorted(others))}: BLiMP's tasks take two sentences a pair, and nothing else",
    )
    return pairs


def _path(loaded: Run, tasks: Sequence[str], out: str | Path | None, step: Step, untrained: bool) -> Path:
    if out is not None:
        return Path(out)
    name = "-".join(Path(task).stem for task in tasks)
    require(len(name) <= LONGEST_NAME, f"{len(tasks)} tasks: too many for the name of a file; name one with --out")
    suffix = "-untrained" if untrained else "" if step is None else f"-step-{loaded.step}"
    return RunDirectory(loaded.directory).evaluation / "lm-eval" / f"{name}{suffix}.json"


def _samples_file(path: Path) -> Path:
    """Returns the file of the answers beside the results."""
    return path.with_suffix(".samples.jsonl")


def _require_place(path: Path, asked: dict, overwrite: bool) -> None:
    """Makes the folder of the results.

    Raises:
        InputError: it cannot be made, the files cannot be written, or something else would be lost.
    """
    beside = _samples_file(path)
    if path.exists() and not overwrite:
        try:
            old = parse_json(path.read_bytes())
            same = old["format"] == FORMAT and all(old[key] == value for key, value in asked.items())
        except (OSError, ValueError, KeyError, TypeError):
            same = False
        require(
            same,
            f"{path}: exists and holds something else: name another file with --out, or replace it with --overwrite",
        )
    elif beside.exists() and not overwrite and not (abandoned(path) or abandoned(beside)):
        # A killed process may have written the answers, but not the results: these are no one else's.
        raise InputError(f"{beside}: is in the way: name another file with --out, or replace it with --overwrite")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    for file in (path, beside):
        require_writable(file)


def _tasks_without_examples(tasks: dict[str, Any], num_fewshot: int | None) -> list[str]:
    """Returns the names of the tasks that keep their own number of examples, which is 0, where another one is asked for."""
    return [name for name, task in tasks.items() if num_fewshot and task.get_config("num_fewshot") == 0]


def _listed(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - FEW_TASKS, 'more task')}" * (len(names) > FEW_TASKS)
    return ", ".join(names[:FEW_TASKS]) + more


def _set_fewshot(task: Any, num_fewshot: int | None) -> None:
    """Sets the number of examples of a task. One that says 0 itself keeps it, as in the harness's own `simple_evaluate`."""
    own = task.get_config("num_fewshot")
    if own is None or (num_fewshot is not None and own != 0):
        task.set_config(key="num_fewshot", value=num_fewshot or 0)
    task.set_fewshot_seed(seed=SEEDS["fewshot"])


def _sample_lines(samples: dict[str, list[dict]]) -> Iterator[dict]:
    """Yields an object for each document, and each filter, of each task: its answers and its metrics."""
    for task, documents in samples.items():
        for document in documents:
            names = ("doc_id", "filter", "target", "filtered_resps", *document["metrics"])
            kept = {name: document[name] for name in names if name in document}
            yield {"task": task} | json.loads(json.dumps(kept, default=str))


def _count_ties(samples: dict[str, list[dict]]) -> dict[str, int]:
    """Returns how many documents of each task with a choice of answers have several of the highest log-probability.

    The harness takes the first of these, which in BLiMP is the right one: a model that finds all alike has 100 percent.
    """
    found = {}
    for task, documents in samples.items():
        answers = {
            document["doc_id"]: document["filtered_resps"] for document in documents
        }  # there is one for each filter
        scored = [
            [answer[0] for answer in its] for its in answers.values() if len(its) > 1 and all(map(_is_scored, its))
        ]
        if scored:
            found[task] = sum(its.count(max(its)) > 1 for its in scored)
    return found


def _is_scored(answer: Any) -> bool:
    """Returns whether an answer is a log-probability, and whether it is what greedy decoding gives."""
    return isinstance(answer, list | tuple) and len(answer) == 2 and isinstance(answer[0], float)


def _show(result: dict) -> None:
    """Prints what was measured, and a table of the groups and, where they are few, of the tasks."""
    documents = sum(count["effective"] for count in result["n-samples"].values())
    print(
        f"{result['run']}, step {result['step']}: {len(result['n-samples'])} tasks, {documents:,} documents,"
        f" {result['seconds']:.1f} s, lm-evaluation-harness {result['provenance']['versions']['lm_eval']}"
    )
    measured = {name: result["results"].get(name) or figures for name, figures in result["groups"].items()}
    tasks = {name: figures for name, figures in result["results"].items() if name not in measured}
    if not measured or len(tasks) <= FEW_TASKS:
        measured |= tasks
    rows = []
    for name, figures in measured.items():
        for key, value in figures.items():
            metric, _, filtered = key.partition(",")
            if isinstance(value, int | float) and filtered and not metric.endswith("_stderr"):
                error = figures.get(f"{metric}_stderr,{filtered}")
                shown = f"{error:.4f}" if isinstance(error, float) else ""
                rows.append([name, metric if filtered == "none" else f"{metric}, {filtered}", f"{value:.4f}", shown])
    Screen().table(["task", "metric", "value", "standard error"], rows, edge=True)
