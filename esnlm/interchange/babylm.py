"""BabyLM's zero-shot evaluation of a run: the pipeline's files of predictions, from a run's own scorer.

Formats and rules are those of babylm-org/babylm-eval, folder strict/ (the same as babylm/evaluation-pipeline-2025):
sentence_zero_shot, reading and AoA_word. A sentence is encoded as Hugging Face's GPT-2 encodes it: nothing is put before it,
so its first token is only a condition (the scoring convention `babylm`). With `bos`, BOS stands before it and the first token
is scored too. Of equal sums the pipeline takes the first sentence, which is the right one.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from esnlm.errors import InputError
from esnlm.evaluation.evaluate import config_sha256
from esnlm.evaluation.sequences import require_defined, sum_log_probs
from esnlm.interchange.revisions import revision_names, words_of_checkpoints
from esnlm.io.atomic import write_files, writing
from esnlm.io.console import say, tell, working
from esnlm.io.json_file import json_text
from esnlm.io.remote import run_copy
from esnlm.io.screen import Screen
from esnlm.loaded_run import Run, Step, load
from esnlm.provenance import provenance
from esnlm.runs.directory import RunDirectory

# The pipeline's task of each folder of sentences.
FOLDERS = dict.fromkeys(("blimp_filtered", "supplement_filtered", "blimp_fast", "supplement_fast"), "blimp")
FOLDERS |= dict.fromkeys(("ewok_filtered", "ewok_fast"), "ewok")
FOLDERS |= dict.fromkeys(("entity_tracking", "entity_tracking_fast"), "entity_tracking")
FOLDERS |= {"wug_adj_nominalization": "wug_adj", "wug_past_tense": "wug_past", "comps": "comps"}
READING, AOA = "reading", "aoa"
# Columns of reading_data.csv: reading times and their predictors.
EYE_TRACKING = ["RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound"]
SELF_PACED = "self_paced_reading_time"
PROPERTIES = ["Subtlex_log10", "length", "context_length"]
MAIN = "main"  # the revision of the newest checkpoint
SCORING = {
    False: "babylm: the sentence alone, without BOS, EOS or leading space; its first token is not scored",
    True: "BOS and the text; every token after BOS can be scored",
}
TIES = "of equal sentences the first is chosen, which is right"


def evaluate_babylm(
    run: str | Path,
    data: str | Path,
    out: str | Path | None = None,
    model_name: str | None = None,
    sets: Sequence[str] | None = None,
    step: Step = None,
    checkpoints: bool = False,
    bos: bool = False,
    overwrite: bool = False,
    command: str | None = None,
) -> list[dict]:
    """Scores sets of the pipeline's data, writes the files of predictions and prints the scores.

    All data is read before anything is scored. Returns the content of each scores.json.

    Args:
        run: the run directory.
        data: the pipeline's folder full_eval or fast_eval.
        out, model_name: the folder of results, and that of the model in it; None: RUN/evaluation/babylm, and the run's name.
        sets: names of sets; None: all in the data.
        step: the checkpoint of this step, under the name of its revision; None: the newest, as `main`.
        checkpoints: whether to score every kept checkpoint at one of BabyLM's numbers of words. Surprisals for the age of
            acquisition are computed only then.
        bos: whether BOS stands before every text, as with a tokenizer that adds it.
        overwrite: whether to replace predictions.
        command: recorded in the files of scores.
    """
    newest, steps = _checkpoints(run, step, checkpoints)
    places = find_sets(Path(data), sets)
    if AOA in places and not checkpoints:
        if sets:
            raise InputError(f"set {AOA!r} needs the checkpoints of a training: give --checkpoints")
        tell(f"{AOA}: left out; it needs the checkpoints of a training (--checkpoints)")
        del places[AOA]
    sources = {name: read(name, place) for name, place in places.items()}

    model = (Path(out) if out else RunDirectory(newest.directory).evaluation / "babylm") / (model_name or newest.name)
    files = [_file(model, revision, name) for revision in steps for name in places]
    if there := [file for file in files if file.exists() and not overwrite]:
        raise InputError(f"{there[0]}: exists: name another folder with --out, or replace it with --overwrite")
    for file in files:
        with writing(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)

    about: dict = {"model": model.name, "run": newest.name, "config_sha256": config_sha256(newest)}
    about |= {"scoring": f"{SCORING[bos]}; {TIES}", "provenance": provenance(command)}
    results: list[dict] = []

    def write(revision: str, its_step: int, name: str, predictions: str, scores: dict) -> None:
        content = b"".join(file.read_bytes() for file in files_of(places[name]))
        known = {
            "revision": revision,
            "step": its_step,
            "set": name,
            "data_sha256": hashlib.sha256(content).hexdigest(),
        }
        results.append(about | known | scores)
        file = _file(model, revision, name)
        write_files({file.with_name("scores.json"): json_text(results[-1]), file: predictions})

    surprisals: list[dict] = []
    for revision, its_step in steps.items():
        loaded = newest if its_step == newest.step else load(run, step=its_step)
        for name, source in sources.items():
            say(f"{revision}: {name}")
            if name == AOA:
                surprisals += acquisition(loaded, revision, source, bos)
            else:
                predictions, scores = score(loaded, name, source, bos)
                write(revision, its_step, name, json.dumps(predictions), scores)
    if AOA in places:
        counts = {"total_steps": len(steps), "completed_steps": len(steps)}
        content = {"metadata": {"model_name": model.name, "use_bos_only": False} | counts, "results": surprisals}
        scores = {"items": len(surprisals), "revisions": steps, "scores": {}}
        write(MAIN, newest.step, AOA, json.dumps(content, indent=2), scores)
    print(f"{newest.name}: BabyLM's sets, scoring {SCORING[bos]}; {TIES}")
    if not bos:
        say("the pipeline reads BOS before each text with a model that esnlm export wrote: --bos predicts as it does")
    _show(results)
    print(f"written: {len(results)} sets below {model}")
    return results


def _checkpoints(run: str | Path, step: Step, every: bool) -> tuple[Run, dict[str, int]]:
    """Returns a run at the asked or newest step, and the steps to score by the names of their revisions."""
    if every or step is not None:
        run = run_copy(run, every_step=True)
    with working(f"loading {run}"):
        loaded = load(run, step=step)
    if not every and step is None:
        return loaded, {MAIN: loaded.step}
    names = revision_names(words_of_checkpoints(RunDirectory(loaded.directory)))
    if not every:
        return loaded, {names.get(loaded.step, f"step_{loaded.step}"): loaded.step}
    steps = {name: its_step for its_step, name in names.items() if name.startswith("chck_")}
    if not steps:
        raise InputError(f"{run}: no checkpoint at 1M, 2M, ... words: save them with training.checkpoint_words")
    return loaded, steps


def _file(model: Path, revision: str, name: str) -> Path:
    """Returns the file of a set's predictions, where the pipeline looks for it."""
    if name == AOA:
        return model / MAIN / "zero_shot" / "causal" / "AoA_word" / "surprisal.json"
    causal = model / revision / "zero_shot" / "causal"
    return (causal / READING if name == READING else causal / FOLDERS[name] / name) / "predictions.json"


