"""The family deep_readout in PyTorch: reservoirs below a trained feed-forward network.

`esnlm export` copies this file and modeling_esnlm.py next to the weights of such a model. h is the
concatenation of the reservoirs' outputs, and e(w) an embedding of token w, or sqrt(r) times a row
of A if it is tied. Above them:

    z = B m(h) + W_e [e(w_t), e(w_(t-1)), ..; sums of decay^i e(w_(t-i))] + c W_n [n-grams' vectors]
    z = z + W_down (silu(W_gate n(z)) * W_up n(z)),  in each block, and z = n(z) after the last one
    o = A z + b_out

m(h) is h, or with `normalize` (h - mean) / standard deviation. n(z) is z / sqrt(mean(z^2) + 1e-6)
times trained gains. A sum of decay^i e(w_(t-i)) is divided by the root of the sum of decay^(2i). c
is `ngrams.multiplier`.
"""

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
    Reservoir,
    State,
    Step,
    in_float32,
    rows,
)

LOW_BITS = 0xFFFFFFFF  # keeps the low 32 bits of a product


class DeepReadoutConfig(EsnlmConfig):
    model_type = "esnlm_deep_readout"

    reservoirs: int = 1
    frozen_size: int = 16  # numbers in h
    history: int = 0  # number of remembered tokens
    trunk: Any = None  # the section model.readout of the run's settings, as a dict


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
    """From h (B, N) and the last K tokens' ids (B, K) and e(w) (B, K, e) to z (B, r)."""

    def __init__(self, config: DeepReadoutConfig) -> None:
        super().__init__()
        rank, self.normalize = config.hidden_size, config.trunk["normalize"]
        names = ("recent_tokens", "ngrams", "gated_mlp")
        self.recent, self.ngrams, mlp = (config.trunk[name] for name in names)
        self.b = Linear(config.frozen_size, rank, bias=False)
        self.vectors = self.recent["count"] + len(self.recent["decays"])
        if self.vectors:
            self.token_weights = Linear(self.vectors * self.recent["width"], rank, bias=False)
            if not self.recent["tied"]:
                self.embedding = nn.Parameter(torch.zeros(config.num_tokens, self.recent["width"]))
        if orders := len(self.ngrams["orders"]):
            shape = orders, self.ngrams["buckets"], self.ngrams["width"]
            self.tables = nn.Parameter(torch.zeros(shape))
            self.ngram_weights = Linear(orders * self.ngrams["width"], rank, bias=False)
        self.blocks = nn.ModuleList(GatedBlock(rank, mlp["width"]) for _ in range(mlp["blocks"]))
        self.gains = nn.Parameter(torch.ones(rank)) if mlp["blocks"] else None

    def forward(self, h: torch.Tensor, ids: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        if self.normalize:
            h = functional.layer_norm(h, h.shape[1:], eps=1e-6)
        z = self.b(h)
        if self.vectors:
            z = z + self.token_weights(self._last_tokens(e))
        if orders := self.ngrams["orders"]:
            vectors = [self.tables[i][self._bucket(ids[:, :n])] for i, n in enumerate(orders)]
            z = z + self.ngrams["multiplier"] * self.ngram_weights(
                in_float32(torch.cat(vectors, 1))
            )
        for block in self.blocks:
            z = block(z)
        return z if self.gains is None else _normed(z, self.gains)

    def embed(self, tokens: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        """Returns e(w) of tokens (...), given A (V, r)."""
        if self.recent["tied"]:
            return rows(a, tokens) * self.recent["width"] ** 0.5
        return rows(self.embedding, tokens)

    def _last_tokens(self, e: torch.Tensor) -> torch.Tensor:
        vectors = [e[:, : self.recent["count"]]]
        for decay in self.recent["decays"]:
            powers = decay ** torch.arange(self.recent["window"], device=e.device, dtype=e.dtype)
            vectors.append((powers / powers.norm() @ e[:, : self.recent["window"]])[:, None])
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
    """The cell: its state has the parts of all reservoirs, and the last K tokens; its output is z.

    A token is its id + 1 and e(w), the newest first, (K (1 + e), B); 0 before the first token.
    """

    def __init__(self, config: DeepReadoutConfig, readout: Any) -> None:
        super().__init__()
        # in a list, so that PyTorch registers the readout in the model only
        self.config, self.last_layer = config, [readout]
        cells = [Reservoir(config, f"cells.{i}.") for i in range(config.reservoirs)]
        self.cells: Any = nn.ModuleList(cells)
        self.trunk = Trunk(config)
        self.token_size: int = 1 + (self.trunk.recent["width"] if self.trunk.vectors else 0)
        self.sizes: list[int] = [size for cell in cells for size in cell.sizes]
        if config.history:
            self.sizes.append(config.history * self.token_size)

    @property
    def input(self) -> "DeepReadout":
        return self

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the inputs of the reservoirs, the id + 1 and e(w), for tokens (...), (..., K)."""
        vectors = [cell.input(tokens) for cell in self.cells]
        if self.config.history:
            vectors.append((tokens + 1)[..., None].float())
        if self.trunk.vectors:
            vectors.append(self.trunk.embed(tokens, self.last_layer[0].a.weight))
        return torch.cat(vectors, -1)

    def stepper(self) -> Step:
        steps = [cell.stepper() for cell in self.cells]
        sizes: list[Any] = [cell.input.size for cell in self.cells]

        def step(state: State, vectors: torch.Tensor) -> State:
            *inputs, token = vectors.split([*sizes, vectors.shape[1] - sum(sizes)], 1)
            new = [
                part
                for advance, parts, x in zip(steps, self._by_cell(state), inputs, strict=True)
                for part in advance(parts, x)
            ]
            if self.config.history:
                new.append(torch.cat([token.T, state[-1][: -self.token_size]]))
            return tuple(new)

        return step

    def outputs(self, state: State) -> list[torch.Tensor]:
        cells = zip(self.cells, self._by_cell(state), strict=True)
        h = torch.cat([part for cell, parts in cells for part in cell.outputs(parts)]).T
        tokens = h.new_zeros(len(h), 0, 1)
        if self.config.history:
            tokens = state[-1].T.unflatten(1, (self.config.history, self.token_size))
        return [self.trunk(h, tokens[..., 0].long() - 1, tokens[..., 1:]).T]

    def _by_cell(self, state: State) -> list[State]:
        layers = self.config.num_hidden_layers
        return [state[i * layers : (i + 1) * layers] for i in range(len(self.cells))]


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
