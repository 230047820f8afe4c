"""Reads the tokenizer.json of Hugging Face's library `tokenizers`, where it is a byte-level BPE with GPT-2's pattern."""

from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from esnlm.errors import InputError
from esnlm.io.json_file import parse_json


def byte_of_character() -> dict[str, int]:
    """Returns the byte of each character. GPT-2 writes a printable Latin-1 byte as itself, the others from U+0100 on."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(rest)}


def character_of_byte() -> dict[int, str]:
    """Returns the character by which GPT-2's files, and Hugging Face's tokenizers, write each byte."""
    return {byte: character for character, byte in byte_of_character().items()}


def read_ranks(content: bytes, path: Path) -> dict[bytes, int]:
    """Returns the rank of each token's bytes: the 256 bytes in the order of their ids, then the merges in their order.

    Special tokens are left out. Where the vocabulary has its tokens in the order of the merges, as trained ones do, the ids are the
    file's, moved together where a special token stood before or between them; else they are other ids of the same tokens.

    Args:
        content: of the file.
        path: where it is, for errors.

    Raises:
        InputError: it is no tokenizer.json, or one whose rules tiktoken cannot follow. The line names the rule.
    """
    try:
        tree = parse_json(content)
        model = tree["model"]
        vocabulary, merges = model["vocab"], [_pair(merge) for merge in model["merges"]]
    except (KeyError, TypeError, ValueError):
        kind = _kind(content)
        _refuse(path, f"its model is {kind}" if kind else "it is no such file, or a damaged one")
    _require_rules(tree, path)

    bytes_of = byte_of_character()
    try:
        single = sorted(bytes_of, key=lambda character: vocabulary[character])
        tokens = [bytes([bytes_of[character]]) for character in single]
        tokens += [bytes(bytes_of[character] for character in left + right) for left, right in merges]
    except (KeyError, TypeError):
        _refuse(path, "its tokens are not made of all 256 bytes")
    ranks = {token: rank for rank, token in enumerate(tokens)}
    if len(ranks) < len(tokens):
        _refuse(path, "two of its merges make one token")
    if any(left + right not in vocabulary for left, right in merges):
        _refuse(path, "a merge makes a token that has no id")
    for (left, right), token in zip(merges, tokens[len(bytes_of) :], strict=True):
        # tiktoken merges two neighbours that make a token, Hugging Face only those that a merge names. They must come to the same.
        if _halves(token, ranks) != [bytes(bytes_of[each] for each in half) for half in (left, right)]:
            _refuse(
                path, f"its merges make {(left + right)!r} of other halves than {left!r} and {right!r}, which it names"
            )
    return ranks


def _halves(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """Returns what the merges before that of a token make of its bytes: two parts, if the token can be made at all."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, len(ranks)) for left, right in pairwise(parts)]
        lowest = min(pairs)
        if lowest >= ranks[token]:
            break
        place = pairs.index(lowest)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts


def _pair(merge: Any) -> tuple[str, str]:
    """Returns the two halves of a merge, which older files write as one text with a space."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    if not (isinstance(left, str) and isinstance(right, str)):
        raise TypeError
    return left, right


def _kind(content: bytes) -> str | None:
    """Returns the kind of model that the file names, or None."""
    try:
        kind = parse_json(content)["model"]["type"]
    except (KeyError, TypeError, ValueError):
        return None
    return kind if isinstance(kind, str) and kind.isalnum() else None


def _require_rules(tree: dict[str, Any], path: Path) -> None:
    """Raises an InputError where a rule of the file would give other tokens than a byte-level BPE with GPT-2's pattern."""
    model, before = tree["model"], tree.get("pre_tokenizer") or {}
    if before.get("type") == "Sequence" and len(before.get("pretokenizers", [])) == 1:
        before = before["pretokenizers"][0]
    if model.get("type", "BPE") != "BPE":
        _refuse(path, f"its model is {model['type']}")
    if tree.get("normalizer"):
        _refuse(path, f"it has a normalizer ({tree['normalizer'].get('type')})")
    if before.get("type") != "ByteLevel" or not before.get("use_regex", True):
        _refuse(path, f"it cuts text by another rule ({before.get('type')})")
    if before.get("add_prefix_space", True):
        _refuse(path, "it puts a space before each text (add_prefix_space)")
    for rule in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"):
        if model.get(rule):
            _refuse(path, f"its model has {rule}")
    for token in tree.get("added_tokens", []):
        if not token.get("special"):
            _refuse(path, f"it has an added token that is not special, {token.get('content')!r}")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise InputError(f"{path}: {reason}; give a byte-level BPE with GPT-2's pattern") from None
