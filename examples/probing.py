"""What can be decoded from a model's states? Linear probes on a treebank of Universal Dependencies.

    python examples/probing.py en_ewt-ud-dev.conllu en_ewt-ud-test.conllu \\
        --run runs/first runs/second --out probes

Ridge classifiers are fitted to the states after the words of the first file, and their accuracy is
that on the second. The penalty is the best on a fifth of the sentences of the first, which are held
out. The 95 % interval resamples the sentences of the second. Tasks:

    upos, deprel     part of speech, and relation to the head
    head             how many words before this one its head stands, if it does
    subject          number of a verb's subject, read after the word before the verb
    word1 .. word12  which of the 100 most frequent words stood 1 .. 12 places before

`majority` always chooses the most frequent label. For upos and deprel, `form` chooses the most
frequent label of the word form, and `control` is the accuracy on random labels, one for each word
form (Hewitt and Liang 2019): what a probe learns by heart about words.

Prints the accuracies, and writes them to OUT.json with these.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import esnlm
from esnlm.base.errors import InputError
from esnlm.data.text_files import read_text
from esnlm.machine.process import exit_with

COLUMNS = ["number", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
PENALTIES = {"ridgeclassifier__alpha": 10.0 ** np.arange(1, 6)}
PLACES = (1, 2, 4, 8, 12)


def read_treebank(path: str) -> pd.DataFrame:
    """Returns the words of a CoNLL-U file, one per row, with `sentence`, `document`, and `space`
    after it. Without "# newdoc", each sentence is a document."""
    text = read_text(Path(path)).strip()
    if not text:
        raise InputError(f"{path}: empty; give a CoNLL-U file")
    rows, document, has_documents = [], 0, "# newdoc" in text
    for number, block in enumerate(text.split("\n\n")):
        document += "# newdoc" in block or not has_documents
        lines = [line.split("\t") for line in block.split("\n") if line[0] != "#"]
        ends = {}  # of multiword tokens, such as "don't", and what follows them
        for line in lines:
            if "-" in line[0]:
                first, last = map(int, line[0].split("-"))
                ends |= dict.fromkeys(range(first, last), "SpaceAfter=No") | {last: line[9]}
        for line in lines:
            if line[0].isdigit():
                row = dict(zip(COLUMNS, line, strict=True))
                row |= {"sentence": number, "document": document}
                after = ends.get(int(line[0]), line[9])
                rows.append(row | {"space": "SpaceAfter=No" not in after})
    return pd.DataFrame(rows).astype({"number": int, "head": int})


def subjects(table: pd.DataFrame) -> pd.Series:
    """Returns the number of each verb's subject, in the row of the word before the verb."""
    is_subject = (table.deprel == "nsubj") & (table.number < table["head"] - 1)
    number = table.feats.str.extract("Number=(Sing|Plur)")[0].where(is_subject).dropna()
    row_of_verb = number.index + (table["head"] - table.number)[number.index]
    labels = pd.Series(None, table.index, dtype=object)
    labels[row_of_verb - 1] = number.to_numpy()
    return labels


def tasks(table: pd.DataFrame, frequent: pd.Index) -> dict[str, pd.Series]:
    """Returns the labels of each task; a row without one is left out."""
    distance = (table.number - table["head"]).where(table["head"] > 0)
    labels = {"upos": table.upos, "deprel": table.deprel}
    labels["head"] = distance.where(distance.between(1, 10))
    labels["subject"] = subjects(table)
    forms = table.form.str.lower().groupby(table.sentence)
    for k in PLACES:
        word = forms.shift(k)
        labels[f"word{k}"] = word.where(word.isin(frequent))
    return labels


def control(forms: pd.Series, labels: pd.Series) -> pd.Series:
    """Returns a random label for each word form, drawn from the distribution of `labels`."""
    types = sorted(forms.unique())
    drawn = np.random.default_rng(0).choice(labels, len(types))
    return forms.map(dict(zip(types, drawn, strict=True)))


def most_frequent(forms: pd.Series, labels: pd.Series, of: pd.Series) -> pd.Series:
    """Returns the most frequent label of each form in `of`, or of all if the form is unknown."""
    counts = pd.crosstab(forms, labels)
    return of.map(counts.idxmax(axis=1)).fillna(counts.sum().idxmax())


