"""The files of a minimal-pair report: written whole or not at all, read back, and never overwritten unasked.

A report is four files of one name: NAME.json (the result), NAME.pairs.jsonl (a line a pair), NAME.md and, with
matplotlib, NAME.png.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.errors import InputError
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import FORMAT, FORMAT_VERSION, Evaluation, ScorableRun, config_sha256
from esnlm.io.atomic import abandoned, require_writable, write_files
from esnlm.io.json_file import parse_json, read_small, seal, spell_nonfinite
from esnlm.reporting import blimp_plot
from esnlm.reporting.blimp_text import markdown
from esnlm.runs.directory import RunDirectory

LARGEST = 64 << 20  # bytes of NAME.json: some 30,000 paradigms
LARGEST_PAIRS = 512 << 20  # bytes of NAME.pairs.jsonl: over a million pairs


def write(evaluation: Evaluation, path: str | Path) -> str | None:
    """Writes the files of a report. Each is whole or not there; the JSON comes last, with the hash of the pairs' file.

    Args:
        evaluation: its result gets the keys `pairs_file` and `sha256`.
        path: the JSON file; the others stand beside it.

    Returns:
        The line that says why there is no plot, or None.

    Raises:
        InputError: `path` does not end in .json, or there is no room or no right to write there.
    """
    names = _names(Path(path))
    result = evaluation.result
    _make_folder(names["json"].parent)
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
    """Reads the result of a report from its JSON file.

    Raises:
        InputError: the file is not a report, of another format version, or not as it was written.
    """
    return _checked(path, _parse(path))


def _parse(path: str | Path) -> Any:
    """Returns what a JSON file holds. Raises InputError where it is missing, too large, or no JSON."""
    try:
        text = read_small(Path(path), LARGEST)
    except FileNotFoundError:
        raise InputError(f"{path}: no such report") from None
    try:
        return parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: not a report of minimal pairs ({error})") from None


def _checked(path: str | Path, result: Any) -> dict:
    """Returns the content of a report's JSON file, which is then known to be whole. Raises InputError where it is not."""
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise InputError(f"{path}: not a report of minimal pairs")
    if result.get("format_version") != FORMAT_VERSION:
        version = result.get("format_version")
        raise InputError(
            f"{path}: format version {version}, this library reads {FORMAT_VERSION}: score the run again with --overwrite"
        )
    if result.get("sha256") != seal(result) or not _is_complete(result):
        raise InputError(f"{path}: damaged, not as it was written: score the run again with --overwrite")
    return result


def read_all(folder: Path) -> dict[str, dict]:
    """Reads the reports on minimal pairs in a folder, which may have results of other commands beside them.

    Returns:
        The result of each by the name of its JSON file, in alphabetical order. JSON that names another format of esnlm, such as that of
        `esnlm likelihood --out`, is passed over.

    Raises:
        InputError: another JSON file is not a report, of another format version, or not as it was written.
    """
    found = {file: _parse(file) for file in sorted(folder.glob("*.json"))}
    return {file.stem: _checked(file, tree) for file, tree in found.items() if not _is_of_another_command(tree)}


def read_to_compare(path: Path, scoring: str, data_sha256: str, count: int) -> tuple[dict, np.ndarray]:
    """Reads a report of the same pairs under the same convention.

    Args:
        path: the JSON file, or a run directory, which stands for its report of this convention.
        scoring: the name of the convention.
        data_sha256: `minimal_pairs.digest` of the pairs of the run that is compared with it.
        count: n, how many they are.

    Returns:
        The result, and which pairs it has right, (n,) bool.

    Raises:
        InputError: there is no such report, it is damaged, or it cannot be compared.
    """
    if path.is_dir():
        path = RunDirectory(path).evaluation / f"blimp-{scoring}.json"
        if not path.exists():
            raise InputError(f"{path}: no such report to compare with: score that run first, or name a report's .json")
    result = read(path)
    if result["scoring"]["name"] != scoring:
        theirs = result["scoring"]["name"]
        raise InputError(f"{path}: scored as {theirs!r}, this one as {scoring!r}: compare like with like")
    if result["data"]["sha256"] != data_sha256:
        raise InputError(f"{path}: a report on other pairs: runs are compared on the same ones")
    if result["status"] != "ok":
        raise InputError(f"{path}: its accuracy is {result['status']}: there is nothing to compare with")
    right = [line["right"] for line in read_pairs(path, result)]
    if len(right) != count or not all(isinstance(each, bool) for each in right):
        pairs = path.with_name(result["pairs_file"]["name"])
        raise InputError(f"{pairs}: not the outcomes of these {count:,} pairs: score that run again")
    return result, np.array(right)