def _show(results: list[dict]) -> None:
    """Prints a table of the scores."""
    rows = []
    for its in results:
        for metric, value in its["scores"].items() or [("", "")]:
            shown = "not defined" if value is None else value if isinstance(value, str) else f"{value:.2f}"
            items, ties = f"{its['items']:,}", str(its.get("ties", ""))
            rows.append([its["revision"], its["set"], metric.replace("_", " "), shown, items, ties])
    Screen().table(["revision", "set", "score", "value", "items", "ties"], rows, edge=True)


class Item(NamedTuple):
    """A choice between sentences; the first one is right."""

    uid: str  # its subset
    sentences: list[str]
    completions: list[str]  # the scored end of each sentence; the rest is its context
    shown: list[str]  # the prediction file's name for each sentence
    ratio: float = math.nan  # of the people who chose the first one, for the WUG sets


def find_sets(data: Path, asked: Sequence[str] | None = None) -> dict[str, Path]:
    """Returns the place of each set in the pipeline's folder full_eval or fast_eval, by the set's name."""
    places = {name: data / name for name in FOLDERS} | {READING: data / "reading" / "reading_data.csv"}
    aoa = data / "aoa" / "cdi_childes.json"
    places[AOA] = aoa if aoa.exists() else data / "cdi_childes" / "cdi_childes.json"  # the pipeline names both
    found = {name: place for name, place in places.items() if place.exists() and (not asked or name in asked)}
    if missing := [name for name in asked or () if name not in found]:
        raise InputError(f"{data}: has no set {', '.join(missing)}: sets are {', '.join(places)}")
    if not found:
        raise InputError(f"{data}: none of the pipeline's sets is here: give its full_eval or fast_eval")
    return found


