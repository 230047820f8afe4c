"""Converts models and tokenizers for transformers, which runs them in PyTorch.

In this folder, modeling_esnlm.py loads echo state networks and LSTMs, and modeling_deep_readout.py
loads deep readouts. A GPT-2 is exported as transformers' own GPT2LMHeadModel.
"""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
from flax import traverse_util
from jax.experimental.sparse import BCOO

from esnlm.base.errors import InputError
from esnlm.data.tokenizer import HuggingFaceTokenizer, Tokenizer
from esnlm.data.tokenizer_json import ENDOFTEXT, byte_of_character, open_library
from esnlm.models.base import LanguageModel
from esnlm.models.deep_readout import DeepReadout, DeepReadoutConfig, frozen_size
from esnlm.models.echo_state import EchoState
from esnlm.models.gpt2 import GPT2
from esnlm.models.lstm import Lstm, embedding_scale
from esnlm.models.trunk import TokenHistory
from esnlm.reservoir import sparse
from esnlm.reservoir.arrays import Matrix, bcoo
from esnlm.reservoir.cell import ReservoirLayer, Stack, TrainedInput
from esnlm.reservoir.weights import ReservoirConfig

PAD = "<|pad|>"
Tensors = dict[str, np.ndarray]
Settings = dict[str, Any]

# The activations and update rules of modeling_esnlm.py.
ACTIVATIONS = ("tanh", "relu")
UPDATE_RULES = ("leaky_output", "leaky_membrane")
# What a trunk's arrays are called in modeling_deep_readout.py.
TRUNK_NAMES = {
    "recent_tokens.weights": "token_weights.weight",
    "ngrams.weights": "ngram_weights.weight",
    "recent_tokens.": "",
    "ngrams.": "",
    "gated_mlp.": "",
    "norm.": "",
}


def tensors_of(model: LanguageModel, vocab_size: int) -> tuple[Tensors, Settings]:
    """Returns the tensors by name, and config.json without the ids of special tokens.

    Raises InputError if the PyTorch code does not support this family or one of its settings.
    """
    settings: Settings = {}
    module, prefix, model_type = "modeling_esnlm", "Esnlm", "esnlm"
    match model:
        case GPT2():
            return _gpt2(model, vocab_size)
        case EchoState():
            is_trained = model.config.train_input
            cell, settings = _reservoir(model.reservoir, model.config.reservoir, is_trained)
        case Lstm():
            if orders := list(model.config.ngrams.orders):
                raise _not_exported("model.ngrams.orders", orders)
            names = {"ih.weight": "w_ih", "hh.weight": "w_hh", "ih.bias": "b_ih", "hh.bias": "b_hh"}
            cell = _arrays(**{key: getattr(model, name) for key, name in names.items()})
            # A tied embedding is exported as a separate matrix.
            scale = np.float32(embedding_scale(model.config))
            cell["input.weight"] = scale * np.asarray(model.embedding[...])
        case DeepReadout() if type(model.config) is DeepReadoutConfig:
            cell, settings = _deep_readout(model)
            module, prefix = "modeling_deep_readout", "DeepReadout"
            model_type = "esnlm_deep_readout"
        case _:
            raise _not_exported("model.family", model.config.family)
    arrays = model.readout_arrays(model.params)
    matrix = arrays["a"] if "a" in arrays else arrays["w"]
    readout = {"a.weight": matrix, "a.bias": arrays["bias"]}
    if "b" in arrays:
        readout["b.weight"] = arrays["b"]
    tensors = {f"model.cell.{key}": array for key, array in cell.items()}
    tensors |= {f"model.readout.{key}": np.asarray(array) for key, array in readout.items()}
    heads = ("ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
    classes = {"AutoConfig": "Config", "AutoModel": "Model"}
    classes |= {f"AutoModel{head}": head for head in heads}
    return tensors, {
        "architectures": [f"{prefix}ForCausalLM"],
        "auto_map": {kind: f"{module}.{prefix}{name}" for kind, name in classes.items()},
        "model_type": model_type,
        "family": model.config.family,
        "vocab_size": vocab_size + 1,
        "hidden_size": model.config.feature_size,
        "readout_rank": len(arrays["b"]) if "b" in arrays else None,
        "tie_word_embeddings": False,
        "nonzeros": {
            key.rpartition(".")[0]: array.shape[-1]
            for key, array in cell.items()
            if key.endswith((".columns", ".units"))
        },
        **settings,
    }


def _not_exported(setting: str, value: Any) -> InputError:
    return InputError(f"{setting} is {value}: it cannot be exported yet")


def _deep_readout(model: DeepReadout) -> tuple[Tensors, Settings]:
    config = model.config
    if config.readout.is_counted:
        raise _not_exported("model.readout.counted", config.readout.counted)
    cells = [cell for cell in model.frozen.cells if not isinstance(cell, TokenHistory)]
    tensors: Tensors = {}
    settings: Settings = {
        "reservoirs": len(cells),
        "frozen_size": frozen_size(config),
        "history": config.readout.history,
        "trunk": asdict(config.readout),
    }
    for i, cell in enumerate(cells):
        parts, described = _reservoir(cell, config.reservoir, False, f"cells.{i}.")
        tensors |= parts
        settings |= described
    for name, array in traverse_util.flatten_dict(model.params["layers"], sep=".").items():
        for old, new in TRUNK_NAMES.items():
            name = name.replace(old, new)
        is_matrix = name.rpartition(".")[2] in ("b", "gate", "up", "down")
        tensors[f"trunk.{name}{'.weight' * is_matrix}"] = np.asarray(array)
    return tensors, settings


def _reservoir(
    reservoir: ReservoirLayer | Stack, config: ReservoirConfig, train_input: bool, prefix: str = ""
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


def _token_input(layer: ReservoirLayer, prefix: str) -> Tensors:
    """Returns W_in by columns; of a trained and dense one the entries with a connection."""
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
    return {
        f"{prefix}values": np.asarray(matrix.data),
        f"{prefix}columns": column.astype(np.int32),
        f"{prefix}row_starts": starts.astype(np.int32),
    }


def _arrays(prefix: str = "", **variables: Any) -> Tensors:
    """Returns the values of Flax variables, without None."""
    return {
        prefix + name: np.asarray(each[...]) for name, each in variables.items() if each is not None
    }


def _gpt2(model: GPT2, vocab_size: int) -> tuple[Tensors, Settings]:
    """Returns tensors and settings of GPT2LMHeadModel, whose readout is the embedding."""
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


def tokenizer_files(tokenizer: Tokenizer, pad_is_eos: bool) -> dict[str, str]:
    """Returns tokenizer.json, which gives the same ids, and tokenizer_config.json, by name.

    With special tokens, the tokenizer adds BOS only at the beginning: before the second text of a
    pair, BOS would reset the state. It pads on the right, with EOS or with a padding token, whose
    id is the size of the run's vocabulary.
    """
    fast = (
        open_library(tokenizer.content)
        if isinstance(tokenizer, HuggingFaceTokenizer)
        else _tiktoken_as_fast(tokenizer)
    )
    bos, eos = (fast.id_to_token(i) for i in (tokenizer.bos, tokenizer.eos))
    pad = eos if pad_is_eos else PAD
    fast.add_special_tokens([pad])
    if fast.token_to_id(pad) != (tokenizer.eos if pad_is_eos else tokenizer.vocab_size):
        raise InputError(
            f"tokenizer {tokenizer.name}: cannot be exported: {pad!r} is a word, or ids lack tokens"
        )
    from tokenizers import processors

    fast.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokenizer.bos)]
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": eos,
        "pad_token": pad,
        "padding_side": "right",
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    return {
        "tokenizer.json": fast.to_str(pretty=False),
        "tokenizer_config.json": json.dumps(config, indent=2) + "\n",
    }


