"""The operations that the MFU counts, against XLA's own count of the compiled gradient; and how it is said."""

from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flax import nnx

from esnlm.cells.attention import AttentionConfig
from esnlm.compute import ComputeConfig
from esnlm.features.layout import PackedBatch
from esnlm.memory import MemoryUse
from esnlm.models.deep_readout import DeepReadoutConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.gpt2 import GPT2Config
from esnlm.models.jaeger import JaegerConfig
from esnlm.models.lstm import LstmConfig
from esnlm.ops import xla
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import end_to_end, usage
from esnlm.training.batches import PackedTargets
from esnlm.training.usage import Usage
from esnlm.trunk.gated_mlp import GatedMlpConfig
from esnlm.trunk.hashed_ngrams import HashedNgramsConfig
from esnlm.trunk.recent_tokens import RecentTokensConfig
from esnlm.trunk.trunk import TrunkConfig

V, N, R, TOKENS = 512, 128, 64, 256
DENSE = ReservoirConfig(state_size=N, mean_degree=N - 0.01)  # XLA counts no sparse product, so W_rec is dense
DEEP = DeepReadoutConfig(
    reservoir=DENSE,
    attention=AttentionConfig(heads=2, width=8),
    readout=TrunkConfig(
        rank=R,
        recent_tokens=RecentTokensConfig(count=1, width=24),
        ngrams=HashedNgramsConfig(orders=(2,), buckets=64, width=16),
        gated_mlp=GatedMlpConfig(blocks=2, width=96),
    ),
)
# What XLA does otherwise than `flops_per_token` says, for a token: products of V x R, V x N and N x N cost 2 each.
FAMILIES = {
    "esn": (EchoStateConfig(reservoir=DENSE, readout=ReadoutConfig(R)), 0),
    # In sentences of one token, nothing flows back to a state before.
    "esn+i": (EchoStateConfig(reservoir=DENSE, readout=ReadoutConfig(None), train_input=True), -2 * N * N),
    "lstm": (LstmConfig(width=N), -2 * 4 * N * N),
    "gpt2": (GPT2Config(width=N, layers=1, heads=2, positions=16), 0),
    "deep readout": (DEEP, 0),
    # W_back is sparse, and outside of a loop XLA does not compute p anew.
    "jaeger": (JaegerConfig(reservoir=DENSE, rank=R), -4 * V * N - 2 * V * R),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_operations_of_a_token_are_those_that_xla_counts(family, monkeypatch):
    """The sentences have one token each: XLA counts the body of a loop once, whatever its steps."""
    monkeypatch.setattr(xla, "or_else", lambda usual, fine, other: usual)  # XLA adds up both branches
    config, otherwise = FAMILIES[family]
    model = config.initialize(V, 0, config.initialize_frozen(V, 0)[0]).for_device(ComputeConfig(kernel="dense"))
    graphdef, _, frozen = nnx.split(model, nnx.Param, ...)
    each = np.arange(TOKENS)
    batch = PackedBatch(*(np.zeros((1, TOKENS), dtype) for dtype in (np.int32, np.int32, np.uint32)))
    nothing, weights = np.zeros(0, np.int32), np.full(TOKENS, 1 / TOKENS, np.float32)
    packed = PackedTargets(each, each, weights, each.astype(np.uint32), nothing, nothing.astype(np.float32))
    compiled = jax.jit(partial(end_to_end.loss_and_gradient, graphdef)).lower(frozen, model.params, batch, packed, None)
    counted = compiled.compile().cost_analysis()["flops"] / TOKENS
    expected = config.flops_per_token(V) + otherwise
    # Beside products there are about a dozen operations for each logit, which has 6 R = 384 or more in products.
    assert 1 <= counted / expected < 1.05


def test_the_share_of_a_known_device_is_worked_out_by_hand(monkeypatch):
    """An update of 650 tokens of the sparse ESN of 4,096 units in 0.38 ms, with rank 512, in bf16."""
    config = EchoStateConfig()
    flops = 6 * 512 * (50_257 + 4096) - 2 * 512 * 4096 + 2 * 32 * 4096 + 2 * 32
    assert config.flops_per_token(50_257) == flops
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(device_kind="NVIDIA H100 80GB HBM3")])
    monkeypatch.setattr(usage, "memory_use", lambda: MemoryUse(12 * 10**9, 34_560_000_000))
    speed = 650 / 0.38e-3
    found = Usage(flops, "bf16")
    assert found.mfu(speed) == pytest.approx(speed * flops / 989.4e12, rel=1e-12)
    assert found.describe(speed) == "  MFU 28.2 %  memory 34.56 GB"
    assert found.values(speed) == {
        "mfu": found.mfu(speed),
        "memory_bytes": 12 * 10**9,
        "peak_memory_bytes": 34_560_000_000,
    }
    assert Usage(flops, "bf16", devices=8).mfu(speed) == pytest.approx(found.mfu(speed) / 8)
    assert Usage(None, "float32").mfu(1.0) is None, "a regression"
