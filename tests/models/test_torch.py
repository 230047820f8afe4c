"""The echo state network beside the same in plain PyTorch: sparse products, padded batches masked by length, AdamW."""

import dataclasses

import numpy as np
import pytest

from esnlm.compute import ComputeConfig
from esnlm.config import Experiment, TrainingConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.weights import ReservoirConfig
from esnlm.training import batches
from esnlm.training.precomputed import PrecomputedUpdates
from tests.training.test_precomputed import run_all, start, store

COMPUTE = ComputeConfig(kernel="csr", batch_slots=8, window_tokens=64)
torch = pytest.importorskip("torch")

V, N, BATCH = 40, 60, 4
EOS = V - 1  # and BOS, and what pads
# 30 steps of sums of some tens of terms: a few hundred roundings, as in tests/features/test_recurrence.py.
TOLERANCE = 300 * float(np.finfo(np.float32).eps)


def build(rank):
    config = EchoStateConfig(reservoir=ReservoirConfig(state_size=N, mean_degree=7.0), readout=ReadoutConfig(rank))
    return config.initialize(V, 0, config.initialize_frozen(V, 0)[0])


def sentences():
    """38 of them, so that the last of ten batches is smaller."""
    text = store(np.random.default_rng(1).integers(6, 30, 38))
    text.tokens[text.offsets[:-1]] = text.tokens[text.offsets[1:] - 1] = EOS
    return text


class InTorch:
    """float64, with torch.sparse for what is frozen and torch.nn for what is trained."""

    def __init__(self, model):
        self.w_rec, self.w_in = self.sparse(model.reservoir.w_rec), self.sparse(model.reservoir.w_in)
        self.leak = torch.tensor(np.asarray(model.reservoir.leak, np.float64))[:, None]  # (N, 1)
        arrays = {name: np.asarray(array, np.float64) for name, array in model.params["readout"].items()}
        last = {"weight": arrays["a"] if "a" in arrays else arrays["w"], "bias": arrays["bias"]}
        layers = [self.linear(weight=arrays["b"])] if "b" in arrays else []
        self.readout = torch.nn.Sequential(*layers, self.linear(**last))

    @staticmethod
    def sparse(matrix):
        indices, values = torch.tensor(np.asarray(matrix.indices).T), torch.tensor(np.asarray(matrix.data, np.float64))
        return torch.sparse_coo_tensor(indices, values, matrix.shape, check_invariants=True).coalesce()

    @staticmethod
    def linear(weight, bias=None):
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64)
        layer.load_state_dict({"weight": torch.tensor(weight)} | ({} if bias is None else {"bias": torch.tensor(bias)}))
        return layer

    def states(self, tokens):
        """(B, T, N), of padded tokens (B, T)."""
        h, found = torch.zeros(N, len(tokens), dtype=torch.float64), []
        for u in torch.nn.functional.one_hot(tokens.T, V).double():  # (B, V), a step
            drive = torch.sparse.mm(self.w_rec, h) + torch.sparse.mm(self.w_in, u.T)
            h = (1 - self.leak) * h + self.leak * torch.tanh(drive)
            found.append(h.T)
        return torch.stack(found, dim=1)

    def loss(self, texts):
        """The mean NLL of a batch, which is padded with EOS and masked by length."""
        lengths = torch.tensor([len(text) for text in texts])
        padded = torch.full((len(texts), int(lengths.max())), EOS)
        for row, text in zip(padded, texts, strict=True):
            row[: len(text)] = torch.tensor(text)
        logits = self.readout(self.states(padded[:, :-1]))  # (B, T - 1, V)
        nll = torch.nn.functional.cross_entropy(logits.mT, padded[:, 1:], reduction="none")
        real = torch.arange(nll.shape[1]) < lengths[:, None] - 1
        return (nll * real).sum() / real.sum()


def test_states_are_torch_s():
    model, texts = build(8), list(sentences())
    stream = model.for_device(COMPUTE).stream(COMPUTE)
    buffer, rows = stream.read(texts)
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(
            buffer[row], InTorch(model).states(torch.tensor(text[None]).long())[0], atol=TOLERANCE, rtol=0
        )


@pytest.mark.parametrize("rank", [8, None], ids=["W_out = A B", "full rank"])
def test_ten_updates_are_torch_s(rank):
    """The same batches, through torch.optim.AdamW as it comes and through the features ahead."""
    model, text = build(rank), sentences()
    compute = dataclasses.replace(COMPUTE, window_tokens=200)
    experiment = Experiment(model=model.config, training=TrainingConfig(batch_size=BATCH), compute=compute)
    epochs = [batches.plan_epoch(text.lengths, experiment.seed, 0, BATCH, compute.window_tokens)]
    assert len(epochs[0].updates) == 10 and 1 < len(epochs[0].windows) < 10
    stream = model.for_device(compute).stream(compute)
    params, _, losses, _ = run_all(
        PrecomputedUpdates(experiment, stream, text, epochs), *start(experiment, model.params, epochs), epochs
    )

    theirs, expected_losses = InTorch(model), []
    adamw = torch.optim.AdamW(theirs.readout.parameters())
    for update in epochs[0].updates:
        loss = theirs.loss([text.sentence(s) for s in update])
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        expected_losses.append(loss.item())
    np.testing.assert_allclose(losses, expected_losses, rtol=TOLERANCE)
    names = ("b", "a", "bias") if rank else ("w", "bias")
    for name, array in zip(names, theirs.readout.parameters(), strict=True):
        assert np.abs(params["readout"][name] - np.asarray(model.params["readout"][name])).max() > 5e-3
        # Ten steps of at most 1e-3. Adam turns the gradient's relative error, some 1e-5, into one of the step; a
        # thousandth leaves room for sums that cancel. (optax corrects the bias in float32, which is 3e-5 off.)
        np.testing.assert_allclose(params["readout"][name], array.detach(), atol=10 * 1e-3 * 1e-3, rtol=0)
