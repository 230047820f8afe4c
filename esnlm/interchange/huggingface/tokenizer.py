"""Converts a tokenizer of esnlm to a tokenizer.json of `tokenizers`, which gives the same ids."""

import json
from typing import Any

from esnlm.base.errors import InputError
from esnlm.data.tokenizer import HuggingFaceTokenizer, Tokenizer
from esnlm.data.tokenizer_json import ENDOFTEXT, byte_of_character, open_library

PAD = "<|pad|>"


def tokenizer_files(tokenizer: Tokenizer, pad_is_eos: bool) -> dict[str, str]:
    """Returns the content of tokenizer.json and of tokenizer_config.json, by name.

    With special tokens, the tokenizer adds BOS only at the beginning: before the second text of a
    pair, BOS would reset the state. It pads on the right, with EOS or with a padding token, whose
    id is the size of the run's vocabulary.
    """
    fast = (
        open_library(tokenizer.content)
        if isinstance(tokenizer, HuggingFaceTokenizer)
        else _fast(tokenizer)
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


def _fast(tokenizer: Any) -> Any:
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
