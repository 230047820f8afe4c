"""A folder in Hugging Face's format with a small GPT-2 of random weights."""

import json

import numpy as np
import safetensors.numpy

from esnlm.data import tokenizer
from esnlm.models import gpt2
from esnlm.models.gpt2 import GPT2Config

CONFIG = GPT2Config(layers=3, heads=4, width=64, positions=64)
MERGES = [
    "t h",
    "th e",
    "Ġ the",
    "a t",
    "c at",
    "Ġ cat",
    "i n",
    "in g",
    "s l",
    "sl e",
    "e p",
    "sle ep",
    "Ġ sleep",
    "Ġ a",
]
CHARACTERS = sorted(tokenizer.byte_of_character(), key=lambda c: (ord(c) >= 256, ord(c)))
TOKENS = [*CHARACTERS, *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]
V = len(TOKENS)

CONFIG_JSON = {
    "model_type": "gpt2",
    "n_layer": CONFIG.layers,
    "n_head": CONFIG.heads,
    "n_embd": CONFIG.width,
    "n_positions": CONFIG.positions,
    "vocab_size": V,
}


def write_tokenizer(folder):
    (folder / "vocab.json").write_text(
        json.dumps({token: i for i, token in enumerate(TOKENS)}), "utf-8"
    )
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES, ""]), "utf-8")


def random_weights(prefix="transformer."):
    """Arrays under the keys of model.safetensors, far enough from 0 and 1 that each of them
    matters."""
    rng, weights = np.random.default_rng(0), {}
    for name, shape in gpt2.shapes(CONFIG, V).items():
        array = (
            rng.normal(0, 0.2, shape) + (".ln_" in "." + name and name.endswith("weight"))
        ).astype(np.float32)
        if name.startswith("h."):
            weights |= {f"{prefix}h.{i}.{name[2:]}": part for i, part in enumerate(array)}
        else:
            weights[prefix + name] = array
    return weights


def save(folder, weights):
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write(folder):
    """Writes a folder as a published GPT-2's, of a small random one."""
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG_JSON))
    save(folder, random_weights())
