"""Saves a checkpoint of made-up arrays, as training does: `python -m tests.reliability.save_arrays FOLDER`.

A training saves its reservoir and every step in this way. By itself, a save takes a moment, and each of its calls to the
disk can be let fail (faults.py).
"""

import sys
from pathlib import Path

import numpy as np

from esnlm.process import exit_with
from esnlm.runs import checkpoint


def main() -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((20, 30), dtype=np.float32) for name in "abcdef"}
    checkpoint.save(Path(sys.argv[1]), {"arrays": arrays, "step": np.array(3)}, {"step": 3})


if __name__ == "__main__":
    sys.exit(exit_with(main))
