"""Probes of the models of configs/studies/reading.yaml, whose head has the commands of the runs.

Fits probes to the states of each run (examples/probing.py), to those of the LSTM before training,
and to the z of an ESN's readout.

Prints tables of means over seeds, with intervals over the sentences of the treebank after this
mean, and of the differences from lstm-512. Writes OUT.json, and OUT.pickle, from which the same
command goes on with new runs; after other changes, begin a new OUT.

    python -m experiments.probes studies/reading/runs en_ewt-ud-dev.conllu en_ewt-ud-test.conllu \\
        --out results/probes
"""

import argparse
import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import esnlm
from esnlm.base.errors import InputError
from esnlm.base.files import write_file, write_json
from esnlm.machine.process import exit_with
from esnlm.reports.report import markdown_table
from examples import probing
from experiments.finished_runs import finished_runs, split_name
from experiments.reading_times import REFERENCE


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="the folder `runs` of the study")
    parser.add_argument("train", help="CoNLL-U file that the probes are fitted to")
    parser.add_argument("test", help="CoNLL-U file that they are tested on")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    train, test = probing.read_treebank(args.train), probing.read_treebank(args.test)
    file = args.out.with_suffix(".pickle")
    found: list[dict] = pickle.loads(file.read_bytes()) if file.exists() else []
    probed = {(record["model"], record["seed"]) for record in found}
    directories = list(finished_runs(args.runs))
    if not any(split_name(directory.name)[0] == REFERENCE for directory in directories):
        raise InputError(
            f"{args.runs}: no finished run of {REFERENCE}, with which all are compared"
        )
    for directory in directories:
        model, seed = split_name(directory.name)
        run = esnlm.load(directory)
        probes: dict[str, tuple] = {model: (run, None)}
        if model == REFERENCE:
            probes[f"{model} untrained"] = esnlm.load(directory, untrained=True), None
        if model.startswith("esn"):
            probes[f"{model}, z"] = run, "z"
        for name, (probed_run, layer) in probes.items():
            if (name, seed) in probed:
                continue
            for task, right, levels in probing.probes(probed_run, train, test, layer):
                found.append({"model": name, "seed": seed, "task": task, "right": right} | levels)
            write_file(file, pickle.dumps(found))
            print(f"{name}, seed {seed}", flush=True)
    groups = pd.DataFrame(found).groupby(["model", "task"], sort=False)
    means = {key: np.mean(group.right.tolist(), axis=0) for key, group in groups}
    records = []
    for (model, task), group in groups:
        right = means[model, task]
        record = {"model": model, "task": task, "seeds": len(group)}
        record |= probing.accuracy(right, test.sentence)
        record |= group[["majority", "form", "control"]].mean().dropna().to_dict()
        record["by_seed"] = [100 * np.nanmean(seed) for seed in group.right]
        less = probing.accuracy(right - means[REFERENCE, task], test.sentence)
        records.append(record | {"less_reference": less})
    write_json(args.out.with_suffix(".json"), records)
    others = [record for record in records if record["model"] != REFERENCE]
    differences = [record | record["less_reference"] for record in others]
    print(probes_table(records), f"Less {REFERENCE}:", probes_table(differences), sep="\n", end="")


def probes_table(records: list[dict]) -> str:
    """Returns the table of accuracies, one row for each model."""
    frame = pd.DataFrame(records)
    frame["spelled"] = frame.apply(probing.spell, axis=1)
    table = frame.pivot(index=["model", "seeds"], columns="task", values="spelled")
    table = table[frame.task.unique()].reset_index()
    return "\n".join(markdown_table(list(table), table.to_numpy().tolist(), align="lr")) + "\n"


if __name__ == "__main__":
    sys.exit(exit_with(main))