def probe(
    train: np.ndarray, labels: pd.Series, sentences: pd.Series, test: np.ndarray, answers: pd.Series
) -> np.ndarray:
    """Returns whether each word of the test is decoded, (words,); NaN without a label."""
    known, labelled = labels.notna().to_numpy(), answers.notna().to_numpy()
    held_out = GroupShuffleSplit(1, test_size=0.2, random_state=0)
    classifier = GridSearchCV(
        make_pipeline(StandardScaler(), RidgeClassifier(solver="cholesky")), PENALTIES, cv=held_out
    )
    classifier.fit(train[known], labels[known], groups=sentences[known])
    right = np.full(len(answers), np.nan)
    right[labelled] = classifier.predict(test[labelled]) == answers[labelled].to_numpy()
    return right


def accuracy(right: np.ndarray, sentences: pd.Series) -> dict:
    """Returns the accuracy in percent, with a bootstrap interval over sentences."""
    by_sentence = pd.DataFrame({"right": right, "sentence": sentences}).groupby("sentence").right
    sums, counts = by_sentence.sum().to_numpy(), by_sentence.count().to_numpy()
    draws = np.random.default_rng(0).integers(len(sums), size=(1000, len(sums)))
    samples = 100 * sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    interval = np.percentile(samples, [2.5, 97.5]).tolist()
    return {"accuracy": 100 * np.nanmean(right), "interval": interval, "words": int(counts.sum())}


def spell(result: dict | pd.Series) -> str:
    """Returns an accuracy and its interval as text."""
    low, high = result["interval"]
    return f"{result['accuracy']:.1f} ({low:.1f} to {high:.1f})"


def states(run: esnlm.Run, table: pd.DataFrame, layer: str | None) -> np.ndarray:
    """Returns the state after each word of a treebank, (words, F).

    A model that was trained on whole documents reads whole documents.
    """
    sentences = table.groupby("sentence")
    words, spaces = sentences.form.agg(list), sentences.space.agg(list)
    reading = {"layers": layer, "progress": True}
    if run.config.data.document_chunk is not None:
        reading |= {"context": "document", "documents": sentences.document.first()}
    return run.word_states(words, space_after=spaces, **reading).states


def probes(
    run: esnlm.Run, train: pd.DataFrame, test: pd.DataFrame, layer: str | None = None
) -> Iterator[tuple[str, np.ndarray, dict[str, float]]]:
    """Yields each task, whether each word of the test is decoded, and the levels to compare with."""
    lower = pd.concat([train.form, test.form], ignore_index=True).str.lower()
    of_words = lower[: len(train)], lower[len(train) :].reset_index(drop=True)
    frequent = of_words[0].value_counts().index[:100]
    labels, answers = tasks(train, frequent), tasks(test, frequent)
    fitted, tested = states(run, train, layer), states(run, test, layer)
    for task in labels:
        right = probe(fitted, labels[task], train.sentence, tested, answers[task])
        levels = {"majority": 100 * np.mean(answers[task].dropna() == labels[task].mode()[0])}
        if task in ("upos", "deprel"):
            chosen = most_frequent(of_words[0], labels[task], of_words[1])
            levels["form"] = 100 * np.mean(chosen == answers[task])
            random = control(lower, labels[task])
            of_test = random[len(train) :].reset_index(drop=True)
            of_train = random[: len(train)]
            memorized = probe(fitted, of_train, train.sentence, tested, of_test)
            levels["control"] = 100 * np.mean(memorized)
        yield task, right, levels


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", help="CoNLL-U file that the probes are fitted to")
    parser.add_argument("test", help="CoNLL-U file that they are tested on")
    parser.add_argument("--run", nargs="+", required=True)
    parser.add_argument(
        "--untrained",
        action="store_true",
        help="probe the runs before training (only --layer z changes in an ESN: the rest is frozen)",
    )
    parser.add_argument("--layer", help="a name of run.layers (default: the readout's features)")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    train, test = read_treebank(args.train), read_treebank(args.test)
    results: dict[str, dict] = {}
    for path in args.run:
        run = esnlm.load(path, untrained=args.untrained)
        for task, right, levels in probes(run, train, test, args.layer):
            result = accuracy(right, test.sentence) | levels
            results.setdefault(path, {})[task] = result
            others = ", ".join(f"{name} {level:.1f}" for name, level in levels.items())
            print(f"{path} {task}: {spell(result)}; {others}", flush=True)
    args.out.with_suffix(".json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(exit_with(main))
