"""Records the figures of the golden tests anew: ESNLM_DATA=... python -m tests.golden.record

What PyTorch and other programs compute is recorded by `python -m tests.peers.record`.
"""

import json
import os
import tempfile
import warnings
from pathlib import Path

from tests.golden import small, test_quickstart, test_stores, test_updates, test_weights


def record(folder: Path) -> dict:
    stores, runs = small.make_stores(folder), {name: folder / name for name in small.MODELS}
    for name, run in runs.items():
        assert small.train(run, stores, small.MODELS[name], **small.training_of(name)) == 0
    quickstart = small.train_quickstart(folder / "quickstart")
    return {
        "weights": test_weights.record(folder, stores / "train"),
        "losses": {name: test_updates.figures(run) for name, run in runs.items()},
        "stores": test_stores.record(folder, quickstart, Path(os.environ["ESNLM_DATA"])),
        "quickstart": test_quickstart.figures(quickstart),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        small.RECORDED.write_text(json.dumps(record(Path(folder)), indent=1) + "\n")
