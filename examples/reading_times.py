"""Do a model's surprisals predict reading times, beyond word length and frequency?

    python examples/reading_times.py all_stories.tok processed_wordinfo.tsv \\
        --run runs/first runs/second --out reading_times

The files are those of Natural Stories (Futrell et al. 2021): a word per row, and each word's mean
reading time. The logarithm of the time, less its mean in the story, is regressed on the length and
the log-frequency of the word and of the two before it (cubic splines), and on its place in the
sentence and in the story. The gain of a model is what the surprisals of the word and of the two
before it add to the log-likelihood, in nats per 1,000 words: a tenth of the sentences at a time is
predicted from the others, and the interval is Student's t over stories. The first and last words of
sentences are left out, as usual. The gain beyond n-grams is that over a regression which has the
surprisals of the unigram and bigram models, too (without the cache, which they never have). The
last figure is the difference from the first run, story by story.

Writes the words to OUT.csv, the gains to OUT.json, and draws these by mean surprisal in OUT.png.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student_t
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

import esnlm
from esnlm.base.errors import InputError
from esnlm.machine.process import exit_with
from esnlm.reports import plots

PREVIOUS = 2  # words before, whose difficulty spills over
NGRAMS = ["surprisal_bits_unigram", "surprisal_bits_bigram"]
TEXT = {"sep": "\t", "quoting": 3, "keep_default_na": False}  # quotation marks and "NA" are text


def read_tables(words: str, times: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the table of words, and that of reading times: columns item, zone and time."""
    columns = ["item", "zone", "gmeanItemRT"]
    tables = []
    for path, needed in ((words, None), (times, columns)):
        try:
            tables.append(pd.read_csv(path, usecols=needed, **TEXT))
        except (OSError, ValueError) as error:  # of pandas, if it is empty or lacks a column
            raise InputError(f"{path}: {error}; give the file of Natural Stories") from None
    return tables[0], tables[1].rename(columns={"gmeanItemRT": "time"})


def with_previous(columns: Sequence[str]) -> list[str]:
    """Returns the columns and those of the words before."""
    return [*columns, *(f"{name}_previous{k + 1}" for name in columns for k in range(PREVIOUS))]


CURVED = with_previous(["length", "log_frequency"])  # as cubic splines
STRAIGHT = ["sentence_position", "zone"]


def log_likelihoods(table: pd.DataFrame, surprisals: Sequence[str]) -> np.ndarray:
    """Returns the held-out log-likelihood of each word's reading time, (words,), in nats."""
    splines = SplineTransformer(n_knots=5, knots="quantile", extrapolation="linear")
    straight = ("passthrough", [*STRAIGHT, *with_previous(surprisals)])
    scores = np.empty(len(table))
    folds = GroupKFold(10, shuffle=True, random_state=0)
    for train, test in folds.split(table, groups=table.sentence_number):
        words, held_out = table.iloc[train], table.iloc[test]
        columns = make_column_transformer((splines, CURVED), straight)
        regression = make_pipeline(columns, LinearRegression()).fit(words, words.time)
        variance = np.mean((words.time - regression.predict(words)) ** 2)
        errors = held_out.time - regression.predict(held_out)
        scores[test] = -0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance)
    return scores


def over_stories(by_story: np.ndarray) -> dict:
    """Returns the mean of gains, one for each story, and its interval."""
    mean, error = np.mean(by_story), np.std(by_story, ddof=1) / len(by_story) ** 0.5
    half = student_t.ppf(0.975, len(by_story) - 1) * error
    return {"gain": mean, "interval": [mean - half, mean + half], "by_story": list(by_story)}


def spell(result: dict) -> str:
    """Returns a gain and its interval as text."""
    low, high = result["interval"]
    return f"{result['gain']:.1f} ({low:.1f} to {high:.1f})"


def gains(scored: pd.DataFrame, times: pd.DataFrame) -> dict[str, dict]:
    """Returns the gain of each column of surprisals in the table of `esnlm.score_words`.

    `times` has the columns item, zone and time.
    """
    surprisals = [
        name for name in scored if name.startswith("surprisal_") and "_previous" not in name
    ]
    table = scored.merge(times, "left", ["item", "zone"], validate="one_to_one")
    table = table[~table.first_in_sentence & ~table.last_in_sentence]
    table = table.dropna(subset=["time", *CURVED, *with_previous(surprisals)])
    log_time = np.log(table.time)
    table = table.assign(time=log_time - log_time.groupby(table.item).transform("mean"))

    def gain(extra: Sequence[str], over: np.ndarray) -> dict:
        more = 1000 * pd.Series(log_likelihoods(table, extra) - over, table.index)
        return over_stories(more.groupby(table.item).mean().to_numpy())

    plain, with_ngrams = log_likelihoods(table, []), log_likelihoods(table, NGRAMS)
    results = {}
    for name in surprisals:
        results[name] = {"words": len(table), "surprisal": table[name].mean()}
        results[name] |= gain([name], plain)
        if name not in NGRAMS:
            results[name]["beyond_ngrams"] = gain([*NGRAMS, name], with_ngrams)
    return results


def draw(results: dict[str, dict], path: Path) -> None:
    """Draws the gains, with their intervals, by the mean surprisal of a word."""
    figure, ((panel,),) = plots.figure(7, 5)
    for name, result in results.items():
        half = (result["interval"][1] - result["interval"][0]) / 2
        label = name.removeprefix("surprisal_bits_")
        panel.errorbar(result["surprisal"], result["gain"], half, fmt="o", capsize=3, label=label)
    panel.set(xlabel="mean surprisal of a word, bits", ylabel="gain, nats per 1,000 words")
    plots.add_legend(figure, panel)
    path.write_bytes(plots.picture(figure))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", help="table with the columns word, zone and item")
    parser.add_argument("times", help="table with the columns item, zone and gmeanItemRT")
    parser.add_argument("--run", nargs="+", required=True)
    parser.add_argument("--step", nargs="+", default=[None], help="updates of the checkpoints")
    parser.add_argument("--context", default="sentence", choices=("sentence", "document"))
    parser.add_argument("--cache", action="store_true", help="score the runs with the cache")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    words, times = read_tables(args.words, args.times)
    scored = esnlm.score_words(
        words,
        [esnlm.load(run, step) for run in args.run for step in args.step],
        document="item",
        context=args.context,
        cache=args.cache,
        baselines=["unigram", "bigram", "5-gram"],
        previous=PREVIOUS,
        progress=True,
    )
    results = gains(scored, times)
    first = next(iter(results.values()))
    for name, result in results.items():
        less_first = over_stories(np.subtract(result["by_story"], first["by_story"]))
        beyond = spell(result["beyond_ngrams"]) if name not in NGRAMS else "-"
        print(
            f"{name}: {spell(result)}; beyond n-grams {beyond}; less the first {spell(less_first)}"
        )
    scored.to_csv(args.out.with_suffix(".csv"), index=False)
    args.out.with_suffix(".json").write_text(json.dumps(results, indent=1))
    draw(results, args.out.with_suffix(".png"))


if __name__ == "__main__":
    sys.exit(exit_with(main))
