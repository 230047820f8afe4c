"""Byte-level BPE in the files of others: the tokenizer.json of Hugging Face's library `tokenizers`, or vocab.json and merges.txt."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from esnlm.errors import InputError

ENDOFTEXT = "<|endoftext|>"
# The names that BOS and EOS usually have, if no tokenizer_config.json or special_tokens_map.json says.
USUAL_BOS = (ENDOFTEXT, "<s>", "<bos>", "<|bos|>", "<|startoftext|>", "<|begin_of_text|>", "[BOS]", "[CLS]")
USUAL_EOS = (ENDOFTEXT, "</s>", "<eos>", "<|eos|>", "<|end_of_text|>", "[EOS]", "[SEP]")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}


def byte_of_character() -> dict[str, int]:
    """Returns the byte of each character. GPT-2 writes a printable Latin-1 byte as itself, the others from U+0100 on."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(rest)}


def ranks_of(tree: dict[str, Any]) -> dict[bytes, int] | None:
    """Returns the bytes of all tokens if they are as in GPT-2: in the order of their ids, and `<|endoftext|>` behind them."""
    ids, byte_of = _ids(tree), byte_of_character()
    tokens, merged = sorted(ids, key=ids.__getitem__), ["".join(merge) for merge in tree["model"]["merges"]]
    if tree["normalizer"] or tree["pre_tokenizer"] != BYTE_LEVEL or tokens[256:] != [*merged, ENDOFTEXT]:
        return None
    if not byte_of.keys() >= set("".join(tokens[:-1])):
        return None
    return {bytes(byte_of[letter] for letter in token): rank for rank, token in enumerate(tokens[:-1])}


def check(path: Path, tree: dict[str, Any]) -> None:
    """Raises InputError if a text's ids would not be those of `tokenizers`, or not spell it. The message names the rule."""
    cuts = [each.get("type") for each in _listed(tree["pre_tokenizer"], "pretokenizers")]
    normalizers = [each.get("type") for each in _listed(tree["normalizer"], "normalizers")]
    if others := [each for each in normalizers if each != "NFC"]:
        _refuse(path, f"it has a normalizer ({others[0]}); only NFC can be read")
    if "ByteLevel" not in cuts:
        _refuse(path, f"it cuts text by another rule ({cuts[0] if cuts else None}); only ByteLevel can be read")
    for rule in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if tree["model"].get(rule):
            _refuse(path, f"its model has {rule}, which cannot be read")
    if missing := byte_of_character().keys() - _ids(tree).keys():
        _refuse(path, f"{len(missing)} of the 256 bytes have no token, so that it cannot spell every text")
    open_library(json.dumps(tree), path)


def read_files(path: Path, vocabulary: bytes, merges: bytes | None = None) -> tuple[dict[str, Any], int, int, int]:
    """Reads a tokenizer.json or, with merges, a vocab.json, and what tokenizer_config.json and special_tokens_map.json beside it say.

    Returns the tree of a tokenizer.json, the ids of BOS and EOS, and the size of the vocabulary. Raises InputError if they are no
    such files, or of another kind of model.
    """
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (beside := path.parent / name).exists():
            settings |= _object(beside, beside.read_bytes())
    tree = _object(path, vocabulary)
    if merges is not None:
        tree = _tree(tree, merges, settings)
    if not isinstance(model := tree.get("model"), dict):
        _refuse(path, "it is no tokenizer.json of Hugging Face's library tokenizers")
    if (kind := model.get("type") or "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        _refuse(path, f"its model is {kind}; only a byte-level BPE can be read")
    cut, ids = tree.get("pre_tokenizer") or {}, _ids(tree)
    if cut.get("type") == "ByteLevel":
        # transformers' class for GPT-2, its choice if none is named, goes by the settings.
        usual = "GPT2" if "add_prefix_space" in settings else None
        given = settings if str(settings.get("tokenizer_class", usual)).startswith("GPT2") else cut
        prefix = given.get("add_prefix_space", False)
        cut = BYTE_LEVEL | {"add_prefix_space": prefix, "use_regex": cut.get("use_regex", True)}
    bos, eos = _special(settings.get("bos_token"), USUAL_BOS, ids), _special(settings.get("eos_token"), USUAL_EOS, ids)
    ends = bos or eos or ENDOFTEXT, eos or bos or ENDOFTEXT
    for token in ends:
        ids.setdefault(token, max(ids.values()) + 1)
    # What frames, cuts and pads a text is left out, and so is what two layouts of one vocabulary say differently.
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    given = tree.get("added_tokens") or []
    added = {token["id"]: token for token in given if not (token.get("special") or token["content"] in ends)}
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
    return tree, ids[ends[0]], ids[ends[1]], max(max(ids.values()) + 1, settings.get("vocab_size", 0))


def open_library(content: str, path: Path = Path("tokenizer.json")) -> Any:
    """Returns the `tokenizers.Tokenizer` of a tokenizer.json, to which special tokens in a text are ordinary text."""
    try:
        import tokenizers
    except ImportError:
        raise InputError(f"{path}: to read it needs tokenizers: pip install 'esnlm[text]'") from None
    try:
        library = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # The library has no narrower type.
        _refuse(path, f"the library tokenizers cannot read it ({error})")
    library.encode_special_tokens = True
    return library


def bytes_of_ids(content: str, vocab_size: int) -> dict[int, bytes]:
    """Returns the bytes of each id: none of one without a token, and the name of an added token."""
    byte_of, tree = byte_of_character(), json.loads(content)
    found = dict.fromkeys(range(vocab_size), b"")
    for token, i in tree["model"]["vocab"].items():
        found[i] = bytes(map(byte_of.__getitem__, token)) if byte_of.keys() >= set(token) else token.encode()
    return found | {token["id"]: token["content"].encode() for token in tree["added_tokens"]}


def well_formed(text: str) -> str:
    """Returns the text with U+FFFD for unpaired surrogates, as tiktoken reads it."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _tree(vocabulary: dict[str, Any], merges: bytes, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the tree of a vocab.json and a merges.txt, as transformers' class for GPT-2 reads them."""
    lines = merges.decode(errors="replace").split("\n")
    pairs = [line for line in lines[lines[0].startswith("#version") :] if line]
    added = [token | {"id": int(i)} for i, token in settings.get("added_tokens_decoder", {}).items()]
    cut = BYTE_LEVEL | {"add_prefix_space": settings.get("add_prefix_space", False)}
    return {"added_tokens": added, "pre_tokenizer": cut, "model": {"type": "BPE", "vocab": vocabulary, "merges": pairs}}


def _ids(tree: dict[str, Any]) -> dict[str, int]:
    return tree["model"]["vocab"] | {token["content"]: token["id"] for token in tree.get("added_tokens") or []}


def _special(named: Any, usual: Sequence[str], ids: dict[str, int]) -> str | None:
    """Returns the token that settings name, or a usual one that is there."""
    named = named.get("content") if isinstance(named, dict) else named
    return named or next((token for token in usual if token in ids), None)


def _listed(rule: Any, key: str) -> list[dict[str, Any]]:
    """Returns the rules of a sequence, or the one that is no sequence."""
    return rule.get(key, [rule]) if rule else []


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(content)
    except ValueError as error:
        _refuse(path, f"not JSON ({error})")
    return tree if isinstance(tree, dict) else _refuse(path, "not a JSON object")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise InputError(f"{path}: {reason}") from None
