"""What every model family offers: its configuration (`ModelConfig`) and its model (`LanguageModel`).

A family is one file of this folder with a frozen dataclass that is a ModelConfig and a Flax module that is a LanguageModel
(or a RecurrentModel), and one line in models/registry.py. docs/extending.md walks through one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np
from flax import nnx, traverse_util
from jax.experimental.sparse import BCSR
from jax.sharding import Mesh

from esnlm.compute import ComputeConfig, backend
from esnlm.data.store import TokenStore
from esnlm.errors import InputError
from esnlm.features import dropout, recurrence
from esnlm.features.layout import PackedBatch
from esnlm.features.stream import FeatureStream, SentenceFeatures
from esnlm.features.trunk_stream import TrunkStream
from esnlm.parallel import mesh as meshes
from esnlm.parallel.mesh import VOCABULARY
from esnlm.parallel.placement import Placement, rows_on
from esnlm.reservoir.arrays import arrays_by_name
from esnlm.reservoir.sparse import for_columns

READOUT_ARRAYS = ("readout.a", "readout.w", "readout.bias")  # those with a row for each token


@dataclass(frozen=True)
class Counts:
    """Parameters. `total` counts nonzero entries only (Ueda et al. 2025a), `entries` zeros too (Ueda et al. 2025b)."""

    trainable: int
    total: int
    entries: int


class ModelConfig(ABC):
    """The settings of a family, and all that they decide before there is a model. A subclass is a frozen dataclass."""

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
    def states_in_features(self) -> int:
        """How many of these features are states. The rest, behind them, are ids of tokens."""
        return self.feature_size

    @property
    def features_are_frozen(self) -> bool:
        """Whether no trained number decides the features, so that they can be precomputed for many updates at once."""
        return False

    @property
    def trains_ahead(self) -> bool:
        """Whether updates read numbers that were computed ahead for many of them: features, or what lies below those.

        What is trained below the features is then `RecurrentModel.trunk`.
        """
        return self.features_are_frozen

    @property
    def ahead_size(self) -> int:
        """The numbers of a token that are computed ahead."""
        return self.feature_size

    @property
    def states_ahead(self) -> int:
        """How many of these numbers are states. The rest, behind them, are ids of tokens and the like."""
        return self.ahead_size

    def trunk_size(self, vocab_size: int) -> int:
        """Returns about how many numbers of a token an update holds at once, beside its logits; 0 where they are few.

        They are those of a trunk, or of all layers where these are trained.
        """
        return 0

    @property
    def reservoir_units(self) -> int:
        """The units of the reservoir, of all layers; 0 where there is none."""
        return 0

    @property
    def recurrent_entries(self) -> tuple[int, int]:
        """The nonzeros, and all entries, of the frozen matrices that multiply a state in a time step."""
        return 0, 0

    @property
    def readout_rank(self) -> int | None:
        """r, the rank of a readout that a regression can fit; None: full."""
        return None

    @property
    def readout_scaling(self) -> str:
        """The scaling of the readout (readout/scaling.py); "none" where there is no choice of it."""
        return "none"

    @property
    def readout_can_be_padded(self) -> bool:
        """Whether rows may be added to the readout (readout/padding.py).

        It must have a bias, and what else reads it must read rows of tokens only, which are below V.
        """
        return True

    @property
    def longest(self) -> int | None:
        """The tokens of the longest sentence that can be read; None where it may be of any length."""
        return None

    @property
    def output_dropout(self) -> float:
        """The rate of dropout on the copy of the features that the readout sees."""
        return self.dropout

    def kernel(self, backend: str) -> str:
        """Returns the kernel of the sparse product for a backend; "auto" where there is no such product."""
        return "auto"

    def batch_slots(self, backend: str) -> int:
        """Returns how many sentences should run side by side on a backend."""
        return 256 if backend == "cpu" else 4096

    @abstractmethod
    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns the parameters, in expectation over the random weights."""

    @abstractmethod
    def flops_per_token(self, vocab_size: int) -> int:
        """Returns the floating-point operations of training for one predicted token.

        A product costs 2 for each entry of its matrix on the way forward, and 4 more on the way back.
        """

    def frozen_bytes(self, vocab_size: int) -> int:
        """Returns the memory of what is frozen; 0 where nothing is, and then nothing is restored."""
        return 0

    def saved_frozen_bytes(self, vocab_size: int, tokens: int) -> int:
        """Returns the bytes of what is frozen as it is saved, at most, where the training text has so many tokens to predict."""
        return self.frozen_bytes(vocab_size)

    def initialize_frozen(self, vocab_size: int, seed: int, text: TokenStore | None = None) -> tuple[dict, dict]:
        """Returns the arrays that are frozen, as nested dicts, and a record of how they came about, to be saved with them.

        A family that has such arrays says in `frozen_bytes` how large they are.

        Args:
            vocab_size: V.
            seed: of all that is drawn.
            text: the training text, for what is counted in it; None where there is none.

        Raises:
            InputError: something is to be counted, and there is no text.
        """
        return {}, {}

    @abstractmethod
    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> LanguageModel:
        """Returns the model before training: the frozen arrays of `initialize_frozen`, and random trained ones."""

    def mesh(self, compute: ComputeConfig) -> Mesh | None:
        """Returns the mesh of devices that the model is computed on; None if it is one device.

        Raises:
            InputError: the devices that are asked for are not there, or the model can be computed on one device only, and
                several or the devices of several processes are asked for.
        """
        if self.token_arrays is not None:
            return meshes.make_mesh(compute.mesh)
        if math.prod((compute.mesh or {}).values()) > 1:
            raise InputError(
                f"compute.mesh asks for several devices: {self.title} can be computed on one only; give null"
            )
        meshes.require_one_process(f"{self.title} is computed on one device only")
        return None

    def placement(self, compute: ComputeConfig, vocab_size: int) -> Placement:
        """Returns where the arrays lie on the devices of `compute`, and how many rows of tokens they have there."""
        mesh = self.mesh(compute)
        if mesh is None:
            rows = rows_on(backend(), vocab_size) if self.readout_can_be_padded else vocab_size
            return Placement(None, vocab_size, rows, READOUT_ARRAYS)
        rows = rows_on(backend(), vocab_size, mesh.shape[VOCABULARY])
        is_cut = self.feature_size % mesh.size == 0 and (self.features_are_frozen or not self.trains_ahead)
        by_unit = ("readout.b",) if is_cut else ()
        return Placement(mesh, vocab_size, rows, self.token_arrays or (), by_unit)

    def trained_entries(self, vocab_size: int) -> int:
        """Returns how many numbers the trained arrays have, in memory and in a checkpoint. Some may be padding or zeros."""
        return self.expected_counts(vocab_size).trainable

    @property
    def token_arrays(self) -> tuple[str, ...] | None:
        """The trained arrays with a row for each token, by name: several devices divide them among each other.

        None if the model can only be computed on one device. A family whose features are trained names here, beside
        READOUT_ARRAYS, the trained tables that its features look up by token.
        """
        return READOUT_ARRAYS if self.features_are_frozen else None

    def readout_arrays(self, params: dict) -> dict:
        """Returns those of the trained arrays that make the readout, as readout/linear.py takes them.

        Ask the model (`LanguageModel.readout_arrays`) for all of the readout: it knows what is frozen, too.
        """
        return params["readout"]


