"""Writes and reads minimal-pair reports: NAME.json (the result), NAME.pairs.jsonl (one line per
pair) and NAME.md."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from esnlm.base.errors import InputError
from esnlm.base.files import require_writable, seal, spell_nonfinite, write_files, writing
from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import FORMAT, FORMAT_VERSION, Evaluation, config_sha256
from esnlm.evaluation.sequences import ScorableRun
from esnlm.reports.blimp_text import markdown
from esnlm.runs.directory import RunDirectory


def write(evaluation: Evaluation, path: Path) -> None:
    """Writes the files of a report, the JSON last. Adds `pairs_file` and `sha256` to the result of
    the evaluation."""
    result, pairs_file = evaluation.result, path.with_suffix(".pairs.jsonl")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    pairs = "".join(json.dumps(line) + "\n" for line in _pair_lines(evaluation)).encode()
    result["pairs_file"] = {"name": pairs_file.name, "sha256": hashlib.sha256(pairs).hexdigest()}
    result["sha256"] = seal(result)
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    write_files({pairs_file: pairs, path.with_suffix(".md"): markdown(result), path: text})


def read(path: str | Path) -> dict:
    """Reads the result of a report from its JSON file. Raises InputError if the file is missing or
    changed."""
    again = "score the run again with --overwrite"
    try:
        result = json.loads(Path(path).read_bytes())
        if result["format"] != FORMAT:
            raise ValueError
    except FileNotFoundError:
        raise InputError(f"{path}: no such report; score the run first") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not a minimal-pair report") from None
    if (version := result.get("format_version")) != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {version}, this library reads {FORMAT_VERSION}: {again}"
        )
    if result.get("sha256") != seal(result):
        raise InputError(f"{path}: damaged or edited: {again}")
    return result


def read_all(folder: Path) -> dict[str, dict]:
    """Reads the minimal-pair reports in a folder, by the names of their JSON files. Ignores other
    JSON files."""
    files = sorted(folder.glob("*.json"))
    return {
        file.stem: read(file)
        for file in files
        if FORMAT in file.read_text("utf-8", errors="replace")
    }


def read_pairs(path: Path, result: dict) -> list[dict]:
    """Reads the pairs of a report, given its JSON file and its result from `read`."""
    pairs = path.with_name(result["pairs_file"]["name"])
    content = pairs.read_bytes() if pairs.is_file() else b""
    if hashlib.sha256(content).hexdigest() != result["pairs_file"]["sha256"]:
        raise InputError(
            f"{pairs}: missing, or not the file that belongs to {path.name}: score that run again"
        )
    return [json.loads(line) for line in content.splitlines()]


def read_to_compare(
    path: Path, scoring: str, data_sha256: str, count: int
) -> tuple[dict, np.ndarray]:
    """Reads a report on the same `count` pairs (with the same `minimal_pairs.digest`) under the
    same convention.

    `path` may be a run directory with such a report. Returns its run, step and accuracy, and which
    pairs are right, (n,).
    """
    if path.is_dir():
        path = RunDirectory(path).evaluation / f"blimp-{scoring}.json"
    result = read(path)
    if (theirs := result["scoring"]["name"]) != scoring:
        raise InputError(
            f"{path}: scored as {theirs!r}, this one as {scoring!r}: compare like with like"
        )
    if result["data"]["sha256"] != data_sha256:
        raise InputError(f"{path}: a report on other pairs: compare runs on the same pairs")
    if result["status"] != "ok":
        raise InputError(
            f"{path}: its accuracy is {result['status']}, so it cannot be compared with"
        )
    right = np.array([line["right"] for line in read_pairs(path, result)], bool)
    assert len(right) == count  # implied by the digest
    return {
        "run": result["run"],
        "step": result["step"],
        "accuracy": result["overall"]["accuracy"],
    }, right


def require_place(
    path: Path,
    run: ScorableRun,
    scoring: str,
    pairs: Sequence[minimal_pairs.Pair],
    normalize: str,
    other: dict | None,
    overwrite: bool,
) -> None:
    """Makes the folder of a report. Raises InputError if it would replace one with results that the
    new one lacks.

    `other` is the run, step and accuracy to compare with, from `read_to_compare`.
    """
    if path.suffix != ".json" or path.is_dir():
        raise InputError(f"{path}: the report must be a file whose name ends in .json")
    if path.exists() and not overwrite:
        old = read(path)
        matches = {
            "another configuration": old["config_sha256"] == config_sha256(run),
            "another step": old["step"] == run.step,
            "another --scoring": old["scoring"]["name"] == scoring,
            "other pairs": old["data"]["sha256"] == minimal_pairs.digest(pairs),
            "another --normalize": old.get("normalized", {"by": normalize})["by"] == normalize,
            "another --compare": (old.get("comparison") or {"with": other})["with"] == other,
        }
        if different := [name for name, is_same in matches.items() if not is_same]:
            advice = "name another file with --out, or replace it with --overwrite"
            raise InputError(f"{path}: holds a report with {' and '.join(different)}: {advice}")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    require_writable(path)


def _pair_lines(evaluation: Evaluation) -> Iterator[dict]:
    """Yields the lines of NAME.pairs.jsonl, one per pair, with None for numbers that are not
    finite."""
    right = evaluation.right
    for i, pair in enumerate(evaluation.pairs):
        good, bad = (float(each[i]) for each in (evaluation.log_prob_good, evaluation.log_prob_bad))
        yield {
            "UID": pair.uid,
            "index": pair.number,
            "pairID": pair.pair_id,
            "sentence_good": pair.good,
            "sentence_bad": pair.bad,
            "log_prob_good": good if np.isfinite(good) else None,
            "log_prob_bad": bad if np.isfinite(bad) else None,
            "tokens_good": int(evaluation.tokens_good[i]),
            "tokens_bad": int(evaluation.tokens_bad[i]),
            **spell_nonfinite(evaluation.details.get(i, {})),
            "right": None if np.isnan(evaluation.outcome[i]) else bool(right[i]),
            "tie": bool(evaluation.outcome[i] == 0.5),
        }
