"""The interface of a model family: its settings (`ModelConfig`) and its model (`LanguageModel`).

A model turns tokens into features, and a readout turns features into logits. Frozen arrays are
drawn once and saved in frozen/ (`initialize_frozen`); `initialize` returns a model with these and
random trained arrays. Most families are a RecurrentModel: they define a `cell` and inherit the
methods that read tokens with it.

MODELS lists the families of the package. A configuration names any other as "module:Class", the
class of its ModelConfig; docs/extending.md walks through one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx, traverse_util

from esnlm.data.store import TokenStore
from esnlm.features import dropout, recurrence
from esnlm.features.batching import PackedSteps
from esnlm.features.recurrence import Cell, State
from esnlm.features.stream import FeatureStream, SentenceFeatures, TrunkStream
from esnlm.machine.compute import Recurrence, ResolvedCompute
from esnlm.machine.mesh import Placement
from esnlm.readout.linear import ReadoutConfig
from esnlm.reservoir.arrays import arrays_by_name
from esnlm.reservoir.on_host import HostLayer

READOUT_ARRAYS = ("readout.a", "readout.w", "readout.bias")  # the arrays with one row per token


@dataclass(frozen=True)
class Counts:
    """Numbers of parameters."""

    trainable: int
    total: int  # all nonzero ones, as Ueda et al. 2025a count
    entries: int  # with zeros, as Ueda et al. 2025b count


class ModelConfig(ABC):
    """The settings of a family, and the properties that follow from them.

    A subclass has the decorator `settings` (base/settings.py), and its fields are the settings in
    the section `model` of a configuration.
    """

    family: str  # a name of MODELS, or "module:Class" of this class
    dropout: float  # dropout rate; 0: no dropout

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "longest" in cls.__dict__:  # a family written for 0.2 would lose its limit
            raise TypeError(f"{cls.__name__}: `longest` is now `max_length`")

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
    def precomputed_width(self) -> int:
        """Width of the vectors that are precomputed for the tokens of many updates; 0: none.

        These are the features if they are frozen, or the input of a `RecurrentModel.trunk`.
        """
        return self.feature_size if self.features_are_frozen else 0

    @property
    def recurrence(self) -> Recurrence | None:
        """The frozen recurrence, from which the kernel and batch slots are chosen; None: none."""
        return None

    @property
    def max_length(self) -> int | None:
        """Maximum sentence length in tokens; None: any length."""
        return None

    @property
    def linear_readout(self) -> ReadoutConfig:
        """The readout on the features."""
        return ReadoutConfig(rank=None)

    @property
    def readout_can_be_padded(self) -> bool:
        """Whether rows without a token may be added to the readout, for speed.

        The readout needs a bias, which makes the probability of these rows 0, and no other part of
        the model may read them.
        """
        return True

    @property
    def token_arrays(self) -> tuple[str, ...]:
        """The trained arrays with one row per token; (): the model needs one device.

        They are sharded over a mesh of devices. A family with trained features adds the tables that
        it looks up by token to READOUT_ARRAYS.
        """
        return READOUT_ARRAYS if self.features_are_frozen else ()

    @abstractmethod
    def expected_counts(self, vocab_size: int) -> Counts:
        """Returns the expected parameter counts over the random weights."""

    def frozen_bytes(self, vocab_size: int) -> int:
        """Returns the bytes of the frozen arrays; 0: there are none to restore."""
        return 0

    def initialize_frozen(
        self, vocab_size: int, seed: int, text: TokenStore | None = None
    ) -> tuple[dict, dict]:
        """Draws the frozen arrays. Returns (arrays as nested dicts, record for frozen/).

        Raises InputError if the settings need counts from a training text and there is none.
        """
        return {}, {}

    @abstractmethod
    def initialize(self, vocab_size: int, seed: int, frozen: dict) -> LanguageModel:
        """Returns a model with the arrays of `initialize_frozen` and random trained arrays."""


class LanguageModel(nnx.Module):
    """A model. Trained arrays are nnx.Param, frozen ones reservoir.arrays.Frozen.

    Like any Flax module it can be an argument of jax.jit, and models of the same structure share
    compiled programs. An update donates the buffers of the trained arrays, so it splits the model
    first, and only the parameters become invalid:

        graphdef, params, frozen = nnx.split(model, nnx.Param, ...)
        model = merge(graphdef, params_as_nested_dicts, frozen)      # inside the compiled function
    """

    config: ModelConfig
    precision: str = "float32"  # of the products with trained matrices; `for_device` sets it

    @abstractmethod
    def __call__(self, batch: PackedSteps, key: jax.Array | None = None) -> jax.Array:
        """Returns the features after each token, (T * B, F), differentiable in the trained arrays.

        Args:
            batch: tokens (T, B), their positions and corpus positions.
            key: dropout key of the epoch (features/dropout.py); None: no dropout.
        """

    @abstractmethod
    def initial_state(self, slots: int, length: int | None = None) -> Any:
        """Returns the state of B slots before the first token.

        Some states grow with `length`, the maximum number of tokens (None: `max_length`).
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
        """Returns a reader of many sentences at once, without a gradient (features/stream.py).

        `placement` is that of the arrays on a mesh of devices; None: there is one device.
        """

    @abstractmethod
    def counts(self) -> Counts:
        """Returns the parameter counts. It reads no trained array, whose buffer may be donated."""

    def for_device(self, compute: ResolvedCompute) -> Self:
        """Returns a copy for computing at `compute.precision`.

        Families override it to prepare frozen arrays for their kernels.
        """
        ready = nnx.clone(self)
        ready.precision = compute.precision
        return ready

    @property
    def output_dropout(self) -> float:
        """Dropout rate on the features, as the readout reads them."""
        return self.config.dropout

    @property
    def hidden_size(self) -> int:
        """Number of leading features that are hidden states; token ids may follow."""
        return self.config.feature_size

    @property
    def frozen_readout_arrays(self) -> dict:
        """Frozen arrays of the readout, which readout/linear.py takes with the trained ones."""
        return {}

    def readout_arrays(self, params: dict) -> dict:
        """Returns the arrays that readout/linear.py takes, from trained arrays like `params`."""
        return params["readout"] | self.frozen_readout_arrays

    @property
    def layer_sizes(self) -> dict[str, int]:
        """The layers that `layer_stream` reads, by name, with the widths of their states.

        "features" are those that the readout reads, without token ids. A family with more layers
        overrides both members; a RecurrentModel overrides `layer` instead of `layer_stream`.
        """
        return {"features": self.hidden_size}

    def layer_stream(
        self, names: tuple[str, ...], compute: ResolvedCompute, placement: Placement | None = None
    ) -> SentenceFeatures:
        """Returns a reader like `stream` of the states of layers, side by side in this order."""
        return self.stream(compute, placement)

    def reader(self, slots: int, length: int) -> Callable[[np.ndarray], jax.Array]:
        """Returns a function from tokens (B,) to features (B, F), for up to `length` calls."""
        state = self.initial_state(slots, length)

        def read(tokens: np.ndarray) -> jax.Array:
            nonlocal state
            state, features = _step(self, state, tokens)
            return features

        return read

    def host_layers(self) -> list[HostLayer] | None:
        """Returns the recurrence in NumPy, in float32, for one text at a time; None: the family has
        none. A model that `for_device` returned has none."""
        return None

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
    """A model whose features come from a recurrence (features/recurrence.py)."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        missing = [
            name
            for name in ("initial_state", "embed", "advance", "step", "output")
            if getattr(cls, name, None) is getattr(RecurrentModel, name, None)
        ]
        # The inherited methods would call themselves.
        if cls.cell is RecurrentModel.cell and missing:
            raise TypeError(f"{cls.__name__}: define `cell`, or the methods {', '.join(missing)}")

    @property
    def cell(self) -> Cell:
        """The recurrence. By default the model itself, which then defines the methods of a Cell.

        A frozen cell must not hold the readout, whose buffers are donated at every update.
        """
        return cast(Cell, self)

    def initial_state(self, slots: int, length: int | None = None) -> Any:
        return self.cell.initial_state(slots)

    def step(self, state: Any, tokens: jax.Array) -> Any:
        return self.cell.step(state, tokens)

    def output(self, state: Any) -> jax.Array:
        return self.cell.output(state)

    def __call__(self, batch: PackedSteps, key: jax.Array | None = None) -> jax.Array:
        return self.unroll(batch, key, None)[1]

    def unroll(
        self, batch: PackedSteps, key: jax.Array | None, state: State | None
    ) -> tuple[State, jax.Array]:
        """Returns the state after the batch and the features, starting from `state`.

        `batch` and `key` are as in a call of the model; without a state it is the initial one.
        """
        cell, keep = self.cell, None
        if key is not None and self.config.dropout > 0:
            keys = dropout.token_keys(key, batch.corpus_positions)
            keep = dropout.mask(keys, dropout.INPUT, cell.mask_size, self.config.dropout)
        state, outputs = recurrence.unroll(cell, batch.tokens, batch.positions, keep, state)
        features = outputs.reshape(-1, cell.output_size)
        return state, features if self.trunk is None else self.trunk(self.params, features)

    @property
    def trunk(self) -> Callable[[dict, jax.Array], jax.Array] | None:
        """From trained arrays and outputs (C, N) of the cell to features (C, F); None: no trunk.

        The function must not hold trained arrays, whose buffers are donated at every update.
        """
        return None

    def stream(
        self, compute: ResolvedCompute, placement: Placement | None = None
    ) -> SentenceFeatures:
        stream, trunk = self.frozen_stream(compute, placement), self.trunk
        return stream if trunk is None else TrunkStream(stream, trunk, self.params)

    def layer(self, name: str, state: Any) -> jax.Array:
        """Returns the states of a layer of `layer_sizes` after the last token, (size, B)."""
        return self.output(state)[: self.hidden_size]

    def layer_stream(
        self, names: tuple[str, ...], compute: ResolvedCompute, placement: Placement | None = None
    ) -> SentenceFeatures:
        # the methods of a Cell that it lacks are for dropout and gradients
        cell = cast(Cell, LayerCell(self, names))
        return FeatureStream(cell, compute.batch_slots, compute.window_tokens, placement=placement)

    def frozen_stream(
        self, compute: ResolvedCompute, placement: Placement | None = None
    ) -> FeatureStream:
        """Returns the stream of the cell's outputs.

        If `precomputed_width` is above 0, it needs no trained array.
        """
        return FeatureStream(
            self.cell, compute.batch_slots, compute.window_tokens, self.config.dropout, placement
        )


class LayerCell(nnx.Module):
    """A model as a cell whose output is the states of some layers, side by side."""

    def __init__(self, model: RecurrentModel, names: tuple[str, ...]) -> None:
        self.model, self.names = model, names
        self.output_size = sum(model.layer_sizes[name] for name in names)

    def initial_state(self, slots: int) -> State:
        return self.model.initial_state(slots)

    def step(self, state: State, tokens: jax.Array) -> State:
        return self.model.step(state, tokens)

    def output(self, state: State) -> jax.Array:
        return jnp.concatenate([self.model.layer(name, state) for name in self.names])


def merge(graphdef: nnx.GraphDef, params: dict, frozen: nnx.State) -> Any:
    """The inverse of nnx.split(model, nnx.Param, ...), with `params` as nested dicts."""
    # nnx has an integer, not a string, for an item of a list
    by_path: dict[tuple[str, ...], jax.Array] = traverse_util.flatten_dict(params)
    flat = {
        tuple(int(key) if key.isdigit() else key for key in path): x for path, x in by_path.items()
    }
    return nnx.merge(graphdef, traverse_util.unflatten_dict(flat), frozen)


@jax.jit
def _step(model: LanguageModel, state: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
    state = model.step(state, tokens)
    return state, model.output(state).T


# The families by their name in `model.family`.
MODELS = {
    "esn": "esnlm.models.echo_state:EchoStateConfig",
    "lstm": "esnlm.models.lstm:LstmConfig",
    "gpt2": "esnlm.models.gpt2:GPT2Config",
    "jaeger": "esnlm.models.jaeger:JaegerConfig",
    "deep_readout": "esnlm.models.deep_readout:DeepReadoutConfig",
}