def files_of(place: Path) -> list[Path]:
    """Returns the files of a set in the order of their names."""
    return sorted(place.glob("[!.]*.jsonl")) if place.is_dir() else [place]


def read(name: str, place: Path) -> Any:
    """Reads a set: a list of items; of AOA the contexts of each word; of READING a data frame.

    Raises InputError if a file is not in the pipeline's format, or pandas is not installed.
    """
    items: list[Item] = []
    for file in files_of(place):
        try:
            if name == READING:
                return _read_reading(file)
            if name == AOA:  # the pipeline leaves words of one letter out
                content = json.loads(file.read_text("utf-8"))
                return {word: [entry["context"] for entry in content[word]] for word in content if len(word) > 1}
            lines = [line for line in file.read_text("utf-8").split("\n") if line.strip()]
            items += [_item(FOLDERS[name], json.loads(line), file.stem) for line in lines]
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ImportError) as error:
            what = f"field {error} is missing" if isinstance(error, KeyError) else error
            raise InputError(f"{file}: cannot be read ({what}): copy the pipeline's data again") from None
    return items


def _item(task: str, record: dict, stem: str) -> Item:
    """Returns the item in a line of `stem`.jsonl."""
    match task:
        case "blimp":
            pair = [record["sentence_good"], record["sentence_bad"]]
            return Item(record["UID"] if "field" in record else stem, pair, pair, pair)
        case "ewok":
            targets = [" " + record["Target1"], " " + record["Target2"]]  # the pipeline scores nothing after Context2
            return Item(record["Domain"], [record["Context1"] + target for target in targets], targets, targets)
        case "entity_tracking":
            options = record["options"]
            sentences = [record["input_prefix"] + option for option in options]
            return Item(f"{stem}_{record['numops']}_ops", sentences, options, options)
        case "comps":
            phrase = record["property_phrase"]
            sentences = [f"{record[name]} {phrase}" for name in ("prefix_acceptable", "prefix_unacceptable")]
            subsets = {"comps_base": "base", "comps_wugs": "wugs", "comps_wugs_dist-before": "wugs_dist_before"}
            return Item(subsets.get(stem, "wugs_dist_in_between"), sentences, [phrase, phrase], sentences)
        case _:
            first, second = record["sentences"].split("\t")
            return Item(task, [first, second], [first, second], [first, second], float(record["ratio"]))


def _read_reading(file: Path) -> Any:
    """Returns the words that people read with their contexts and reading times, as a pandas.DataFrame."""
    import pandas  # the pipeline reads this file with it, too

    words = {"word": str, "prev_word": str}  # no word is a missing value, such as "null"
    table = pandas.read_csv(file, converters=words)
    figures = [*EYE_TRACKING, SELF_PACED, *PROPERTIES, "prev_length"]
    table[figures] = table[figures].astype(float)
    table["item"] = table["item"].fillna("None")  # as the pipeline writes a missing context
    return table[["item", "word", "prev_item", "prev_word", *figures]]


def score(run: Run, name: str, source: Any, bos: bool) -> tuple[dict, dict]:
    """Returns the content of predictions.json of a set, and its numbers of items and ties and its scores.

    `source` is the set from `read`, any but AOA. With `bos`, BOS stands before every text.
    """
    if name == READING:
        return _score_reading(run, source, bos)
    texts = [pair for item in source for pair in zip(item.sentences, item.completions, strict=True)]
    return choose(FOLDERS[name], source, completion_log_probs(run, texts, bos))


