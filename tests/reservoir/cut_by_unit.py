"""Computes states with reservoirs cut by unit over eight simulated devices, in a process of its own, and prints how good they are.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.reservoir.cut_by_unit NAME ...       of CASES

Prints a line of JSON for each name: the largest difference from the oracle's states, sentence by sentence and in a prefix tree.
"""

import json
import sys
from typing import Any

import numpy as np

from esnlm.features.sharded_stream import ShardedStream, by_unit
from esnlm.parallel import mesh as meshes
from esnlm.parallel.placement import Placement
from esnlm.reservoir.by_unit import cut
from esnlm.reservoir.topology.scale_free import ScaleFree
from esnlm.reservoir.weights import ReservoirConfig, initialize_reservoir
from tests import oracle

V, N = 23, 52  # 4 devices divide 52 units, and 8 do not: so there is padding
TWO_COPIES, ONE_COPY = {"data": 2, "vocabulary": 4, "units": 4}, {"vocabulary": 4, "units": 4}
MEMBRANE = {"update_rule": "leaky_membrane"}
DENSE = {"connectivity": 0.5, "input_connectivity": 1.0}
# name: mesh, kernel, settings of the reservoir
CASES: dict[str, tuple[dict, str, dict]] = {
    "sparse": (TWO_COPIES, "csr", {}),
    "dense": (TWO_COPIES, "dense", DENSE),
    "layers": (TWO_COPIES, "csr", {"layers": 2}),
    "one copy of eight parts": ({"vocabulary": 8, "units": 8}, "csr", {"state_size": 48}),
    "four copies": ({"vocabulary": 8, "units": 2}, "csr", {}),
    "hubs": (ONE_COPY, "csr", {"topology": ScaleFree(edges=3)}),
    "membrane, layers, embedding": (ONE_COPY, "dense", MEMBRANE | DENSE | {"layers": 3, "embedding": 5}),
    "Euler": (ONE_COPY, "csr", {"update_rule": "euler_state", "leak_max": 0.1, "diffusion": 0.1}),
    "a device without entries": (ONE_COPY, "csr", {"mean_degree": 0.3, "state_size": 4}),
    **{kernel: (ONE_COPY, kernel, {}) for kernel in ("bcoo", "ell", "fused")},
}


def expected(layers: Any, sentence: np.ndarray, config: ReservoirConfig) -> np.ndarray:
    embedding = np.eye(V) if layers[0].embedding is None else np.asarray(layers[0].embedding[...]).T
    weights = [(layer.w_rec.todense(), layer.w_in.todense(), layer.leak[...]) for layer in layers]
    return oracle.stacked_states(weights, embedding[sentence], config.update_rule, diffusion=config.diffusion)


def largest_difference(name: str) -> float:
    setting, kernel, settings = CASES[name]
    config = ReservoirConfig(**{"state_size": N, "mean_degree": 6.0} | settings)
    reservoir, mesh = initialize_reservoir(config, V, seed=1).reservoir, meshes.make_mesh(setting)
    assert mesh is not None
    placement = Placement(mesh, V, config.layers * config.state_size, (), ())
    stream = ShardedStream(cut(reservoir, mesh, kernel), 2, 8, 0.0, placement)
    rng = np.random.default_rng(0)
    texts, differences = [rng.integers(0, 3, rng.integers(1, 20)).astype(np.int32) for _ in range(11)], []
    for prefix_tree in (False, True):
        some = texts[: stream.own_slots] if prefix_tree else texts
        buffer, rows = stream.read(some, prefix_tree=prefix_tree)
        found = placement.without_padding(np.asarray(by_unit(buffer, mesh)))
        for text, row in zip(some, rows, strict=True):
            differences.append(np.abs(found[row] - expected(reservoir.layers, text, config)).max())
    return float(max(differences))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps({"name": name, "difference": largest_difference(name)}), flush=True)
