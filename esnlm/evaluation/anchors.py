"""The accuracies published with BLiMP (Warstadt et al. 2020), to compare runs with.

`blimp_pairs.npy` recognizes BLiMP's pairs: a checksum of each, (67, 1000) uint32, the paradigms in
the order of `anchors.csv`. `python docs/write_blimp_pairs.py blimp/` writes it from BLiMP's files.
"""

import csv
import io
import zlib
from collections.abc import Sequence
from importlib import resources

import numpy as np

from esnlm.evaluation.minimal_pairs import Pair, indices_by_paradigm
from esnlm.evaluation.statistics import grouped

FOLDER = resources.files("esnlm.evaluation")


def anchors(pairs: Sequence[Pair]) -> dict | None:
    """Returns BLiMP's published accuracies in percent, averaged over the paradigms of the pairs.

    The pairs of a paradigm, not its name, decide which of BLiMP's paradigms it is, in whole or in
    part. An unrelated pair has the checksum of one of BLiMP's pairs with probability 2e-5. The
    models are five_gram, lstm, transformer_xl, gpt2 and human (anchors.csv names the source).

    Returns:
        Entries by paradigm, by phenomenon and overall; None if a paradigm is not one of BLiMP's.
    """
    published = published_accuracies()
    checksums_of = dict(zip(published, map(frozenset, official_checksums().tolist()), strict=True))
    accuracies: dict[str, dict[str, float]] = {}
    for uid, indices in indices_by_paradigm(pairs).items():
        checksums = {checksum(pairs[index]) for index in indices}
        sources = [name for name, official in checksums_of.items() if checksums <= official]
        if len(sources) != 1:  # BLiMP has one pair in two paradigms
            return None
        accuracies[uid] = published[sources[0]]

    def mean_over(names: Sequence[str]) -> dict[str, float]:
        return {
            model: float(np.mean([accuracies[name][model] for name in names]))
            for model in accuracies[names[0]]
        }

    return grouped(accuracies, {pair.uid: pair.phenomenon for pair in pairs}, mean_over)


def published_accuracies() -> dict[str, dict[str, float]]:
    """Returns the accuracies in percent by paradigm and model."""
    lines = FOLDER.joinpath("anchors.csv").read_text("utf-8").splitlines()
    uid, _, *models = next(csv.reader(lines[1:]))
    rows = csv.DictReader(lines[1:])
    return {row[uid]: {model: float(row[model]) for model in models} for row in rows}


def official_checksums() -> np.ndarray:
    """Returns the checksums of BLiMP's pairs, (67, 1000) uint32, sorted within each paradigm."""
    return np.load(io.BytesIO(FOLDER.joinpath("blimp_pairs.npy").read_bytes()))


def checksum(pair: Pair) -> int:
    """Returns the CRC-32 of a pair."""
    return zlib.crc32(f"{pair.good}\n{pair.bad}".encode(errors="surrogatepass"))
