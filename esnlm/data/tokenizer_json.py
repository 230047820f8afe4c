"""Reads byte-level BPE from Hugging Face's tokenizer.json, or vocab.json and merges.txt."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from esnlm.base.errors import InputError, import_extra

ENDOFTEXT = "<|endoftext|>"
# The usual names of BOS and EOS, if tokenizer_config.json and special_tokens_map.json do not name
# them.
USUAL_BOS = (
    ENDOFTEXT,
    "<s>",
    "<bos>",
    "<|bos|>",
    "<|startoftext|>",
    "<|begin_of_text|>",
    "[BOS]",
    "[CLS]",
)
USUAL_EOS = (ENDOFTEXT, "</s>", "<eos>", "<|eos|>", "<|end_of_text|>", "[EOS]", "[SEP]")
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": True,
}


def byte_of_character() -> dict[str, int]:
    """Returns the byte that each character stands for in GPT-2's vocabulary."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    rest = [byte for byte in range(256) if byte not in printable]
    characters = [*map(chr, printable), *(chr(256 + number) for number in range(len(rest)))]
    return dict(zip(characters, [*printable, *rest], strict=True))


def ranks_of(tree: dict[str, Any]) -> dict[bytes, int] | None:
    """Returns the ranks of tokens sorted as in GPT-2, with `<|endoftext|>` last; else None."""
    ids, byte_of = _ids(tree), byte_of_character()
    tokens = sorted(ids, key=ids.__getitem__)
    merged = ["".join(merge) for merge in tree["model"]["merges"]]
    is_plain = not tree["normalizer"] and tree["pre_tokenizer"] == BYTE_LEVEL
    is_sorted = tokens[256:] == [*merged, ENDOFTEXT]
    if not is_plain or not is_sorted or not byte_of.keys() >= set("".join(tokens[:-1])):
        return None
    return {
        bytes(byte_of[letter] for letter in token): rank for rank, token in enumerate(tokens[:-1])
    }


def check(path: Path, tree: dict[str, Any]) -> None:
    """Raises InputError if ids would differ from those of `tokenizers` or not spell the text."""
    rules = [each.get("type") for each in _listed(tree["pre_tokenizer"], "pretokenizers")]
    normalizers = [each.get("type") for each in _listed(tree["normalizer"], "normalizers")]
    if others := [each for each in normalizers if each != "NFC"]:
        _refuse(path, f"it has a normalizer ({others[0]}); only NFC is supported")
    if "ByteLevel" not in rules:
        _refuse(
            path,
            f"it splits text by another rule ({rules[0] if rules else None}); only ByteLevel is"
            " supported",
        )
    for rule in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if tree["model"].get(rule):
            _refuse(path, f"its model has {rule}, which is not supported")
    if missing := byte_of_character().keys() - _ids(tree).keys():
        _refuse(
            path, f"{len(missing)} of the 256 bytes have no token, so it cannot spell all texts"
        )
    open_library(json.dumps(tree), path)