def _tiktoken_as_fast(tokenizer: Any) -> Any:
    """Returns a TiktokenTokenizer as a `tokenizers.Tokenizer`."""
    import tokenizers
    from tokenizers import Regex, decoders, models, pre_tokenizers

    character = {byte: letter for letter, byte in byte_of_character().items()}
    text = {token: "".join(character[byte] for byte in token) for token in tokenizer.ranks}
    # With `ignore_merges`, as in tiktoken, a piece of text that is a token is not split.
    vocabulary = {text[token]: rank for token, rank in tokenizer.ranks.items()}
    fast = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=_merges(tokenizer.ranks, text), ignore_merges=True)
    )
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # Oniguruma's `$` also matches before a line end within the text. `+` is equivalent to
            # tiktoken's possessive `++` here, since the rest of the pattern never needs
            # backtracking.
            pre_tokenizers.Split(
                Regex(tokenizer.pattern.replace("++", "+").replace("$", r"\z")), behavior="isolated"
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    fast.decoder = decoders.ByteLevel()
    # After the ranks, so that <|endoftext|> gets the last id of the vocabulary.
    if ENDOFTEXT.encode() in tokenizer.ranks:
        raise InputError(
            f"tokenizer {tokenizer.name}: cannot be exported, since {ENDOFTEXT!r} is one of its"
            " words"
        )
    fast.add_special_tokens([ENDOFTEXT])
    return fast


def _merges(ranks: dict[bytes, int], text: dict[bytes, str]) -> list[tuple[str, str]]:
    """Returns the pairs to merge, in order."""
    # tiktoken joins any two neighbours that form a token, so every split of a token into two tokens
    # is a merge.
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        splits = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [(left, right) for left, right in splits if left in ranks and right in ranks]
        merges += sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return [(text[left], text[right]) for left, right in merges]
