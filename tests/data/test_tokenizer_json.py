"""A tokenizer.json of Hugging Face's `tokenizers`: the same tokens as there, or a line that says why not."""

import json
import re

import pytest

from esnlm.data import tokenizer as tokenizer_module
from esnlm.data.tokenizer import load_tokenizer
from esnlm.errors import InputError

tokenizers = pytest.importorskip("tokenizers")

CORPUS = [
    f"The cats' {word} number {i} don't sleep, and née {word}s do!" for i in range(30) for word in ("bed", "sofa")
]
OTHERS = ["", " ", "  two  spaces\n\nand lines ", "unseen: 中文 \U0001f600 ½", "'s 123abc__", "<|endoftext|>"]
TEXTS = CORPUS[:3] + OTHERS


@pytest.fixture
def trained():
    """A byte-level BPE as `tokenizers` trains it, with special tokens before the bytes as many have it."""
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<pad>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    return bpe


def test_it_gives_the_tokens_that_tokenizers_gives(trained, tmp_path):
    trained.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    assert ours.sha256 == load_tokenizer(tmp_path).sha256  # the folder will do
    assert ours.name == f"bpe-{ours.vocab_size}-{ours.sha256[:8]}"
    assert ours.vocab_size == trained.get_vocab_size() - 2 + 1  # without the special tokens, with our own
    character = {byte: letter for letter, byte in tokenizer_module.byte_of_character().items()}
    for text in TEXTS:
        theirs = trained.encode(text, add_special_tokens=False)
        pieces = ["".join(character[byte] for byte in ours.decode_bytes([i])) for i in ours.encode(text)]
        assert pieces == theirs.tokens
        assert ours.encode(text) == [i - 2 for i in theirs.ids]  # the ids move by the two special tokens before them


def test_merges_that_tiktoken_would_take_in_another_order_are_refused(trained, tmp_path):
    """tiktoken merges whatever makes a token. Here "bc" comes first, and Hugging Face has no merge of "a" and "bc"."""
    tree, path = json.loads(trained.to_str()), tmp_path / "tokenizer.json"
    tree["model"]["merges"] = [["b", "c"], ["a", "b"], ["ab", "c"]]
    tree["model"]["vocab"] |= {"bc": 1000, "ab": 1001, "abc": 1002}
    path.write_text(json.dumps(tree))
    assert tokenizers.Tokenizer.from_str(json.dumps(tree)).encode("abc").tokens == ["a", "bc"]
    with pytest.raises(InputError, match="its merges make 'abc' of other halves than 'ab' and 'c'; give"):
        load_tokenizer(path)


def test_gpt2s_own_is_known_by_name(tmp_path, data):
    folder = data / "gpt2_bpe"
    vocabulary = json.loads((folder / "encoder.json").read_text())
    merges = (folder / "vocab.bpe").read_text().split("\n")[1:-1]
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    special = [{"id": 50256, "content": "<|endoftext|>", "special": True}]
    tree = {"model": model, "added_tokens": special, "normalizer": None}
    tree["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    assert (ours.name, ours.sha256) == ("gpt2", tokenizer_module.GPT2_SHA256)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": {"type": "WordPiece", "vocab": {}}}, "its model is WordPiece"),
        ({"normalizer": {"type": "Lowercase"}}, "it has a normalizer (Lowercase)"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "it cuts text by another rule (Metaspace)"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "it puts a space before each text"),
        ({"added_tokens": [{"content": "LOL", "special": False}]}, "it has an added token that is not special"),
        ({"model": {"byte_fallback": True}}, "its model has byte_fallback"),
        ({"model": {"merges": [["T", "h"], ["T", "h"]]}}, "two of its merges make one token"),
        ({"model": None}, "it"),
    ],
)
def test_a_kind_that_tiktoken_cannot_follow_is_refused(trained, tmp_path, change, reason):
    tree = json.loads(trained.to_str())
    for key, value in change.items():
        whole = not isinstance(value, dict) or "type" in value
        tree[key] = value if whole else tree[key] | value
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}: {reason}')}"):
        load_tokenizer(path)
