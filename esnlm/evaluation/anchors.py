"""The accuracies published with BLiMP (Warstadt et al. 2020), to compare runs with."""

import csv
from collections.abc import Mapping, Sequence
from importlib import resources

import numpy as np

from esnlm.evaluation.statistics import grouped


def anchors(phenomenon_of: Mapping[str, str]) -> dict | None:
    """Returns BLiMP's published accuracies in percent, averaged over the scored paradigms.

    None if a paradigm is not from BLiMP. The models are five_gram, lstm, transformer_xl, gpt2 and human (anchors.csv
    names the source).
    """
    lines = resources.files("esnlm.evaluation").joinpath("anchors.csv").read_text("utf-8").splitlines()
    published = {row.pop("UID"): row for row in csv.DictReader(line for line in lines if not line.startswith("#"))}
    if not phenomenon_of.keys() <= published.keys():
        return None
    models = [name for name in next(iter(published.values())) if name != "phenomenon"]

    def mean_over(names: Sequence[str]) -> dict[str, float]:
        return {model: float(np.mean([float(published[name][model]) for name in names])) for model in models}

    return grouped({name: mean_over([name]) for name in phenomenon_of}, phenomenon_of, mean_over)
