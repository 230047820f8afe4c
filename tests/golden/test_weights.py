"""Guarantee 1: the same settings and seed draw the same weights, bit for bit."""

import hashlib

import numpy as np
import pytest

from tests.golden import inside, small

SIZE = {"state_size": 36, "mean_degree": 5}


def esn(**reservoir) -> dict:
    return {"reservoir": SIZE | reservoir, "readout": {"rank": 6}}


CONFIGURATIONS = {
    "sparse W_in": esn(),
    "counted W_in": esn(input_weights="counted", leak_min=0.1, leak_max=1.0, leak_spacing="log"),
    "embedding": esn(embedding=8, input_connectivity=1.0, update_rule="leaky_membrane"),
    "two layers": esn(layers=2, spectral_radius=1.2, input_scale=0.5),
    "ring": esn(
        topology={"kind": "ring"}, continuous={"decay": 0.9, "step": 0.7, "time_constant": 1.5}
    ),
    "small world": esn(topology={"kind": "small_world", "degree": 4, "rewiring": 0.2}),
    "scale-free": esn(topology={"kind": "scale_free", "edges": 3}),
    "orthogonal": esn(topology={"kind": "orthogonal", "degree": 4}),
    "block diagonal": esn(topology={"kind": "block_diagonal", "blocks": 3, "mean_degree": 4}),
    "fixed in-degree": esn(topology={"kind": "fixed_in_degree", "degree": 5}),
    "antisymmetric": esn(
        topology={"kind": "antisymmetric", "mean_degree": 5}, update_rule="euler_state"
    ),
    "dense W_in, trained, one leak": small.MODELS["esn_i"],
    "LSTM": small.MODELS["lstm"],
    "GPT-2": {"family": "gpt2", "layers": 2, "heads": 2, "width": 8, "positions": 16},
    "deep readout": small.MODELS["deep_readout"],
    "Jaeger": {"family": "jaeger", "reservoir": SIZE, "rank": 6},
    "frozen GRU, diagonal units and attention": {
        **{
            "family": "deep_readout",
            "reservoir": SIZE,
            "reservoirs": 2,
            "readout": {"rank": 6, "counted": "bigram"},
        },
        **{
            "diagonal": {"units": 8},
            "gru": {"units": 8, "mean_degree": 3},
            "attention": {"heads": 2, "width": 4},
        },
    },
}
# W_rec is scaled by its spectral radius, which LAPACK computes in float64: its values may differ in
# a last bit of float32 from one CPU to another. They have a digest of their nonzeros' places, and
# three sums to be within a few roundings of.
SCALED = ("w_rec.", "recurrent.values")
TOLERANCE = 4 * float(np.finfo(np.float32).eps)


def describe(name: str, array: np.ndarray) -> list:
    """Returns the shape of an array, a digest, and three sums where the digest is of the places of
    nonzeros only."""
    is_scaled = any(part in name for part in SCALED)
    content = (
        np.argwhere(array).astype("<i8")
        if is_scaled
        else np.asarray(array, array.dtype.newbyteorder("<"))
    )
    digest = hashlib.sha256(np.ascontiguousarray(content).tobytes()).hexdigest()
    values = np.asarray(array, np.float64)
    sums = [
        float(np.abs(values).sum()),
        float((values**2).sum()),
        float(values.ravel() @ np.sin(np.arange(array.size))),
    ]
    return [list(array.shape), digest[:32], *(sums if is_scaled else [])]


def draw(folder, model: dict, text) -> dict[str, list]:
    arrays = inside.initial_arrays(folder, model, text)
    return {name: describe(name, array) for name, array in sorted(arrays.items())}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_weights_are_drawn_bit_for_bit(name, stores, tmp_path):
    found, expected = (
        draw(tmp_path, CONFIGURATIONS[name], stores / "train"),
        small.recorded("weights")[name],
    )
    assert found.keys() == expected.keys()
    for array, (shape, digest, *sums) in expected.items():
        assert found[array][:2] == [shape, digest], array
        scale = sums[0] if sums else 0.0
        np.testing.assert_allclose(
            found[array][2:], sums, atol=TOLERANCE * scale, rtol=TOLERANCE, err_msg=array
        )


def record(folder, text) -> dict:
    return {name: draw(folder, model, text) for name, model in CONFIGURATIONS.items()}
