"""The echo state network in plain PyTorch: sparse products, padded batches masked by length,
AdamW."""

import numpy as np
import torch


class InTorch:
    """The model in float64, with torch.sparse for what is frozen and torch.nn for what is trained.

    Args:
        reservoir: "w_rec" and "w_in" as (indices, values, shape), and "leak".
        readout: the arrays of the readout.
    """

    def __init__(self, reservoir, readout):
        self.w_rec, self.w_in = (self.sparse(*reservoir[name]) for name in ("w_rec", "w_in"))
        self.leak = torch.tensor(np.asarray(reservoir["leak"], np.float64))[:, None]  # (N, 1)
        arrays = {name: np.asarray(array, np.float64) for name, array in readout.items()}
        last = {"weight": arrays["a"] if "a" in arrays else arrays["w"], "bias": arrays["bias"]}
        layers = [self.linear(weight=arrays["b"])] if "b" in arrays else []
        self.readout = torch.nn.Sequential(*layers, self.linear(**last))

    @staticmethod
    def sparse(indices, values, shape):
        indices, values = (
            torch.tensor(np.asarray(indices).T),
            torch.tensor(np.asarray(values, np.float64)),
        )
        return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True).coalesce()

    @staticmethod
    def linear(weight, bias=None):
        layer = torch.nn.Linear(
            weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64
        )
        layer.load_state_dict(
            {"weight": torch.tensor(weight)}
            | ({} if bias is None else {"bias": torch.tensor(bias)})
        )
        return layer

    def states(self, tokens):
        """(B, T, N), of padded tokens (B, T)."""
        h, found = torch.zeros(len(self.leak), len(tokens), dtype=torch.float64), []
        # (B, V), a step
        for u in torch.nn.functional.one_hot(tokens.T, self.w_in.shape[1]).double():
            drive = torch.sparse.mm(self.w_rec, h) + torch.sparse.mm(self.w_in, u.T)
            h = (1 - self.leak) * h + self.leak * torch.tanh(drive)
            found.append(h.T)
        return torch.stack(found, dim=1)

    def loss(self, texts):
        """The mean NLL of a batch, which is padded with EOS and masked by length."""
        lengths = torch.tensor([len(text) for text in texts])
        padded = torch.full((len(texts), int(lengths.max())), int(texts[0][-1]))
        for row, text in zip(padded, texts, strict=True):
            row[: len(text)] = torch.tensor(text)
        logits = self.readout(self.states(padded[:, :-1]))  # (B, T - 1, V)
        nll = torch.nn.functional.cross_entropy(logits.mT, padded[:, 1:], reduction="none")
        real = torch.arange(nll.shape[1]) < lengths[:, None] - 1
        return (nll * real).sum() / real.sum()
