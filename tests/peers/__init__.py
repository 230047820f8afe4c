"""What PyTorch and transformers compute: always by recordings, and nightly by themselves where they
are installed.

A test asks its fixture `peer` (tests/conftest.py) for what another library makes of the test's
inputs:

    expected = peer("lstm-features", torch_features, params, sentences)
    np.testing.assert_allclose(peer.sample(found), expected["features"], atol=TOLERANCE)

`live`, which is nightly, calls the function. It is skipped where the extra `peers` is not
installed. `recorded` reads what the function returned when the recordings were made, in
recorded/NAME.npz: all of a small array, and a sample of a large one. A recording also has a summary
of the inputs, so that changed inputs are told from a wrong result.

`python -m tests.peers.record` makes all recordings anew.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

RECORDED = Path(__file__).parent / "recorded"
LARGEST_SAMPLE = 200  # entries of an array
AGAIN = "make the recordings anew: python -m tests.peers.record"
recording = False  # whether `live` also writes what it is told


def sample(array: Any) -> np.ndarray:
    """Returns the entries at some fixed places of a large array, flat, or all of a small array."""
    array = np.asarray(array)
    if array.size <= LARGEST_SAMPLE:
        return array
    return array.ravel()[
        np.sort(np.random.default_rng(0).choice(array.size, LARGEST_SAMPLE, replace=False))
    ]


class Peer:
    """Another library, live or recorded."""

    def __init__(self, live: bool):
        self.live = live

    def __call__(
        self, name: str, compute: Callable[..., Mapping[str, Any]], *inputs: Any
    ) -> dict[str, np.ndarray]:
        """Returns what `compute(*inputs)` does, a dict of arrays.

        Args:
            name: of the recording.
            compute: imports what it needs inside.
            inputs: trees of arrays, texts and numbers.
        """
        file, summary = RECORDED / f"{name}.npz", _summary(inputs)
        if not self.live:
            assert file.exists(), f"{file.name} is missing; {AGAIN}"
            with np.load(file) as stored:
                said = dict(stored)
            changed = f"the inputs are not those that {file.name} was made from; {AGAIN}"
            np.testing.assert_allclose(
                summary, said.pop("inputs"), rtol=1e-4, atol=1e-6, err_msg=changed
            )
            return said
        said = {key: np.asarray(value) for key, value in compute(*inputs).items()}
        if recording:
            RECORDED.mkdir(exist_ok=True)
            np.savez_compressed(
                file, inputs=summary, **{key: sample(value) for key, value in said.items()}
            )
        return said

    def sample(self, array: Any) -> np.ndarray:
        """Returns the entries of our own array that this peer has, as `__call__` returned them."""
        return np.asarray(array) if self.live else sample(array)


def _summary(inputs: Any) -> np.ndarray:
    """Returns the mean and the root mean square of each array and number among the inputs."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(inputs)]
    numbers = [
        leaf.astype(np.float64) for leaf in leaves if leaf.dtype.kind in "biuf" and leaf.size
    ]
    return np.array([[leaf.mean(), np.sqrt((leaf**2).mean())] for leaf in numbers]).reshape(-1, 2)
