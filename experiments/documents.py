"""Whole documents, with the commands at the head of configs/studies/documents.yaml.

`windows` writes a token store whose sentences are the consecutive windows of each document. A window reads at most so
many tokens. It begins with the last token of the window before, so every token is predicted once.

`table` measures all finished runs of a folder on the documents of a store. Runs on sentences begin each one anew, those
on windows each window, and those with data.context document carry their state along. Every model is also mixed with a
cache (Kuhn and De Mori 1990), p = (1 - l) p_model + l p_cache, where p_cache is a token's share of the document so far.
The weights l, one for each range of distances, are fitted to every other document and used on the rest, both ways.

`compare` takes the NLL of one model less that of another, seed by seed, with Student's t interval.
"""

import argparse
import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import esnlm
from esnlm.data.store import StoreWriter, open_store
from esnlm.errors import InputError
from esnlm.evaluation.statistics import seed_interval
from esnlm.features.lanes import documents_of
from esnlm.io.atomic import write_file
from esnlm.io.console import counted
from esnlm.io.json_file import write_json
from esnlm.process import exit_with
from esnlm.reporting import plots
from esnlm.reporting.tables import markdown_table

EDGES = [0, 32, 128, 512, 2048, 1 << 62]  # of distances, in predicted tokens
NAMES = ["1-32", "33-128", "129-512", "513-2,048", "later"]
WEIGHTS = np.linspace(0, 0.3, 61)


def end_to_end(sentences: list[np.ndarray]) -> np.ndarray:
    """Returns a document with one token between its sentences, for a tokenizer with the same BOS and EOS."""
    return np.concatenate([*(sentence[:-1] for sentence in sentences), sentences[-1][-1:]])


