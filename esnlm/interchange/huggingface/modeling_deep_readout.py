"""The family deep_readout of esnlm in PyTorch: frozen cells, stored as buffers, below a trained
feed-forward network.

`esnlm export` copies this file and modeling_esnlm.py next to the weights of such a model. Frozen
cells read token w:

    reservoir  as in modeling_esnlm.py
    diagonal   s' = s + (1 - exp(-f(w) / tau)) * (c(w) - s), with output s' * sqrt((2 - k) / k), k =
    1 - exp(-1 / tau) GRU        h' = (1 - z) * h + z * tanh(U_c (r * h) + W_c w),  z = sigmoid(b +
    U_z h + W_z w),  r = sigmoid(U_r h + W_r w) attention  a head's weights on the last L tokens,
    softmax(sharpness k_t . k_(t-i)), with keys k = P h of length 1

h is the concatenation of their outputs, and e(w) an embedding, or sqrt(r) times a row of A if it is
tied. Above them:

    z = B m(h) + W_e [e(w_t), e(w_(t-1)), ..; sums of decay^i e(w_(t-i)); sums by attention] + c W_n
    [n-gram embeddings] z = z + W_down (silu(W_gate n(z)) * W_up n(z)),  once per block, and after
    the last block z = n(z) o = A z + b_out

m(h) is h, or with `normalize` (h - mean) / standard deviation. n(z) is z / sqrt(mean(z^2) + 1e-6)
times trained gains. A sum of decay^i e(w_(t-i)) is divided by the root of the sum of decay^(2i). c
is `ngrams.multiplier`.
"""

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .modeling_esnlm import (
    Cell,
    EsnlmConfig,
    EsnlmForCausalLM,
    EsnlmForSequenceClassification,
    EsnlmForTokenClassification,
    EsnlmModel,
    Linear,
    Matrix,
    Reservoir,
    State,
    Step,
    TokenInput,
    in_float32,
    rows,
)

LOW_BITS = 0xFFFFFFFF  # keeps the low 32 bits of a product


class DeepReadoutConfig(EsnlmConfig):
    model_type = "esnlm_deep_readout"

    reservoirs: int = 1
    frozen_size: int = 16  # numbers in h
    diagonal: int = 0  # D, diagonal linear units
    diagonal_by_token: bool = False  # whether their rates depend on the token
    gru: int = 0  # G, units of the frozen GRU
    history: int = 0  # number of remembered tokens
    # The sections model.attention and model.readout of the run's settings, as dicts.
    attention: Any = None
    trunk: Any = None


class Diagonal(Cell):
    """Diagonal linear units. The state is their averages, (D, B)."""

    def __init__(self, config: DeepReadoutConfig) -> None:
        super().__init__()
        self.sizes = [config.diagonal]
        # c(w), followed by f(w) if rates depend on the token
        self.input = TokenInput((1 + config.diagonal_by_token) * config.diagonal, config.num_tokens)
        self.time_scales = nn.Buffer(torch.ones(config.diagonal))

    def stepper(self) -> Step:
        exponents = 1 / in_float32(self.time_scales)[:, None]

        def step(state: State, vectors: torch.Tensor) -> State:
            (s,), (codes, *factors) = state, vectors.T.split(len(exponents))
            each = exponents * factors[0] if factors else exponents
            return (s - torch.expm1(-each) * (codes - s),)

        return step

    def outputs(self, state: State) -> list[torch.Tensor]:
        rates = -torch.expm1(-1 / in_float32(self.time_scales))
        return [state[0] * ((2 - rates) / rates).sqrt()[:, None]]


class Gru(Cell):
    """A frozen GRU, called `name` in the cell. The state is h, (G, B)."""

    def __init__(self, config: DeepReadoutConfig, name: str) -> None:
        super().__init__()
        units = config.gru
        self.sizes = [units]
        self.gates = Matrix(2 * units, units, config.sparse(f"{name}.gates"))
        self.candidate = Matrix(units, units, config.sparse(f"{name}.candidate"))
        self.input = TokenInput(3 * units, config.num_tokens, config.sparse(f"{name}.input"))
        self.bias = nn.Buffer(torch.zeros(units))

    def stepper(self) -> Step:
        gates, candidate, bias = (
            self.gates.operand(),
            self.candidate.operand(),
            in_float32(self.bias)[:, None],
        )

        def step(state: State, vectors: torch.Tensor) -> State:
            (h,) = state
            x_z, x_r, x_c = vectors.T.chunk(3)
            u_z, u_r = (gates @ h).chunk(2)
            z, r = torch.sigmoid(bias + u_z + x_z), torch.sigmoid(u_r + x_r)
            return ((1 - z) * h + z * torch.tanh(candidate @ (r * h) + x_c),)

        return step


