"""Gated blocks are residual networks between B and A."""

import jax
import numpy as np
import pytest

from esnlm.reservoir.arrays import arrays_by_name
from esnlm.trunk.gated_mlp import GatedMlp, GatedMlpConfig
from tests import deep_oracle

RANK = 12
EPS = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize("blocks", [1, 3])
def test_the_result_is_that_of_the_equations(blocks):
    config = GatedMlpConfig(blocks=blocks, width=20)
    layer, rng = GatedMlp(config, RANK, np.random.default_rng(0)), np.random.default_rng(1)
    z = np.vstack([rng.standard_normal((4, RANK)), np.zeros(RANK)]).astype(np.float32)
    expected = deep_oracle.gated_mlp(deep_oracle.float64(arrays_by_name(layer)), z.astype(np.float64))
    # Three products of sums of at most 20 numbers of order 1 a block, and norms that divide by about 1.
    found = jax.jit(lambda z: layer(z, "float32"))(z)
    np.testing.assert_allclose(found, expected, rtol=0, atol=blocks * 3 * 20 * 4 * EPS)
    arrays = arrays_by_name(layer)
    sizes = [array.size for block in arrays["blocks"].values() for array in (*block["norm"].values(), block["gate"])]
    assert sum(sizes) == blocks * (RANK + RANK * 20)
    assert config.parameters(RANK) == blocks * (RANK + 3 * RANK * 20) + RANK
