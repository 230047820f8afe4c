"""Reads a GPT-2 from a local folder in Hugging Face's format, such as the one released by OpenAI.

Settings of the folder that esnlm's GPT-2 does not support are errors.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from flax import traverse_util

from esnlm.base.errors import InputError
from esnlm.base.settings import build
from esnlm.data.tokenizer import Tokenizer, load_tokenizer
from esnlm.models import gpt2
from esnlm.models.gpt2 import GPT2, GPT2Config

# The supported values of config.json, Hugging Face's default first. The two activations are two
# names of one formula.
ACCEPTED = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "add_cross_attention": (False,),
}
MASKS = r"h\.\d+\.attn\.(bias|masked_bias)"  # constants that older versions of transformers saved


def read_gpt2(folder: str | Path) -> tuple[GPT2Config, GPT2, Tokenizer]:
    """Returns the configuration, the model and the tokenizer of a folder.

    It reads config.json, model.safetensors (float32, float16 or bfloat16, converted to float32),
    and vocab.json with merges.txt, or tokenizer.json. It downloads nothing and opens no pickle.
    Needs the extra `hf`.

    Raises:
        InputError: a file is missing, damaged, or has a setting that this GPT-2 does not support.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: not a folder; name one that holds a GPT-2's config.json and"
            " model.safetensors"
        )
    config, vocab_size, tied = _read_config(folder / "config.json")
    tokenizer = load_tokenizer(folder, vocab_size)
    if tokenizer.vocab_size != vocab_size:
        raise InputError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} ids, but vocab_size in config.json"
            f" is {vocab_size}: copy the tokenizer that the model was trained with"
        )
    arrays = _read_arrays(folder, gpt2.shapes(config, vocab_size), config.layers, tied)
    return config, GPT2(config, traverse_util.unflatten_dict(arrays, sep=".")), tokenizer


def _read_config(file: Path) -> tuple[GPT2Config, int, bool]:
    """Returns the configuration, the vocabulary size, and whether the readout is the embedding."""
    tree = _read_json(file)
    if tree.get("model_type") != "gpt2":
        raise InputError(
            f"{file}: model_type is {tree.get('model_type')!r}: only gpt2 is supported"
        )
    dropout = tree.get("resid_pdrop", 0.1)
    keys = {"layers": "n_layer", "heads": "n_head", "width": "n_embd", "positions": "n_positions"}
    if missing := [key for key in (*keys.values(), "vocab_size") if key not in tree]:
        raise InputError(f"{file}: {missing[0]} is missing")
    settings = {name: tree[key] for name, key in keys.items()} | {"dropout": dropout}
    for name in ("layer_norm_epsilon", "initializer_range"):
        if name in tree:
            settings[name] = tree[name]
    config = build(GPT2Config, settings, where=str(file))
    rules = ACCEPTED | {"n_inner": (None, 4 * config.width)}
    rules |= {"embd_pdrop": (dropout,), "attn_pdrop": (dropout,)}  # esnlm's GPT-2 has one rate
    for key, values in rules.items():
        usual = 0.1 if key.endswith("pdrop") else values[0]
        if (value := tree.get(key, usual)) not in values:
            raise InputError(
                f"{file}: {key} is {value!r}: only {' or '.join(map(repr, values))} is supported"
            )
    return config, tree["vocab_size"], tree.get("tie_word_embeddings", True)


def _read_arrays(
    folder: Path, shapes: dict[str, tuple[int, ...]], layers: int, tied: bool
) -> dict[str, np.ndarray]:
    """Returns the arrays of `gpt2.shapes` by name, in float32, with the layers stacked."""
    try:
        import safetensors
    except ImportError:
        raise InputError(
            "reading a Hugging Face model needs safetensors: pip install 'esnlm[hf]'"
        ) from None

    file = folder / "model.safetensors"
    if not file.is_file():
        raise InputError(
            f"{file}: missing; save the weights as one such file, as transformers' save_pretrained"
            " does"
        )
    try:
        with safetensors.safe_open(file, framework="np") as stored:
            return _stack(file, stored, shapes, layers, tied)
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(f"{file}: damaged or cut short ({error}): copy it again") from None


def _stack(
    file: Path, stored: Any, shapes: dict[str, tuple[int, ...]], layers: int, tied: bool
) -> dict[str, np.ndarray]:
    """Returns the arrays of an open safetensors file, checked against `shapes`."""
    keys = set(stored.keys())
    prefix = "transformer." if "transformer.wte.weight" in keys else ""  # of a model with its head
    keys_of = {  # one key, or one key for each layer
        name: (
            [f"{prefix}h.{i}.{name[2:]}" for i in range(layers)]
            if name.startswith("h.")
            else [prefix + name]
        )
        for name in shapes
    }
    wanted = {key for some in keys_of.values() for key in some}
    if missing := sorted(wanted - keys):
        raise InputError(
            f"{file}: {missing[0]} is missing ({len(missing)} in all): it does not fit its"
            " config.json"
        )
    others = sorted(keys - wanted - {"lm_head.weight"})
    if unknown := [key for key in others if not re.fullmatch(re.escape(prefix) + MASKS, key)]:
        raise InputError(
            f"{file}: {unknown[0]} is not part of a GPT-2 of {layers} layers ({len(unknown)} such"
            " in all)"
        )

    def read(key: str, shape: tuple[int, ...]) -> np.ndarray:
        part = stored.get_slice(key)
        if tuple(part.get_shape()) != shape:
            raise InputError(
                f"{file}: {key} has shape {tuple(part.get_shape())}, but config.json needs {shape}"
            )
        return stored.get_tensor(key).astype(np.float32)

    arrays = {}
    for name, shape in shapes.items():
        parts = [read(key, shape[1:] if name.startswith("h.") else shape) for key in keys_of[name]]
        arrays[name] = np.stack(parts) if name.startswith("h.") else parts[0]
    embedding = arrays["wte.weight"]
    if "lm_head.weight" in keys:
        tied = np.array_equal(read("lm_head.weight", embedding.shape), embedding)
    if not tied:
        raise InputError(
            f"{file}: the readout is not tied to the embedding (tie_word_embeddings): only a tied"
            " GPT-2 is supported"
        )
    return arrays


def _read_json(file: Path) -> dict:
    try:
        tree = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(
            f"{file}: {error.strerror}; a Hugging Face model needs it: copy it to the folder"
        ) from None
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        raise InputError(f"{file}: not a JSON object: copy it again")
    return tree