def read_pairs(path: Path, result: dict) -> list[dict]:
    """Reads what a report says of each pair: the lines of NAME.pairs.jsonl, as `_pair_lines` made them.

    Args:
        path: the report's JSON file.
        result: what `read` returned of it.

    Raises:
        InputError: the file is missing, or it is not the one that the report was written with.
    """
    pairs = path.with_name(result["pairs_file"]["name"])
    content = read_small(pairs, LARGEST_PAIRS) if pairs.is_file() else b""
    if hashlib.sha256(content).hexdigest() != result["pairs_file"]["sha256"]:
        raise InputError(f"{pairs}: missing, or not the file {path.name} was written with: score that run again")
    try:
        lines = [parse_json(line) for line in content.splitlines()]
        if all(isinstance(line, dict) and "right" in line for line in lines):
            return lines
    except ValueError:
        pass
    raise InputError(f"{pairs}: not the outcomes of {result['data']['pairs']:,} pairs: score that run again")


def require_place(
    path: Path, run: ScorableRun, scoring: str, pairs: Sequence[minimal_pairs.Item], overwrite: bool
) -> None:
    """Makes the folder of a report.

    Raises:
        InputError: `path` does not end in .json, no folder can be made or written to, or, unless `overwrite` is set,
            other files or a report of another run, step or data would be lost.
    """
    names = _names(path)
    if not overwrite:
        _require_free(names, run, scoring, minimal_pairs.digest(pairs))
    _make_folder(path.parent)
    for file in names.values():
        require_writable(file)


def is_of_other_pairs(path: Path, data_sha256: str) -> bool:
    """Tells whether a report is there that is of other pairs, or that cannot be read, so that it must not be replaced unasked."""
    if not path.exists():
        return False
    try:
        return bool(read(path)["data"]["sha256"] != data_sha256)
    except InputError:
        return True


def _require_free(names: dict[str, Path], run: ScorableRun, scoring: str, data_sha256: str) -> None:
    """Raises an InputError unless the report's files are free, or hold a report of the same run, step and data."""
    path = names["json"]
    if path.exists():
        old = read(path)
        same = {
            "run": (old["run"], run.name),
            "configuration": (old["config_sha256"], config_sha256(run)),
            "step": (old["step"], run.step),
            "scoring": (old["scoring"]["name"], scoring),
            "tokenizer": (old["tokenizer"]["sha256"], run.tokenizer.sha256),
            "pairs": (old["data"]["sha256"], data_sha256),
        }
        differing = [name for name, (theirs, ours) in same.items() if theirs != ours]
        if differing:
            raise InputError(
                f"{path}: holds a report that differs in {', '.join(differing)}: name another file with --out, or replace "
                "it with --overwrite"
            )
    # A killed process may have written some files of a report, but not its JSON: these are no one else's.
    elif (stray := [name for name in names.values() if name.exists()]) and not any(map(abandoned, names.values())):
        raise InputError(f"{stray[0]}: is in the way: name another file with --out, or replace it with --overwrite")


def _names(path: Path) -> dict[str, Path]:
    """Returns the files of a report by kind, given its JSON file. Raises InputError for another kind of name."""
    if path.suffix != ".json" or path.is_dir():
        raise InputError(f"{path}: the report's name must be a file that ends in .json")
    suffixes = {"pairs": ".pairs.jsonl", "md": ".md", "png": ".png", "json": ".json"}
    return {kind: path.with_suffix(suffix) for kind, suffix in suffixes.items()}


def _make_folder(folder: Path) -> None:
    """Makes a report's folder where it is missing. Raises InputError where none can be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: no folder can be made here ({error.strerror}): name another with --out") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: this folder cannot be written to: name another with --out")


def _is_of_another_command(tree: Any) -> bool:
    """Tells whether the content of a JSON file names a format of esnlm that is not that of reports on minimal pairs."""
    name = tree.get("format") if isinstance(tree, dict) else None
    return isinstance(name, str) and name.startswith("esnlm ") and name != FORMAT


def _is_complete(result: dict) -> bool:
    """Tells whether a report has all the values that are read from it, each of its type."""
    try:
        pairs, overall = result["pairs_file"], result["overall"]
        texts = [result["run"], result["status"], result["config_sha256"], result["scoring"]["name"]]
        texts += [result["data"]["sha256"], result["tokenizer"]["sha256"], pairs["name"], pairs["sha256"]]
        step, accuracy, name = result["step"], overall["accuracy"], pairs["name"]
        numbers = [baseline["overall"]["accuracy"] for baseline in result["baselines"].values()]
        numbers += [] if overall["interval"] is None else overall["interval"]
        known = accuracy is None if result["status"] != "ok" else 0 <= accuracy <= 100
        known = known and type(step) is int and all(number is None or 0 <= number <= 100 for number in numbers)
        return known and all(isinstance(text, str) for text in texts) and name == Path(name).name != ""
    except (AttributeError, KeyError, TypeError):
        return False


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
