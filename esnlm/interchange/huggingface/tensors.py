"""The weights of a model under the names, and with the settings, by which PyTorch reads them.

modeling_esnlm.py of this folder reads those of an echo state network, Jaeger's network and an LSTM, and modeling_deep_readout.py
those of a deep readout. A GPT-2 is exported as transformers' own GPT2LMHeadModel.
"""

from typing import Any

import numpy as np
from flax import traverse_util
from jax.experimental.sparse import BCOO

from esnlm.cells.attention import Attention
from esnlm.cells.diagonal import Diagonal
from esnlm.cells.gru import Gru
from esnlm.cells.side_by_side import SideBySide
from esnlm.cells.token_history import TokenHistory
from esnlm.errors import InputError, require
from esnlm.models.base import LanguageModel
from esnlm.models.deep_readout import DeepReadout
from esnlm.models.echo_state import EchoState
from esnlm.models.gpt2 import GPT2
from esnlm.models.jaeger import Jaeger
from esnlm.models.lstm import Lstm
from esnlm.readout import linear
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import Matrix
from esnlm.reservoir.cell import Reservoir, Stack, TrainedInput
from esnlm.reservoir.weights import ReservoirConfig

Tensors = dict[str, np.ndarray]

# What modeling_esnlm.py computes.
ACTIVATIONS = ("tanh", "relu")
UPDATE_RULES = ("leaky_output", "leaky_membrane")
CLASSES = {
    "AutoConfig": "modeling_esnlm.EsnlmConfig",
    "AutoModel": "modeling_esnlm.EsnlmModel",
    "AutoModelForCausalLM": "modeling_esnlm.EsnlmForCausalLM",
}
DEEP_CLASSES = {
    "AutoConfig": "modeling_deep_readout.DeepReadoutConfig",
    "AutoModel": "modeling_deep_readout.DeepReadoutModel",
    "AutoModelForCausalLM": "modeling_deep_readout.DeepReadoutForCausalLM",
}


def tensors_of(model: LanguageModel, vocab_size: int) -> tuple[Tensors, dict[str, Any]]:
    """Returns the tensors by name, and the content of config.json but for the ids of special tokens.

    Raises:
        InputError: PyTorch's side does not know this family, or a setting of it.
    """
    if isinstance(model, GPT2):
        return _gpt2(model, vocab_size)
    if isinstance(model, EchoState):
        tensors, settings = _echo_state(model)
    elif isinstance(model, Jaeger):
        tensors, settings = _jaeger(model)
    elif isinstance(model, Lstm):
        tensors, settings = _lstm(model)
    elif isinstance(model, DeepReadout):
        tensors, settings = _deep_readout(model)
    else:
        raise InputError(
            f"model.family is {model.config.family}: it cannot be exported yet; esn, jaeger, lstm, gpt2 and deep_readout can"
        )
    is_deep = isinstance(model, DeepReadout)
    classes = DEEP_CLASSES if is_deep else CLASSES
    common = {"architectures": [classes["AutoModelForCausalLM"].split(".")[1]], "auto_map": classes}
    common["model_type"] = "esnlm_deep_readout" if is_deep else "esnlm"
    sizes = {"vocab_size": vocab_size + 1, "hidden_size": model.config.feature_size, "tie_word_embeddings": False}
    return tensors, common | {"family": model.config.family} | sizes | settings


def _echo_state(model: EchoState) -> tuple[Tensors, dict[str, Any]]:
    tensors, settings = _reservoir(model.reservoir, model.config.reservoir, "model.cell.", model.config.train_input)
    readout, rank = _readout(model.readout)
    return tensors | readout, settings | {"readout_rank": rank}


def _jaeger(model: Jaeger) -> tuple[Tensors, dict[str, Any]]:
    tensors, settings = _reservoir(model.reservoir, model.config.reservoir, "model.cell.reservoir.", train_input=False)
    feedback, nonzeros = _matrix(model.w_back, "model.cell.feedback.")
    variables = {
        "model.readout.a": model.readout.a,
        "model.readout.bias": model.readout.bias,
        "model.cell.b": model.readout.b,
        "model.cell.b_u": model.b_u,
        "model.cell.b_y": model.b_y,
    }
    own = {name: np.asarray(variable[...]) for name, variable in variables.items()}
    return tensors | feedback | own, settings | {"feedback_nonzeros": nonzeros}