def cut(document: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Returns the windows of a document."""
    return [document[first : first + tokens + 1] for first in range(0, len(document) - 1, tokens)]


def write_windows(options: argparse.Namespace) -> None:
    if options.tokens < 1:
        raise InputError(f"--tokens {options.tokens}: give at least 1")
    store = open_store(options.store)
    with StoreWriter(options.out, store.tokenizer(), overwrite=options.overwrite) as writer:
        for number, its in enumerate(documents_of(store)):
            windows = cut(end_to_end([store.sentence(s) for s in its]), options.tokens)
            # The words and bytes of a sentence count in the window of its last token.
            window_of = (np.cumsum(store.lengths[its] - 1) - 1) // options.tokens
            counts = [np.bincount(window_of, n[its], len(windows)).astype(int) for n in (store.words, store.bytes)]
            writer.append(np.concatenate(windows), list(map(len, windows)), *counts, [number] * len(windows))
        writer.finish(sentence_rule=f"windows of {options.tokens} tokens")


def surprisals(run: esnlm.Run, texts: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Returns -log p of the predicted tokens of each document, in nats."""
    if run.config.data.document_piece is not None:
        found = run.token_log_probs_of([np.concatenate(sentences) for sentences in texts])
        kept = [np.concatenate([[True] * (len(each) - 1) + [False] for each in sentences])[:-1] for sentences in texts]
        return [-each[predicted] for each, predicted in zip(found, kept, strict=True)]
    is_cut = run.longest is not None and "windows" in run.training_store().manifest["sentence_rule"]
    pieces = [cut(end_to_end(sentences), run.longest) if is_cut else sentences for sentences in texts]
    found = iter(run.token_log_probs_of([piece for document in pieces for piece in document]))
    return [-np.concatenate([next(found) for _ in document]) for document in pieces]


def cache(document: np.ndarray) -> np.ndarray:
    """Returns the share of each token after the first among the tokens before it, (T - 1,)."""
    seen, found = Counter[int](), np.empty(len(document) - 1)
    for t, (token, following) in enumerate(pairwise(document.tolist())):
        seen[token] += 1
        found[t] = seen[following] / (t + 1)
    return found


def mixed(nats: np.ndarray, shares: np.ndarray, distance: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Returns the surprisals of a model mixed with the cache."""

    def mix(weight: float, where: np.ndarray) -> np.ndarray:
        return -np.log((1 - weight) * np.exp(-nats[where]) + weight * shares[where])

    found = np.empty_like(nats)
    for k in range(len(NAMES)):
        for own in (0, 1):
            learned, used = ((distance == k) & (half == which) for which in (1 - own, own))
            best = WEIGHTS[np.argmin([mix(weight, learned).sum() for weight in WEIGHTS])]
            found[used] = mix(best, used)
    return found


def measure(options: argparse.Namespace) -> None:
    store = open_store(options.store)
    texts = [[store.sentence(s) for s in its] for its in documents_of(store)]
    whole = [end_to_end(sentences) for sentences in texts]
    shares = np.concatenate([cache(document) for document in whole])
    at = np.concatenate([np.arange(len(document) - 1) for document in whole])
    distance = np.searchsorted(EDGES, at, side="right") - 1
    half = np.repeat(np.arange(len(whole)) % 2, [len(document) - 1 for document in whole])
    path = options.out.with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    if not (summaries := sorted(options.runs.glob("*/summary.json"))):
        raise InputError(f"{options.runs}: no finished run; name the folder `runs` of the study")
    for summary in summaries:
        name, run, result = summary.parent.name, esnlm.load(summary.parent), json.loads(summary.read_text())
        made_from = [store.tokens_sha256, result["config_sha256"]]
        if name in known and known[name]["of"] == made_from:
            continue
        store.require_tokenizer(run.tokenizer)
        nats = np.concatenate(surprisals(run, texts)).astype(np.float64)
        with_cache = mixed(nats, shares, distance, half)
        known[name] = {
            "of": made_from,  # the sha256 of the text, and of the run's configuration
            "model": name.split(",")[0],
            "rate": run.config.training.learning_rate,
            "seed": run.config.seed,
            "trained": run.model.counts().trainable,
            "seconds": result["seconds"],
            "nll": nats.mean(),
            "cached": with_cache.mean(),
            "by_distance": [nats[distance == k].mean() for k in range(len(NAMES))],
            "cached_by_distance": [with_cache[distance == k].mean() for k in range(len(NAMES))],
        }
        write_json(path, known)
        print(f"{name}: NLL {nats.mean():.4f}, with the cache {with_cache.mean():.4f}", flush=True)
    best = at_best_rates(known)
    write_file(options.out.with_suffix(".md"), table(best))
    draw(best, options.out.with_suffix(".png"))
    print(f"written: {path}, .md and .png")


def compare(options: argparse.Namespace) -> None:
    try:
        best = at_best_rates(json.loads(options.results.read_text()))
    except (OSError, ValueError):
        raise InputError(f"{options.results}: not the JSON file of `table`") from None
    if unknown := [model for model in options.models if model not in best]:
        raise InputError(f"{options.results}: no model {unknown[0]}; it has {', '.join(best)}")
    for of in ("nll", "cached"):
        one, other = ({record["seed"]: record[of] for record in best[each]} for each in options.models)
        values = [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
        low, high = seed_interval(values) or (np.nan, np.nan)
        print(f"{of}: {np.mean(values):.4f} ({low:.4f} to {high:.4f}), {counted(len(values), 'seed')}")


def at_best_rates(known: dict) -> dict[str, list[dict]]:
    """Returns the records of each model at the rate with the lowest NLL of its first seed, the lowest mean NLL first."""
    rate, found = dict[str, float](), dict[str, list[dict]]()
    for record in sorted(known.values(), key=lambda record: (record["seed"], record["nll"])):
        if record["rate"] == rate.setdefault(record["model"], record["rate"]):
            found.setdefault(record["model"], []).append(record)
    return dict(sorted(found.items(), key=lambda item: _mean(item[1], "nll")))


def table(best: dict[str, list[dict]]) -> str:
    """Returns the table of the page: means over seeds, 95 % intervals from three seeds on, minutes of the fastest run."""
    head = ["model", "rate", "seeds", "minutes", "NLL", *NAMES, "with the cache"]
    rows = []
    for model, records in best.items():
        interval = seed_interval([record["nll"] for record in records])
        spread = f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
        minutes = min(record["seconds"] for record in records) / 60
        figures = [f"{minutes:.1f}", f"{_mean(records, 'nll'):.3f}{spread}"]
        figures += [f"{x:.2f}" for x in _mean(records, "by_distance")] + [f"{_mean(records, 'cached'):.3f}"]
        rows.append([model, f"{records[0]['rate']:g}", len(records), *figures])
    return "\n".join(markdown_table(head, rows, align="lr")) + "\n"


def draw(best: dict[str, list[dict]], path: Path) -> None:
    """Draws the NLL by distance, as means over seeds."""
    made = plots.figure(9, 5.5)
    assert made is not None, plots.NO_MATPLOTLIB
    figure, ((axes,),) = made
    of_family = Counter[str]()  # a family, the first word of the name, has one colour
    for model, records in best.items():
        family = model.split("-")[0]
        style = ("o-", "s--", "^:", "v-.")[of_family[family] % 4]
        of_family[family] += 1
        colour = plots.COLOURS[list(of_family).index(family) % len(plots.COLOURS)]
        axes.plot(NAMES, _mean(records, "by_distance"), style, color=colour, markersize=4, label=model)
    axes.set(xlabel="tokens since the document's beginning", ylabel="NLL, nats per token")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    plots.save(figure, path)


def _mean(records: list[dict], key: str) -> Any:
    return np.mean([record[key] for record in records], axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    windows = commands.add_parser("windows")
    windows.add_argument("store", type=Path)
    windows.add_argument("out", type=Path)
    windows.add_argument("--tokens", type=int, required=True)
    windows.add_argument("--overwrite", action="store_true")
    windows.set_defaults(run=write_windows)
    of_runs = commands.add_parser("table")
    of_runs.add_argument("runs", type=Path)
    of_runs.add_argument("store", type=Path)
    of_runs.add_argument("--out", type=Path, required=True, help="the page, a picture and JSON get this name")
    of_runs.set_defaults(run=measure)
    of_two = commands.add_parser("compare")
    of_two.add_argument("results", type=Path, help="the JSON file of table")
    of_two.add_argument("models", nargs=2, metavar="MODEL")
    of_two.set_defaults(run=compare)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    sys.exit(exit_with(main))