def choose(task: str, items: Sequence[Item], log_probs: np.ndarray) -> tuple[dict, dict]:
    """Chooses the most probable sentence of each item, given log p of all their completions, one item after the other.

    The accuracy is the mean over subsets, in percent, and of entity tracking that over three splits. The WUG sets have
    Spearman's rho between the probability of the first sentence among the two and the share of people who chose it.
    """
    predictions: dict[str, dict[str, list[dict]]] = {}
    right: dict[str, list[bool]] = {}
    probs, ties = [], 0
    ends = np.cumsum([len(item.sentences) for item in items])
    for item, own in zip(items, np.split(log_probs, ends[:-1]), strict=True):
        chosen = int(own.argmax())  # the first of equal ones
        ties += int((own == own.max()).sum() > 1)
        probs.append(float(np.exp(own[0] - own.max()) / np.exp(own - own.max()).sum()))
        entries = predictions.setdefault(item.uid, {"predictions": []})["predictions"]
        entries.append({"id": f"{item.uid}_{len(entries)}", "pred": item.shown[chosen]})
        if task.startswith("wug"):
            entries[-1]["prob"] = probs[-1]
        right.setdefault(item.uid, []).append(chosen == 0)
    found = {"items": len(items), "ties": ties}
    if task.startswith("wug"):
        people = [item.ratio for item in items]
        is_constant = len(set(probs)) < 2 or len(set(people)) < 2
        rho = None if is_constant else float(spearmanr(probs, people)[0])
        return predictions, found | {"scores": {"spearman": rho}}
    subsets = {uid: 100 * sum(its) / len(its) for uid, its in right.items()}
    groups = [list(subsets.values())]
    if task == "entity_tracking":
        splits = ("regular", "ambiref", "move_contents")
        groups = [[value for uid, value in subsets.items() if uid.startswith(split)] for split in splits]
    means = [sum(values) / len(values) for values in groups if values]
    return predictions, found | {"scores": {"accuracy": sum(means) / len(means)}, "subsets": subsets}


def completion_log_probs(run: Run, texts: Sequence[tuple[str, str]], bos: bool) -> np.ndarray:
    """Returns log p(completion | text before it) in nats, (n,) float64, of whole texts and their ends, the completions.

    A token with characters of the completion belongs to it, even if it has others too.
    """
    before = [run.tokenizer.bos] if bos else []
    encoded = run.tokenizer.encode_batch([text for text, _ in texts])
    scored = _token_log_probs(run, [[*before, *ids] for ids in encoded])
    scored_ends = []
    for (text, completion), ids, log_probs in zip(texts, encoded, scored, strict=True):
        context = len(text.encode()) - len(completion.encode())
        ends = np.cumsum([len(run.tokenizer.decode_bytes([token])) for token in ids])  # (T,) in bytes
        first = int(np.searchsorted(ends, context, side="right")) if context else 0
        # A token's log-probability has the number before the token's own, since nothing predicts the first one.
        scored_ends.append(log_probs[max(first + len(before), 1) - 1 :])
    return sum_log_probs(scored_ends)


def _token_log_probs(run: Run, sequences: Iterable[list[int]]) -> list[np.ndarray]:
    found = run.token_log_probs_of([np.array(ids, np.int32) for ids in sequences], progress=True)
    require_defined(found, run.directory, run.step)
    return found


def word_surprisals(run: Run, words: Sequence[tuple[str, str]], bos: bool) -> np.ndarray:
    """Returns -log p(word | context) in nats of contexts and words, (n,) float64.

    The tokens of a word are scored one by one. Before each further one, the context and the word so far are encoded anew, so
    that their ids are not always those of the word's own encoding.
    """
    tokenizer = run.tokenizer
    before = [tokenizer.bos] if bos else []
    sequences, owners = [], []
    for number, (text, word) in enumerate(words):
        for position, token in enumerate(tokenizer.encode(word)):
            piece = tokenizer.decode([token])
            target = token if position == 0 else tokenizer.encode(piece)[0]
            sequences.append([*before, *tokenizer.encode(text), target])
            owners.append(number)
            text += piece
    parts: list[list[float]] = [[] for _ in words]
    for number, found in zip(owners, _token_log_probs(run, sequences), strict=True):
        parts[number] += found[-1:].tolist()
    return -sum_log_probs(map(np.array, parts))