def _lstm(model: Lstm) -> tuple[Tensors, dict[str, Any]]:
    orders = list(model.config.ngrams.orders)
    rule = f"model.ngrams.orders is {orders}: an LSTM with n-grams cannot be exported yet; one that was trained with [] can"
    require(not orders, rule)
    names = ("embedding", "w_ih", "w_hh", "b_ih", "b_hh")
    tensors = {f"model.cell.{name}": np.asarray(getattr(model, name)[...]) for name in names}
    # A tied embedding is exported as a matrix of its own.
    tensors["model.cell.embedding"] = np.float32(model.config.embedding_scale) * tensors["model.cell.embedding"]
    readout, rank = _readout(linear.from_arrays(model.readout_arrays(model.params)))
    return tensors | readout, {"num_hidden_layers": 1, "readout_rank": rank}


def _deep_readout(model: DeepReadout) -> tuple[Tensors, dict[str, Any]]:
    config, layers = model.config, model.layers
    require(
        not config.readout.is_counted,
        "model.readout.counted is bigram: it cannot be exported yet; a run that was trained with none can",
    )
    cells = model.frozen.cells if isinstance(model.frozen, SideBySide) else model.frozen.cells.cells
    tensors: Tensors = {}
    members: list[dict[str, Any]] = []
    settings: dict[str, Any] = {"members": members, "frozen_size": config.frozen_size, "history": config.history}
    for i, part in enumerate(cells):
        prefix = f"model.cell.cells.{i}."
        match part:
            case TokenHistory():
                pass
            case Diagonal():
                variables = {"codes": part.codes, "time_scales": part.time_scales, "factors": part.factors}
                tensors |= {prefix + name: np.asarray(x[...]) for name, x in variables.items() if x is not None}
                settings |= {"diagonal": part.output_size, "diagonal_by_token": part.factors is not None}
            case Gru():
                gates, of_gates = _matrix(part.gates.get_value(), f"{prefix}gates.")
                candidate, of_candidate = _matrix(part.candidate.get_value(), f"{prefix}candidate.")
                own, connections = _columns(part.input.get_value(), f"{prefix}input.")
                tensors |= gates | candidate | own | {f"{prefix}bias": np.asarray(part.bias[...])}
                settings |= {"gru": part.output_size, "gru_nonzeros": [of_gates, of_candidate]}
                settings["gru_connections"] = connections
            case Reservoir() | Stack():
                own, described = _reservoir(part, config.reservoir, prefix, train_input=False)
                tensors |= own
                members.append(described)
            case _:
                raise InputError(f"{type(part).__name__}: a deep readout with such a cell cannot be exported yet")
    if isinstance(model.frozen, Attention):
        tensors["model.cell.projection"] = np.asarray(model.frozen.projection[...])
    attention, tokens, ngrams = config.attention, config.readout.recent_tokens, config.readout.ngrams
    settings |= {"heads": attention.heads, "key_window": attention.window, "key_width": attention.width}
    settings |= {"sharpness": attention.sharpness, "normalize": config.readout.normalize}
    settings |= {"tokens": tokens.count, "token_width": tokens.width, "tied": tokens.tied}
    settings |= {"decays": list(tokens.decays), "window": tokens.window}
    settings |= {"ngram_orders": list(ngrams.orders), "ngram_buckets": ngrams.buckets}
    settings |= {"ngram_width": ngrams.width, "ngram_multiplier": ngrams.multiplier}
    settings |= {"mlp_blocks": config.readout.gated_mlp.blocks, "mlp_width": config.readout.gated_mlp.width}
    trained: dict[str, Any] = {"b": layers.b}
    if layers.recent_tokens is not None:
        trained["token_weights"] = layers.recent_tokens.weights
        trained |= {} if tokens.tied else {"embedding": layers.recent_tokens.embedding}
    if layers.ngrams is not None:
        trained |= {"tables": layers.ngrams.tables, "ngram_weights": layers.ngrams.weights}
    if layers.gated_mlp is not None:
        trained["gains"] = layers.gated_mlp.norm.gains
        for i, block in enumerate(layers.gated_mlp.blocks):
            own_arrays = {"gains": block.norm.gains, "gate": block.gate, "up": block.up, "down": block.down}
            trained |= {f"blocks.{i}.{name}": variable for name, variable in own_arrays.items()}
    tensors |= {f"model.cell.trunk.{name}": np.asarray(variable[...]) for name, variable in trained.items()}
    readout, _ = _readout(model.readout)
    return tensors | readout, settings | {"num_hidden_layers": 1, "readout_rank": None}


