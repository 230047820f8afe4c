"""Minimal pairs: read and checked, then each distinct sentence scored once and the outcomes summed up.

BLiMP (Warstadt et al. 2020) is 67 files of 1,000 pairs, one JSON object a line: `sentence_good`, `sentence_bad` and
`UID`, the paradigm; the overall accuracy is the mean over the paradigms. Any pairs of that form will do.
"""

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.errors import InputError
from esnlm.evaluation import conventions, statistics
from esnlm.runs.json_file import parse_json

FORMAT_VERSION = 1


class Pair(NamedTuple):
    uid: str  # the paradigm
    index: int  # position in its paradigm, from 0
    good: str
    bad: str
    phenomenon: str
    field: str  # of linguistics
    pair_id: str


@dataclass(frozen=True)
class Evaluation:
    """What one run makes of the pairs: `result` is the report (JSON), the arrays (n,) go along with `pairs`."""

    result: dict
    pairs: list[Pair]
    log_prob_good: np.ndarray  # (n,) float64, nats
    log_prob_bad: np.ndarray  # (n,)
    tokens_good: np.ndarray  # (n,) ids scored or conditioned on, BOS and EOS included where the convention has them
    tokens_bad: np.ndarray  # (n,)
    outcome: np.ndarray  # (n,) 1 right, 0.5 a tie, 0 wrong, NaN undefined


def load(data: str | Path | Sequence[str | Path]) -> list[Pair]:
    """The pairs of JSONL files, or of all *.jsonl files of a folder, sorted by paradigm and in file order within.

    `UID` falls back to the file's stem, `linguistics_term` (the phenomenon) and `field` to "unknown".
    Raises InputError, with file, line and field, for anything that is not a pair, for a paradigm found in two files or
    under two phenomena, and for empty files and folders.
    """
    paths = [data] if isinstance(data, str | Path) else data
    files = [file for path in paths for file in _files(Path(path))]
    pairs: list[Pair] = []
    home: dict[str, tuple[int, str]] = {}  # paradigm -> number of its file, phenomenon
    size: Counter[str] = Counter()
    for number, file in enumerate(files):
        for where, record in _records(file):
            uid = _text(record, "UID", where, default=file.stem)
            phenomenon = _text(record, "linguistics_term", where, default="unknown")
            if phenomenon == "s-selection":  # two official files say so; the paper counts them here
                phenomenon = "argument_structure"
            first_number, first_phenomenon = home.setdefault(uid, (number, phenomenon))
            if first_number != number:
                raise InputError(f"{where}: UID {uid!r} is also in {files[first_number]}: give every paradigm once")
            if first_phenomenon != phenomenon:
                raise InputError(
                    f"{where}: field 'linguistics_term' is {phenomenon!r}, and {first_phenomenon!r} earlier for the "
                    f"same UID {uid!r}: a paradigm belongs to one phenomenon"
                )
            pair = Pair(
                uid=uid,
                index=size[uid],
                good=_text(record, "sentence_good", where),
                bad=_text(record, "sentence_bad", where),
                phenomenon=phenomenon,
                field=_text(record, "field", where, default="unknown").replace("syntax_semantics", "syntax/semantics"),
                pair_id=str(record.get("pairID", size[uid])),
            )
            pairs.append(pair)
            size[uid] += 1
    return sorted(pairs, key=lambda pair: pair.uid)