def _score_reading(run: Run, table: Any, bos: bool) -> tuple[dict, dict]:
    known = table["prev_item"].notna().to_numpy()  # no context before the word before: the beginning of a sentence
    asked = [*zip(table["item"], table["word"], strict=True)]
    asked += [*zip(table["prev_item"][known], table["prev_word"][known], strict=True)]
    found = word_surprisals(run, asked, bos)
    surprisals, previous = found[: len(table)], np.full(len(table), np.nan)
    previous[known] = found[len(table) :]
    pairs = enumerate(zip(surprisals.tolist(), previous.tolist(), strict=True))
    predictions = {"reading": {"predictions": [{"id": i, "pred": p, "prev_pred": q} for i, (p, q) in pairs]}}
    return predictions, {"items": len(table), "scores": reading_scores(table, surprisals, previous)}


def reading_scores(table: Any, surprisals: np.ndarray, previous: np.ndarray) -> dict[str, float | None]:
    """Returns how much of the variance of reading times surprisal explains that the words' properties leave over, in percent.

    For eye tracking it is the mean of four measures. For self-paced reading the word before is among the properties, with its
    surprisal.
    """
    properties = [table[name].to_numpy() for name in PROPERTIES]
    spillover = [*properties, table["prev_length"].to_numpy(), previous]
    eyes = [_gain(table[name].to_numpy(), properties, surprisals) for name in EYE_TRACKING]
    found = {
        "eye_tracking": sum(eyes) / len(eyes),
        "self_paced_reading": _gain(table[SELF_PACED].to_numpy(), spillover, surprisals),
    }
    return {name: None if math.isnan(gain) else gain for name, gain in found.items()}


def _gain(times: np.ndarray, properties: list[np.ndarray], surprisals: np.ndarray) -> float:
    """Returns (R^2 - R^2_0) / (1 - R^2_0) in percent, NaN with too few words for the regression."""
    columns = [np.ones_like(times), *properties]
    columns += [a * b for i, a in enumerate(properties) for b in properties[i + 1 :]]
    known = np.isfinite(np.column_stack([times, *properties])).all(axis=1)
    if known.sum() <= len(columns) + 1:
        return math.nan
    y, x = times[known], np.column_stack(columns)[known]
    before, after = _r_squared(y, x), _r_squared(y, np.column_stack([x, surprisals[known]]))
    return math.nan if math.isclose(before, 1) else 100 * (after - before) / (1 - before)


def _r_squared(y: np.ndarray, x: np.ndarray) -> float:
    """Returns the R^2 of a linear regression of y (n,) on the columns of x (n, k), of which one is constant."""
    x = x / np.abs(x).max(axis=0).clip(min=1e-300)
    return float(1 - np.var(y - x @ np.linalg.lstsq(x, y)[0]) / np.var(y))


def acquisition(run: Run, revision: str, contexts: dict[str, list[str]], bos: bool) -> list[dict]:
    """Returns the entries of AoA_word/surprisal.json of a checkpoint `chck_NM`: -log p(word | context) in nats."""
    places = [(word, i, context) for word, its in contexts.items() for i, context in enumerate(its)]
    texts = [(f"{context.strip()} {word.strip()}", word.strip()) for word, _, context in places]
    known = {"step": revision, "word_count": int(revision.removeprefix("chck_").removesuffix("M")) * 10**6}
    return [
        known | {"target_word": word, "context_id": i, "context": context, "surprisal": -log_prob}
        for (word, i, context), log_prob in zip(places, completion_log_probs(run, texts, bos).tolist(), strict=True)
    ]