def _reservoir(
    reservoir: Reservoir | Stack, config: ReservoirConfig, prefix: str, train_input: bool
) -> tuple[Tensors, dict[str, Any]]:
    rule, activation = config.update_rule, config.activation
    require(
        rule in UPDATE_RULES,
        f"model.reservoir.update_rule is {rule}: it cannot be exported yet; {' and '.join(UPDATE_RULES)} can",
    )
    require(
        activation in ACTIVATIONS,
        f"model.reservoir.activation is {activation}: it cannot be exported yet; {' and '.join(ACTIVATIONS)} can",
    )
    tensors: Tensors = {}
    first, layers = reservoir.layers[0], list(reservoir.layers)
    settings: dict[str, Any] = {
        "num_hidden_layers": len(layers),
        "state_size": first.state_size,
        "activation": activation,
        "update_rule": rule,
        "decay": first.decay,
        "embedding": None,
        "train_input": train_input,
        "token_connections": None,
        "recurrent_nonzeros": [],
        "input_nonzeros": [],
    }
    for i, layer in enumerate(layers):
        inner = f"{prefix}layers.{i}."
        tensors[f"{inner}leak"] = np.asarray(layer.leak[...])
        found, nonzeros = _matrix(layer.stored_w_rec, f"{inner}recurrent.")
        tensors |= found
        settings["recurrent_nonzeros"].append(nonzeros)
        if i == 0 and layer.embedding is None:
            found, settings["token_connections"] = _token_input(layer, f"{inner}input.")
            nonzeros = None
        else:
            found, nonzeros = _matrix(layer.stored_w_in, f"{inner}input.")
        tensors |= found
        settings["input_nonzeros"].append(nonzeros)
    if first.embedding is not None:
        embedding = np.ascontiguousarray(np.asarray(first.embedding[...]).T)  # (V, D)
        tensors[f"{prefix}embedding"] = embedding
        settings["embedding"] = embedding.shape[1]
    return tensors, settings


def _token_input(layer: Reservoir, prefix: str) -> tuple[Tensors, int | None]:
    """Returns W_in by its columns, and how many places a token has; None where it is dense.

    A trained W_in that is stored dense and has zeros for good is exported sparse: so they stay zeros wherever it is trained on.
    """
    w_in: Matrix = layer.stored_w_in
    if isinstance(layer.input, TrainedInput) and layer.input.rows is None:
        connected = np.asarray(layer.input.connected[...])  # (V, N)
        if not connected.all():
            width = int(connected.sum(axis=1).max())
            units = np.full((len(connected), width), layer.state_size, np.int32)
            values = np.zeros((len(connected), width), np.float32)
            for token, row in enumerate(connected):
                reached = np.flatnonzero(row)
                units[token, : len(reached)] = reached
                values[token, : len(reached)] = np.asarray(w_in)[reached, token]
            return {f"{prefix}values": values, f"{prefix}units": units}, width
    return _columns(w_in, prefix)


def _columns(w_in: Matrix, prefix: str) -> tuple[Tensors, int | None]:
    columns = sparse.prepare_columns(w_in)
    if isinstance(columns, sparse.Columns):
        units = np.asarray(columns.index)
        return {f"{prefix}values": np.asarray(columns.value), f"{prefix}units": units}, units.shape[1]
    return {f"{prefix}values": np.ascontiguousarray(columns)}, None


def _matrix(matrix: Matrix, prefix: str) -> tuple[Tensors, int | None]:
    """Returns a matrix as it is where it is dense, and by its rows where it is sparse, with the number of its nonzeros."""
    if not isinstance(matrix, BCOO):
        return {f"{prefix}values": np.asarray(matrix)}, None
    row, column = np.asarray(matrix.indices).T
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=matrix.shape[0]))])
    found = {
        "values": np.asarray(matrix.data),
        "columns": column.astype(np.int32),
        "row_starts": starts.astype(np.int32),
    }
    return {prefix + name: array for name, array in found.items()}, len(row)


def _readout(readout: Any) -> tuple[Tensors, int | None]:
    names = {"a": "a", "b": "b", "bias": "bias"} if hasattr(readout, "a") else {"w": "a", "bias": "bias"}
    tensors = {f"model.readout.{name}": np.asarray(getattr(readout, own)[...]) for own, name in names.items()}
    return tensors, len(tensors["model.readout.b"]) if "b" in names else None


def _gpt2(model: GPT2, vocab_size: int) -> tuple[Tensors, dict[str, Any]]:
    """Returns what transformers' GPT2LMHeadModel reads. Its readout is the embedding, which is stored once."""
    tensors: Tensors = {}
    for name, array in traverse_util.flatten_dict(model.params, sep=".").items():
        if name.startswith("h."):
            tensors |= {f"transformer.h.{i}.{name[2:]}": part for i, part in enumerate(np.asarray(array))}
        else:
            tensors[f"transformer.{name}"] = np.asarray(array)
    config = model.config
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)
    return tensors, {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocab_size,
        "n_positions": config.positions,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "initializer_range": config.initializer_range,
        "tie_word_embeddings": True,
        **dropout,
    }