def evaluate(
    run: Any,
    pairs: Sequence[Pair],
    scoring: str = "paper",
    baselines: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Evaluation:
    """Score pairs with a run under a convention, beside what length and word frequency alone would give.

    run: as from `esnlm.load`. pairs: from `load`. baselines: further ones beside `length` and `unigram`, {name: object
    with token_log_probs(ids) -> (T - 1,) nats}. progress: show how far the scoring is.

    In a baseline a tie counts half: it has no preference, and a coin would do as well. `length` ties whenever both
    sentences have as many tokens, so the rule for ties, not the baseline, would otherwise make its score. The figure
    of the run to set beside it is `accuracy_ties_half`; `run_above` is the difference, paired, with its intervals.

    Raises InputError for an unknown scoring. NaN log-probabilities and a collapsed model (`statistics.has_collapsed`)
    leave accuracies None, and `status` and `warnings` say why.
    """
    convention = conventions.convention(scoring)
    sentences = list(dict.fromkeys(sentence for pair in pairs for sentence in (pair.good, pair.bad)))
    sequences = conventions.encode(sentences, run.tokenizer, scoring)
    at = {sentence: i for i, sentence in enumerate(sentences)}
    good, bad = np.array([(at[pair.good], at[pair.bad]) for pair in pairs]).T  # (n,) (n,) into sentences
    identical = good == bad
    rows = members(pairs)
    phenomenon_of = {pair.uid: pair.phenomenon for pair in pairs}

    log_prob = conventions.sequence_log_probs(sequences, partial(run.token_log_probs_of, progress=progress))
    tokens = np.array([len(ids) for ids in sequences])
    outcome = statistics.outcomes(log_prob[good], log_prob[bad])
    tie = float(convention.tie_is_right)
    accuracies = statistics.accuracies(outcome, identical, rows, phenomenon_of, ties_count_as=tie)
    for uid, entry in accuracies["paradigms"].items():
        first = pairs[rows[uid][0]]
        entry.update(phenomenon=first.phenomenon, field=first.field)

    def baseline(score: np.ndarray) -> dict:  # score (sentences,)
        guess = statistics.outcomes(score[good], score[bad])
        above = None if np.isnan(outcome).any() else statistics.compare(outcome, guess, rows, phenomenon_of)
        return statistics.accuracies(guess, identical, rows, phenomenon_of, ties_count_as=0.5) | {"run_above": above}

    unigram = run.unigram()
    others = ({} if unigram is None else {"unigram": unigram}) | (baselines or {})
    length_only = statistics.sees_length_only(log_prob, tokens - 1)
    status, warnings = _verdict(log_prob, outcome, identical, accuracies, length_only)
    result = {
        "format": "esnlm minimal pairs",
        "format_version": FORMAT_VERSION,
        "status": status,
        "warnings": warnings,
        "run": run.name,
        "step": run.step,
        "config_sha256": config_sha256(run),
        "scoring": {"name": convention.name, "description": convention.description, "ties_count_as": tie},
        "tokenizer": {
            "name": run.tokenizer.name,
            "sha256": run.tokenizer.sha256,
            "vocab_size": run.tokenizer.vocab_size,
        },
        "data": {
            "sha256": digest(pairs),
            "pairs": len(pairs),
            "distinct_sentences": len(sentences),
            "identical_pairs": int(identical.sum()),
            "paradigms": len(rows),
            "phenomena": len(accuracies["phenomena"]),
        },
        "units": "accuracies and intervals in percent, log-probabilities in nats; ties count half in baselines",
        "intervals": statistics.INTERVALS,
        **accuracies,
        "baselines": {
            "length": baseline(-tokens.astype(float)),
            **{
                name: baseline(conventions.sequence_log_probs(sequences, partial(map, other.token_log_probs)))
                for name, other in others.items()
            },
        },
        "anchors": anchors(phenomenon_of),
    }
    return Evaluation(result, list(pairs), log_prob[good], log_prob[bad], tokens[good], tokens[bad], outcome)


def anchors(phenomenon_of: Mapping[str, str]) -> dict | None:
    """BLiMP's own published accuracies, in percent, averaged over the given paradigms (all 67, or a part of them).

    Gives {"overall": {model: accuracy}, "phenomena": {name: ...}, "paradigms": {name: ...}}, or None where a paradigm
    is not BLiMP's. Models: five_gram, lstm, transformer_xl, gpt2, human (anchors.csv names the source).
    """
    lines = resources.files("esnlm.evaluation").joinpath("anchors.csv").read_text("utf-8").splitlines()
    rows = {row.pop("UID"): row for row in csv.DictReader(line for line in lines if not line.startswith("#"))}
    if not phenomenon_of.keys() <= rows.keys():
        return None
    models = [name for name in next(iter(rows.values())) if name != "phenomenon"]

    def mean_over(names: Sequence[str]) -> dict:
        return {model: float(np.mean([float(rows[name][model]) for name in names])) for model in models}

    return {
        "overall": mean_over(list(phenomenon_of)),
        "phenomena": {
            phenomenon: mean_over([name for name, its in phenomenon_of.items() if its == phenomenon])
            for phenomenon in sorted(set(phenomenon_of.values()))
        },
        "paradigms": {name: mean_over([name]) for name in phenomenon_of},
    }


def config_sha256(run: Any) -> str:
    """sha256 of the run's configuration: what tells two runs of one name apart."""
    return hashlib.sha256((run.directory / "config.yaml").read_bytes()).hexdigest()


def members(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """The pairs of each paradigm, as indices into `pairs`."""
    rows: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        rows.setdefault(pair.uid, []).append(i)
    return {uid: np.array(indices) for uid, indices in rows.items()}


def digest(pairs: Sequence[Pair]) -> str:
    """sha256 of the paradigms and sentences, however they were spread over files."""
    content = hashlib.sha256()
    for pair in pairs:
        content.update(json.dumps([pair.uid, pair.good, pair.bad]).encode() + b"\n")
    return content.hexdigest()


def _verdict(
    log_prob: np.ndarray, outcome: np.ndarray, identical: np.ndarray, accuracies: dict, length_only: bool
) -> tuple[str, list]:
    """("ok" | "not defined" | "collapsed", warnings); takes the accuracies of a collapsed model away."""
    undefined = int(np.sum(np.isnan(log_prob) | np.isposinf(log_prob)))
    if undefined:
        where = sum(entry["undefined"] > 0 for entry in accuracies["paradigms"].values())
        return "not defined", [
            f"{undefined} of {len(log_prob)} sentences have a log-probability that is not a number, in {where} of "
            f"{len(accuracies['paradigms'])} paradigms: no accuracy is given for these, nor for a mean over them"
        ]
    if length_only or statistics.has_collapsed(outcome, identical):
        for entry in (accuracies["overall"], *accuracies["phenomena"].values(), *accuracies["paradigms"].values()):
            entry.update(dict.fromkeys([key for key in entry if key.startswith(("accuracy", "interval"))]))
        tied = int(np.sum((outcome == 0.5) & ~identical))
        if not statistics.has_collapsed(outcome, identical):
            return "collapsed", [
                "every token has the same log-probability: nothing but length decides, and no accuracy is given"
            ]
        return "collapsed", [
            f"{tied} of the {int(np.sum(~identical))} pairs of different sentences have equal log-probabilities: the "
            "model tells them apart by nothing, or by length alone, and no accuracy is given"
        ]
    return "ok", []


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: no such file or folder of minimal pairs")
    files = sorted(file for file in path.glob("*.jsonl") if not file.name.startswith("."))
    if not files:
        raise InputError(f"{path}: no .jsonl file in this folder: give the folder that holds the pairs, or its files")
    return files


def _records(file: Path) -> Iterator[tuple[str, dict]]:
    """Each line's object with its "file:line". Lines end in \\n only: a sentence may hold any other separator."""
    empty = True
    for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        empty, where = False, f"{file}:{number}"
        try:
            record = parse_json(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: not UTF-8 (byte {error.start} of the line)") from None
        except json.JSONDecodeError as error:
            raise InputError(f"{where}: not JSON ({error.msg}, column {error.colno}): one object a line") from None
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error}): one object a line") from None
        if not isinstance(record, dict):
            raise InputError(f"{where}: a JSON {type(record).__name__}, not an object with sentence_good, sentence_bad")
        yield where, record
    if empty:
        raise InputError(f"{file}: the file is empty: one JSON object a line is needed")


def _text(record: dict, field: str, where: str, default: str | None = None) -> str:
    if field not in record and default is not None:
        return default
    if field not in record:
        raise InputError(f"{where}: field {field!r} is missing")
    value = record[field]
    if not isinstance(value, str):
        raise InputError(f"{where}: field {field!r} is {json.dumps(value)}, not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where}: field {field!r} has half a surrogate pair, which is no text") from None
    return value
