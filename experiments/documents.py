"""Whole documents, with the commands at the head of configs/studies/documents.yaml.

`windows` writes a token store whose sentences are the consecutive windows of each document. A
window reads at most so many tokens. It begins with the last token of the window before, so every
token is predicted once.

`table` measures all finished runs of a folder on the documents of a store. Runs on sentences begin
each one anew, those on windows each window, and those with data.context document carry their state
along. The tokens of the document so far also serve every model in two ways. As a cache (Kuhn and De
Mori 1990): p = (1 - l) p_model + l p_cache, where p_cache is a token's share of them. As a feature:
logits o_w + e log(1 + c_w / (1000 p_1(w))), where c_w counts a token among them and p_1 is its
share of the training text (after Kneser, Peters and Klakow 1997). An l and an e for each range of
distances are fitted to every other document and used on the rest, both ways. All rates are chosen
on these documents.

`compare` takes the NLL of one model less that of another, seed by seed, with Student's t interval:
of the models alone, with the cache and with the counts. Above 0 the second model is better. It also
says what these two give each model.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import esnlm
from esnlm.base.console import counted
from esnlm.base.errors import InputError
from esnlm.base.files import write_file, write_json
from esnlm.data.corpus import unigram_counts
from esnlm.data.store import StoreWriter, TokenStore, open_store
from esnlm.evaluation import cache
from esnlm.evaluation.cache import CountedText
from esnlm.evaluation.scoring import TextWindow
from esnlm.evaluation.statistics import runs_by_seed, seed_interval
from esnlm.features.documents import documents_of
from esnlm.machine.compute import in_float32
from esnlm.machine.process import exit_with
from esnlm.reports import plots
from esnlm.reports.report import markdown_table
from experiments.finished_runs import finished_runs

EDGES = [0, 32, 128, 512, 2048, 1 << 62]  # of distances, in predicted tokens
NAMES = ["1-32", "33-128", "129-512", "513-2,048", "later"]
LOSSES = ["nll", "cached", "counted"]  # of a model alone, with the cache and with the counts
CACHE_WEIGHTS = np.linspace(0, 0.3, 61)  # l
COUNT_WEIGHTS = np.arange(0, 1.6, 0.25, dtype=np.float32)  # e


def read(store: TokenStore) -> list[list[np.ndarray]]:
    """Returns the sentences of each document."""
    if (tokenizer := store.tokenizer()).bos != tokenizer.eos:
        raise InputError(
            f"{store.folder}: its tokenizer has a BOS that is not its EOS, which this does not"
            " support"
        )
    return [[store.sentence(s) for s in its] for its in documents_of(store)]


def end_to_end(sentences: list[np.ndarray]) -> np.ndarray:
    """Returns a document with one token between its sentences, for a tokenizer with the same BOS
    and EOS."""
    return np.concatenate([*(sentence[:-1] for sentence in sentences), sentences[-1][-1:]])


def cut(document: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Returns the windows of a document."""
    return [document[first : first + tokens + 1] for first in range(0, len(document) - 1, tokens)]


def write_windows(options: argparse.Namespace) -> None:
    if options.tokens < 1:
        raise InputError(f"--tokens {options.tokens}: give at least 1")
    store = open_store(options.store)
    with StoreWriter(options.out, store.tokenizer(), overwrite=options.overwrite) as writer:
        for number, (its, sentences) in enumerate(
            zip(documents_of(store), read(store), strict=True)
        ):
            windows = cut(end_to_end(sentences), options.tokens)
            # The words and bytes of a sentence count in the window of its last token.
            window_of = (np.cumsum(store.lengths[its] - 1) - 1) // options.tokens
            words, size = (
                np.bincount(window_of, n[its], len(windows)).astype(int)
                for n in (store.words, store.bytes)
            )
            writer.append(
                np.concatenate(windows),
                list(map(len, windows)),
                words,
                size,
                [number] * len(windows),
            )
        writer.finish(sentence_rule=f"windows of {options.tokens} tokens")