class LanguageModel(nnx.Module):
    """A model: trained arrays are nnx.Param, frozen ones reservoir.arrays.Frozen. Models of one structure share programs.

    Its attribute `readout` is one of readout/linear.py, unless the configuration's `readout_arrays` says otherwise.

    Like any Flax module it goes through jax.jit as it is. Where its trained arrays are donated, it is taken apart first:

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
        """Returns the state before any token, for `step`.

        Args:
            slots: B, sentences that are read side by side.
            length: tokens that will be read at most, for models whose state grows with it; None: `config.longest`.
        """

    @abstractmethod
    def step(self, state: Any, tokens: jax.Array) -> Any:
        """Returns the state after one more token a slot, (B,), without dropout."""

    @abstractmethod
    def output(self, state: Any) -> jax.Array:
        """Returns the features after the last token, (F, B)."""

    @abstractmethod
    def stream(self, compute: ComputeConfig, placement: Placement | None = None) -> SentenceFeatures:
        """Returns what reads many sentences at once, without a gradient; see features/stream.py.

        Args:
            compute: resolved settings of the device.
            placement: of the model's arrays on a mesh of devices; None: there is one device.
        """

    @abstractmethod
    def counts(self) -> Counts:
        """Returns the parameters of this model. It does not read trained arrays, which may be donated."""

    def for_device(self, compute: ComputeConfig) -> Self:
        """Returns the same model as it is computed: with the precision, and what is frozen as the kernel wants it.

        Args:
            compute: resolved settings of the device.
        """
        graphdef, *state = nnx.split(self)
        ready = nnx.merge(graphdef, *state)
        ready.precision = compute.precision
        return ready

    @property
    def frozen_readout_arrays(self) -> dict:
        """The arrays of the readout that are not trained, as readout/linear.py takes them beside the trained ones."""
        return {}

    def readout_arrays(self, params: dict) -> dict:
        """Returns the arrays of the readout, as readout/linear.py takes them.

        Args:
            params: what is trained, as `LanguageModel.params` gives it: of this model, or other ones.
        """
        return self.config.readout_arrays(params) | self.frozen_readout_arrays

    def reader(self, slots: int, length: int) -> Callable[[np.ndarray], jax.Array]:
        """Returns a function from the tokens that each slot reads next, (B,), to the features after them, (B, F).

        Args:
            slots: B.
            length: tokens that will be read at most.
        """
        state, ready = self.initial_state(slots, length), _for_columns(self, slots)

        def read(tokens: np.ndarray) -> jax.Array:
            nonlocal state
            state, features = _step(ready, state, tokens)
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
    """A model whose features a recurrence makes: that of `cell`, which is by default the model itself."""

    @property
    def cell(self) -> Any:
        """What runs; see features/recurrence.py.

        It holds no trained array that does not decide the features. A model whose features are frozen therefore has a
        cell of its own, without the readout: the optimizer frees the readout's arrays at every update.
        """
        return self

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

    def stream(self, compute: ComputeConfig, placement: Placement | None = None) -> SentenceFeatures:
        ahead, trunk = self.stream_ahead(compute, placement), self.trunk
        return ahead if trunk is None else TrunkStream(ahead, trunk, self.params)

    def stream_ahead(self, compute: ComputeConfig, placement: Placement | None = None) -> FeatureStream:
        """Returns the stream of what `cell` computes, which needs no trained array where the configuration `trains_ahead`.

        The arguments are those of `stream`.
        """
        assert compute.batch_slots is not None and compute.window_tokens is not None, "choose_compute decides them"
        return FeatureStream(self.cell, compute.batch_slots, compute.window_tokens, self.config.dropout, placement)


def merge(graphdef: nnx.GraphDef, params: dict, frozen: nnx.State) -> Any:
    """Returns the model of a structure, of trained arrays as nested dicts, and of the rest of its state.

    Args:
        graphdef, frozen: of nnx.split(model, nnx.Param, ...).
        params: as LanguageModel.params gives them.
    """
    by_path: dict[tuple[str, ...], jax.Array] = traverse_util.flatten_dict(params)
    flat = {tuple(int(key) if key.isdigit() else key for key in path): x for path, x in by_path.items()}
    return nnx.merge(graphdef, traverse_util.unflatten_dict(flat), frozen)


def _for_columns(model: LanguageModel, columns: int) -> LanguageModel:
    """Returns the same model with the operands of sparse products that are the fastest for states of so few columns."""
    graphdef, state = nnx.split(model)

    def is_operand(x: Any) -> bool:
        return isinstance(x, BCSR)

    state = jax.tree.map(lambda x: for_columns(x, columns) if is_operand(x) else x, state, is_leaf=is_operand)
    return nnx.merge(graphdef, state)


@jax.jit
def _step(model: LanguageModel, state: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
    state = model.step(state, tokens)
    return state, model.output(state).T
