"""Reads byte-level BPE from Hugging Face's files: the tokenizer.json of `tokenizers`, or vocab.json
and merges.txt."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from esnlm.base.errors import InputError

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
    """Returns the byte of each character. GPT-2 writes printable Latin-1 bytes as themselves,
    others from U+0100 on."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + n): byte for n, byte in enumerate(rest)
    }


def ranks_of(tree: dict[str, Any]) -> dict[bytes, int] | None:
    """Returns the bytes of all tokens if, as in GPT-2, they are sorted by id with `<|endoftext|>`
    last; else None."""
    ids, byte_of = _ids(tree), byte_of_character()
    tokens, merged = (
        sorted(ids, key=ids.__getitem__),
        ["".join(merge) for merge in tree["model"]["merges"]],
    )
    if (
        tree["normalizer"]
        or tree["pre_tokenizer"] != BYTE_LEVEL
        or tokens[256:] != [*merged, ENDOFTEXT]
    ):
        return None
    if not byte_of.keys() >= set("".join(tokens[:-1])):
        return None
    return {
        bytes(byte_of[letter] for letter in token): rank for rank, token in enumerate(tokens[:-1])
    }


def check(path: Path, tree: dict[str, Any]) -> None:
    """Raises InputError, naming the rule, if ids would differ from those of `tokenizers` or not
    spell the text."""
    cuts = [each.get("type") for each in _listed(tree["pre_tokenizer"], "pretokenizers")]
    normalizers = [each.get("type") for each in _listed(tree["normalizer"], "normalizers")]
    if others := [each for each in normalizers if each != "NFC"]:
        _refuse(path, f"it has a normalizer ({others[0]}); only NFC is supported")
    if "ByteLevel" not in cuts:
        _refuse(
            path,
            f"it splits text by another rule ({cuts[0] if cuts else None}); only ByteLevel is"
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
    """Reads a tokenizer.json, or a vocab.json and merges, with tokenizer_config.json and
    special_tokens_map.json.

    Returns the tree of a tokenizer.json, the ids of BOS and EOS, and the size of the vocabulary.
    Raises InputError for other files or another kind of model.
    """
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (beside := path.parent / name).exists():
            settings |= _object(beside, beside.read_bytes())
    tree = _object(path, vocabulary)
    if merges is not None:
        tree = _tree(tree, merges, settings)
    if not isinstance(model := tree.get("model"), dict):
        _refuse(path, "it is not a tokenizer.json of Hugging Face's library tokenizers")
    if (kind := model.get("type") or "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        _refuse(path, f"its model is {kind}; only byte-level BPE is supported")
    cut, ids = tree.get("pre_tokenizer") or {}, _ids(tree)
    if cut.get("type") == "ByteLevel":
        # transformers' class for GPT-2, its default, uses the settings.
        usual = "GPT2" if "add_prefix_space" in settings else None
        given = settings if str(settings.get("tokenizer_class", usual)).startswith("GPT2") else cut
        prefix = given.get("add_prefix_space", False)
        cut = BYTE_LEVEL | {"add_prefix_space": prefix, "use_regex": cut.get("use_regex", True)}
    bos, eos = (
        _special(settings.get("bos_token"), USUAL_BOS, ids),
        _special(settings.get("eos_token"), USUAL_EOS, ids),
    )
    ends = bos or eos or ENDOFTEXT, eos or bos or ENDOFTEXT
    for token in ends:
        ids.setdefault(token, max(ids.values()) + 1)
    # Leaves out framing, truncation and padding, and all that differs between layouts of the same
    # vocabulary.
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {
        "special": True
    }
    given = tree.get("added_tokens") or []
    added = {
        token["id"]: token
        for token in given
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
        "pre_tokenizer": cut or None,
        "decoder": BYTE_LEVEL,
        "model": {name: value for name, value in model.items() if value} | {"merges": pairs},
    }
    return (
        tree,
        ids[ends[0]],
        ids[ends[1]],
        max(max(ids.values()) + 1, settings.get("vocab_size", 0)),
    )


def open_library(content: str, path: Path = Path("tokenizer.json")) -> Any:
    """Returns the `tokenizers.Tokenizer` of a tokenizer.json, which reads special tokens in a text
    as ordinary text."""
    try:
        import tokenizers
    except ImportError:
        raise InputError(
            f"{path}: reading it needs tokenizers: pip install 'esnlm[text]'"
        ) from None
    try:
        library = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the library raises no narrower class
        _refuse(path, f"the library tokenizers cannot read it ({error})")
    library.encode_special_tokens = True
    return library


def bytes_of_ids(content: str, vocab_size: int) -> dict[int, bytes]:
    """Returns the bytes of each id: empty without a token, the name for an added token."""
    byte_of, tree = byte_of_character(), json.loads(content)
    found = dict.fromkeys(range(vocab_size), b"")
    for token, i in tree["model"]["vocab"].items():
        found[i] = (
            bytes(map(byte_of.__getitem__, token))
            if byte_of.keys() >= set(token)
            else token.encode()
        )
    return found | {token["id"]: token["content"].encode() for token in tree["added_tokens"]}


def well_formed(text: str) -> str:
    """Replaces unpaired surrogates by U+FFFD, as tiktoken does."""
    return (
        text
        if text.isascii()
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def _tree(vocabulary: dict[str, Any], merges: bytes, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the tree of a vocab.json and a merges.txt, read as in transformers' class for
    GPT-2."""
    lines = merges.decode(errors="replace").split("\n")
    pairs = [line for line in lines[lines[0].startswith("#version") :] if line]
    added = [
        token | {"id": int(i)} for i, token in settings.get("added_tokens_decoder", {}).items()
    ]
    cut = BYTE_LEVEL | {"add_prefix_space": settings.get("add_prefix_space", False)}
    return {
        "added_tokens": added,
        "pre_tokenizer": cut,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": pairs},
    }


def _ids(tree: dict[str, Any]) -> dict[str, int]:
    return tree["model"]["vocab"] | {
        token["content"]: token["id"] for token in tree.get("added_tokens") or []
    }


def _special(named: Any, usual: Sequence[str], ids: dict[str, int]) -> str | None:
    """Returns the token named by the settings, or else a usual one that exists."""
    named = named.get("content") if isinstance(named, dict) else named
    return named or next((token for token in usual if token in ids), None)


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
