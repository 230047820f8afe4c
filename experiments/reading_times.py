"""Reading times by the models of configs/studies/reading.yaml, whose head has the commands of the
runs.

Scores the words of Natural Stories with each checkpoint of each run, and measures what the
surprisals add to a regression of reading times (examples/reading_times.py). Runs with data.context
document carry their state through a story. `--cache` adds the last checkpoints with the cache.

Prints tables of means over seeds, with intervals over stories after this mean. Writes OUT.json,
and draws OUT.png. The same command goes on with new runs; after other changes, begin a new OUT.

    python -m experiments.reading_times studies/reading/runs all_stories.tok \\
        processed_wordinfo.tsv --cache --out results/reading_times
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

import esnlm
from esnlm.base.files import write_json
from esnlm.machine.process import exit_with
from esnlm.reports import plots
from esnlm.reports.report import markdown_table
from esnlm.runs import checkpoint
from examples import reading_times
from experiments.finished_runs import finished_runs, split_name

BASELINES = ["unigram", "bigram", "5-gram"]
CACHE = " with the cache"  # at the end of a model's name
DOCUMENTS = "-documents"  # in the name of a model of whole documents
REFERENCE = "lstm-512"  # the model with which the others are compared


def score(
    words: pd.DataFrame, runs: list[esnlm.Run], baselines: list[str], cache: bool = False
) -> pd.DataFrame:
    """Returns the table of words of checkpoints of one run, read as it was trained."""
    is_by_document = runs[0].config.data.document_chunk is not None
    context = "document" if is_by_document else "sentence"
    return esnlm.score_words(
        words,
        runs,
        document="item",
        context=context,
        cache=cache,
        baselines=baselines,
        previous=reading_times.PREVIOUS,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="the folder `runs` of the study")
    parser.add_argument("words", help="table with the columns word, zone and item")
    parser.add_argument("times", help="table with the columns item, zone and gmeanItemRT")
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    words, times = reading_times.read_tables(args.words, args.times)
    out = args.out.with_suffix(".json")
    records: list[dict] = json.loads(out.read_text("utf-8")) if out.exists() else []
    scored = {(record["model"], record["seed"]) for record in records}
    for directory in finished_runs(args.runs):
        model, seed = split_name(directory.name)
        if (model, seed) in scored:
            continue
        steps = sorted(checkpoint.all_steps(directory / "checkpoints"))
        runs = [esnlm.load(directory, step=step) for step in steps]
        baselines = ["unigram", "bigram"] if records else BASELINES
        gains = reading_times.gains(score(words, runs, baselines), times)
        if not records:
            for baseline in BASELINES:
                gain = gains.pop(f"surprisal_bits_{baseline.replace('-', '')}")
                records.append({"model": baseline, "seed": 0, "step": 0, "last": True} | gain)
        for step, gain in zip(steps, gains.values(), strict=False):  # the columns of runs are first
            is_last = step == steps[-1]
            records.append({"model": model, "seed": seed, "step": step, "last": is_last} | gain)
        if args.cache:
            cached = reading_times.gains(score(words, runs[-1:], baselines[:2], True), times)
            record = {"model": model + CACHE, "seed": seed, "step": steps[-1], "last": True}
            records.append(record | cached["surprisal_bits"])
        write_json(out, records)
        print(f"{model}, seed {seed}", flush=True)
    tables = [
        times_table(records),
        added_table(records, CACHE, "what the cache adds to"),
        added_table(records, DOCUMENTS, "what whole documents add to"),
    ]
    print("\n".join(tables), end="")
    draw_times(records, args.out.with_suffix(".png"))


def over_seeds(by_story: Iterable[list[float]]) -> dict:
    """Returns the gain and its interval over stories, from the means of each story over seeds."""
    return reading_times.over_stories(np.mean(list(by_story), axis=0))


def at_surprisal(checkpoints: pd.DataFrame, bits: float) -> np.ndarray | None:
    """Returns a model's gain in each story at this surprisal, or None outside its checkpoints.

    It is interpolated between the checkpoints of each seed, and averaged over seeds: (stories,).
    """
    seeds = [seed.sort_values("surprisal") for _, seed in checkpoints.groupby("seed")]
    within = [seed.surprisal.iloc[0] <= bits <= seed.surprisal.iloc[-1] for seed in seeds]
    if not seeds or not all(within):
        return None
    stories = [(seed.surprisal, np.array(seed.by_story.tolist()).T) for seed in seeds]
    return np.mean([[np.interp(bits, x, y) for y in gains] for x, gains in stories], axis=0)


def times_table(records: list[dict]) -> str:
    """Returns the table of the last checkpoints, the lowest surprisal first."""
    frame, rows = pd.DataFrame(records), []
    for model, seeds in frame[frame["last"]].groupby("model"):
        bits, gain = seeds.surprisal.mean(), over_seeds(seeds.by_story)
        spread = f"{seeds.gain.min():.1f} to {seeds.gain.max():.1f}" if len(seeds) > 1 else ""
        beyond = [result["by_story"] for result in seeds.beyond_ngrams.dropna()]
        spelled = reading_times.spell(over_seeds(beyond)) if beyond else ""
        other, less = at_surprisal(frame[frame.model == REFERENCE], bits), ""
        if other is not None and model != REFERENCE and not model.endswith(CACHE):
            less = reading_times.spell(reading_times.over_stories(gain["by_story"] - other))
        row = [model, len(seeds), f"{bits:.2f}", reading_times.spell(gain), spread, spelled, less]
        rows.append(row)
    head = ["model", "seeds", "bits a word", "gain", "by seed", "gain beyond n-grams"]
    head.append(f"less {REFERENCE} at equal bits")
    rows.sort(key=lambda row: float(row[2]))
    return "\n".join(markdown_table(head, rows, align="lr")) + "\n"


def added_table(records: list[dict], part: str, title: str) -> str:
    """Returns the table of what a part of a model's name adds, in bits a word and in both gains."""
    frame, rows = pd.DataFrame(records), []
    frame["beyond"] = frame.beyond_ngrams.str.get("by_story")
    last = dict(iter(frame[frame["last"]].groupby("model")))
    models = {name.replace(part, ""): name for name in last if part in name}
    for model in sorted(models.keys() & last):
        without, having = last[model], last[models[model]]
        added = [
            over_seeds(having[key])["by_story"] - np.mean(without[key].tolist(), axis=0)
            for key in ("by_story", "beyond")
        ]
        gains = [reading_times.spell(reading_times.over_stories(each)) for each in added]
        rows.append([model, f"{having.surprisal.mean() - without.surprisal.mean():.2f}", *gains])
    head = [title, "bits a word", "gain", "gain beyond n-grams"]
    return "\n".join(markdown_table(head, rows, align="lr")) + "\n"


