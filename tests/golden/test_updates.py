"""Guarantee 5: losses and weights, update by update, against PyTorch in float64 and against
recorded figures.

Update by update and array by array, PyTorch is also in tests/models/test_echo_state_input.py
(ESN+i), test_lstm.py, test_huggingface.py (GPT-2) and tests/training/test_update.py (optimizers).
"""

import numpy as np
import pytest

import esnlm
from tests.golden import small

# In the order of torch.nn.LSTM's parameters.
TORCH_NAMES = {"weight_ih": "w_ih", "weight_hh": "w_hh", "bias_ih": "b_ih", "bias_hh": "b_hh"}
EPS = float(np.finfo(np.float32).eps)


def batches_of(store) -> list[list[np.ndarray]]:
    """Returns the sentences of each update. Their order is NumPy's permutation, seeded by the run's
    seed, 4 and the epoch."""
    tokens, offsets = np.fromfile(store / "tokens.bin", "<u2"), np.load(store / "offsets.npy")
    sentences = [tokens[a:b].astype(np.int64) for a, b in zip(offsets, offsets[1:], strict=False)]
    order = [
        i
        for epoch in range(2)
        for i in np.random.default_rng([3, 4, epoch]).permutation(len(sentences))
    ]
    return [[sentences[i] for i in order[first : first + 4]] for first in range(0, len(order), 4)]


def esn_in_torch(reservoir, readout, updates):
    """Losses and trained arrays of 60 updates of torch.optim.AdamW."""
    import torch

    from tests.peers.torch_echo_state import InTorch

    model = InTorch(reservoir, readout)
    losses = descend(torch.optim.AdamW(model.readout.parameters(), lr=0.01), model.loss, updates)
    b, a, bias = (array.detach().numpy() for array in model.readout.parameters())
    return {"losses": losses, "readout.a": a, "readout.b": b, "readout.bias": bias}


def lstm_in_torch(arrays, updates):
    """Losses and trained arrays of 60 updates of torch.optim.SGD on torch.nn.LSTM."""
    import torch

    theirs = {name: torch.tensor(np.asarray(array, np.float64)) for name, array in arrays.items()}
    vocab_size, width = theirs["embedding"].shape
    layer, readout = (
        torch.nn.LSTM(width, width).double(),
        torch.nn.Linear(width, vocab_size).double(),
    )
    embedding = torch.nn.Embedding(vocab_size, width).double()
    layer.load_state_dict(
        {f"{torch_name}_l0": theirs[name] for torch_name, name in TORCH_NAMES.items()}
    )
    readout.load_state_dict({"weight": theirs["readout.w"], "bias": theirs["readout.bias"]})
    embedding.load_state_dict({"weight": theirs["embedding"]})

    def loss(texts):
        features = [layer(embedding(torch.tensor(text[:-1])))[0] for text in texts]
        targets = torch.tensor(np.concatenate([text[1:] for text in texts]))
        return torch.nn.functional.cross_entropy(readout(torch.cat(features)), targets)

    parameters = [*embedding.parameters(), *layer.parameters(), *readout.parameters()]
    losses = descend(torch.optim.SGD(parameters, lr=0.1, momentum=0.9), loss, updates)
    names = ("embedding", *TORCH_NAMES.values(), "readout.w", "readout.bias")
    return {"losses": losses} | dict(
        zip(names, (array.detach().numpy() for array in parameters), strict=True)
    )


def descend(optimizer, loss_of, updates):
    losses = []
    for texts in updates:
        loss = loss_of(texts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def test_sixty_updates_of_an_esn_are_torch_s(peer, trained, stores):
    run, before = esnlm.load(trained("esn")), esnlm.load(trained("esn"), untrained=True)
    w_rec, w_in, leak = (
        getattr(before.model.reservoir, name) for name in ("w_rec", "w_in", "leak")
    )
    reservoir = {
        name: (m.indices, m.data, m.shape) for name, m in (("w_rec", w_rec), ("w_in", w_in))
    }
    readout = {
        name: np.asarray(getattr(before.model.readout, name)[...]) for name in ("a", "b", "bias")
    }
    inputs = (reservoir | {"leak": np.asarray(leak[...])}, readout, batches_of(stores / "train"))
    expected = peer("golden-esn-updates", esn_in_torch, *inputs)
    compare(peer, trained("esn"), run, expected)


def test_sixty_updates_of_an_lstm_are_torch_s(peer, trained, stores):
    run, before = esnlm.load(trained("lstm")), esnlm.load(trained("lstm"), untrained=True)
    expected = peer(
        "golden-lstm-updates", lstm_in_torch, before.arrays(), batches_of(stores / "train")
    )
    compare(peer, trained("lstm"), run, expected)


def compare(peer, folder, run, expected):
    """The first loss to a few hundred roundings; all of them, and the weights after 60 steps, to a
    thousandth of a step each.

    Adam divides a gradient by its size, so that the gradient's relative error, some 1e-5, is one of
    the step.
    """
    losses = small.losses(folder)
    np.testing.assert_allclose(losses[0], expected["losses"][0], rtol=300 * EPS)
    np.testing.assert_allclose(losses, expected["losses"], rtol=1e-4)
    assert losses[0] - losses[-1] > 1
    arrays = run.arrays()
    for name in expected.keys() - {"losses"}:
        atol = small.UPDATES * small.TRAINING["learning_rate"] * 1e-3
        np.testing.assert_allclose(
            peer.sample(arrays[name]), expected[name], atol=atol, rtol=0, err_msg=name
        )


@pytest.mark.parametrize("name", small.MODELS)
def test_losses_are_as_recorded(name, trained):
    """With dropout in ESN+i. Rounding differs between machines: 1e-5 a loss at first, and more
    after 60 steps."""
    expected = small.recorded("losses")[name]
    np.testing.assert_allclose(small.losses(trained(name)), expected["losses"], rtol=2e-4)
    assert small.summary(trained(name))["val_nll"] == pytest.approx(expected["val_nll"], rel=2e-4)


def figures(run) -> dict:
    return {
        "losses": [round(loss, 7) for loss in small.losses(run)],
        "val_nll": small.summary(run)["val_nll"],
    }
