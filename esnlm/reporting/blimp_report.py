"""The files of a minimal-pair report: written whole or not at all, read back, and never overwritten unasked.

A report is four files of one name: NAME.json (the result), NAME.pairs.jsonl (a line a pair), NAME.md and, with
matplotlib, NAME.png.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from esnlm.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import FORMAT, FORMAT_VERSION, Evaluation, ScorableRun, config_sha256
from esnlm.io.atomic import abandoned, require_writable, write_files, writing
from esnlm.io.json_file import parse_json, seal, spell_nonfinite
from esnlm.reporting import blimp_plot
from esnlm.reporting.blimp_text import markdown
from esnlm.runs.directory import RunDirectory


def write(evaluation: Evaluation, path: str | Path) -> str | None:
    """Writes the files of a report. Each is whole or not there; the JSON comes last, with the hash of the pairs' file.

    Args:
        evaluation: its result gets the keys `pairs_file` and `sha256`.
        path: the JSON file; the others stand beside it.

    Returns:
        Why there is no plot, or None.
    """
    names = _names(Path(path))
    result = evaluation.result
    with writing(names["json"].parent):
        names["json"].parent.mkdir(parents=True, exist_ok=True)
    pairs = "".join(json.dumps(line) + "\n" for line in _pair_lines(evaluation)).encode()
    result["pairs_file"] = {"name": names["pairs"].name, "sha256": hashlib.sha256(pairs).hexdigest()}
    result["sha256"] = seal(result)
    picture, note = blimp_plot.plot(result)
    contents = {
        names["pairs"]: pairs,
        names["md"]: markdown(result),
        names["png"]: picture,  # None: that of an earlier report is removed
        names["json"]: json.dumps(result, indent=2, allow_nan=False) + "\n",
    }
    write_files(contents)
    return note


def read(path: str | Path) -> dict:
    """Reads the result of a report from its JSON file. Raises InputError if there is none, or not as it was written."""
    try:
        result = parse_json(Path(path).read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such report") from None
    except ValueError as error:
        raise InputError(f"{path}: not a report of minimal pairs ({error})") from None
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise InputError(f"{path}: not a report of minimal pairs")
    version, again = result.get("format_version"), "score the run again with --overwrite"
    if version != FORMAT_VERSION:
        raise InputError(f"{path}: format version {version}, this library reads {FORMAT_VERSION}: {again}")
    if result.get("sha256") != seal(result):
        raise InputError(f"{path}: damaged, not as it was written: {again}")
    return result


def read_all(folder: Path) -> dict[str, dict]:
    """Reads the reports on minimal pairs in a folder, by the names of their JSON files in alphabetical order.

    Results of other commands of esnlm, such as `esnlm likelihood --out`, are passed over.
    """
    return {file.stem: read(file) for file in sorted(folder.glob("*.json")) if not _is_of_another_command(file)}


def _is_of_another_command(file: Path) -> bool:
    try:
        found = str(parse_json(file.read_bytes())["format"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return found.startswith("esnlm ") and found != FORMAT


def read_to_compare(path: Path, scoring: str, data_sha256: str, count: int) -> tuple[dict, np.ndarray]:
    """Reads a report of the same pairs under the same convention.

    Args:
        path: the JSON file, or a run directory, which stands for its report of this convention.
        scoring: the name of the convention.
        data_sha256: `minimal_pairs.digest` of the pairs of the run that is compared with it.
        count: n, how many they are.

    Returns:
        The result, and which pairs it has right, (n,) bool.
    """
    if path.is_dir():
        path = RunDirectory(path).evaluation / f"blimp-{scoring}.json"
        if not path.exists():
            raise InputError(f"{path}: no such report to compare with: score that run first, or name a report's .json")
    result = read(path)
    if (theirs := result["scoring"]["name"]) != scoring:
        raise InputError(f"{path}: scored as {theirs!r}, this one as {scoring!r}: compare like with like")
    if result["data"]["sha256"] != data_sha256:
        raise InputError(f"{path}: a report on other pairs: runs are compared on the same ones")
    if result["status"] != "ok":
        raise InputError(f"{path}: its accuracy is {result['status']}: there is nothing to compare with")
    right = np.array([line["right"] for line in read_pairs(path, result)], bool)
    assert len(right) == count  # the digest says so
    return result, right


def read_pairs(path: Path, result: dict) -> list[dict]:
    """Reads what a report says of each pair.

    Args:
        path: the report's JSON file.
        result: what `read` returned of it.
    """
    pairs = path.with_name(result["pairs_file"]["name"])
    content = pairs.read_bytes() if pairs.is_file() else b""
    if hashlib.sha256(content).hexdigest() != result["pairs_file"]["sha256"]:
        raise InputError(f"{pairs}: missing, or not the file {path.name} was written with: score that run again")
    return [json.loads(line) for line in content.splitlines()]


def require_place(
    path: Path, run: ScorableRun, scoring: str, pairs: Sequence[minimal_pairs.Item], overwrite: bool
) -> None:
    """Makes the folder of a report.

    Raises:
        InputError: `path` does not end in .json, no folder can be made or written to, or, unless `overwrite` is set,
            other files or a report of another run, step or data would be lost.
    """
    names = _names(path)
    if path.exists() and not overwrite:
        old = read(path)
        same = {
            "run": (old["run"], run.name),
            "configuration": (old["config_sha256"], config_sha256(run)),
            "step": (old["step"], run.step),
            "scoring": (old["scoring"]["name"], scoring),
            "tokenizer": (old["tokenizer"]["sha256"], run.tokenizer.sha256),
            "pairs": (old["data"]["sha256"], minimal_pairs.digest(pairs)),
        }
        if differing := [name for name, (theirs, ours) in same.items() if theirs != ours]:
            raise InputError(
                f"{path}: holds a report that differs in {', '.join(differing)}: name another file with --out, or replace "
                "it with --overwrite"
            )
    elif not overwrite:
        stray = [name for name in names.values() if name.exists()]
        # A killed process may have written some files of a report, but not its JSON: these are no one else's.
        if stray and not any(map(abandoned, names.values())):
            raise InputError(f"{stray[0]}: is in the way: name another file with --out, or replace it with --overwrite")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    for file in names.values():
        require_writable(file)


def is_of_other_pairs(path: Path, data_sha256: str) -> bool:
    """Tells whether a report is there that is of other pairs or cannot be read, so that it must not be replaced unasked."""
    try:
        return path.exists() and read(path)["data"]["sha256"] != data_sha256
    except InputError:
        return True


def _names(path: Path) -> dict[str, Path]:
    """Returns the files of a report by kind, given its JSON file."""
    if path.suffix != ".json" or path.is_dir():
        raise InputError(f"{path}: the report's name must be a file that ends in .json")
    suffixes = {"pairs": ".pairs.jsonl", "md": ".md", "png": ".png", "json": ".json"}
    return {kind: path.with_suffix(suffix) for kind, suffix in suffixes.items()}


def _pair_lines(evaluation: Evaluation) -> Iterator[dict]:
    """Yields what NAME.pairs.jsonl says of each pair. A number that JSON has no word for is None."""
    right = evaluation.right
    for i, pair in enumerate(evaluation.pairs):
        line: dict = {"UID": pair.uid, "index": pair.number, "pairID": pair.pair_id}
        if isinstance(pair, minimal_pairs.Pair):
            line |= {
                "sentence_good": pair.good,
                "sentence_bad": pair.bad,
                "log_prob_good": _finite(evaluation.log_prob_good[i]),
                "log_prob_bad": _finite(evaluation.log_prob_bad[i]),
                "tokens_good": int(evaluation.tokens_good[i]),
                "tokens_bad": int(evaluation.tokens_bad[i]),
            }
        line |= spell_nonfinite(evaluation.details.get(i, {}))
        line["right"] = None if np.isnan(evaluation.outcome[i]) else bool(right[i])
        yield line | {"tie": bool(evaluation.outcome[i] == 0.5)}


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