@in_float32
def surprisals(run: esnlm.Run, texts: list[list[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns -log p of the predicted tokens in nats, (E, T), for each weight of the counts, and
    p_cache, (T,)."""
    compute, store = run.config.compute, run.training_store()
    assert store is not None, "the run of a study was trained here"
    model = run.model.for_device(compute)
    stream, params = model.stream(compute, None), model.readout_arrays(run.model.params)
    longest = run.max_length if "windows" in store.manifest["sentence_rule"] else None
    seen = unigram_counts(store, run.tokenizer) + 1.0
    nats, shares = [], []
    for sentences in texts:
        document = end_to_end(sentences)
        if run.config.data.document_chunk is not None:
            buffer, (rows,) = stream.read([np.concatenate(sentences)[:-1]])
            # The BOS after an EOS is read, but not predicted.
            rows = rows[
                np.concatenate([np.arange(len(each)) < len(each) - 1 for each in sentences])[:-1]
            ]
        else:
            pieces = sentences if longest is None else cut(document, longest)
            buffer, by_piece = stream.read([piece[:-1] for piece in pieces])
            rows = np.concatenate(by_piece)
        numbers = np.arange(len(rows))
        window = TextWindow(buffer, rows, document[1:], np.zeros(len(rows), bool), numbers)
        text = CountedText(document[1:], np.zeros_like(numbers), beginning=int(document[0]))
        unigram, precision = seen / seen.sum(), compute.precision
        nats.append(
            -cache.window_log_probs(window, params, text, unigram, COUNT_WEIGHTS, precision)
        )
        shares.append(earlier(document)[1:] / (numbers + 1))
    return np.concatenate(nats).T.astype(np.float64), np.concatenate(shares)


def earlier(document: np.ndarray) -> np.ndarray:
    """Returns how often each token occurred before it in the document, (T,)."""
    order = np.argsort(document, kind="stable")
    begins = np.diff(document[order], prepend=-1) != 0
    place = np.arange(len(document))
    counts = np.empty_like(place)
    counts[order] = place - place[begins][np.cumsum(begins) - 1]
    return counts


def mixtures(nats: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Returns the surprisals of a model mixed with the cache, for each of its weights, (W, T)."""
    return -np.log(np.exp(-nats) + CACHE_WEIGHTS[:, None] * (shares - np.exp(-nats)))


def fitted(nats: np.ndarray, distance: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Returns surprisals, (T,), from those of each weight, (W, T), with the weights fitted on the
    other half."""
    found = np.empty(nats.shape[1])
    for k in range(len(NAMES)):
        for own in (0, 1):
            learned, used = ((distance == k) & (half == which) for which in (1 - own, own))
            found[used] = nats[nats[:, learned].sum(axis=1).argmin(), used]
    return found


def measure(options: argparse.Namespace) -> None:
    store = open_store(options.store)
    texts = read(store)
    sizes = [len(end_to_end(sentences)) - 1 for sentences in texts]
    distance = (
        np.searchsorted(EDGES, np.concatenate([np.arange(size) for size in sizes]), side="right")
        - 1
    )
    half = np.repeat(np.arange(len(sizes)) % 2, sizes)
    path = options.out.with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    known = {
        name: record for name, record in known.items() if record["of"][0] == store.tokens_sha256
    }
    for directory, result in finished_runs(options.runs).items():
        name, run = directory.name, esnlm.load(directory)
        made_from = [store.tokens_sha256, result["config_sha256"]]
        if name in known and known[name]["of"] == made_from:
            continue
        store.check_tokenizer(run.tokenizer)
        nats, shares = surprisals(run, texts)
        if not np.isfinite(nats).all():
            print(f"{name}: left out, as it diverged or a sentence is too long for it", flush=True)
            continue
        given = nats[:1], mixtures(nats[0], shares), nats
        losses = {of: fitted(each, distance, half) for of, each in zip(LOSSES, given, strict=True)}
        known[name] = {
            "of": made_from,  # the sha256 of the text, and of the run's configuration
            "model": name.split(",")[0],
            "rate": run.config.training.learning_rate,
            "seed": run.config.seed,
            "trained": run.model.counts().trainable,
            "seconds": result["seconds"],
            # Overall, then by the ranges that some document reaches.
            **{
                of: [x.mean(), *(x[distance == k].mean() for k in range(max(distance) + 1))]
                for of, x in losses.items()
            },
        }
        write_json(path, known)
        print(
            f"{name}: " + ", ".join(f"{of} {values.mean():.4f}" for of, values in losses.items()),
            flush=True,
        )
    best = at_best_rates(known)
    write_file(options.out.with_suffix(".md"), table(best))
    draw(best, options.out.with_suffix(".png"))
    print(f"written: {path}, .md and .png")


def compare(options: argparse.Namespace) -> None:
    try:
        known = json.loads(options.results.read_text())
    except (OSError, ValueError):
        raise InputError(f"{options.results}: not the JSON file of `table`") from None
    best = at_best_rates(known)
    if unknown := [model for model in options.models if model not in best]:
        raise InputError(f"{options.results}: no model {unknown[0]}; it has {', '.join(best)}")
    one, other = options.models
    pairs = [(of, (one, of), (other, of)) for of in LOSSES]
    pairs += [
        (f"{model}, nll less {of}", (model, "nll"), (model, of))
        for model in (one, other)
        for of in LOSSES[1:]
    ]
    for name, *both in pairs:
        first, second = (
            {record["seed"]: np.array(record[of]) for record in best[model]} for model, of in both
        )
        if not (differences := [first[seed] - second[seed] for seed in first if seed in second]):
            raise InputError(f"{options.results}: {one} and {other} have no seed in common")
        for where, values in zip(["all", *NAMES], zip(*differences, strict=True), strict=False):
            low, high = seed_interval(values) or (np.nan, np.nan)
            told = (
                f"{np.mean(values):.4f} ({low:.4f} to {high:.4f}), {counted(len(values), 'seed')}"
            )
            print(f"{name}, {where}: {told}")


def at_best_rates(known: dict) -> dict[str, list[dict]]:
    """Returns the records of each model at the rate with the lowest NLL of its first seed, the
    lowest mean NLL first."""
    rate, found = dict[str, float](), dict[str, list[dict]]()
    for record in sorted(known.values(), key=lambda record: (record["seed"], record["nll"])):
        if record["rate"] == rate.setdefault(record["model"], record["rate"]):
            found.setdefault(record["model"], []).append(record)
    for model, records in found.items():
        # raises if a seed occurs twice
        runs_by_seed(records, f"{model} at a rate of {records[0]['rate']:g}")
    return dict(sorted(found.items(), key=lambda item: _mean(item[1], "nll")[0]))


def table(best: dict[str, list[dict]]) -> str:
    """Returns the table of the page: means over seeds, 95 % intervals from three seeds on, minutes
    of the fastest run."""
    rows = []
    for model, records in best.items():
        interval = seed_interval([record["nll"][0] for record in records])
        spread = f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
        minutes = min(record["seconds"] for record in records) / 60
        nll, *by_distance = _mean(records, "nll")
        figures = [f"{minutes:.1f}", f"{nll:.3f}{spread}", *(f"{x:.2f}" for x in by_distance)]
        figures += [f"{_mean(records, of)[0]:.3f}" for of in LOSSES[1:]]
        rows.append([model, f"{records[0]['rate']:g}", len(records), *figures])
    head = [
        "model",
        "rate",
        "seeds",
        "minutes",
        "NLL",
        *NAMES[: len(by_distance)],
        "with the cache",
        "with counts",
    ]
    return "\n".join(markdown_table(head, rows, align="lr")) + "\n"


def draw(best: dict[str, list[dict]], path: Path) -> None:
    """Draws the NLL by distance, as means over seeds, of the models alone and with the counts."""
    figure, (panels,) = plots.figure(13, 5.5, columns=2, sharey=True)
    of_family = Counter[str]()  # a family, the first word of the name, has one colour
    for model, records in best.items():
        family = model.split("-")[0]
        style = ("o-", "s--", "^:", "v-.")[of_family[family] % 4]
        of_family[family] += 1
        colour = plots.COLOURS[list(of_family).index(family) % len(plots.COLOURS)]
        for axes, of in zip(panels, ("nll", "counted"), strict=True):
            nll = _mean(records, of)[1:]
            axes.plot(NAMES[: len(nll)], nll, style, color=colour, markersize=4, label=model)
    for axes, title in zip(
        panels, ("the model alone", "with the counts of the document's tokens"), strict=True
    ):
        axes.set(title=title, xlabel="tokens since the document's beginning")
    panels[0].set_ylabel("NLL, nats per token")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9
    )
    path.write_bytes(plots.picture(figure, path.suffix))


def _mean(records: list[dict], of: str) -> np.ndarray:
    return np.mean([record[of] for record in records], axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    of_runs.add_argument(
        "--out", type=Path, required=True, help="the page, a picture and JSON get this name"
    )
    of_runs.set_defaults(run=measure)
    of_two = commands.add_parser("compare")
    of_two.add_argument("results", type=Path, help="the JSON file of table")
    of_two.add_argument("models", nargs=2, metavar="MODEL")
    of_two.set_defaults(run=compare)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    sys.exit(exit_with(main))