def read_files(
    path: Path, vocabulary: bytes, merges: bytes | None = None
) -> tuple[dict[str, Any], int, int, int]:
    """Reads a tokenizer.json, or a vocab.json and merges, with the settings in their folder.

    Returns the tree of a tokenizer.json, the ids of BOS and EOS, and the size of the vocabulary.
    Raises InputError for other files or another kind of model.
    """
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        file = path.parent / name
        if file.exists():
            settings |= _object(file, file.read_bytes())
    tree = _object(path, vocabulary)
    if merges is not None:
        tree = _tree(tree, merges, settings)
    if not isinstance(model := tree.get("model"), dict):
        _refuse(path, "it is not a tokenizer.json of Hugging Face's library tokenizers")
    if (kind := model.get("type") or "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        _refuse(path, f"its model is {kind}; only byte-level BPE is supported")
    rule, ids = tree.get("pre_tokenizer") or {}, _ids(tree)
    if rule.get("type") == "ByteLevel":
        # transformers' class for GPT-2, its default, uses the settings.
        usual = "GPT2" if "add_prefix_space" in settings else None
        is_gpt2 = str(settings.get("tokenizer_class", usual)).startswith("GPT2")
        prefix = (settings if is_gpt2 else rule).get("add_prefix_space", False)
        rule = BYTE_LEVEL | {"add_prefix_space": prefix, "use_regex": rule.get("use_regex", True)}
    bos = _special(settings.get("bos_token"), USUAL_BOS, ids)
    eos = _special(settings.get("eos_token"), USUAL_EOS, ids)
    ends = bos or eos or ENDOFTEXT, eos or bos or ENDOFTEXT
    for token in ends:
        ids.setdefault(token, max(ids.values()) + 1)
    # Leaves out framing, truncation and padding, and all that differs between layouts of the same
    # vocabulary.
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    flags["special"] = True
    added = {
        token["id"]: token
        for token in tree.get("added_tokens") or []
        if not (token.get("special") or token["content"] in ends)
    }
    for token, i in ids.items():
        if i not in added and (token in ends or token not in model["vocab"]):
            added[i] = {"id": i, "content": token, **flags}
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    tree = {
        "version": "1.0",
        "added_tokens": [added[i] for i in sorted(added)],
        "normalizer": tree.get("normalizer"),
        "pre_tokenizer": rule or None,
        "decoder": BYTE_LEVEL,
        "model": {name: value for name, value in model.items() if value} | {"merges": pairs},
    }
    size = max(max(ids.values()) + 1, settings.get("vocab_size", 0))
    return tree, ids[ends[0]], ids[ends[1]], size


def open_library(content: str, path: Path = Path("tokenizer.json")) -> Any:
    """Returns the `tokenizers.Tokenizer` of a tokenizer.json. Special tokens are ordinary text."""
    tokenizers = import_extra("tokenizers", f"{path}: reading it", "text")
    try:
        library = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the library raises no narrower class
        _refuse(path, f"the library tokenizers cannot read it ({error})")
    library.encode_special_tokens = True
    return library


def bytes_of_ids(content: str, vocab_size: int) -> dict[int, bytes]:
    """Returns the bytes of each id: empty without a token, the name for an added token."""
    byte_of, tree = byte_of_character(), json.loads(content)
    spellings = dict.fromkeys(range(vocab_size), b"")
    for token, i in tree["model"]["vocab"].items():
        is_spelled = byte_of.keys() >= set(token)
        spellings[i] = bytes(map(byte_of.__getitem__, token)) if is_spelled else token.encode()
    return spellings | {token["id"]: token["content"].encode() for token in tree["added_tokens"]}


def well_formed(text: str) -> str:
    """Replaces unpaired surrogates by U+FFFD, as tiktoken does."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _tree(vocabulary: dict[str, Any], merges: bytes, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the tree of a vocab.json and a merges.txt, as transformers' class for GPT-2 does."""
    lines = merges.decode(errors="replace").split("\n")
    pairs = [line for line in lines[lines[0].startswith("#version") :] if line]
    added = [
        token | {"id": int(i)} for i, token in settings.get("added_tokens_decoder", {}).items()
    ]
    rule = BYTE_LEVEL | {"add_prefix_space": settings.get("add_prefix_space", False)}
    return {
        "added_tokens": added,
        "pre_tokenizer": rule,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": pairs},
    }


def _ids(tree: dict[str, Any]) -> dict[str, int]:
    return tree["model"]["vocab"] | {
        token["content"]: token["id"] for token in tree.get("added_tokens") or []
    }


def _special(setting: Any, usual: Sequence[str], ids: dict[str, int]) -> str | None:
    """Returns the token of a setting, or else a usual one that exists."""
    token = setting.get("content") if isinstance(setting, dict) else setting
    return token or next((name for name in usual if name in ids), None)


def _listed(rule: Any, key: str) -> list[dict[str, Any]]:
    """Returns the rules of a sequence, or a single rule as a list."""
    return rule.get(key, [rule]) if rule else []


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(content)
    except ValueError as error:
        _refuse(path, f"not JSON ({error})")
    return tree if isinstance(tree, dict) else _refuse(path, "not a JSON object")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise InputError(f"{path}: {reason}") from None