def plain_name(model: str) -> str:
    """Returns the name of the model of single sentences, without the cache."""
    return model.removesuffix(CACHE).removesuffix(DOCUMENTS)


def curves(records: list[dict]) -> pd.DataFrame:
    """Returns each model's surprisal and gain at its 1st, 2nd .. checkpoint, means over seeds."""
    frame = pd.DataFrame(records)
    number = frame.groupby(["model", "seed"]).cumcount()  # their updates differ by seed
    return frame.groupby(["model", number])[["surprisal", "gain"]].mean()


def draw_times(records: list[dict], path: Path) -> None:
    """Draws the gain of each checkpoint, mean over seeds, by the mean surprisal of a word.

    A model has one colour. Its runs on whole documents are dashed, and its gain with the cache is a
    hollow square.
    """
    points = curves(records)
    plain = sorted(set(map(plain_name, points.index.unique("model"))))
    colours = dict(zip(plain, plots.COLOURS, strict=False))  # of at most eight
    figure, ((panel,),) = plots.figure(8, 6)
    for model, checkpoints in points.groupby("model"):
        style = {"color": colours[plain_name(model)], "markersize": 5}
        style["marker"] = "D" if model in BASELINES else "o"
        style["linestyle"] = "--" if DOCUMENTS in model else "-"
        if model.endswith(CACHE):
            style |= {"marker": "s", "markerfacecolor": "none"}
        label = model if model in plain else None
        panel.plot(checkpoints.surprisal, checkpoints.gain, label=label, **style)
    panel.plot([], [], "--", color=plots.INK, label="whole documents")
    panel.plot([], [], "s", color=plots.INK, markerfacecolor="none", label="with the cache")
    panel.set(xlabel="mean surprisal of a word, bits", ylabel="gain, nats per 1,000 words")
    plots.add_legend(figure, panel, columns=5)
    path.write_bytes(plots.picture(figure))


if __name__ == "__main__":
    sys.exit(exit_with(main))
