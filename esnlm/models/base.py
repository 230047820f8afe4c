"""What every model family offers: its configuration (`ModelConfig`) and its model (`LanguageModel`).

A family is one file of this folder with a frozen dataclass that is a ModelConfig and a Flax module that is a LanguageModel
(or a RecurrentModel), and one line in models/registry.py. docs/extending.md walks through one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np
from flax import nnx, traverse_util

from esnlm.compute import Recurrence, ResolvedCompute
from esnlm.data.store import TokenStore
from esnlm.features import dropout, recurrence
from esnlm.features.layout import PackedBatch
from esnlm.features.recurrence import Cell
from esnlm.features.stream import FeatureStream, SentenceFeatures
from esnlm.features.trunk_stream import TrunkStream
from esnlm.parallel.placement import Placement
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.arrays import arrays_by_name

READOUT_ARRAYS = ("readout.a", "readout.w", "readout.bias")  # those with a row for each token


@dataclass(frozen=True)
class Counts:
    """Parameters. `total` counts nonzero entries only (Ueda et al. 2025a), `entries` zeros too (Ueda et al. 2025b)."""

    trainable: int
    total: int
    entries: int


class ModelConfig(ABC):
    """The settings of a family, and what is known of its models before there is one. A subclass is a frozen dataclass."""

    family: str  # its name in models/registry.py
    dropout: float  # rate; 0: none

    @property
    @abstractmethod
    def title(self) -> str:
        """The model in a few words, for tables and plots."""

    @property
    @abstractmethod
    def feature_size(self) -> int:
        """F, the features that the readout sees for each token."""

    @property
    def features_are_frozen(self) -> bool:
        """Whether no trained number decides the features."""
        return False

    @property
    def ahead_size(self) -> int:
        """Numbers of a token that are computed for many updates at once, ahead of them; 0: none.

        They are the features if these are frozen, or what lies below a `RecurrentModel.trunk`.
        """
        return self.feature_size if self.features_are_frozen else 0

    @property
    def recurrence(self) -> Recurrence | None:
        """The frozen recurrence, by which a device chooses its kernel and batch slots; None if there is none."""
        return None

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sentence that can be read; None: any length."""
        return None

    @property
    def linear_readout(self) -> ReadoutConfig:
        """The readout on the features."""
        return ReadoutConfig(rank=None)

    @property
    def readout_can_be_padded(self) -> bool:
        """Whether rows may be added to the readout (parallel/placement.py).

        It must have a bias, and what else reads it must read rows of tokens only, which are below V.
        """
        return True

    @property
    def token_arrays(self) -> tuple[str, ...] | None:
        """The trained arrays with a row for each token, which several devices divide; None if the model needs one device.

        A family whose features are trained names here, beside READOUT_ARRAYS, the trained tables that its features look up by token.
        """
        return READOUT_ARRAYS if self.features_are_frozen else None

    @abstractmethod
    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns the parameters, in expectation over the random weights."""

    def frozen_bytes(self, vocab_size: int) -> int:
        """Returns the memory of what is frozen; 0: nothing is, and nothing is restored."""
        return 0

    def initialize_frozen(self, vocab_size: int, seed: int, text: TokenStore | None = None) -> tuple[dict, dict]:
        """Returns the frozen arrays as nested dicts, and a record of how they came about, to be saved with them.

        Raises InputError if something is to be counted in the training text, and there is none.
        """
        return {}, {}

    @abstractmethod
    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> LanguageModel:
        """Returns the model before training: the frozen arrays of `initialize_frozen`, and random trained ones."""


class LanguageModel(nnx.Module):
    """A model: trained arrays are nnx.Param, frozen ones reservoir.arrays.Frozen. Models of one structure share programs.

    Like any Flax module it goes through jax.jit as it is. If its trained arrays are donated, it is taken apart first:

        graphdef, params, frozen = nnx.split(model, nnx.Param, ...)
        model = merge(graphdef, params_as_nested_dicts, frozen)      # inside the compiled function
    """

    config: ModelConfig
    precision: str = "float32"  # of the products with trained matrices; `for_device` sets it

    @abstractmethod
    def __call__(self, batch: PackedBatch, key: jax.Array | None = None) -> jax.Array:
        """Returns the features after each token, (T * B, F), differentiable in all that is trained.

        Args:
            batch: tokens (T, B), their positions and corpus positions.
            key: the epoch's key of dropout (features/dropout.py); None: nothing is dropped.
        """

    @abstractmethod
    def initial_state(self, slots: int, length: int | None = None) -> Any:
        """Returns the state of B slots before any token, for `step`.

        `length` tokens will be read at most (None: `config.longest`), for models whose state grows with it.
        """

    @abstractmethod
    def step(self, state: Any, tokens: jax.Array) -> Any:
        """Returns the state after one more token a slot, (B,), without dropout."""

    @abstractmethod
    def output(self, state: Any) -> jax.Array:
        """Returns the features after the last token, (F, B)."""

    @abstractmethod
    def stream(self, compute: ResolvedCompute, placement: Placement | None = None) -> SentenceFeatures:
        """Returns what reads many sentences at once, without a gradient; see features/stream.py.

        `placement` says where the model's arrays lie on a mesh of devices; None: there is one device.
        """

    @abstractmethod
    def counts(self) -> Counts:
        """Returns the parameters of this model. It does not read trained arrays, which may be donated."""

    def for_device(self, compute: ResolvedCompute) -> Self:
        """Returns the same model as it is computed: with the precision, and what is frozen as the kernel wants it."""
        graphdef, *state = nnx.split(self)
        ready = nnx.merge(graphdef, *state)
        ready.precision = compute.precision
        return ready

    @property
    def output_dropout(self) -> float:
        """Rate of dropout on the copy of the features that the readout sees."""
        return self.config.dropout

    @property
    def states_in_features(self) -> int:
        """How many of the features are states. The rest, behind them, are ids of tokens."""
        return self.config.feature_size

    @property
    def frozen_readout_arrays(self) -> dict:
        """The arrays of the readout that are not trained, as readout/linear.py takes them beside the trained ones."""
        return {}

    def readout_arrays(self, params: dict) -> dict:
        """Returns the arrays of the readout, as readout/linear.py takes them, of trained arrays as `params` gives them."""
        return params["readout"] | self.frozen_readout_arrays

    def reader(self, slots: int, length: int) -> Callable[[np.ndarray], jax.Array]:
        """Returns a function from the tokens that each slot reads next, (B,), at most `length`, to the features after them, (B, F)."""
        state = self.initial_state(slots, length)

        def read(tokens: np.ndarray) -> jax.Array:
            nonlocal state
            state, features = _step(self, state, tokens)
            return features

        return read

    @property
    def params(self) -> dict:
        """The trained arrays, as nested dicts."""
        return arrays_by_name(self, nnx.Param)

    def with_params(self, params: dict) -> Self:
        """Returns the model with other trained arrays."""
        graphdef, *(_, frozen) = nnx.split(self, nnx.Param, ...)
        return merge(graphdef, params, frozen)

    def arrays(self) -> dict:
        """Returns every weight, as nested dicts."""
        return arrays_by_name(self)


class RecurrentModel(LanguageModel):
    """A model whose features a recurrence makes: that of `cell`, a Cell of features/recurrence.py."""

    @property
    @abstractmethod
    def cell(self) -> Cell:
        """It holds no trained array that does not decide the features: the optimizer frees the readout's at every update.

        A model whose features are trained may be its own cell.
        """

    def initial_state(self, slots: int, length: int | None = None) -> Any:
        return self.cell.initial_state(slots)

    def step(self, state: Any, tokens: jax.Array) -> Any:
        return self.cell.step(state, tokens)

    def output(self, state: Any) -> jax.Array:
        return self.cell.output(state)

    def __call__(self, batch: PackedBatch, key: jax.Array | None = None) -> jax.Array:
        cell, keep = self.cell, None
        if key is not None and self.config.dropout > 0:
            keys = dropout.token_keys(key, batch.corpus_positions)
            keep = dropout.mask(keys, dropout.INPUT, cell.mask_size, self.config.dropout)
        ahead = recurrence.unroll(cell, batch.tokens, batch.positions, keep).reshape(-1, cell.output_size)
        return ahead if self.trunk is None else self.trunk(self.params, ahead)

    @property
    def trunk(self) -> Callable[[dict, jax.Array], jax.Array] | None:
        """A function from trained arrays, and what the cell computed (C, N), to the features (C, F); None: they are the same.

        It keeps no trained array of this model: the optimizer frees them at every update.
        """
        return None

    def stream(self, compute: ResolvedCompute, placement: Placement | None = None) -> SentenceFeatures:
        ahead, trunk = self.stream_ahead(compute, placement), self.trunk
        return ahead if trunk is None else TrunkStream(ahead, trunk, self.params)

    def stream_ahead(self, compute: ResolvedCompute, placement: Placement | None = None) -> FeatureStream:
        """Returns the stream of what `cell` computes, which needs no trained array if the configuration has an `ahead_size`."""
        return FeatureStream(self.cell, compute.batch_slots, compute.window_tokens, self.config.dropout, placement)


def merge(graphdef: nnx.GraphDef, params: dict, frozen: nnx.State) -> Any:
    """Returns the model of nnx.split(model, nnx.Param, ...), with other `params` as LanguageModel.params gives them."""
    by_path: dict[tuple[str, ...], jax.Array] = traverse_util.flatten_dict(params)
    flat = {tuple(int(key) if key.isdigit() else key for key in path): x for path, x in by_path.items()}
    return nnx.merge(graphdef, traverse_util.unflatten_dict(flat), frozen)


@jax.jit
def _step(model: LanguageModel, state: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
    state = model.step(state, tokens)
    return state, model.output(state).T
