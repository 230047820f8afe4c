"""The same model and an LSTM in PyTorch, for comparisons with esnlm.

`PackedWay` is the fastest version in PyTorch that we know: sentences sorted by length so that
finished ones leave the loop, the readout on real tokens only, the fastest AdamW. Tokens are looked
up in a dense table of W_in's columns, which is faster than any sparse product with a one-hot
vector. With `onednn` the products of a readout are oneDNN's.
"""

import time
import warnings

import measure
import numpy as np
import torch
import torch.nn.functional as F
from jax.experimental.sparse import BCOO
from measure import TORCH_DEVICE
from torch import nn

from esnlm.reservoir.weights import ReservoirLayer

IGNORED = -100  # the target of a padded position; it stands for no token, so EOS is still predicted


class TorchReservoir:
    """W_rec in a layout of `torch_matrix`, W_in as a table of its columns (V, N), the leak (N,
    1)."""

    def __init__(self, reservoir: ReservoirLayer, layout: str = "csr"):
        self.w_rec = torch_matrix(reservoir.w_rec, layout)
        row, column = (
            torch.from_numpy(x).long().to(TORCH_DEVICE) for x in np.array(reservoir.w_in.indices).T
        )
        self.table = torch.zeros(reservoir.vocab_size, reservoir.state_size, device=TORCH_DEVICE)
        self.table[column, row] = torch.from_numpy(np.array(reservoir.w_in.data)).to(TORCH_DEVICE)
        self.leak = torch.from_numpy(np.array(reservoir.leak[...])).to(TORCH_DEVICE)[:, None]

    def step(self, h: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Computes h' = (1 - a) h + a tanh(W_rec h + W_in u) literally; h (N, B), tokens (B,)."""
        drive = self.w_rec @ h + F.embedding(tokens, self.table).T  # (N, B)
        return (1 - self.leak) * h + self.leak * torch.tanh(drive)

    def fast_step(self, h: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Computes the same in fewer passes over memory."""
        drive = (self.w_rec @ h.to(self.w_rec.dtype)).to(h.dtype)  # (N, B)
        drive += F.embedding(tokens, self.table).T
        return torch.lerp(h, drive.tanh_(), self.leak)

    def zeros(self, slots: int) -> torch.Tensor:
        return torch.zeros(len(self.leak), slots, device=TORCH_DEVICE)


def torch_matrix(matrix: BCOO, layout: str) -> torch.Tensor:
    """Returns a BCOO matrix as "csr", "coo", "dense" (float32) or "dense bf16"."""
    indices, values = (torch.from_numpy(np.array(x)) for x in (matrix.indices.T, matrix.data))
    with warnings.catch_warnings():
        # torch calls its CSR "beta", and its checks implicit
        warnings.simplefilter("ignore", UserWarning)
        coo = torch.sparse_coo_tensor(indices, values, matrix.shape, device=TORCH_DEVICE).coalesce()
        if layout.startswith("dense"):
            return coo.to_dense().to(torch.bfloat16 if layout == "dense bf16" else torch.float32)
        return coo if layout == "coo" else coo.to_sparse_csr()


def fastest_layout(matrix: BCOO, slots: int) -> tuple[str, str]:
    """Returns the fastest of CSR, COO and, up to 8,192 units, dense float32 for `slots` columns,
    and a line on it."""
    h = torch.rand(matrix.shape[1], slots, device=TORCH_DEVICE)
    found = {}
    for layout in ("csr", "coo", *["dense"] * (len(h) <= 8192)):
        w = torch_matrix(matrix, layout)
        found[layout] = _seconds(lambda w=w: w @ h)
    best = min(found, key=found.get)
    return best, f"W_rec in {best}, {1e3 * found[best]:.3g} ms per product with {slots} columns"


class OneDnnLinear(torch.autograd.Function):
    """x W^T + b and its gradient by oneDNN.

    oneDNN uses AVX-512 on every CPU that has it; MKL, PyTorch's own choice for float32, uses it on
    Intel's CPUs only.
    """

    @staticmethod
    def product(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return OneDnnLinear.product(x, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        of_x = OneDnnLinear.product(gradient, weight.T) if ctx.needs_input_grad[0] else None
        of_bias = gradient.sum(0) if ctx.has_bias else None
        return of_x, OneDnnLinear.product(gradient.T, x.T), of_bias


def onednn_is_faster(precision: str, shape: tuple[int, int, int]) -> bool:
    """Returns whether oneDNN computes logits (rows, rank, vocabulary) faster than PyTorch's own
    choice."""
    if TORCH_DEVICE != "cpu" or precision != "float32" or not torch.backends.mkldnn.is_available():
        return False
    rows, rank, vocab_size = shape
    x, weight, bias = torch.rand(rows, rank), torch.rand(vocab_size, rank), torch.rand(vocab_size)
    own = _seconds(lambda: F.linear(x, weight, bias))
    return _seconds(lambda: OneDnnLinear.product(x, weight, bias)) < own


class Readout(nn.Module):
    """nn.Linear(N, r, bias=False) and nn.Linear(r, V), from the arrays of esnlm's readout."""

    def __init__(self, params: dict, onednn: bool = False):
        super().__init__()
        self.onednn = onednn
        a, b, bias = (torch.from_numpy(np.array(params[name])) for name in ("a", "b", "bias"))
        self.b = nn.utils.skip_init(
            nn.Linear, b.shape[1], b.shape[0], bias=False, device=TORCH_DEVICE
        )
        self.a = nn.utils.skip_init(nn.Linear, a.shape[1], a.shape[0], device=TORCH_DEVICE)
        with torch.no_grad():
            self.b.weight.copy_(b), self.a.weight.copy_(a), self.a.bias.copy_(bias)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if not self.onednn:
            return self.a(self.b(features))
        inner = OneDnnLinear.apply(features, self.b.weight, None)
        return OneDnnLinear.apply(inner, self.a.weight, self.a.bias)


class PackedWay:
    """Updates on real tokens only, in few passes, with the states of many updates computed side by
    side, as in esnlm."""

    def __init__(
        self,
        reservoir: TorchReservoir,
        params: dict,
        precision: str,
        adamw: dict,
        compiled: bool = False,
        onednn: bool = False,
    ):
        self.reservoir, self.precision, self.readout = reservoir, precision, Readout(params, onednn)
        self.optimizer = torch.optim.AdamW(self.readout.parameters(), **adamw)
        self.loss = torch.compile(self._loss, dynamic=True) if compiled else self._loss

    def update(self, sentences: list[np.ndarray]) -> torch.Tensor:
        """Makes one update, and returns the loss before it."""
        return self._update(*self.features(sentences))

    def updates(self, batches: list[list[np.ndarray]]) -> torch.Tensor:
        """Makes an update of each batch of sentences, and returns the last loss before it."""
        together = [
            (len(sentence) - 1, u, sentence)
            for u, batch in enumerate(batches)
            for sentence in batch
        ]
        together.sort(key=lambda item: item[0], reverse=True)  # as `features` sorts them
        lengths, update_of, sentences = zip(*together, strict=True)
        features, targets = self.features(list(sentences))
        running = [int(np.sum(np.array(lengths) > t)) for t in range(lengths[0])]
        update_of_row = np.concatenate([update_of[:n] for n in running])
        rows = torch.from_numpy(np.argsort(update_of_row, kind="stable")).to(TORCH_DEVICE)
        for own in rows.split(np.bincount(update_of_row).tolist()):
            loss = self._update(features[own], targets[own])
        return loss

    def _update(self, features, targets):
        with precise(self.precision):
            loss = self.loss(features, targets)
        return _step(loss, self.optimizer)

    def _loss(self, features, targets):
        return F.cross_entropy(self.readout(features), targets)  # of logits (C, V)

    @torch.no_grad()
    def features(self, sentences: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns states of the real tokens (C, N) and the next tokens (C,): step by step, longest
        sentence first."""
        inputs, targets = pad(sorted(sentences, key=len, reverse=True))
        running = (targets != IGNORED).sum(0)  # (T,) sentences still running at each step
        packed = torch.from_numpy(
            np.concatenate([targets[:n, t] for t, n in enumerate(running)])
        ).to(TORCH_DEVICE)
        features = torch.empty(len(packed), len(self.reservoir.leak), device=TORCH_DEVICE)
        inputs, h, row = (
            torch.from_numpy(inputs).to(TORCH_DEVICE),
            self.reservoir.zeros(len(sentences)),
            0,
        )
        for t, n in enumerate(running.tolist()):
            if n < h.shape[1]:
                h = h[:, :n].contiguous()
            h = self.reservoir.fast_step(h, inputs[:n, t])
            features[row : row + n] = h.T
            row += n
        return features, packed


class Lstm:
    """LSTM-512 for context: embedding 512, one layer of 512, a full readout; padding removed, no
    dropout."""

    def __init__(
        self, vocab_size: int, precision: str, adamw: dict, width: int = 512, onednn: bool = False
    ):
        torch.manual_seed(0)
        self.precision, self.onednn = precision, onednn
        self.embedding = nn.Embedding(vocab_size, width, device=TORCH_DEVICE)
        self.lstm = nn.LSTM(width, width, device=TORCH_DEVICE)
        self.readout = nn.Linear(width, vocab_size, device=TORCH_DEVICE)
        parts = nn.ModuleList([self.embedding, self.lstm, self.readout])
        self.optimizer = torch.optim.AdamW(parts.parameters(), **adamw)

    def update(self, sentences: list[np.ndarray]) -> torch.Tensor:
        """Makes one update, and returns the loss before it."""
        inputs, targets = (
            torch.from_numpy(x) for x in pad(sorted(sentences, key=len, reverse=True))
        )
        lengths = (targets != IGNORED).sum(1)
        inputs, targets = (
            nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True).to(TORCH_DEVICE)
            for x in (inputs, targets)
        )
        with precise(self.precision):
            hidden, _ = self.lstm(
                nn.utils.rnn.PackedSequence(self.embedding(inputs.data), inputs.batch_sizes)
            )
            weight, bias = self.readout.weight, self.readout.bias
            logits = (
                OneDnnLinear.apply(hidden.data, weight, bias)
                if self.onednn
                else self.readout(hidden.data)
            )
            loss = F.cross_entropy(logits, targets.data)
        return _step(loss, self.optimizer)

    def updates(self, batches: list[list[np.ndarray]]) -> torch.Tensor:
        """Makes an update of each batch of sentences, and returns the last loss before it."""
        return [self.update(batch) for batch in batches][-1]


ADAMW = {
    "for-loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def fastest_adamw(params: dict) -> dict:
    """Returns the options of the fastest of torch's AdamW implementations on arrays of these
    shapes."""
    found = {}
    for name, options in ADAMW.items():
        arrays = [
            nn.Parameter(torch.rand(array.shape, device=TORCH_DEVICE)) for array in params.values()
        ]
        for array in arrays:
            array.grad = torch.rand_like(array)
        found[name] = _seconds(torch.optim.AdamW(arrays, **options).step)
    return ADAMW[min(found, key=found.get)]


def pad(sentences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (inputs, targets), both (B, T) int64: the tokens, and the next tokens, or IGNORED in
    padding."""
    lengths = [len(sentence) - 1 for sentence in sentences]
    inputs = np.zeros((len(sentences), max(lengths)), np.int64)
    targets = np.full(inputs.shape, IGNORED, np.int64)
    for i, (sentence, length) in enumerate(zip(sentences, lengths, strict=True)):
        inputs[i, :length], targets[i, :length] = sentence[:-1], sentence[1:]
    return inputs, targets


def precise(precision: str):
    """Returns a context that sets the precision of torch's products."""
    measure.torch_precision(precision)
    return torch.autocast(TORCH_DEVICE, dtype=torch.bfloat16, enabled=precision == "bf16")


def _step(loss, optimizer):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def _seconds(run, repeats: int = 15) -> float:
    """Returns the minimum time of a few calls, after an uncounted one."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        run()
        measure.torch_wait()
        times.append(time.perf_counter() - began)
    return min(times[1:])
