"""Converts the weights and settings of a model for PyTorch.

In this folder, modeling_esnlm.py loads echo state networks and LSTMs, and modeling_deep_readout.py
loads deep readouts. A GPT-2 is exported as transformers' own GPT2LMHeadModel.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
from flax import traverse_util
from jax.experimental.sparse import BCOO

from esnlm.base.errors import InputError
from esnlm.models.base import LanguageModel
from esnlm.models.cells.attention import Attention
from esnlm.models.cells.diagonal import Diagonal
from esnlm.models.cells.gru import Gru
from esnlm.models.deep_readout import DeepReadout, frozen_size, history
from esnlm.models.echo_state import EchoState
from esnlm.models.gpt2 import GPT2
from esnlm.models.lstm import Lstm, embedding_scale
from esnlm.models.side_by_side import SideBySide
from esnlm.models.token_history import TokenHistory
from esnlm.readout import linear
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import Matrix, bcoo
from esnlm.reservoir.cell import Reservoir, Stack, TrainedInput
from esnlm.reservoir.weights import ReservoirConfig

Tensors = dict[str, np.ndarray]
Settings = dict[str, Any]

# The activations and update rules of modeling_esnlm.py.
ACTIVATIONS = ("tanh", "relu")
UPDATE_RULES = ("leaky_output", "leaky_membrane")
CELL = "model.cell."  # prefix of the tensors of the cell


def tensors_of(model: LanguageModel, vocab_size: int) -> tuple[Tensors, Settings]:
    """Returns the tensors by name, and the content of config.json without the ids of special
    tokens.

    Raises InputError if the PyTorch code does not support this family or one of its settings.
    """
    settings: Settings = {}
    match model:
        case GPT2():
            return _gpt2(model, vocab_size)
        case EchoState():
            cell, settings = _reservoir(
                model.reservoir, model.config.reservoir, model.config.train_input
            )
            readout = _readout(model.readout)
        case Lstm():
            if orders := list(model.config.ngrams.orders):
                raise _not_exported("model.ngrams.orders", orders)
            names = {"ih.weight": "w_ih", "hh.weight": "w_hh", "ih.bias": "b_ih", "hh.bias": "b_hh"}
            cell = _arrays(**{key: getattr(model, name) for key, name in names.items()})
            # A tied embedding is exported as a separate matrix.
            cell["input.weight"] = np.float32(embedding_scale(model.config)) * np.asarray(
                model.embedding[...]
            )
            readout = _readout(linear.from_arrays(model.readout_arrays(model.params)))
        case DeepReadout():
            cell, settings = _deep_readout(model)
            readout = _readout(model.readout)
        case _:
            raise _not_exported("model.family", model.config.family)
    is_deep = isinstance(model, DeepReadout)
    module, name = (
        ("modeling_deep_readout", "DeepReadout") if is_deep else ("modeling_esnlm", "Esnlm")
    )
    heads = ("ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
    classes = {"AutoConfig": f"{name}Config", "AutoModel": f"{name}Model"}
    classes |= {f"AutoModel{head}": f"{name}{head}" for head in heads}
    sparse_parts = {
        key: array for key, array in cell.items() if key.endswith((".columns", ".units"))
    }
    known = {
        "architectures": [classes["AutoModelForCausalLM"]],
        "auto_map": {kind: f"{module}.{its}" for kind, its in classes.items()},
        "model_type": "esnlm_deep_readout" if is_deep else "esnlm",
        "family": model.config.family,
        "vocab_size": vocab_size + 1,
        "hidden_size": model.config.feature_size,
        "readout_rank": len(readout["b.weight"]) if "b.weight" in readout else None,
        "tie_word_embeddings": False,
        "nonzeros": {
            key.rpartition(".")[0]: array.shape[-1] for key, array in sparse_parts.items()
        },
    }
    named = {CELL + key: array for key, array in cell.items()}
    return named | {
        f"model.readout.{key}": array for key, array in readout.items()
    }, known | settings


def _not_exported(setting: str, value: Any) -> InputError:
    return InputError(f"{setting} is {value}: it cannot be exported yet")


def _deep_readout(model: DeepReadout) -> tuple[Tensors, Settings]:
    config, layers = model.config, model.layers
    if config.readout.is_counted:
        raise _not_exported("model.readout.counted", config.readout.counted)
    cells = model.frozen.cells if isinstance(model.frozen, SideBySide) else model.frozen.cells.cells
    tensors: Tensors = {}
    settings: Settings = {
        "reservoirs": 0,
        "frozen_size": frozen_size(config),
        "history": history(config),
    }
    for i, cell in enumerate(cells):
        prefix = f"cells.{i}."
        match cell:
            case Reservoir() | Stack():
                own, described = _reservoir(
                    cell, config.reservoir, train_input=False, prefix=prefix
                )
                settings |= described | {"reservoirs": settings["reservoirs"] + 1}
            case Diagonal():
                read = [
                    np.asarray(table[...])
                    for table in (cell.codes, cell.factors)
                    if table is not None
                ]
                own = {f"{prefix}input.weight": np.concatenate(read, 1)} | _arrays(
                    prefix, time_scales=cell.time_scales
                )
                settings |= {
                    "diagonal": cell.output_size,
                    "diagonal_by_token": cell.factors is not None,
                }
            case Gru():
                own = _columns(cell.input.get_value(), f"{prefix}input.") | _arrays(
                    prefix, bias=cell.bias
                )
                own |= _matrix(cell.gates.get_value(), f"{prefix}gates.")
                own |= _matrix(cell.candidate.get_value(), f"{prefix}candidate.")
                settings |= {"gru": cell.output_size}
            case TokenHistory():
                continue
            case _:
                raise _not_exported("a cell of the deep readout", type(cell).__name__)
        tensors |= own
    if isinstance(model.frozen, Attention):
        tensors |= _arrays(projection=model.frozen.projection)
    settings |= {"attention": asdict(config.attention), "trunk": asdict(config.readout)}
    trunk: dict[str, Any] = {"b.weight": layers.b}
    if layers.recent_tokens is not None:
        trunk |= {"token_weights.weight": layers.recent_tokens.weights}
        trunk |= {
            "embedding": None
            if config.readout.recent_tokens.tied
            else layers.recent_tokens.embedding
        }
    if layers.ngrams is not None:
        trunk |= {"tables": layers.ngrams.tables, "ngram_weights.weight": layers.ngrams.weights}
    if layers.gated_mlp is not None:
        trunk |= {"gains": layers.gated_mlp.norm.gains}
        for i, block in enumerate(layers.gated_mlp.blocks):
            trunk |= {f"blocks.{i}.gains": block.norm.gains}
            trunk |= {
                f"blocks.{i}.{name}.weight": getattr(block, name) for name in ("gate", "up", "down")
            }
    return tensors | _arrays("trunk.", **trunk), settings


def _reservoir(
    reservoir: Reservoir | Stack, config: ReservoirConfig, train_input: bool, prefix: str = ""
) -> tuple[Tensors, Settings]:
    if config.update_rule not in UPDATE_RULES:
        raise _not_exported("model.reservoir.update_rule", config.update_rule)
    if config.activation not in ACTIVATIONS:
        raise _not_exported("model.reservoir.activation", config.activation)
    first, tensors = reservoir.layers[0], Tensors()
    for i, layer in enumerate(reservoir.layers):
        inner = f"{prefix}layers.{i}."
        reads_tokens = i == 0 and layer.embedding is None
        w_in = (
            _token_input(layer, f"{inner}input.")
            if reads_tokens
            else _matrix(layer.stored_w_in, f"{inner}input.")
        )
        tensors |= (
            _matrix(layer.stored_w_rec, f"{inner}recurrent.")
            | _arrays(inner, leak=layer.leak)
            | w_in
        )
    if first.embedding is not None:
        tensors[f"{prefix}embedding.weight"] = np.ascontiguousarray(
            np.asarray(first.embedding[...]).T
        )  # (V, D)
    return tensors, {
        "num_hidden_layers": len(reservoir.layers),
        "state_size": first.state_size,
        "activation": config.activation,
        "update_rule": config.update_rule,
        "decay": float(first.decay),
        "embedding": None if first.embedding is None else first.embedding.shape[0],
        "train_input": train_input,
    }


def _token_input(layer: Reservoir, prefix: str) -> Tensors:
    """Returns W_in by columns. If it is trained and stored dense, entries without a connection are
    left out."""
    w_in: Matrix = layer.stored_w_in
    if isinstance(layer.input, TrainedInput) and layer.input.rows is None:
        unit, token = np.nonzero(np.asarray(layer.input.connected[...]).T)
        if len(unit) < w_in.size:
            w_in = bcoo(np.asarray(w_in)[unit, token], np.stack([unit, token], axis=1), w_in.shape)
    return _columns(w_in, prefix)


def _columns(w_in: Matrix, prefix: str) -> Tensors:
    columns = sparse.prepare_columns(w_in)
    tensors = {f"{prefix}weight": np.ascontiguousarray(columns.value)}
    if columns.index is not None:
        tensors[f"{prefix}units"] = np.asarray(columns.index)
    return tensors


def _matrix(matrix: Matrix, prefix: str) -> Tensors:
    """Returns a dense matrix unchanged, and a sparse matrix by rows."""
    if not isinstance(matrix, BCOO):
        return {f"{prefix}values": np.asarray(matrix)}
    row, column = np.asarray(matrix.indices).T
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=matrix.shape[0]))])
    own = {
        "values": np.asarray(matrix.data),
        "columns": column.astype(np.int32),
        "row_starts": starts.astype(np.int32),
    }
    return {prefix + name: array for name, array in own.items()}


def _readout(readout: Any) -> Tensors:
    if hasattr(readout, "a"):
        return _arrays(
            **{
                "a.weight": readout.a,
                "a.bias": readout.bias,
                "b.weight": getattr(readout, "b", None),
            }
        )
    return _arrays(**{"a.weight": readout.w, "a.bias": readout.bias})


def _arrays(prefix: str = "", **variables: Any) -> Tensors:
    """Returns the values of Flax variables, without None."""
    return {
        prefix + name: np.asarray(each[...]) for name, each in variables.items() if each is not None
    }


def _gpt2(model: GPT2, vocab_size: int) -> tuple[Tensors, Settings]:
    """Returns tensors and settings of transformers' GPT2LMHeadModel. Its readout is the embedding,
    stored once."""
    tensors: Tensors = {}
    for name, array in traverse_util.flatten_dict(model.params, sep=".").items():
        if name.startswith("h."):
            tensors |= {
                f"transformer.h.{i}.{name[2:]}": part for i, part in enumerate(np.asarray(array))
            }
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
