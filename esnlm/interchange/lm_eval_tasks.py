"""The tasks of lm-evaluation-harness, BLiMP's 67 of them on local files.

The harness reads BLiMP from the Hugging Face Hub. Here each of its task configurations is taken as it is, but for the place
of its data: the pairs are handed over in memory, so that no network is used and no cache is written.
"""

from collections.abc import Callable, Sequence, Set
from importlib import metadata
from pathlib import Path
from typing import Any

from esnlm.errors import InputError, require
from esnlm.evaluation.minimal_pairs import Pair

GROUP, PREFIX = "blimp", "blimp_"  # of the tasks' names; what follows is the name of the paradigm
SPLIT = "train"  # where BLiMP's sentences are in its dataset


def load_tasks(names: Sequence[str], pairs: Sequence[Pair] | None) -> dict[str, Any]:
    """Returns tasks as `lm_eval.evaluate` takes them.

    Args:
        names: of tasks, groups and tags of the harness, or paths of its YAML files.
        pairs: what BLiMP's tasks are to read; None: what the harness downloads.

    Raises:
        InputError: the harness has no such task, two names stand for the same task, a paradigm has no pairs, no task reads the
            pairs, or there is no network.
    """
    import lm_eval.tasks

    _require_reader(pairs is None or any(name.startswith(GROUP) for name in names), names)
    place = Path(lm_eval.tasks.__file__).parent
    of_blimp = {PREFIX + file.stem for file in (place / GROUP).glob("*.yaml")}
    # All the harness's files are thousands, and take half a minute to read. Tasks of BLiMP for other languages begin alike.
    folders = sorted(place.glob(f"{GROUP}*")) if all(name.startswith(GROUP) for name in names) else None
    manager = lm_eval.tasks.TaskManager(include_defaults=folders is None, include_path=folders)
    for name in names:
        if name not in manager.task_index and not Path(name).is_file():
            raise InputError(
                f"task {name!r}: lm-evaluation-harness {metadata.version('lm_eval')} has no such task: `lm-eval ls tasks`"
                " lists them"
            )
    specs = list(names) if pairs is None else _on_local_files(names, of_blimp, manager, pairs)
    try:
        return dict(manager.load(specs))
    except ValueError as error:
        if "Duplicate task" in str(error):
            raise InputError(f"{error}: name it once") from None
        raise
    except ConnectionError as error:
        raise InputError(f"tasks {', '.join(names)}: the harness cannot fetch their data: {error}") from None


def _on_local_files(names: Sequence[str], of_blimp: Set[str], manager: Any, pairs: Sequence[Pair]) -> list[Any]:
    """Returns what to load for each name: BLiMP's tasks and their group with local data, and any other name itself."""
    from lm_eval.api.group import Group
    from lm_eval.config.group import GroupConfig

    by_paradigm: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_paradigm.setdefault(pair.uid, []).append(pair)
    group = dict(manager.task_index[GROUP].cfg) if GROUP in names else {"task": []}
    wanted = [*group["task"], *(name for name in names if name in of_blimp)]
    # Only as the member of a group is a task of the harness completed by settings of ours.
    known = [task for task in wanted if task in manager.task_index]
    _require_reader(len(known) > 0, names)
    members = [{"task": task} | _local_data(task, by_paradigm) for task in known]
    tasks = manager.load([{"group": "local", "task": members}])["tasks"]

    def spec(name: str) -> Any:
        if name != GROUP:
            return tasks.get(name, name)
        made = Group.from_config(GroupConfig(**group))
        for task in group["task"]:
            made.add(tasks[task])
        return made

    return [spec(name) for name in names]


def _require_reader(is_there: bool, names: Sequence[str]) -> None:
    """Raises InputError where none of the named tasks reads the pairs."""
    line = f"--data has minimal pairs for BLiMP's tasks, and {', '.join(names)} has none of these: leave it out"
    require(is_there, line)


def _local_data(task: str, by_paradigm: dict[str, list[Pair]]) -> dict[str, Any]:
    """Returns the part of a task's configuration that hands over its pairs."""
    paradigm = task.removeprefix(PREFIX)
    found = by_paradigm.get(paradigm, [])
    require(len(found) > 0, f"task {task!r}: the data has no pairs of the paradigm {paradigm!r}: give its file too")
    return {"custom_dataset": _dataset(found), "dataset_kwargs": None}


def _dataset(pairs: list[Pair]) -> Callable[..., dict[str, Any]]:
    """Returns a function that makes the splits of a dataset; the harness calls it with the task's metadata."""

    def make(**_: Any) -> dict[str, Any]:
        import datasets

        rows = [{"sentence_good": pair.good, "sentence_bad": pair.bad, "UID": pair.uid} for pair in pairs]
        return {SPLIT: datasets.Dataset.from_list(rows)}

    return make
