"""The interface of a model family: its configuration (`ModelConfig`) and its model
(`LanguageModel`).

A family is one file of this folder with a frozen dataclass that is a ModelConfig and a Flax module
that is a LanguageModel (or a RecurrentModel), and one line in models/registry.py. docs/extending.md
walks through one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np
from flax import nnx, traverse_util

from esnlm.data.store import TokenStore
from esnlm.features import dropout, recurrence
from esnlm.features.layout import PackedBatch
from esnlm.features.recurrence import Cell, State
from esnlm.features.stream import FeatureStream, SentenceFeatures
from esnlm.features.trunk_stream import TrunkStream
from esnlm.machine.compute import Recurrence, ResolvedCompute
from esnlm.machine.placement import Placement
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.arrays import arrays_by_name

READOUT_ARRAYS = ("readout.a", "readout.w", "readout.bias")  # the arrays with one row per token


@dataclass(frozen=True)
class Counts:
    """Parameters. `total` counts nonzero entries only (Ueda et al. 2025a), `entries` zeros too
    (Ueda et al. 2025b)."""

    trainable: int
    total: int
    entries: int


class ModelConfig(ABC):
    """The settings of a family, and the properties that follow from them. A subclass is a frozen
    dataclass."""

    family: str  # its name in models/registry.py
    dropout: float  # dropout rate; 0: no dropout

    @property
    @abstractmethod
    def title(self) -> str:
        """The model in a few words, for tables and plots."""

    @property
    @abstractmethod
    def feature_size(self) -> int:
        """F, the number of features per token that the readout reads."""

    @property
    def features_are_frozen(self) -> bool:
        """Whether the features depend on no trained array."""
        return False

    @property
    def ahead_size(self) -> int:
        """Numbers per token that are computed ahead of the updates, for many of them at once; 0:
        none.

        These are the features if they are frozen, or the input of a `RecurrentModel.trunk`.
        """
        return self.feature_size if self.features_are_frozen else 0

    @property
    def recurrence(self) -> Recurrence | None:
        """The frozen recurrence, for the choice of a kernel and of batch slots; None if there is
        none."""
        return None

    @property
    def longest(self) -> int | None:
        """Maximum sentence length in tokens; None: any length."""
        return None

    @property
    def linear_readout(self) -> ReadoutConfig:
        """The readout on the features."""
        return ReadoutConfig(rank=None)

    @property
    def readout_can_be_padded(self) -> bool:
        """Whether rows may be added to the readout (machine/placement.py).

        It must have a bias, and every other reader must read rows of tokens only, which are below
        V.
        """
        return True

    @property
    def token_arrays(self) -> tuple[str, ...] | None:
        """The trained arrays with one row per token, which several devices share; None if the model
        needs one device.

        A family with trained features adds to READOUT_ARRAYS the trained tables that its features
        look up by token.
        """
        return READOUT_ARRAYS if self.features_are_frozen else None

    @abstractmethod
    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns the expected parameter counts over the random weights."""

    def frozen_bytes(self, vocab_size: int) -> int:
        """Returns the bytes of the frozen arrays; 0: there are none to restore."""
        return 0

    def initialize_frozen(
        self, vocab_size: int, seed: int, text: TokenStore | None = None
    ) -> tuple[dict, dict]:
        """Returns the frozen arrays as nested dicts, and a record of how they were made, to be
        saved with them.

        Raises InputError if the settings need counts from a training text and there is none.
        """
        return {}, {}

    @abstractmethod
    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> LanguageModel:
        """Returns the untrained model: the frozen arrays of `initialize_frozen` and random trained
        arrays."""


