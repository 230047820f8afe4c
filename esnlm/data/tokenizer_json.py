"""Vocabularies of byte-level BPE in the files of others: the tokenizer.json of Hugging Face's library `tokenizers`, and GPT-2's own."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from esnlm.errors import InputError

UNKNOWN_RULES = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")


def byte_of_character() -> dict[str, int]:
    """Returns the byte of each character. GPT-2 writes a printable Latin-1 byte as itself, the others from U+0100 on."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(rest)}


def character_of_byte() -> dict[int, str]:
    """Returns the character by which GPT-2's files, and Hugging Face's tokenizers, write each byte."""
    return {byte: character for character, byte in byte_of_character().items()}


def ranks_of(vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]) -> dict[str, bytes]:
    """Returns the bytes of each token by its spelling: the 256 bytes in the order of their ids, then the merges in their order.

    Raises KeyError if a byte or a merged token has no id.
    """
    bytes_of = byte_of_character()
    merged = [left + right for left, right in merges]
    spelled = [*sorted(bytes_of, key=lambda character: vocabulary[character]), *merged]
    if missing := set(spelled) - vocabulary.keys():
        raise KeyError(min(missing))
    return {token: bytes(bytes_of[character] for character in token) for token in spelled}


def read_gpt2(encoder: bytes, merges: bytes) -> dict[bytes, int]:
    """Returns the rank of each token's bytes in GPT-2's encoder.json and vocab.bpe.

    Raises KeyError, TypeError or ValueError if the two are damaged or do not belong together.
    """
    vocabulary = json.loads(encoder)
    lines = merges.decode().split("\n")
    pairs = [_pair(line) for line in lines[lines[0].startswith("#version") :] if line]
    tokens = ranks_of(vocabulary, pairs)
    if [vocabulary[token] for token in tokens] != list(range(256 + len(pairs))):
        raise ValueError
    return {token: rank for rank, token in enumerate(tokens.values())}


def read_ranks(content: bytes, path: Path) -> dict[bytes, int]:
    """Returns the rank of each token's bytes in a tokenizer.json, whose content is given beside its path.

    Special tokens are left out. If the vocabulary has its tokens in the order of the merges, as trained ones do, the ids are the
    file's, moved together where a special token stood before or between them; else they are other ids of the same tokens.

    Raises InputError if it is no tokenizer.json, or one whose rules tiktoken cannot follow. The message names the rule.
    """
    try:
        tree = json.loads(content)
        model, before = tree["model"], tree.get("pre_tokenizer") or {}
        kind = model.get("type", "BPE")
        merges = [_pair(merge) for merge in model["merges"]] if kind == "BPE" else []
        vocabulary = dict(model["vocab"])
    except (AttributeError, KeyError, TypeError, ValueError):
        _refuse(path, "it is no tokenizer.json of Hugging Face's library tokenizers")
    try:
        tokens = ranks_of(vocabulary, merges) if kind == "BPE" else {}
    except KeyError as error:
        _refuse(path, f"its vocabulary lacks {error}, one of the 256 bytes or what a merge makes")
    if kind != "BPE":
        _refuse(path, f"its model is {kind}")
    if before.get("type") == "Sequence" and len(before.get("pretokenizers", [])) == 1:
        before = before["pretokenizers"][0]
    if tree.get("normalizer"):
        _refuse(path, f"it has a normalizer ({tree['normalizer'].get('type')})")
    if before.get("type") != "ByteLevel" or not before.get("use_regex", True):
        _refuse(path, f"it cuts text by another rule ({before.get('type')})")
    if before.get("add_prefix_space", True):
        _refuse(path, "it puts a space before each text (add_prefix_space)")
    if rules := [rule for rule in UNKNOWN_RULES if model.get(rule)]:
        _refuse(path, f"its model has {rules[0]}")
    if others := [token.get("content") for token in tree.get("added_tokens", []) if not token.get("special")]:
        _refuse(path, f"it has an added token that is not special, {others[0]!r}")
    ranks = {token: rank for rank, token in enumerate(tokens.values())}
    if len(tokens) < 256 + len(merges):
        _refuse(path, "two of its merges make one token")
    for left, right in merges:
        # tiktoken merges two neighbours that make a token, Hugging Face only those that a merge names. They must come to the same.
        if _halves(tokens[left + right], ranks) != [tokens.get(left), tokens.get(right)]:
            _refuse(path, f"its merges make {(left + right)!r} of other halves than {left!r} and {right!r}")
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
    return str(left), str(right)


def _refuse(path: Path, reason: str) -> NoReturn:
    raise InputError(f"{path}: {reason}; give a byte-level BPE with GPT-2's pattern") from None