class History(Cell):
    """The last K tokens, the newest first, (K size, B): id + 1 and e(w) of each, and 0 before the
    first token."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.sizes, self.size = [count * size], size

    def stepper(self) -> Step:
        return lambda state, vectors: (torch.cat([vectors.T, state[0][: -self.size]]),)


class GatedBlock(nn.Module):
    """z + W_down (silu(W_gate n(z)) * W_up n(z))."""

    def __init__(self, rank: int, width: int) -> None:
        super().__init__()
        self.gains = nn.Parameter(torch.ones(rank))
        self.gate, self.up = (Linear(rank, width, bias=False) for _ in range(2))
        self.down = Linear(width, rank, bias=False)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        normed = _normed(z, self.gains)
        return z + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Trunk(nn.Module):
    """From h (B, N), the last K tokens' ids (B, K) and e(w) (B, K, e), and the weights of attention
    (B, heads, L) to z (B, r)."""

    def __init__(self, config: DeepReadoutConfig) -> None:
        super().__init__()
        rank, self.normalize, self.attention = (
            config.hidden_size,
            config.trunk["normalize"],
            config.attention,
        )
        self.recent, self.ngrams, mlp = (
            config.trunk[name] for name in ("recent_tokens", "ngrams", "gated_mlp")
        )
        self.b = Linear(config.frozen_size, rank, bias=False)
        self.vectors = self.recent["count"] + len(self.recent["decays"]) + self.attention["heads"]
        if self.vectors:
            self.token_weights = Linear(self.vectors * self.recent["width"], rank, bias=False)
            if not self.recent["tied"]:
                self.embedding = nn.Parameter(torch.zeros(config.num_tokens, self.recent["width"]))
        if orders := len(self.ngrams["orders"]):
            self.tables = nn.Parameter(
                torch.zeros(orders, self.ngrams["buckets"], self.ngrams["width"])
            )
            self.ngram_weights = Linear(orders * self.ngrams["width"], rank, bias=False)
        self.blocks = nn.ModuleList(GatedBlock(rank, mlp["width"]) for _ in range(mlp["blocks"]))
        self.gains = nn.Parameter(torch.ones(rank)) if mlp["blocks"] else None

    def forward(
        self, h: torch.Tensor, ids: torch.Tensor, e: torch.Tensor, attention: torch.Tensor
    ) -> torch.Tensor:
        if self.normalize:
            h = functional.layer_norm(h, h.shape[1:], eps=1e-6)
        z = self.b(h)
        if self.vectors:
            z = z + self.token_weights(self._last_tokens(e, attention))
        if orders := self.ngrams["orders"]:
            found = [self.tables[i][self._bucket(ids[:, :n])] for i, n in enumerate(orders)]
            z = z + self.ngrams["multiplier"] * self.ngram_weights(in_float32(torch.cat(found, 1)))
        for block in self.blocks:
            z = block(z)
        return z if self.gains is None else _normed(z, self.gains)

    def embed(self, tokens: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        """Returns e(w) of tokens (...), given A (V, r)."""
        return (
            rows(a, tokens) * self.recent["width"] ** 0.5
            if self.recent["tied"]
            else rows(self.embedding, tokens)
        )

    def _last_tokens(self, e: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
        recent = self.recent
        vectors = [e[:, : recent["count"]]]
        for decay in recent["decays"]:
            powers = decay ** torch.arange(recent["window"], device=e.device, dtype=e.dtype)
            vectors.append((powers / powers.norm() @ e[:, : recent["window"]])[:, None])
        if self.attention["heads"]:
            vectors.append(attention @ e[:, : self.attention["window"]])
        return torch.cat(vectors, 1).flatten(1)

    def _bucket(self, ids: torch.Tensor) -> torch.Tensor:
        mixed = torch.zeros_like(ids[:, 0])
        for column in ids.T:
            mixed = ((mixed ^ (column + 1)) * 0x9E3779B1) & LOW_BITS
            mixed = mixed ^ (mixed >> 15)
        mixed = (mixed * 0x85EBCA6B) & LOW_BITS
        mixed = mixed ^ (mixed >> 13)
        return mixed % self.ngrams["buckets"]


class DeepReadout(Cell):
    """The cell: its state has the parts of all frozen cells, and its output is z.

    With attention heads, two more parts follow: the keys of the last states, newest first, and the
    number of tokens.
    """

    def __init__(self, config: DeepReadoutConfig, readout: Any) -> None:
        super().__init__()
        # in a list, so that PyTorch registers it in the model only
        self.config, self.last_layer = (
            config,
            [readout],
        )
        self.cells: Any = nn.ModuleList(
            Reservoir(config, f"cells.{i}.") for i in range(config.reservoirs)
        )
        if config.diagonal:
            self.cells.append(Diagonal(config))
        if config.gru:
            self.cells.append(Gru(config, f"cells.{len(self.cells)}"))
        self.trunk = Trunk(config)
        self.reads: list[Any] = [cell.input.size for cell in self.cells]  # input size of each cell
        if config.history:
            self.reads.append(
                1 + (config.trunk["recent_tokens"]["width"] if self.trunk.vectors else 0)
            )
            self.cells.append(History(config.history, self.reads[-1]))
        sizes: list[Any] = [cell.sizes for cell in self.cells]
        self.parts = [len(its) for its in sizes]
        self.sizes: list[int] = [size for its in sizes for size in its]
        self.heads, self.window, self.width = (
            config.attention[name] for name in ("heads", "window", "width")
        )
        keys = self.heads * self.width
        if self.heads:
            self.projection = nn.Buffer(torch.zeros(keys, config.frozen_size))
            self.sizes += [(self.window + 1) * keys, 1]

    @property
    def input(self) -> "DeepReadout":
        return self

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the concatenated inputs of the cells for tokens (...), (..., K)."""
        parts = [cell.input(tokens) for cell in self.cells if not isinstance(cell, History)]
        if self.config.history:
            parts.append((tokens + 1)[..., None].float())
        if self.trunk.vectors:
            parts.append(self.trunk.embed(tokens, self.last_layer[0].a.weight))
        return torch.cat(parts, -1)

    def stepper(self) -> Step:
        steps = [cell.stepper() for cell in self.cells]
        heads, width = self.heads, self.width

        def step(state: State, vectors: torch.Tensor) -> State:
            *own, rest = self._by_cell(state)
            each = zip(steps, own, vectors.split(self.reads, 1), strict=True)
            new = tuple(part for one, given, read in each for part in one(given, read))
            if not heads:
                return new
            keys, read = rest
            key = in_float32(self.projection) @ self._features(new)[: self.config.frozen_size]
            key = key.reshape(heads, width, -1)
            key = (key * torch.rsqrt(key.square().sum(1, keepdim=True) + 1e-12)).reshape(
                heads * width, -1
            )
            return (*new, torch.cat([key, keys[: -len(key)]]), read + 1)

        return step

    def outputs(self, state: State) -> list[torch.Tensor]:
        features, history = self._features(state).T, self.config.history
        h, last = features[:, : self.config.frozen_size], features[:, self.config.frozen_size :]
        # (B, K, 1 + e)
        last = last.unflatten(1, (history, self.reads[-1])) if history else last[..., None]
        return [self.trunk(h, last[..., 0].long() - 1, last[..., 1:], self._attention(state)).T]

    def _by_cell(self, state: State) -> list[State]:
        """Returns the state's parts by cell, with those of attention at the end."""
        ends = list(itertools.accumulate(self.parts, initial=0))
        return [state[first:end] for first, end in itertools.pairwise([*ends, len(state)])]

    def _features(self, state: State) -> torch.Tensor:
        """Returns the concatenated outputs of the frozen cells, (F, B)."""
        own = zip(self.cells, self._by_cell(state)[:-1], strict=True)
        return torch.cat([part for cell, given in own for part in cell.outputs(given)])

    def _attention(self, state: State) -> torch.Tensor:
        """Returns the weights of each head on the last tokens, (B, heads, L)."""
        if not self.heads:
            return state[0].new_zeros(state[0].shape[1], 0, 0)
        keys, read = state[-2:]
        keys = keys.reshape(self.window + 1, self.heads, self.width, -1)
        likeness = (keys[:1] * keys[1:]).sum(2)  # (L, heads, B)
        past = torch.arange(1, self.window + 1, device=read.device)[:, None, None] < read
        likeness = likeness.masked_fill(~past, -1)  # the lowest cosine
        weights = torch.exp(
            self.config.attention["sharpness"] * (likeness - likeness.amax(0))
        ).masked_fill(~past, 0)
        return (weights / weights.sum(0).clamp(min=1)).permute(2, 1, 0)


class DeepReadoutModel(EsnlmModel):
    config_class: Any = DeepReadoutConfig

    def _cell(self, config: Any) -> nn.Module:
        return DeepReadout(config, self.readout)


class DeepReadoutForCausalLM(EsnlmForCausalLM):
    config_class, model_class = DeepReadoutConfig, DeepReadoutModel


class DeepReadoutForSequenceClassification(EsnlmForSequenceClassification):
    config_class, model_class = DeepReadoutConfig, DeepReadoutModel


class DeepReadoutForTokenClassification(EsnlmForTokenClassification):
    config_class, model_class = DeepReadoutConfig, DeepReadoutModel


def _normed(z: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    return in_float32(gains) * z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-6)
