"""Computes what the readout computes on a mesh of eight simulated devices, in a process of its own, and saves it.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.readout.sharded_readout FILE.npz
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from esnlm.evaluation import sharded_scoring
from esnlm.features import dropout
from esnlm.features.sharded_stream import by_unit
from esnlm.parallel.mesh import make_mesh
from esnlm.parallel.placement import Placement
from esnlm.training import sharded_update
from esnlm.training.batches import PackedTargets
from tests import oracle

V, N, C, R = 300, 50, 21, 6  # of 512 rows and 56 units with padding, for 4 and 8 parts; 2 devices do not divide 21 rows
KEY, ROWS, GROUP = dropout.epoch_key(0, 0), np.arange(C, dtype=np.int32), np.arange(V) % 3 == 0
# Rank, scale of the readout, and dropout. At a scale of 40 some losses are above 69 nats.
CASES = {"far": (R, 40.0, 0.0), "full": (None, 1.0, 0.0), "dropped": (R, 1.0, 0.3)}


def problem(rank: int | None, scale: float) -> tuple[dict, np.ndarray, PackedTargets]:
    """A readout, features (C + 3, N), and predictions: one from each of C rows, five more from the first, one that weighs 0."""
    rng = np.random.default_rng(0)
    shapes = {"a": (V, R), "b": (R, N), "bias": (V,)} if rank else {"w": (V, N), "bias": (V,)}
    readout = {name: scale * rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    weights = np.full(C, 1 / 25, np.float32)
    weights[-1] = 0
    targets, first = rng.integers(0, V, C, np.int32), rng.integers(0, V, 5, np.int32)
    rows = rng.permutation(C + 3)[:C].astype(np.int32)
    packed = PackedTargets(rows, targets, weights, np.arange(C, dtype=np.uint32), first, np.full(5, 1 / 25, np.float32))
    return readout, rng.normal(size=(C + 3, N)).astype(np.float32), packed


def pairs(likeliest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of a row and a token, of which every other is the row's likeliest; some rows have several pairs and some none."""
    rng = np.random.default_rng(1)
    rows, tokens = rng.integers(0, C, 40, np.int32), rng.integers(0, V, 40, np.int32)
    tokens[::2] = likeliest[rows[::2]]
    return rows, tokens


def main(file: Path) -> None:
    mesh = make_mesh({"data": 2, "vocabulary": 4})
    placement = Placement(mesh, V, N, ("readout.a", "readout.w", "readout.bias"), ("readout.b",))
    found = {}
    for name, (rank, scale, rate) in CASES.items():
        readout, features, packed = problem(rank, scale)
        params = placement.place({"readout": readout})
        buffer = by_unit(jnp.asarray(features), mesh)
        settings = {"placement": placement, "precision": "float32", "chunk_tokens": 16, "dropout_rate": rate}
        loss, gradient = jax.jit(sharded_update.readout_loss_and_gradient, static_argnames=tuple(settings))(
            params, buffer, packed, KEY, **settings
        )
        found[f"{name}.loss"] = np.asarray(loss)
        found |= {f"{name}.{key}": array for key, array in placement.fetch(gradient)["readout"].items()}
        asked = pairs(oracle.logits(readout, features).argmax(axis=1))
        scored = sharded_scoring.pair_log_probs(
            params["readout"], buffer, ROWS, *asked, "float32", placement=placement, with_likeliest=True
        )
        grouped = sharded_scoring.group_log_probs(
            params["readout"], buffer, ROWS, GROUP, "float32", placement=placement
        )
        found |= {f"{name}.pairs": np.asarray(scored), f"{name}.group": np.asarray(grouped)}
    np.savez(file, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