class LanguageModel(nnx.Module):
    """A model. Trained arrays are nnx.Param, frozen ones reservoir.arrays.Frozen.

    Like any Flax module it can be an argument of jax.jit. Models with the same structure share
    compiled programs. To donate the trained arrays, split the model first:

        graphdef, params, frozen = nnx.split(model, nnx.Param, ...)
        model = merge(graphdef, params_as_nested_dicts, frozen)      # inside the compiled function
    """

    config: ModelConfig
    precision: str = "float32"  # of the products with trained matrices; `for_device` sets it

    @abstractmethod
    def __call__(self, batch: PackedBatch, key: jax.Array | None = None) -> jax.Array:
        """Returns the features after each token, (T * B, F), differentiable with respect to the
        trained arrays.

        Args:
            batch: tokens (T, B), their positions and corpus positions.
            key: dropout key of the epoch (features/dropout.py); None: no dropout.
        """

    @abstractmethod
    def initial_state(self, slots: int, length: int | None = None) -> Any:
        """Returns the state of B slots before the first token, for `step`.

        `length` is the maximum number of tokens to read (None: `config.longest`); some states grow
        with it.
        """

    @abstractmethod
    def step(self, state: Any, tokens: jax.Array) -> Any:
        """Returns the state after one more token per slot, (B,), without dropout."""

    @abstractmethod
    def output(self, state: Any) -> jax.Array:
        """Returns the features after the last token, (F, B)."""

    @abstractmethod
    def stream(
        self, compute: ResolvedCompute, placement: Placement | None = None
    ) -> SentenceFeatures:
        """Returns a reader of many sentences at once, without a gradient; see features/stream.py.

        `placement` gives the placement of the model's arrays on a mesh of devices; None: there is
        one device.
        """

    @abstractmethod
    def counts(self) -> Counts:
        """Returns the parameter counts of this model. It does not read trained arrays, which may be
        donated."""

    def for_device(self, compute: ResolvedCompute) -> Self:
        """Returns the same model ready to run: its precision is set, its frozen arrays are the
        kernel's operands."""
        graphdef, *state = nnx.split(self)
        ready = nnx.merge(graphdef, *state)
        ready.precision = compute.precision
        return ready

    @property
    def output_dropout(self) -> float:
        """Dropout rate on the copy of the features that the readout reads."""
        return self.config.dropout

    @property
    def states_in_features(self) -> int:
        """Number of features that are states. The features after them are token ids."""
        return self.config.feature_size

    @property
    def frozen_readout_arrays(self) -> dict:
        """The frozen arrays of the readout, which readout/linear.py takes together with the trained
        ones."""
        return {}

    def readout_arrays(self, params: dict) -> dict:
        """Returns the arrays that readout/linear.py takes, from trained arrays in the form of the
        property `params`."""
        return params["readout"] | self.frozen_readout_arrays

    def reader(self, slots: int, length: int) -> Callable[[np.ndarray], jax.Array]:
        """Returns a function from each slot's next token, (B,), to the features, (B, F), for up to
        `length` calls."""
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
    """A model whose features come from a recurrence, its `cell` (a Cell of
    features/recurrence.py)."""

    @property
    @abstractmethod
    def cell(self) -> Cell:
        """The recurrence. It must not hold the readout's arrays, since the optimizer frees those at
        every update.

        A model with trained features may be its own cell.
        """

    def initial_state(self, slots: int, length: int | None = None) -> Any:
        return self.cell.initial_state(slots)

    def step(self, state: Any, tokens: jax.Array) -> Any:
        return self.cell.step(state, tokens)

    def output(self, state: Any) -> jax.Array:
        return self.cell.output(state)

    def __call__(self, batch: PackedBatch, key: jax.Array | None = None) -> jax.Array:
        return self.read_on(batch, key, None)[1]

    def read_on(
        self, batch: PackedBatch, key: jax.Array | None, state: State | None
    ) -> tuple[State, jax.Array]:
        """Does the same from a state of the slots (None: the initial one). Also returns the state
        after the last token."""
        cell, keep = self.cell, None
        if key is not None and self.config.dropout > 0:
            keys = dropout.token_keys(key, batch.corpus_positions)
            keep = dropout.mask(keys, dropout.INPUT, cell.mask_size, self.config.dropout)
        state, outputs = recurrence.unroll(cell, batch.tokens, batch.positions, keep, state)
        ahead = outputs.reshape(-1, cell.output_size)
        return state, ahead if self.trunk is None else self.trunk(self.params, ahead)

    @property
    def trunk(self) -> Callable[[dict, jax.Array], jax.Array] | None:
        """A function from the trained arrays and the cell's output (C, N) to the features (C, F);
        None: the identity.

        It must not hold trained arrays of this model, since the optimizer frees those at every
        update.
        """
        return None

    def stream(
        self, compute: ResolvedCompute, placement: Placement | None = None
    ) -> SentenceFeatures:
        ahead, trunk = self.stream_ahead(compute, placement), self.trunk
        return ahead if trunk is None else TrunkStream(ahead, trunk, self.params)

    def stream_ahead(
        self, compute: ResolvedCompute, placement: Placement | None = None
    ) -> FeatureStream:
        """Returns the stream of the cell's outputs. If `ahead_size` is above 0, it needs no trained
        array."""
        return FeatureStream(
            self.cell, compute.batch_slots, compute.window_tokens, self.config.dropout, placement
        )


def merge(graphdef: nnx.GraphDef, params: dict, frozen: nnx.State) -> Any:
    """Returns the model that nnx.split(model, nnx.Param, ...) took apart, with `params` like
    LanguageModel.params."""
    by_path: dict[tuple[str, ...], jax.Array] = traverse_util.flatten_dict(params)
    flat = {
        tuple(int(key) if key.isdigit() else key for key in path): x for path, x in by_path.items()
    }
    return nnx.merge(graphdef, traverse_util.unflatten_dict(flat), frozen)


@jax.jit
def _step(model: LanguageModel, state: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
    state = model.step(state, tokens)
    return state, model.output(state).T
