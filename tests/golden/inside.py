"""The only imports of inner modules among the golden tests. When a module moves, change this file
and nothing else here."""

from pathlib import Path

import numpy as np
import yaml

from esnlm.data.store import open_store
from esnlm.runs import checkpoint
from esnlm.training import config_io
from esnlm.training.config import flatten
from tests import oracle


def initial_arrays(folder: Path, model: dict, text: Path) -> dict[str, np.ndarray]:
    """Returns all weights of a model before training with seed 3: trained ones by name, and each
    layer's W_rec, W_in and leak.

    Args:
        folder: for a configuration file.
        model: the section `model` of a configuration.
        text: a token store, whose vocabulary the model has and from which counted weights are
            counted.
    """
    (folder / "model.yaml").write_text(yaml.safe_dump({"model": model}))
    store = open_store(text)
    vocab_size = store.manifest["tokenizer"]["vocab_size"]
    config = config_io.read(folder / "model.yaml").model
    built = config.initialize(vocab_size, 3, config.initialize_frozen(vocab_size, 3, store)[0])
    arrays = {name: np.asarray(array) for name, array in flatten(built.params).items()}
    for i, layer in enumerate(built.reservoir.layers if config.family == "esn" else ()):
        parts = {"w_rec": layer.stored_w_rec, "w_in": layer.stored_w_in, "leak": layer.leak[...]}
        arrays |= {
            f"{name}.{i}": oracle.dense(part).astype(np.float32) for name, part in parts.items()
        }
    if config.family != "esn":
        arrays |= {
            name: array for name, array in flatten(built.arrays()).items() if name not in arrays
        }
    return {name: np.asarray(array) for name, array in arrays.items()}


def parameter_counts(config: Path, settings: list[str], vocab_size: int) -> tuple[int, int, int]:
    """Returns the trainable parameters of a configuration, all nonzero ones, and all entries."""
    counts = config_io.read(config, settings).model.expected_counts(vocab_size)
    return counts.trainable, counts.total, counts.entries


def checkpoint_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a checkpoint or of `frozen/` by their dotted names."""
    return flatten(checkpoint.restore(folder)[0])
