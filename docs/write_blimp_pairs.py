"""Writes esnlm/evaluation/blimp_pairs.npy, by which reports recognize BLiMP's pairs, from BLiMP's
67 files.

python docs/write_blimp_pairs.py blimp/
"""

import sys
from pathlib import Path

import numpy as np

from esnlm.evaluation import minimal_pairs
from esnlm.evaluation.evaluate import FOLDER, checksum, published_accuracies


def checksums(folder: Path) -> np.ndarray:
    """Returns the sorted checksums of the pairs of each paradigm, (67, 1000), in the order of
    anchors.csv."""
    pairs = minimal_pairs.load(folder)
    rows_of = minimal_pairs.indices_by_paradigm(pairs)
    return np.array(
        [sorted(checksum(pairs[row]) for row in rows_of[uid]) for uid in published_accuracies()],
        np.uint32,
    )


if __name__ == "__main__":
    np.save(str(FOLDER / "blimp_pairs.npy"), checksums(Path(sys.argv[1])))
